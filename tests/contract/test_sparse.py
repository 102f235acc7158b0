"""What every sparsifier keeps: what it sends and what it keeps is all there was, value by value."""

from __future__ import annotations

import numpy as np
import pytest

from oscar.schemes.registry import is_scheme, scheme_class
from oscar.schemes.sparse.sparsifier import SparseWorker, Sparsifier
from support.methods import CASES, Case, gradients

pytestmark = pytest.mark.filterwarnings("ignore::oscar.errors.OscarWarning")
SPARSE = [one for one in CASES if is_scheme(one.method) and issubclass(scheme_class(one.method), Sparsifier)]
OWNED = "micro", "exdyna", "deft"  # each position has one owner


def flat(tensors: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([tensor.ravel() for tensor in tensors])


@pytest.mark.parametrize("case", SPARSE, ids=str)
def test_sparsifier_sends_or_keeps_each_value(case: Case, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, of values or of coefficients; the mean is that of what was sent."""
    random = np.random.default_rng(seed)
    nodes, options = int(random.integers(1, 6)), case.changes.get("scheme", {})
    cluster, held, keep = case.cluster(nodes), {}, SparseWorker.keep

    def spy(worker: SparseWorker, acc: np.ndarray, positions: np.ndarray, sent: np.ndarray) -> None:
        held[worker.rank] = acc.copy(), positions, sent.copy()
        keep(worker, acc, positions, sent)

    monkeypatch.setattr(SparseWorker, "keep", spy)
    before = [np.float32(0)] * nodes
    for _ in range(4):
        every = gradients(random, nodes)
        mean = flat(cluster.allreduce(every).mean)
        scheme, workers, summed = cluster.scheme, cluster.workers, np.zeros(mean.size, np.float32)
        cosines = getattr(scheme, "cosines", None)
        for worker, mine, was in zip(workers, every, before, strict=True):
            acc, positions, sent = held[worker.rank]
            # The residual of a tensor whose gradient is zero waits outside.
            waiting = np.where(
                flat([np.full(tensor.shape, not tensor.any()) for tensor in mine]), was, np.float32(0)
            )
            carried, values = was - waiting, flat(mine) if cosines is None else cosines.forward(flat(mine))
            if not options.get("momentum"):
                assert np.array_equal(acc, values + np.float32(getattr(scheme.options, "decay", 1)) * carried)
            contributed = np.zeros_like(acc)
            contributed[positions] = sent
            kept, beta = acc - contributed, np.float32(getattr(scheme.options, "beta", 1))
            if beta != 1:  # a low-pass filter
                kept = (kept * beta + (1 - beta) * carried).astype(np.float32)
            assert np.array_equal(worker.residual, kept + waiting)
            assert not set(positions) - set(np.concatenate([each.chosen for each in workers]))
            summed += contributed
        before = [worker.residual for worker in workers]
        wanted = (summed if cosines is None else cosines.backward(summed)) / nodes
        largest = max(np.abs(acc).max() for acc, _, _ in held.values())
        assert np.allclose(mean, wanted, rtol=1e-4, atol=1e-5 * largest)
        if case.method in OWNED:
            chosen = np.concatenate([worker.chosen for worker in workers])
            assert scheme.united == np.unique(chosen).size == chosen.size
            assert scheme.counts.tolist() == [worker.chosen.size for worker in workers]
