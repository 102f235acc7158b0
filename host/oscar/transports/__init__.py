"""Frames between processes: one contract, and an adapter module per library (docs/transports.md)."""
