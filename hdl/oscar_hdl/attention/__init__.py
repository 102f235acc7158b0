"""Attention beside a memory: one query, rows of keys and values as a stream, one result."""
