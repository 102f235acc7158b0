"""The coder on a GPU: Triton kernels that equal the reference coder byte for byte."""
