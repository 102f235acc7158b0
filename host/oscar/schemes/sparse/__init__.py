"""Schemes that send few values: who chooses them, how they travel (docs/reference/sparse.md)."""
