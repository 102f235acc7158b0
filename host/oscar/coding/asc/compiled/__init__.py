"""The compiled twin of the reference coder: numba kernels, equal to the reference byte for byte."""

from oscar.coding.asc.compiled.coder import CompiledCoder

__all__ = ["CompiledCoder"]
