"""The threads of NumPy's BLAS, set before NumPy is loaded."""

from __future__ import annotations

import os


def one_blas_thread() -> None:
    """Keep NumPy's matrix products on one thread; only before NumPy is loaded, so first in a command.

    Small matrices gain nothing from a second thread, processes side by side lose tenfold by it, and the order
    of float sums, hence every gradient, then does not depend on the machine's core count.
    """
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, "1")
