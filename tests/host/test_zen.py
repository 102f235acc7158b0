"""Partitions, hashing and exchanges of sparse gradients: sums are exact, servers are balanced."""

from __future__ import annotations

import numpy as np
import pytest

from oscar.coding.index import make_index
from oscar.config import Config
from oscar.errors import ConfigError, FrameError, GradientError
from oscar.reducers.cluster import LocalCluster
from oscar.schemes.sparse.exchanges import AllGather
from oscar.schemes.sparse.partitions import NAMES, Grains, Memory, deal, make_partition, servers
from oscar.schemes.sparse.zen import Zen

SHAPES = [(300, 24), (77,), (5, 4, 3), (0, 8)]
EXCHANGES = ["auto", "balanced", "doubling", "all-gather", "blocks", "dense"]


def gradients(random: np.random.Generator, nodes: int, *, integers: bool = False) -> list[list[np.ndarray]]:
    """Return gradients whose first tensor has a few rows that are not zero, skewed to its beginning."""
    every = []
    for _ in range(nodes):
        rows = np.unique((300 * random.random(12) ** 3).astype(int))
        words = np.zeros(SHAPES[0], np.float32)
        words[rows] = random.standard_normal((rows.size, 24))
        mine = [words, *(random.standard_normal(shape).astype(np.float32) for shape in SHAPES[1:])]
        every.append([np.rint(8 * tensor) for tensor in mine] if integers else mine)
    return every


def dense_mean(every: list[list[np.ndarray]]) -> list[np.ndarray]:
    """Return the mean of sums added in the order of ranks."""
    totals = [np.zeros_like(tensor) for tensor in every[0]]
    for mine in every:
        totals = [total + tensor for total, tensor in zip(totals, mine, strict=True)]
    return [total / np.float32(len(every)) for total in totals]


