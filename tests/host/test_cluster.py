"""The whole AllReduce in one process: exact and identical with every codec, plan, schedule and fault."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from oscar.collective.local import Fault
from oscar.config import Config
from oscar.errors import ConfigError, PeerError, SaturationWarning
from oscar.numerics.plans import PLANS
from oscar.reducers.cluster import LocalCluster
from oscar_studies.sampled import SampledCluster
from support.gradients import related

SHAPES: list[tuple[int, ...]] = [(3, 5, 7), (), (0,), (129,), (2, 0, 3), (1, 1), (300,)]


def gradients(nodes: int, iteration: int = 0, shapes: Any = SHAPES) -> list[list[np.ndarray]]:
    return related(nodes, iteration, shapes, grow=4)


def cluster(codec: str = "asc", **changes: Any) -> LocalCluster:
    base: dict[str, Any] = {"method": codec, "plan": {"name": "interleave", "granule": 16}}
    keys = {"schedule": "name", "subframes": "subframes"}
    base["schedule"] = {name: changes.pop(key) for key, name in keys.items() if key in changes}
    return LocalCluster(Config.model_validate(base | changes))


def bits(tensors: list[np.ndarray]) -> list[bytes]:
    return [np.ascontiguousarray(t).tobytes() for t in tensors]


def same(a: Any, b: Any) -> None:
    """Equal means, sums and frames."""
    assert bits(a.mean) == bits(b.mean)
    assert np.array_equal(a.sums, b.sums)
    assert a.stats.frames == b.stats.frames
    assert a.stats.wire_bytes == b.stats.wire_bytes


@pytest.mark.parametrize("plan", ["equal", "snake"])
def test_64_nodes_with_fewer_values_than_nodes(plan):
    run = cluster(plan={"name": plan, "granule": 1})
    given = gradients(64, shapes=[(3, 7), (), (0,)])
    for _ in range(2):
        result = run.allreduce(given)
        assert result.stats.exact
        assert result.stats.values == 22


def test_tables_steps_and_classes_are_learnt():
    shapes = [(40_000,), (900,)]
    run = cluster(plan={"name": "splitter", "granule": 64})
    seen = [run.allreduce(gradients(4, i, shapes)).stats for i in range(4)]
    assert all(s.exact for s in seen)
    assert seen[3].bits_per_value < 0.97 * seen[0].bits_per_value
    assert [s.exchange_bytes for s in seen] == [2 * 8 * 4 * 3, 0, 0, 0]
    assert not np.array_equal(
        seen[0].frames["count"], seen[1].frames["count"]
    )  # the splitter has learnt costs
    assert [s.iteration for s in seen] == [0, 1, 2, 3]
    assert all(0 < s.efficiency <= 1 and s.bits_per_value <= s.step_sync_bits for s in seen)


@pytest.mark.parametrize(
    ("width", "nodes", "dtype"), [(8, 8, "int16"), (12, 16, "int16"), (12, 17, "int32"), (16, 2, "int32")]
)
def test_wide_integers_get_wide_sums(width, nodes, dtype):
    shapes = [(500,)]
    run = cluster(quantiser={"bits": width, "coarseness": 2.0 ** (4 - width)})
    for iteration in range(2):
        result = run.allreduce(gradients(nodes, iteration, shapes))
        assert result.stats.exact
        assert result.sums.dtype == dtype


def test_a_codec_too_narrow_for_the_nodes_is_refused_at_the_first_call():
    run = LocalCluster(Config.model_validate({"method": "int16", "nodes": 2, "quantiser": {"bits": 15}}))
    with pytest.raises(
        ConfigError, match=r"int16 carries up to 16 bits, sums of 4 workers' 15 bits .* have 17"
    ):
        run.allreduce([[np.ones(5, np.float32)]] * 4)
    assert run.allreduce([[np.ones(5, np.float32)]] * 2).stats.exact


def test_what_saturates_is_told_once_unless_error_feedback_keeps_it():
    given = [[np.zeros(900, np.float32), np.ones(9, np.float32)] for _ in range(2)]
    given[1][0][5] = 30.0
    for feedback in (False, True):
        quantiser = {"bits": 8, "error_feedback": feedback}
        run = LocalCluster(Config.model_validate({"quantiser": quantiser}))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            stats = [run.allreduce(given).stats for _ in range(2)]
        assert stats[0].clipped == 1
        assert 0.05 < stats[0].clipped_energy < 0.5  # one of two workers clips
        assert [(w.category, "rank 1, tensor 0" in str(w.message)) for w in told] == [
            (SaturationWarning, True)
        ] * (not feedback)
    strict = LocalCluster(Config.model_validate({"quantiser": {"bits": 8}}))
    for _ in range(2):
        with pytest.raises(SaturationWarning):
            strict.allreduce(given)  # an error here undoes the call
        assert strict.iteration == 0


@pytest.mark.parametrize(("codec", "dtype"), [("asc", np.int32), ("fp32", np.float32)])
def test_a_cluster_knows_its_integers_before_the_first_call(codec, dtype):
    config = Config.model_validate(
        {"method": codec, "nodes": 5, "quantiser": {"bits": 16}, "schedule": {"name": "ring"}}
    )
    run = LocalCluster(config)
    assert (run.params, run.dtype, run.scheme) == (config.quantiser_params(5), dtype, None)
    run.allreduce([[np.ones(5, np.float32)]] * 2)
    assert (run.params, run.dtype) == (config.quantiser_params(2), dtype)


@pytest.mark.parametrize("feedback", [False, True])
def test_a_codec_that_clips_is_told_once_for_no_feedback_gives_that_back(feedback):
    quantiser = {"error_feedback": feedback, "bits": 8, "coarseness": 0.03125}
    run = LocalCluster(
        Config.model_validate({"method": "int8", "schedule": {"name": "ring"}, "quantiser": quantiser})
    )
    given = [[np.tile(np.float32([2, -1, 0.5, 0]), 50)] for _ in range(4)]
    with pytest.warns(SaturationWarning) as told:
        shares = [run.allreduce(given).stats.clipped_energy for _ in range(2)]
    assert min(shares) > 1e-3
    (said,) = [str(warning.message) for warning in told]
    assert "codec int8: saturation cut off" in said
    assert "asc or int16 instead of int8" in said


def test_clipped_values_of_a_codec_are_counted_per_call():
    run = cluster("int8", quantiser={"bits": 8, "coarseness": 0.03125})
    given = [[np.tile(np.float32([2, -1, 0.5, 0]), 50)] for _ in range(4)]
    with pytest.warns(SaturationWarning):
        counts = [run.allreduce(given).stats.clipped for _ in range(2)]
    with pytest.raises(PeerError):
        run.allreduce(given, faults=[Fault("kill", 1, 10)])
    counts += [run.allreduce(given).stats.clipped for _ in range(2)]
    assert counts[0] > 0
    assert counts == [counts[0]] * 4
    assert run.allreduce([[np.zeros(7, np.float32)]] * 3).stats.clipped == 0


def test_other_shapes_or_nodes_start_anew_and_say_so():
    run = cluster()
    assert not run.allreduce(gradients(3, 0)).stats.reset
    assert not run.allreduce(gradients(3, 1)).stats.reset
    for nodes, shapes in ((3, [(5,)]), (4, [(5,)]), (4, [(5, 1)])):
        result, fresh = (c.allreduce(gradients(nodes, 2, shapes)) for c in (run, cluster()))
        assert result.stats.reset
        assert result.stats.iteration == 0
        same(result, fresh)


def test_empty_tensors_cost_no_exchange() -> None:
    cluster = LocalCluster(Config())
    gradients = [[np.arange(50, dtype=np.float32), np.zeros(0, np.float32)] for _ in range(2)]
    sent = [cluster.allreduce(gradients).stats.exchange_bytes for _ in range(3)]
    assert sent == [16, 0, 0]


def test_a_fixed_loss_scale_changes_no_bit_of_the_unscaled_mean() -> None:
    """What docs/how-to/ddp.md tells users of GradScaler."""
    plain, scaled = (cluster(quantiser={"error_feedback": True}) for _ in range(2))
    for iteration in range(4):
        given = gradients(3, iteration)
        result = scaled.allreduce([[tensor * np.float32(2**16) for tensor in node] for node in given])
        for mean, other in zip(plain.allreduce(given).mean, result.mean, strict=True):
            assert np.array_equal(mean, other / np.float32(2**16))


@pytest.mark.parametrize("plan", PLANS)
def test_a_ring_that_is_left_out_changes_no_bit(plan: str) -> None:
    whole = cluster(plan={"name": plan, "granule": 16})
    sampled = SampledCluster(whole.config, every=9)
    for iteration in range(5):  # none of which runs the ring
        one, two = (some.allreduce(gradients(3, iteration)) for some in (whole, sampled))
        assert not two.stats.frames.bytes
        assert bits(one.mean) == bits(two.mean)
