"""Schemes in process: fields, bytes on the wire, OSCAR-SW, equal replicas, failures that leave no trace."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oscar.coding.frame import HEADER_BYTES
from oscar.coding.registry import asc_codec
from oscar.collective.node import Node
from oscar.collective.ring import Boomerang
from oscar.config import Config
from oscar.errors import CautionWarning, ConfigError, GradientError
from oscar.numerics.quantiser import sum_width
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.local_wire import LocalWire
from oscar.schemes.base import Channel, Message
from oscar.schemes.fields import field_bits, field_limit, pack_fields, packed_bytes, unpack_fields
from oscar.schemes.selection import ProbableNonZeros, largest
from oscar.timeline.link import LinkModel
from support.gradients import related

pytestmark = pytest.mark.filterwarnings(
    "ignore::oscar.errors.OscarWarning"
)  # narrow fields clip, and some schemes are noisy
SHAPES = [(40, 7), (33,), (0,), (5, 3, 2, 2)]


def gradients(nodes: int, iteration: int, *, shapes: Any = SHAPES) -> list[list[np.ndarray]]:
    return related(nodes, iteration, shapes, power=3, sigma=1.0)


def config(method: str, nodes: int = 4, **options: object) -> Config:
    return Config.model_validate({"method": method, "nodes": nodes, "scheme": options})


@given(st.integers(1, 40), st.integers(1, 32), st.integers(0, 70), st.integers(0, 2**32))
@settings(max_examples=60)
def test_adding_words_adds_fields(workers: int, bits: int, count: int, seed: int) -> None:
    if (1 << bits) - 1 < 2 * workers:
        with pytest.raises(ValueError, match="use more bits"):
            field_limit(bits, workers)
        return
    limit = field_limit(bits, workers)
    random = np.random.default_rng(seed)
    values = random.choice([-limit, limit, 0, limit // 2], size=(workers, count)).astype(np.int32)
    words = np.zeros(packed_bytes(count, bits) // 8, np.uint64)
    for row in values[random.permutation(workers)]:
        words += pack_fields(row, bits, workers)
    assert np.array_equal(unpack_fields(words, count, bits, workers), values.sum(axis=0, dtype=np.int64))


def test_a_value_beyond_its_field_is_refused() -> None:
    assert field_limit(11, 8) == 127
    assert [field_bits(m, 8) for m in (127, 128, 1)] == [11, 12, 5]
    with pytest.raises(ValueError, match=r"magnitude 128 does not fit: fields of 11 bits .* up to 127"):
        pack_fields(np.array([0, -128], np.int32), 11, 8)


def wire(nodes: int, channels: dict[str, int] | None = None) -> LocalWire:
    own = {
        name: Channel(asc_codec(), Boomerang(nodes), partial(sum_width, bits))
        for name, bits in (channels or {}).items()
    }
    return LocalWire(nodes, own, link=LinkModel.of())


@pytest.mark.parametrize(
    ("op", "data", "item_bytes"),
    [
        ("sum", np.arange(60, dtype=np.int32), 8 / 6),  # fields of 10 bits, six to a word
        ("sum", np.arange(60, dtype=np.float32), 4),
        ("max", np.arange(60, dtype=np.float32), 4),
        ("or", np.arange(480) % 7 == 0, 1 / 8),
    ],
)
def test_every_byte_of_a_ring_counts(op: str, data: np.ndarray, item_bytes: float) -> None:
    bits = 10 if data.dtype == np.int32 else 32
    total, traffic = wire(3).combine([Message("c", data, op, bits)] * 3)
    payload = 2 * 2 * data.size * item_bytes  # both phases, two hops, all chunks
    headers = HEADER_BYTES * 2 * 2 * 3
    assert traffic.moved.frames.bytes == pytest.approx(payload + headers, abs=1e-9)
    expected = {"sum": data * 3, "max": data, "or": data}[op]
    assert np.array_equal(total, expected)


def test_gathered_buffers_travel_whole_and_may_differ_in_length() -> None:
    buffers = [np.full(n, n, np.uint8) for n in (3, 0, 5)]
    total, traffic = wire(3).combine([Message("c", b, "gather") for b in buffers])
    assert all(map(np.array_equal, total, buffers))
    assert traffic.moved.frames.bytes == 2 * (3 + 5) + 2 * 2 * HEADER_BYTES


def test_an_integer_beyond_its_field_is_refused_in_every_message() -> None:
    link, good = wire(3), Message("c", np.array([-170, 170], np.int32), bits=10)
    for _ in range(2):
        assert link.combine([good] * 3)[0].tolist() == [-510, 510]
    bad = Message("c", np.array([0, -171], np.int32), bits=10)
    with pytest.raises(ValueError, match="node 2 sent a magnitude of 171, fields of 10 bits hold up to 170"):
        link.combine([good, good, bad])


def test_workers_that_bring_other_messages_are_refused() -> None:
    with pytest.raises(GradientError, match=r"node 1 sent .*all nodes must run the same scheme"):
        wire(2).combine([Message("a", np.zeros(3, np.int32)), Message("a", np.zeros(4, np.int32))])


def test_the_choice_takes_the_largest_and_breaks_ties_by_position() -> None:
    magnitude = np.array([1, 5, 5, 0, 5, 9], np.float32)
    assert largest(magnitude, 3).tolist() == [1, 2, 5]
    assert largest(magnitude, 0).tolist() == []
    assert largest(magnitude, 99).tolist() == [0, 1, 2, 3, 4, 5]


def test_a_chosen_value_stays_until_another_is_larger_by_the_hysteresis() -> None:
    chosen = ProbableNonZeros(3, share=1 / 3, weight=1.0, hysteresis=0.5, every=1)
    for means, expected in (([3, 1, 1], 0), ([2, 2.9, 0], 0), ([2, 3.1, 0], 1)):
        chosen.observe(np.array(means, np.float32))
        assert chosen.positions is not None
        assert chosen.positions.tolist() == [expected]


@pytest.mark.parametrize("spread", [False, True])
def test_the_sweep_loses_nothing(spread: bool) -> None:
    """Gradients given equal gradients applied plus the residual, once all parts of `spread` were sent."""
    period, nodes = 3, 4
    options = {"share": 0.1, "period": period, "lane_bits": 16, "spread": spread}
    cluster = LocalCluster(config("oscar-sw-best", nodes, **options))
    given, applied = np.zeros(sum(np.prod(s, dtype=int) for s in SHAPES)), 0.0
    for iteration in range(13):
        theirs = gradients(nodes, iteration) if iteration < 10 else [
            [np.zeros(s, np.float32) for s in SHAPES] for _ in range(nodes)
        ]  # fmt: skip
        given += np.mean([np.concatenate([t.ravel() for t in node]) for node in theirs], axis=0)
        applied += np.concatenate([m.ravel() for m in cluster.allreduce(theirs).mean]).astype(np.float64)
    waiting = np.mean([w.residual for w in cluster.workers], axis=0)  # type: ignore[attr-defined]
    held = cluster.scheme.held  # type: ignore[attr-defined]
    unsaid = 0.0 if held is None else held * (period - 1)
    error = np.abs(given - applied - waiting)
    assert (error <= np.abs(unsaid) + 1e-4 * np.abs(given).max()).all()


@pytest.mark.parametrize(("rows", "cell_bits"), [(1, 16), (3, 8)])
def test_what_a_sketch_leaves_out_waits_and_stays_bounded(rows: int, cell_bits: int) -> None:
    """Ten zeros share a cell, so that undamped feedback would grow without end; narrow cells saturate."""
    share, ratio, nodes = 0.1, 0.09, 2
    options = {"share": share, "ratio": ratio, "rows": rows, "cell_bits": cell_bits}
    cluster = LocalCluster(config("oscar-sw", nodes, **options))
    noise = (1 - share) / ratio
    given, applied = np.zeros(3000), np.zeros(3000)
    for iteration in range(150):
        theirs = gradients(nodes, iteration % 5, shapes=[(3000,)])
        given += np.mean([node[0] for node in theirs], axis=0)
        applied += cluster.allreduce(theirs).mean[0]
    residuals = [worker.residual for worker in cluster.workers]
    for residual, mine in zip(residuals, theirs, strict=True):
        assert np.linalg.norm(residual) < 2 * (1 + noise) * np.linalg.norm(mine[0])
    waiting = np.mean(residuals, axis=0)
    assert np.linalg.norm(given - applied - waiting) < 1e-5 * np.linalg.norm(given)
    assert np.linalg.norm(waiting) > 1e-2 * np.linalg.norm(given)


def test_a_scheme_says_once_that_training_may_diverge() -> None:
    loud, safe = LocalCluster(config("oscar-sw", paper=True, ratio=0.1)), LocalCluster(config("oscar-sw"))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", CautionWarning)
        for shapes in (SHAPES, SHAPES, [(50,)]):
            for cluster in (loud, safe):
                cluster.allreduce(gradients(4, 0, shapes=shapes))
        state = loud.state_dict()
        loud.load_state_dict(state)
        with pytest.raises(ConfigError):
            loud.load_state_dict({**state, "links": None})
        LocalCluster(loud.config).load_state_dict(state)
    (said,) = [str(warning.message) for warning in told if warning.category is CautionWarning]
    assert "scheme oscar-sw: estimates carry about" in said
    assert "may diverge" in said


def test_without_feedback_a_period_of_equal_gradients_has_their_mean() -> None:
    """Each probable zero is sent once a period and stands for all of it: nothing waits, nothing is biased."""
    period, nodes = 4, 3
    options = {"share": 0.1, "period": period, "lane_bits": 16, "feedback": False, "zero_shift": 0}
    cluster = LocalCluster(config("oscar-sw-best", nodes, **options))
    theirs = gradients(nodes, 0)
    first, *turns = (
        np.concatenate([m.ravel() for m in cluster.allreduce(theirs).mean]) for _ in range(1 + period)
    )
    zeros = np.ones(first.size, np.bool_)
    zeros[cluster.scheme.chosen.positions] = False  # type: ignore[attr-defined]
    np.testing.assert_allclose(np.mean(turns, axis=0)[zeros], first[zeros], rtol=1e-6)
    assert all(worker.residual is None for worker in cluster.workers)  # type: ignore[attr-defined]


def test_statistics_name_the_plan_and_compare_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = gradients(4, 0)
    plain, coded = (LocalCluster(config("oscar-sw-best", coded=on)) for on in (False, True))
    assert plain.allreduce(theirs).stats.plan == "equal"
    stats = coded.allreduce(theirs).stats
    assert stats.plan.split("+") == ["interleave", "equal"]  # the steps are agreed on uncoded
    assert stats.identical
    result = Node.result
    monkeypatch.setattr(Node, "result", lambda node: result(node) ^ np.int32(node.rank == 2))
    assert not coded.allreduce(theirs).stats.identical
    assert plain.allreduce(theirs).stats.identical
