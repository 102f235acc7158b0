"""Ok-Topk, AdaTopK, FedFT, DeMo and SpaFL: what is sent and what waits, what nodes agree on, edge cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oscar.config import Config
from oscar.reducers.cluster import LocalCluster
from oscar.schemes.selection import largest
from oscar.schemes.sparse.frequency import Cosines, basis
from oscar.schemes.sparse.partitions import mixed
from oscar.schemes.sparse.top_k import shared_out
from oscar_studies.peers.ok_topk import cut_of, reached

pytestmark = pytest.mark.filterwarnings("ignore:scheme .*:oscar.errors.CautionWarning")

Options = dict[str, Any]
SHAPES: list[tuple[int, ...]] = [(41, 16), (3,), (0, 4), (7, 3, 5), ()]


def cluster(name: str, nodes: int, options: Options) -> LocalCluster:
    return LocalCluster(Config(nodes=nodes, method=name, scheme=options))


def gradients(random: np.random.Generator, nodes: int) -> list[list[np.ndarray]]:
    """Return gradients [node][tensor] of heavy tails, of which all nodes have a part.

    Every tensor has the same energy in each call. Else the largest value of a call makes it a spike, of which
    error feedback drops a part.
    """

    def draw() -> list[np.ndarray]:
        return [random.laplace(size=shape) ** 3 for shape in SHAPES]

    def level(tensor: np.ndarray) -> np.ndarray:
        return (tensor * np.sqrt(tensor.size / max(np.square(tensor).sum(), 1e-9))).astype(np.float32)

    common = draw()
    return [[level(a + b) for a, b in zip(common, draw(), strict=True)] for _ in range(nodes)]


def flat(tensors: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([tensor.ravel() for tensor in tensors])


# Ok-Topk.


def test_ok_topk_applies_the_largest_sums_of_what_was_chosen(seed: int) -> None:
    random, nodes, size, k = np.random.default_rng(seed), 6, 3000, 90
    one = cluster("oktopk", nodes, {"density": k / size, "uneven": 1.0})
    every = random.standard_normal((nodes, size)).astype(np.float32)
    every[:, : size // 8] *= 9  # one rank's region has nearly all
    mean = one.allreduce([[mine] for mine in every]).mean[0]
    sums = np.zeros(size, np.float32)
    for mine in every:
        places = largest(np.abs(mine), k)
        sums[places] += mine[places]
    expected = np.zeros(size, np.float32)
    top = largest(np.abs(sums), k)
    expected[top] = sums[top] / np.float32(nodes)
    assert np.array_equal(mean, expected)
    for worker, mine in zip(one.states[0].workers, every, strict=True):
        applied = np.intersect1d(largest(np.abs(mine), k), top)
        assert not worker.residual[applied].any()
        rest = np.setdiff1d(np.arange(size), applied)
        assert np.array_equal(worker.residual[rest], mine[rest])


def test_ok_topk_balances_regions_and_keeps_thresholds(seed: int) -> None:
    random, nodes, size = np.random.default_rng(seed), 4, 8000
    released, corrected = (
        cluster("oktopk", nodes, {"density": 0.02, "controller": controller, "reuse": 5, "regions": 2})
        for controller in ("released", "corrected")
    )
    scales = np.linspace(3, 0, size) ** 3
    for iteration in range(8):
        every = [[(random.standard_normal(size) * scales).astype(np.float32)] for _ in range(nodes)]
        cuts = [one.states[0].scheme.cut if one.states else None for one in (released, corrected)]
        for one in (released, corrected):
            one.allreduce(every)
        scheme = released.states[0].scheme
        if iteration % 5 not in (0, 4):
            assert scheme.cut == cuts[0]
        assert (scheme.cut is None) == (iteration % 5 == 4)
    loads = [np.histogram(worker.chosen, scheme.bounds)[0].max() for worker in released.states[0].workers]
    even = [np.histogram(worker.chosen, nodes, (0, size))[0].max() for worker in released.states[0].workers]
    assert max(loads) < 0.8 * min(even)  # .40 and .04 to either side
    assert 0.3 < corrected.states[0].scheme.united / 160 < 4  # 1.2 and .24 to either side


def test_a_cut_is_that_of_rank_k(seed: int) -> None:
    random = np.random.default_rng(seed)
    values = random.integers(-9, 10, 300).astype(np.float32)
    for count in (1, 5, 299, 300, 900):
        cut = cut_of(np.abs(values), count)
        assert cut == (np.sort(np.abs(values))[-count] if count < 300 else 0)
        assert np.array_equal(reached(values, cut), np.flatnonzero((np.abs(values) >= cut) & (values != 0)))


# AdaTopK.


def test_slower_links_get_fewer_values_and_the_mean_stays(seed: int) -> None:
    random, nodes, size = np.random.default_rng(seed), 4, 2000
    one = cluster("adatopk", nodes, {"density": 0.05, "rates": "10, 10, 1, 5"})
    one.allreduce([[random.standard_normal(size).astype(np.float32)] for _ in range(nodes)])
    counts = [worker.chosen.size for worker in one.states[0].workers]
    assert sum(counts) == nodes * 100
    assert np.allclose(counts, np.array([10, 10, 1, 5]) / 26 * 400, atol=1)


@pytest.mark.parametrize("total", [0, 7, 60, 90, 400])
def test_what_does_not_fit_one_rank_goes_to_the_others(total: int, seed: int) -> None:
    rates = np.random.default_rng(seed).exponential(size=4) ** 3 + 1e-9
    each = shared_out(total, rates, 30)
    assert each.sum() == min(total, 120)
    assert (each <= 30).all()
    order = np.argsort(rates)
    assert (np.diff(each[order]) >= -1).all()


# FedFT and DeMo.


@pytest.mark.parametrize("length", [1, 2, 7, 64, 100])
def test_the_basis_is_an_orthonormal_dct(length: int) -> None:
    fft = pytest.importorskip("scipy.fft") if length > 1 else None
    table = basis(length)
    assert np.allclose(table @ table.T, np.eye(length), atol=1e-5)
    if fft is not None:
        assert np.allclose(table, fft.dct(np.eye(length), axis=0, norm="ortho"), atol=1e-6)


def test_the_transform_has_the_bits_of_its_reference(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes = [*random.integers(0, 200, 4), 1, 64]
    cosines = Cosines(sizes, 64)
    values = (random.standard_normal(sum(sizes)) * (random.random(sum(sizes)) < 0.7)).astype(np.float32)
    out, back, marked = np.zeros_like(values), np.zeros_like(values), []
    assert cosines.bounds[-1] == values.size
    assert set(np.cumsum(sizes)) <= set(cosines.bounds)
    for first, last in zip(cosines.bounds[:-1], cosines.bounds[1:], strict=True):
        table = basis(int(last - first))
        for j, x in enumerate(values[first:last]):
            out[first:last] += x * table[:, j]
        for k, y in enumerate(out[first:last]):
            back[first:last] += y * table[k]
        count = max(1, int(0.1 * (last - first) + 0.5))
        best = sorted(range(first, last), key=lambda j: (-abs(out[j]), j))[:count]
        marked += [j for j in best if out[j]]
    assert np.array_equal(cosines.forward(values), out)
    assert np.array_equal(cosines.backward(out), back)
    assert np.array_equal(cosines.largest(out, 0.1), sorted(marked))
    assert np.allclose(back, values, atol=1e-5)


def test_sums_of_coefficients_are_coefficients_of_sums(seed: int) -> None:
    """With all of them sent, FedFT is a plain AllReduce, and DeMo of one step as well."""
    random = np.random.default_rng(seed)
    every = gradients(random, 3)
    plain = np.mean([flat(mine) for mine in every], axis=0)
    for name in ("fedft", "demo"):
        mean = flat(cluster(name, 3, {"density": 1.0}).allreduce(every).mean)
        assert np.allclose(mean, plain, rtol=1e-4, atol=1e-4 * np.abs(plain).max())


# SpaFL.


def test_spafl_sends_a_number_a_row_along_shared_signs(seed: int) -> None:
    random, nodes = np.random.default_rng(seed), 3
    one = LocalCluster(Config(nodes=nodes, method="spafl", seed=seed % 1000))
    residual = [np.zeros(0)] * nodes
    for iteration in range(3):
        every = gradients(random, nodes)
        result = one.allreduce(every)
        key = np.uint64((seed % 1000) << 32 ^ iteration)
        count = int(one.states[0].scheme.values)
        bits = np.array([int(mixed(j, key)) & 1 for j in range(count)])
        signs = np.where(bits, np.float32(1), np.float32(-1))
        at = 0
        mean = flat(result.mean)
        for t, shape in enumerate(SHAPES):
            rows, size = (shape[0] if len(shape) > 1 else int(np.prod(shape))), int(np.prod(shape))
            along = signs[at : at + size].reshape(rows, -1) if size else np.zeros((0, 1))
            moves = []
            for node in range(nodes):
                own = every[node][t].reshape(along.shape) if size else along
                if residual[node].size and size:
                    own = own + residual[node][at : at + size].reshape(along.shape)
                moves.append((own * along).mean(axis=1, keepdims=True))
            wanted = np.mean(moves, axis=0) * along
            assert np.allclose(mean[at : at + size].reshape(along.shape), wanted, rtol=1e-3, atol=1e-4)
            at += size
        rows = len(one.states[0].scheme.starts) - 1
        assert rows == 41 + 3 + 7 + 1
        residual = [worker.residual for worker in one.states[0].workers]
    assert 0.3 < bits.mean() < 0.7


def test_adatopk_chooses_no_zeros_and_takes_rates_of_any_size(seed: int) -> None:
    random = np.random.default_rng(seed)
    one = cluster("adatopk", 2, {"density": 0.1, "rates": "1e308, 1e308"})
    every = [[np.zeros(4000, np.float32)] for _ in range(2)]
    for own in every:
        own[0][random.choice(4000, 50, replace=False)] = random.standard_normal(50)
    one.allreduce(every)
    assert [worker.chosen.size for worker in one.states[0].workers] == [50, 50]
