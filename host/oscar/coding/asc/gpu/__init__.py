"""The coder's twin on a GPU: Triton kernels, equal to the reference byte for byte."""
