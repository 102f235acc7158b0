"""Transports move frames between processes, an adapter per library (docs/reference/transports.md)."""
