"""Compression that commutes with AllReduce: sketches, OSCAR-SW, peers (docs/reference/schemes.md)."""
