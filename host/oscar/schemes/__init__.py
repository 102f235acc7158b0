"""Compression that commutes with AllReduce: sketches, OSCAR-SW and their peers (schemes.md)."""
