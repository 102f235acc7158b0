"""The whole AllReduce in one process: exact and identical with every codec, plan, schedule and fault."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest

from oscar.coding.registry import CODECS, make_codec
from oscar.collective.local import Fault
from oscar.collective.schedules import SCHEDULES
from oscar.config import Config
from oscar.errors import ConfigError, GradientError, PeerError, SaturationWarning
from oscar.numerics.plans import PLANS
from oscar.reducers.cluster import LocalCluster
from oscar_studies.sampled import SampledCluster
from support.gradients import related

SHAPES: list[tuple[int, ...]] = [(3, 5, 7), (), (0,), (129,), (2, 0, 3), (1, 1), (300,)]
ALL = {name: make_codec(name) for name in CODECS}
LOSSLESS = [name for name, codec in ALL.items() if codec.lossless and codec.domain == "int"]
SLOW = {"constriction", "atalanta-dp"}  # oracles: their frames are tested on their own


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


@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 8])
def test_the_sum_does_not_depend_on_codec_plan_schedule_or_subframes(nodes):
    expected: list[Any] = []
    odd = itertools.cycle([1, 3])
    for codec, plan, name in itertools.product(LOSSLESS, PLANS, SCHEDULES):
        if codec in SLOW and (plan != "splitter" or nodes > 3):
            continue
        run = cluster(codec, plan={"name": plan, "granule": 16}, schedule=name, subframes=next(odd))
        for iteration in range(2):
            given = gradients(nodes, iteration)
            before = [bits(node) for node in given]
            result = run.allreduce(given)
            assert [bits(node) for node in given] == before
            assert result.stats.exact
            assert result.stats.identical
            assert [m.shape for m in result.mean] == SHAPES
            assert all(m.dtype == np.float32 for m in result.mean)
            if len(expected) <= iteration:
                expected.append(result)
                mean = np.concatenate([np.mean([n[t] for n in given], axis=0).ravel() for t in range(7)])
                assert (
                    0 < np.abs(np.concatenate([m.ravel() for m in result.mean]) - mean).max() <= 4.001
                )  # half a step
            assert bits(result.mean) == bits(expected[iteration].mean)
            assert np.array_equal(result.sums, expected[iteration].sums)


@pytest.mark.filterwarnings("ignore::oscar.errors.OscarWarning")  # clipping, divergence
@pytest.mark.parametrize(
    "codec", [name for name, codec in ALL.items() if codec.domain == "float" or not codec.lossless]
)
@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_floats_and_lossy_codecs_leave_all_nodes_identical_too(codec, nodes):
    for plan in PLANS:
        run = cluster(codec, plan={"name": plan, "granule": 16})
        for iteration in range(2):
            given = gradients(nodes, iteration)
            result = run.allreduce(given)
            assert result.stats.identical
            assert result.stats.exact == (ALL[codec].lossless)
            if ALL[codec].lossless:
                for t, mean in enumerate(result.mean):
                    assert np.allclose(mean, np.mean([n[t] for n in given], axis=0), rtol=1e-4, atol=1e-4)
    if nodes > 1:
        with pytest.raises(ConfigError, match="schedule boomerang needs a lossless integer codec"):
            cluster(codec, schedule="boomerang")


@pytest.mark.parametrize("plan", ["equal", "snake"])
def test_64_nodes_with_fewer_values_than_nodes(plan):
    run = cluster(plan={"name": plan, "granule": 1})
    given = gradients(64, shapes=[(3, 7), (), (0,)])
    for _ in range(2):
        result = run.allreduce(given)
        assert result.stats.exact
        assert result.stats.values == 22


def test_nothing_to_reduce_is_reduced():
    for shapes in ([], [(0,)], [(0, 4), (0,)]):
        run = cluster(quantiser={"error_feedback": True})
        for _ in range(2):
            result = run.allreduce([[np.zeros(s, np.float32) for s in shapes]] * 3)
            assert [m.shape for m in result.mean] == shapes
            assert (
                result.stats.wire_bytes
                == run.allreduce([[np.zeros(s, np.float32) for s in shapes]] * 3).stats.wire_bytes
            )


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


@pytest.mark.filterwarnings("ignore::oscar.errors.SaturationWarning")
def test_gradients_of_any_size_saturate_and_stay_exact():
    run = cluster()
    for scale in (1, 1e30, 1e-30, 0, 1e-44, 3e3):
        given = [[(t * scale).astype(np.float32) for t in node] for node in gradients(3)]
        result = run.allreduce(given)
        assert result.stats.exact
        assert all(np.isfinite(m).all() for m in result.mean)


CONFIGS = {
    "default": {},
    "splitter, feedback, stochastic": {
        "plan": {"name": "splitter", "granule": 16},
        "quantiser": {"error_feedback": True, "rounding": "stochastic", "coarseness": 1.0},
    },
    "8g, snake, forward": {
        "plan": {"name": "snake", "granule": 16},
        "quantiser": {"scale": "max"},
        "schedule": "ring",
    },
    "sub-frames, duplex": {"schedule": "duplex", "subframes": 2},
}
configs = pytest.mark.parametrize("name", CONFIGS)


@configs
@pytest.mark.parametrize("codec", ["asc", "asc-paper", "zstd"])
def test_a_resumed_cluster_sends_the_same_frames(name, codec):
    original = cluster(codec, **CONFIGS[name])
    copy = cluster(codec, **CONFIGS[name])
    copy.load_state_dict(original.state_dict())  # before anything was reduced
    original.allreduce(gradients(3, 0))
    original.allreduce(gradients(3, 1))
    state = original.state_dict()
    ahead = [original.allreduce(gradients(3, i)) for i in (2, 3, 4)]
    copy.load_state_dict(state)
    for iteration, expected in zip((2, 3, 4), ahead, strict=True):
        result = copy.allreduce(gradients(3, iteration))
        same(result, expected)
        assert result.stats.iteration == expected.stats.iteration


@configs
@pytest.mark.parametrize("first", [0, 1, 2])
def test_after_any_failed_call_the_next_is_as_if_it_had_not_been(name, first):
    """A call that fails leaves no trace, not even in steps. first: calls that succeed before it."""
    calm, struck = cluster(**CONFIGS[name]), cluster(**CONFIGS[name])
    for iteration in range(first):
        same(struck.allreduce(gradients(3, iteration)), calm.allreduce(gradients(3, iteration)))
    other = [[100 * t for t in node] for node in gradients(3, 77)]
    poisoned = gradients(3, 78)
    poisoned[1][3] = np.full(129, np.nan, np.float32)
    for _ in range(2):
        with pytest.raises(PeerError):
            struck.allreduce(other, faults=[Fault("kill", 1, 10)])
        with pytest.raises(GradientError, match="node 1, tensor 3"):
            struck.allreduce(poisoned)
        with pytest.raises(PeerError):
            struck.allreduce(gradients(4, 9, [(40,)]), faults=[Fault("corrupt", 2, 12)])
        with pytest.raises(GradientError, match="node 1, tensor 0 has shape"):
            struck.allreduce([[np.zeros(2, np.float32)], [np.zeros(3, np.float32)]])
        with pytest.raises(GradientError, match=r"node 0, tensor 0: .* NaN"):
            struck.allreduce([[np.array([np.nan], np.float32)]])
    for iteration in range(first, first + 2):
        result, expected = struck.allreduce(gradients(3, iteration)), calm.allreduce(gradients(3, iteration))
        same(result, expected)
        assert result.stats.exact
        assert not result.stats.reset


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


def test_nodes_that_do_not_match_are_named():
    run, good = cluster(), gradients(3)
    with pytest.raises(
        GradientError, match=r"node 2, tensor 3 has shape \(128,\), on node 0 it has \(129,\)"
    ):
        run.allreduce([*good[:2], [*good[2][:3], np.zeros(128, np.float32), *good[2][4:]]])
    with pytest.raises(GradientError, match="node 1 has 6 tensors, node 0 has 7"):
        run.allreduce([good[0], good[1][:6]])
    with pytest.raises(GradientError, match="1 to 256 nodes, got 0"):
        run.allreduce([])
    with pytest.raises(TypeError, match="node 1, tensor 0: expected float32, got int64"):
        run.allreduce([[np.zeros(3, np.float32)], [np.zeros(3, np.int64)]])


def test_what_callers_do_with_the_result_changes_nothing_later():
    one, two = cluster(), cluster()
    for iteration in range(4):
        kept, spoilt = (c.allreduce(gradients(3, iteration)) for c in (one, two))
        same(kept, spoilt)
        with pytest.raises(ValueError, match="read-only"):  # the next steps follow from them
            spoilt.sums[:] = 99
        for mean in spoilt.mean:
            mean[...] = np.nan


@pytest.mark.parametrize("schedule", ["ring", "boomerang", "direct"])
def test_the_reference_nic_sends_the_frames_of_the_compiled_one(schedule):
    shapes = [(2500,), (3, 7)]
    runs = [cluster(nic=nic, schedule=schedule, subframes=2) for nic in ("reference", "compiled")]
    for iteration in range(3):
        same(*(run.allreduce(gradients(2, iteration, shapes)) for run in runs))


@pytest.mark.parametrize("stage", ["_tell", "_finish", "_stats"])
def test_a_call_interrupted_after_the_ring_never_happened(
    stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C between the last frame and the result: the repeated call does what an undisturbed one does."""
    random = np.random.default_rng(5)
    calls = [[[random.laplace(size=900).astype(np.float32)] for _ in range(3)] for _ in range(3)]
    config = Config().variant(
        quantiser={"error_feedback": True},
        plan={"name": "splitter", "granule": 64},
        schedule={"name": "duplex"},
    )
    calm, struck = LocalCluster(config), LocalCluster(config)
    for gradients in calls[:2]:
        calm.allreduce(gradients)
        struck.allreduce(gradients)
    real = getattr(struck, stage)

    def interrupted(*args: Any, **how: Any) -> Any:
        real(*args, **how)
        raise KeyboardInterrupt

    monkeypatch.setattr(struck, stage, interrupted)
    with pytest.raises(KeyboardInterrupt):
        struck.allreduce(calls[2])
    monkeypatch.undo()
    expected, came = calm.allreduce(calls[2]), struck.allreduce(calls[2])
    assert came.stats.iteration == expected.stats.iteration
    assert came.stats.frames == expected.stats.frames
    assert np.array_equal(came.mean[0], expected.mean[0])


def test_the_largest_floats_saturate_instead_of_overflowing() -> None:
    for bits in (8, 12, 16):
        cluster = LocalCluster(Config().variant(quantiser={"bits": bits, "error_feedback": True}))
        huge = np.full(100, np.finfo(np.float32).max, np.float32)
        result = cluster.allreduce([[huge], [huge]])
        assert np.isfinite(result.mean[0]).all()
        assert result.stats.exact


def test_state_of_another_configuration_is_refused_and_changes_nothing() -> None:
    gradients = [[np.ones(64, np.float32)], [np.ones(64, np.float32)]]
    other = LocalCluster(Config().variant(quantiser={"bits": 16}))
    other.allreduce(gradients)
    cluster = LocalCluster(Config())
    cluster.allreduce(gradients)
    with pytest.raises(ConfigError, match="resume with the configuration"):
        cluster.load_state_dict(other.state_dict())
    assert cluster.allreduce(gradients).stats.iteration == 1


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