@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 8, 16])
def test_all_hash_bitmaps_are_one_gradient_long(nodes: int, seed: int) -> None:
    size = 640 * 128
    partition = make_partition("hash", size, nodes, seed=seed)
    assert sum(members.size for members in partition.members) == size
    assert np.array_equal(np.sort(np.concatenate(partition.members)), np.arange(size))
    bits = 8 * sum(-(-members.size // 8) for members in partition.members)
    assert size <= bits < size + 8 * nodes


@pytest.mark.parametrize("name", NAMES)
def test_a_partition_numbers_each_servers_positions(name: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    size, nodes = int(random.integers(1, 5000)), int(random.integers(1, 17))
    partition = make_partition(name, size, nodes, seed=seed, hits=random.integers(0, 999, size))  # type: ignore[arg-type]
    positions = np.flatnonzero(random.random(size) < 0.3)
    for server, part in enumerate(partition.split(positions)):
        assert np.array_equal(partition.members[server][partition.local[part]], part)
        assert (partition.owner[part] == server).all()


def test_memory_deals_as_the_hash_does_and_never_drops(seed: int) -> None:
    random = np.random.default_rng(seed)
    positions, nodes = np.flatnonzero(random.random(50_000) < 0.1), 8
    owner = servers(50_000, nodes, seed)
    for memory, late in ((Memory(), 0.06), (Memory(slots=0.5, serial=4.0, least=1), 0.9)):
        parts, serial = deal(positions, owner, nodes, seed, memory)
        assert 0 < serial < late * positions.size
        for server, part in enumerate(parts):
            assert np.array_equal(part, positions[owner[positions] == server])
    with pytest.raises(
        ValueError, match=r"found none: server \d+ has .* slots, and all .* serial memory are taken"
    ):
        deal(positions, owner, nodes, seed, Memory(slots=0.5, serial=0.1, least=1))


def test_grains_cover_their_tensors_once(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes = random.integers(0, 60, 5)
    widths = [None if w == 0 else int(w) for w in random.integers(0, 9, 5)]
    offsets = np.append(0, np.cumsum(sizes))
    grains = Grains.of(offsets, widths)
    values = (random.random(offsets[-1]) < 0.1).astype(np.float32)
    covered = np.repeat([width is not None for width in widths], sizes)
    assert np.array_equal(grains.values_of(np.arange(grains.size)), np.flatnonzero(covered))
    found = np.zeros(values.size, bool)
    found[grains.values_of(grains.hit(values))] = True
    assert not (values.astype(bool) & covered & ~found).any()
    assert all(values[grains.values_of(np.array([g]))].any() for g in grains.hit(values))


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("nodes", [1, 2, 3, 8])
def test_integers_are_summed_exactly(exchange: str, nodes: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    cluster = LocalCluster(Config(nodes=nodes, method="zen", scheme={"exchange": exchange}))
    for _ in range(4):
        every = gradients(random, nodes, integers=True)
        mean = cluster.allreduce(every).mean
        assert all(np.array_equal(a, b) for a, b in zip(mean, dense_mean(every), strict=True))


@pytest.mark.parametrize("options", [
    {"exchange": "balanced"}, {"exchange": "balanced", "grain": "value", "partition": "learnt"},
    {"exchange": "balanced", "partition": "range"}, {"exchange": "all-gather"}, {"exchange": "blocks"},
])  # fmt: skip
def test_floats_are_added_in_the_order_of_ranks(options: dict[str, str], seed: int) -> None:
    random = np.random.default_rng(seed)
    cluster = LocalCluster(Config(nodes=7, method="zen", scheme=options))
    for _ in range(3):
        every = gradients(random, 7)
        assert np.array_equal(cluster.allreduce(every).mean[0], dense_mean(every)[0])


def test_rows_below_half_a_step_are_left_out_and_change_no_sum(seed: int) -> None:
    random = np.random.default_rng(seed)
    coarse = {"values": "asc", "coarseness": 64.0, "error_feedback": True}
    sparse, dense = (
        LocalCluster(Config(nodes=3, method="zen", scheme=coarse | {"exchange": name}))
        for name in ("all-gather", "dense")
    )
    for _ in range(4):
        every = gradients(random, 3)
        for mine, scale in zip(every, (1.0, 1e-4, 1e-4), strict=True):
            mine[0] *= np.float32(scale)
        means = [cluster.allreduce(every).mean for cluster in (sparse, dense)]
        assert all(np.array_equal(a, b) for a, b in zip(*means, strict=True))
    hit = [np.count_nonzero(mine[0].any(axis=1)) for mine in every]
    chosen = [np.count_nonzero(worker.chosen < 300) for worker in sparse.workers]
    assert 0 < chosen[0] <= hit[0] + 36
    assert chosen[1] == chosen[2] == 0


def test_a_message_that_does_not_fit_its_positions_is_refused(seed: int) -> None:
    random, grains = np.random.default_rng(seed), Grains.of(np.array([0, 600]), [6])
    exchange = AllGather(grains, 2, make_index("coo"))
    positions = np.flatnonzero(random.random(100) < 0.3)
    whole = exchange.pack(exchange.index, positions, 100, np.ones(6 * positions.size, np.float32))
    assert np.array_equal(exchange.unpack(exchange.index, whole, None, 0)[0], positions)
    for length in (0, 3, whole.size - 1, whole.size - 4, int(random.integers(4, whole.size))):
        with pytest.raises(FrameError, match="expected"):
            exchange.unpack(exchange.index, whole[:length], None, 1)


def test_a_skewed_gradient_loads_ranges_and_not_hashes(seed: int) -> None:
    """Zen's reason to hash: the words that are frequent stand together."""
    random, nodes, size = np.random.default_rng(seed), 8, 640_000
    positions = np.unique((size * random.random(30_000) ** 6).astype(int))
    worst = {}
    for name in ("range", "hash"):
        parts = make_partition(name, size, nodes, seed=seed).split(positions)
        worst[name] = max(map(len, parts)) * nodes / positions.size
    assert worst["hash"] < 1.2  # 1.03 and .01 to either side
    assert worst["range"] > 4


def test_a_set_that_does_not_fit_its_memory_raises_and_leaves_the_state(seed: int) -> None:
    random = np.random.default_rng(seed)
    cluster = LocalCluster(Config(nodes=2, method="zen", scheme={"exchange": "balanced", "grain": "value"}))
    cluster.allreduce(gradients(random, 2))
    before = cluster.state_dict()
    exchange = cluster.states[0].scheme._exchanges["balanced"]
    object.__setattr__(exchange, "memory", Memory(slots=0.01, serial=0, least=0))
    with pytest.raises(GradientError, match=r"rank 0: hash partition: .* raise the option slots or serial"):
        cluster.allreduce(gradients(random, 2))
    after = cluster.state_dict()
    assert str(before) == str(after)


def test_a_tensor_whose_first_gradient_is_zero_is_not_taken_for_a_sparse_one(seed: int) -> None:
    random = np.random.default_rng(seed)
    cluster = LocalCluster(Config(nodes=3, method="zen"))
    for iteration in range(3):
        every = gradients(random, 3, integers=True)  # exact in any order: a dense sum has another
        for mine in every:
            mine[2] *= np.float32(iteration > 0)  # as behind a weight that starts at 0
        assert np.array_equal(cluster.allreduce(every).mean[0], dense_mean(every)[0])
    assert isinstance(cluster.scheme, Zen)
    assert cluster.scheme.widths == [24, None, None, None]


def test_who_sent_a_stream_that_cannot_be_read_is_named(seed: int) -> None:
    grains = Grains.of(np.array([0, 500]), [1])
    exchange = AllGather(grains, 3, make_index("gaps"))
    packed = exchange.pack(exchange.index, np.array([3, 77]), 500, np.ones(2, np.float32))
    packed[-9] ^= 1 << seed % 8
    with pytest.raises(FrameError, match="rank 2 sent"):
        exchange.unpack(exchange.index, packed, None, 2)


def test_a_state_of_other_tensors_or_another_exchange_is_refused(seed: int) -> None:
    random, options = np.random.default_rng(seed), {"partition": "learnt", "exchange": "balanced"}
    cluster = LocalCluster(Config(nodes=3, method="zen", scheme=options))
    for _ in range(2):
        cluster.allreduce(gradients(random, 3))
    for key, value in (("hits", np.zeros(3, np.int64)), ("taken", "doubling")):
        saved = cluster.state_dict()
        saved["scheme"][key] = value
        with pytest.raises(ConfigError, match=key):
            cluster.load_state_dict(saved)
