"""The optimum of the workload logistic, by scikit-learn's saga."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import sklearn
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from oscar.array import Array
from oscar_studies.workloads.logistic import objective
from oscar_studies.workloads.ngrams import code_samples
from oscar_studies.workloads.options import LogisticOptions

# What saga of scikit-learn 1.9.1 reaches on the default problem in 400 passes, by the CRC-32 of its samples
# (Python 3.11.7). liblinear reaches 0.48936680.
OPTIMA = {0x642A6DC6: 0.48936680}


def optimum(options: LogisticOptions) -> float:
    """Return the least objective: known for the default problem, else by scikit-learn's saga (2 minutes)."""
    training, _ = code_samples(options.lines, options.samples, options.features_log2)
    known = OPTIMA.get(training.crc()) if options.l1 == LogisticOptions.l1 else None
    return known if known is not None else objective(training, saga(options), options.l1)


def saga(options: LogisticOptions, *, passes: int = 400) -> Array:
    """Return the weights that scikit-learn's saga ends with."""
    s, _ = code_samples(options.lines, options.samples, options.features_log2)
    values = np.repeat(s.scale, np.diff(s.start))
    matrix = sparse.csr_matrix(
        (values, s.columns, s.start), shape=(s.labels.size, 1 << options.features_log2)
    )
    version = tuple(int(part) for part in sklearn.__version__.split(".")[:2])
    l1: dict[str, Any] = {"l1_ratio": 1.0} if version >= (1, 8) else {"penalty": "l1"}
    how: dict[str, Any] = {"fit_intercept": False, "tol": 1e-9, "max_iter": passes, "random_state": 0}
    model = LogisticRegression(solver="saga", C=1 / (options.l1 * s.labels.size), **how, **l1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it has not converged: the objective says how far it came
        model.fit(matrix, s.labels)
    weights: Array = model.coef_[0]
    return weights
