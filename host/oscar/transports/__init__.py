"""Transports move frames between processes: one contract, one adapter per library (transports.md)."""
