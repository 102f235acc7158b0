"""The threads of NumPy's BLAS, set before NumPy is loaded."""

from __future__ import annotations

import os


def one_blas_thread() -> None:
    """Keep NumPy's matrix products on one thread. Call it before NumPy is loaded: first in a command.

    Small matrices gain nothing from a second thread, and processes side by side become ten times slower. With
    one thread, the order of float sums, and so every gradient, does not depend on the number of cores.
    """
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")
