"""Both phases of a boomerang at once: the same frames, half the hops, exact sums on every node."""

from __future__ import annotations

import numpy as np
import pytest

from oscar.collective.actions import Op, Phase
from oscar.collective.local import Fault
from oscar.collective.ring import Boomerang, Duplex
from oscar.config import Config
from oscar.errors import ConfigError, PeerError
from oscar.reducers.cluster import LocalCluster
from support.gradients import related

ODD = [(3,), (0,), (7, 11), (1, 1), (129, 3)]
LONG = [(20_001,), (173, 311)]


def cluster(
    schedule: str, *, codec: str = "asc", subframes: int = 1, plan: str = "interleave"
) -> LocalCluster:
    """Return a cluster that differs from the defaults in these alone."""
    how = {"name": schedule, "subframes": subframes}
    return LocalCluster(Config.model_validate({"method": codec, "schedule": how, "plan": {"name": plan}}))


@pytest.mark.parametrize("subframes", [1, 3])
@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5, 6])
def test_exact_on_every_node_with_the_boomerangs_frames(nodes, subframes):
    runs = {name: cluster(name, subframes=subframes) for name in ("ring", "boomerang", "duplex")}
    for iteration in range(3):
        given = related(nodes, iteration, ODD if nodes % 2 else LONG)
        results = {name: run.allreduce(given) for name, run in runs.items()}
        duplex, boomerang = results["duplex"], results["boomerang"]
        assert duplex.stats.exact
        assert duplex.stats.identical
        for other in (boomerang, results["ring"]):
            assert duplex.sums.dtype == other.sums.dtype
            assert np.array_equal(duplex.sums, other.sums)
            for mean, expected in zip(duplex.mean, other.mean, strict=True):
                assert np.array_equal(mean, expected)
        assert duplex.stats.frames == boomerang.stats.frames
        if nodes > 1:
            assert duplex.stats.time_s < boomerang.stats.time_s


@pytest.mark.parametrize("codec", ["fp32", "bf16", "int8", "mxfp8"])
@pytest.mark.parametrize("schedule", ["boomerang", "duplex"])
def test_schedule_refuses_codecs_whose_sums_would_differ(schedule, codec):
    with pytest.raises(ConfigError, match=f"schedule {schedule} needs a lossless integer codec"):
        cluster(schedule, codec=codec)


def test_phases_take_turns_and_residuals_wait_for_no_partial_sum():
    actions = [a for a in Duplex(4, 2).actions(1) if a.op is Op.ENCODE]
    assert [a.phase for a in actions] == [Phase.REDUCE_SCATTER, Phase.ALL_GATHER] * 6
    assert [a.step for a in actions] == [0] * 4 + [1] * 4 + [2] * 4
    one_by_one = set(Boomerang(4, 2).actions(1))
    assert set(Duplex(4, 2).actions(1)) == one_by_one


@pytest.mark.parametrize("kind", ["kill", "stall", "corrupt"])
@pytest.mark.parametrize("action", [0, 7, 16, 24])
def test_a_fault_raises_peer_error_and_the_next_call_is_as_if_nothing_happened(kind, action):
    run, calm = cluster("duplex"), cluster("duplex")
    first, second = (related(4, iteration, LONG) for iteration in range(2))
    run.allreduce(first)
    calm.allreduce(first)
    with pytest.raises(PeerError, match=r"rank [0-3]: ") as error:
        run.allreduce(second, faults=[Fault(kind, 2, action)])
    assert error.value.peer == 2
    after, expected = run.allreduce(second), calm.allreduce(second)
    assert after.stats.exact
    assert after.stats.frames == expected.stats.frames
    assert np.array_equal(after.sums, expected.sums)


def test_a_late_node_changes_nothing():
    """Either a chunk's partial sum or its residual arrives first at a node."""
    given = related(5, 0, LONG)
    expected = cluster("duplex").allreduce(given)
    for rank in range(5):
        late = cluster("duplex", subframes=1).allreduce(given, faults=[Fault("delay", rank, 12, rounds=40)])
        assert late.stats.exact
        assert late.stats.frames == expected.stats.frames
