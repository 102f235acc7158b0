"""The compiled coder: numba kernels that equal the reference coder byte for byte."""

from oscar.coding.asc.compiled.coder import CompiledCoder

__all__ = ["CompiledCoder"]
