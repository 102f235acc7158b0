"""Gradients that stay on a GPU (the extra `gpu`): coder, quantiser and scheme in Triton, the host's bits.

OSCAR imports this package in one place, `oscar.reducers.on_device.kernels`, for the first such gradient.
"""

from oscar_gpu.coder import TritonCoder
from oscar_gpu.exact import GpuExact, GpuOptions
from oscar_gpu.memory import joined

__all__ = ["GpuExact", "GpuOptions", "TritonCoder", "joined"]
