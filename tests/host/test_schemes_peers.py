"""The peers of OSCAR-SW and its lossless form: each keeps what its method promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oscar.config import Config
from oscar.reducers.cluster import LocalCluster
from oscar.schemes.base import Message, Scheme, Worker
from oscar.schemes.fields import field_limit, pack_fields, packed_bytes, unpack_fields
from oscar.schemes.registry import make_scheme
from oscar.schemes.widths import Ladder, power
from oscar_studies.peers.powersgd import orthonormalise
from support.lockstep import lockstep

SHAPES = [(40, 50), (0,), (16, 3, 3, 5), (33,), (1,)]


def combine(messages: list[Message]) -> np.ndarray:
    """One AllReduce; integers go as words modulo 2^64, so that whatever leaves its field shows."""
    first, nodes = messages[0], len(messages)
    data = [message.data for message in messages]
    assert len({(m.channel, m.op, m.bits, m.coded, m.data.shape) for m in messages}) == 1
    if first.op == "or":
        return np.logical_or.reduce(data)
    if first.op == "max":
        return np.maximum.reduce(data)
    if first.op == "gather":
        return data
    if first.data.dtype == np.float32:
        return np.add.reduce(data)
    words = np.add.reduce([pack_fields(d, first.bits, nodes) for d in data], dtype=np.uint64)
    return unpack_fields(words, first.data.size, first.bits, nodes)


def exchange(scheme: Scheme, workers: list[Worker], values: np.ndarray) -> Any:
    return lockstep(map(scheme.messages, workers, values), combine)


def iterate(scheme: Scheme, workers: list[Worker], values: np.ndarray) -> tuple[np.ndarray, list[Message]]:
    before = values.copy()
    totals, sent = exchange(scheme, workers, values)
    mean = scheme.finish(totals)
    scheme.forget()
    for worker in workers:
        worker.commit()
    assert np.array_equal(values, before)
    assert mean.dtype == np.float32
    assert mean.shape == (scheme.values,)
    return mean, sent


def start(
    name: str, options: dict[str, Any], nodes: int, shapes: Any = SHAPES
) -> tuple[Scheme, list[Worker]]:
    scheme = make_scheme(name, options, shapes=shapes, nodes=nodes, seed=3)
    return scheme, [Worker(rank) for rank in range(nodes)]


def size_of(messages: list[Message], nodes: int) -> int:
    """Bytes of the buffers, without headers."""
    of = {"or": lambda m: -(-m.data.size // 8), "sum": lambda m: packed_bytes(m.data.size, m.bits)}
    return sum(of[m.op](m) if m.op in of else m.data.nbytes for m in messages)


def gradients(nodes: int, iteration: int, size: int) -> np.ndarray:
    """Float32 [nodes, size]: heavy tails, scales that differ between positions and stay."""
    scales = np.exp(1.5 * np.random.default_rng(1).normal(size=size))
    random = np.random.default_rng((2, iteration))
    noise = random.laplace(size=(nodes, size)) + 0.5 * random.laplace(size=size)
    return (noise * scales).astype(np.float32)


def test_split_takes_a_tenth_less_than_lhc_at_its_best() -> None:
    nodes = 8
    sizes: dict[str, int] = {}
    for name, options in (("lhc", {}), ("lhc-values", {"cells": "values"}), ("oscar-sw-lossless", {})):
        scheme, workers = start(
            name.removesuffix("-values"), {"coarseness": 2.0} | options, nodes, [(30_000,)]
        )
        for iteration in range(8):
            _, sent = iterate(scheme, workers, gradients(nodes, iteration, scheme.values))
        sizes[name] = size_of(sent, nodes)
    assert 1.1 * sizes["oscar-sw-lossless"] < sizes["lhc-values"] < sizes["lhc"]


def test_lhc_sends_no_index_where_nothing_is_zero_and_no_values_where_all_is() -> None:
    def channels(values: np.ndarray) -> list[str]:
        scheme, workers = start("lhc", {}, 2, [(500,)])
        iterate(scheme, workers, values)
        return [message.channel for message in iterate(scheme, workers, values)[1]]

    assert channels(np.full((2, 500), 4, np.float32))[1:] == ["fields0.4"]  # two workers, two steps each
    assert channels(np.eye(2, 500, dtype=np.float32))[1:] == ["index0", "largest", "cells"]


def test_dear_messages_are_few_and_lose_nothing() -> None:
    nodes, sent, bits = 8, {}, {}
    for price in (0, 10_000_000):
        scheme, workers = start("oscar-sw-lossless", {"message_bits": price}, nodes, [(20_000,)])
        for iteration in range(3):
            _, messages = iterate(scheme, workers, gradients(nodes, iteration, scheme.values))
            sums = np.sum([worker.integers for worker in workers], axis=0)
            assert np.array_equal(scheme.reference_sums(), sums)
        sent[price], bits[price] = len(messages), size_of(messages, nodes)
    assert sent[10_000_000] == 2 < sent[0]
    assert bits[0] < bits[10_000_000]


def test_a_table_too_small_to_peel_sends_the_rest_as_it_is() -> None:
    scheme, workers = start("lhc", {"ratio": 1.0, "spare": 0}, 3)
    iterate(scheme, workers, gradients(3, 0, scheme.values))
    assert scheme.unpeeled > 50  # type: ignore[attr-defined]
    assert np.array_equal(scheme.reference_sums(), np.sum([worker.integers for worker in workers], axis=0))


@pytest.mark.parametrize("nodes", [1, 2, 8, 17, 256])
def test_ladders_climb_to_the_top_and_count_what_is_beyond(nodes: int) -> None:
    ladder = Ladder.of(nodes, 127)
    assert ladder.limits[-1] == 127
    assert all(a < b for a, b in zip(ladder.limits, ladder.limits[1:], strict=False))
    for bits, limit in zip(ladder.bits[1:], ladder.limits[1:], strict=True):
        assert limit <= field_limit(bits, nodes)
        assert ladder.bits[ladder.level(limit)] == bits
    random = np.random.default_rng(0)
    magnitudes, classes = random.integers(0, 128, 999), random.integers(0, 3, 999).astype(np.uint8)
    found = ladder.counters(magnitudes, classes, 4).reshape(4, -1)
    for k in range(4):
        expected = [np.count_nonzero(magnitudes[classes == k] > limit) for limit in ladder.limits[:-1]]
        assert found[k].tolist() == expected
    assert ladder.shift(1 << 40) > 0
    assert ((1 << 40) >> ladder.shift(1 << 40)) < field_limit(32, nodes)


def test_powers_are_right_and_tops_beyond_all_fields_are_refused() -> None:
    assert power(0.75, 13) == pytest.approx(0.75**13, rel=1e-14)
    with pytest.raises(ValueError, match="no field holds sums of 256 workers up to 32767000"):
        Ladder.of(256, 32_767_000)


def test_s2_is_exact_with_room_enough_and_zero_elsewhere() -> None:
    nodes = 5
    random = np.random.default_rng(4)
    values = np.zeros((nodes, 4000), np.float32)
    values[:, random.choice(4000, 40, replace=False)] = random.normal(size=(nodes, 40))
    options = {"ratio": 16.0, "cell_bits": 16}
    scheme, workers = start("s2-reducer", options, nodes, [(4000,)])
    gathered, others = start("s2-reducer", options | {"index": "gather"}, nodes, [(4000,)])
    largest = np.sqrt(np.square(values, dtype=np.float64).mean(axis=1)).max()
    grid = scheme.steps.grid(np.array([largest], np.float32))  # type: ignore[attr-defined]
    mean, _ = iterate(scheme, workers, values)
    expected = grid.dequantise(sum(grid.quantise(mine, 127)[0] for mine in values), nodes)
    assert np.count_nonzero(mean != expected) <= 2  # a median of three may be beaten twice
    assert not mean[~values.any(axis=0)].any()
    assert np.array_equal(iterate(gathered, others, values)[0], mean)


@pytest.mark.parametrize("name", ["terngrad", "qsgd"])
def test_stochastic_quantisers_are_unbiased_within_a_level(name: str) -> None:
    nodes, rounds = 2, 400
    options: dict[str, Any] = {"clip": 0.0} if name == "terngrad" else {"levels": 3, "bucket": 64}
    scheme, workers = start(name, options, nodes, [(200,)])
    values = gradients(nodes, 0, 200)
    step = np.abs(values).max() / scheme.levels  # type: ignore[attr-defined]
    total = np.zeros(200)
    for _ in range(rounds):
        mean, sent = iterate(scheme, workers, values)
        error = np.abs(mean - values.mean(axis=0)).max()
        assert 1e-3 * step < error <= step * 1.0001
        assert np.abs(sent[-1].data).max() <= scheme.levels  # type: ignore[attr-defined]
        total += mean
    # Of each worker at most a quarter step^2 of variance; six standard errors.
    assert np.abs(total / rounds - values.mean(axis=0)).max() < 6 * step / 2 / np.sqrt(nodes * rounds)


def test_values_on_a_level_stay_and_workers_draw_apart() -> None:
    scheme, workers = start("qsgd", {"levels": 7, "bucket": 8}, 17, [(8,), (8,)])
    values = np.tile(np.array([7, -7, 3, 0, 1, -2, 5, 6, 14, 0, 0, 2, -4, 8, -10, 12], np.float32), (17, 1))
    mean, _ = iterate(scheme, workers, values)
    assert np.allclose(mean, values[0], rtol=1e-6)
    scheme, workers = start("terngrad", {}, 2, [(1000,)])
    same = np.tile(gradients(1, 0, 1000), (2, 1))
    iterate(scheme, workers, same)
    draws = [scheme._uniform(rank) for rank in (0, 1)]  # type: ignore[attr-defined]
    assert abs(np.corrcoef(draws)[0, 1]) < 0.2


@pytest.mark.filterwarnings("ignore::oscar.errors.OscarWarning")  # clipping, divergence
@pytest.mark.parametrize("name", ["terngrad", "qsgd"])
def test_coded_integers_are_the_same_in_fewer_bytes(name: str) -> None:
    gradient = [[mine] for mine in gradients(4, 0, 20_000)]
    plain, coded = (
        LocalCluster(Config.model_validate({"method": name, "nodes": 4, "scheme": {"coded": on}}))
        for on in (False, True)
    )
    for _ in range(3):
        a, b = plain.allreduce(gradient), coded.allreduce(gradient)
        assert np.array_equal(a.mean[0], b.mean[0])
    assert b.stats.bits_per_value < 0.8 * a.stats.bits_per_value


def test_terngrad_cuts_what_is_beyond_and_its_fields_hold_every_worker_at_the_top() -> None:
    nodes = 17
    scheme, workers = start("terngrad", {}, nodes, [(1000,)])
    values = np.ones((nodes, 1000), np.float32)
    values[:, ::2] = -1
    values[:, 7] = 1000
    mean, sent = iterate(scheme, workers, values)
    assert workers[0].saturation.values == 1
    assert mean[7] == pytest.approx(2.5 * np.sqrt(np.square(values[0]).mean()), rel=1e-5)
    assert sent[-1].bits == 6  # 35 levels


def test_powersgd_finds_a_matrix_of_its_rank_and_leaves_small_tensors_alone() -> None:
    nodes, shapes = 3, [(30, 4, 5), (9,), (3, 2)]
    random = np.random.default_rng(5)
    mean = random.normal(size=(30, 2)) @ random.normal(size=(2, 20))
    values = np.concatenate([np.tile(mean.ravel(), (nodes, 1)), random.normal(size=(nodes, 15))], axis=1)
    scheme, workers = start("powersgd", {"rank": 2}, nodes, shapes)
    found, sent = iterate(scheme, workers, values.astype(np.float32))
    assert np.allclose(found, values.mean(axis=0), atol=1e-5)
    assert [message.data.size for message in sent] == [15 + 2 * 30, 2 * 20]


def test_powersgd_comes_closer_by_what_it_remembers() -> None:
    def error(options: dict[str, Any]) -> float:
        scheme, workers = start("powersgd", {"rank": 2, "error_feedback": False} | options, 2, [(40, 50)])
        values = gradients(2, 0, 2000)
        for _ in range(8):
            mean, _ = iterate(scheme, workers, values)
        return float(np.linalg.norm(mean - values.mean(axis=0)))

    best = np.linalg.svd(gradients(2, 0, 2000).mean(axis=0).reshape(40, 50), compute_uv=False)[2:]
    assert np.linalg.norm(best) * 0.999 < error({}) < 1.02 * np.linalg.norm(best)
    assert error({"warm_start": False}) > 1.02 * np.linalg.norm(best)


def test_orthonormal_columns_are_and_dependent_ones_vanish() -> None:
    p = np.random.default_rng(6).normal(size=(50, 4)).astype(np.float32)
    p[:, 2] = 3 * p[:, 0] - p[:, 1]
    orthonormalise(p)
    assert not p[:, 2].any()
    assert np.allclose(p.T @ p, np.diag([1, 1, 0, 1]), atol=1e-6)
