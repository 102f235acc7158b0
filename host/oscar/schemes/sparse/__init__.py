"""Schemes that send few values: who chooses them, how positions and values travel (sparse.md)."""
