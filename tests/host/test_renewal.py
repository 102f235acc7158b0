"""New steps within a call: a gradient that grew or fell at once is right in that call (protocol.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from oscar.checkpoint import digest
from oscar.coding.frame import Header, noticed, pack_frame, parted, peek, unpack_frame
from oscar.collective.schedules import SCHEDULES
from oscar.config import Config
from oscar.errors import FrameError, PeerError
from oscar.numerics import renewal
from oscar.numerics import steps as steps_module
from oscar.numerics.plans import ChunkPlan
from oscar.numerics.renewal import COARSE, SATURATED
from oscar.numerics.steps import StepTracker
from oscar.reducers.cluster import LocalCluster
from oscar.transports.threads import local_transports
from oscar_lab.lab.methods import CheckedCommunicator
from support.ranks import on_ranks

pytestmark = pytest.mark.filterwarnings("ignore:.*it carries over:oscar.errors.SaturationWarning")
SHAPES = (40, 30), (7,), (900,)
USUAL, STRUCK = 0.07, 6  # the largest ordinary error of 2 to 4 workers here; the call with the spike
Scale = Callable[[int, int, int], float]  # of a call, a rank and a tensor


def config(schedule: str = "direct", nodes: int = 4, method: str = "asc", **quantiser: Any) -> Config:
    return Config.model_validate({
        "nodes": nodes, "method": method, "schedule": {"name": schedule},
        "quantiser": {"error_feedback": True, **quantiser},
    })  # fmt: skip


def gradients(call: int, nodes: int, scale: Scale) -> list[list[np.ndarray]]:
    """Return a common part and each worker's noise, times `scale`."""
    common = [np.random.default_rng(t).normal(size=shape) for t, shape in enumerate(SHAPES)]
    noise = np.random.default_rng(100 + call)
    return [
        [((part + noise.normal(size=part.shape)) * scale(call, rank, t)).astype(np.float32)
         for t, part in enumerate(common)]
        for rank in range(nodes)
    ]  # fmt: skip


def errors(made: Config, scale: Scale, calls: int = 12) -> list[float]:
    """Return the largest relative error of a tensor's mean in each call; 0 for a tensor that is zero."""
    cluster, nodes, worst = LocalCluster(made), made.nodes, []
    for call in range(calls):
        given = gradients(call, nodes, scale)
        result = cluster.allreduce(given)
        assert result.stats.identical
        assert result.stats.exact
        wide = [np.mean([node[t].astype(float) for node in given], axis=0) for t in range(len(SHAPES))]
        pairs = zip(result.mean, wide, strict=True)
        worst.append(
            max(float(np.linalg.norm(mean - exact) / (np.linalg.norm(exact) or 1)) for mean, exact in pairs)
        )
    return worst


@pytest.mark.parametrize("ranks", ["one", "all"])
@pytest.mark.parametrize("factor", [10.0, 1e2, 1e4, 1e8])
@pytest.mark.parametrize("length", [1, 3])
def test_a_spike_is_right_in_its_call_and_leaves_nothing(factor: float, ranks: str, length: int) -> None:
    def scale(call: int, rank: int, tensor: int) -> float:
        return factor if STRUCK <= call < STRUCK + length and (ranks == "all" or rank == 1) else 1.0

    worst = errors(config(), scale)
    assert max(worst) < 2 * USUAL, worst


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_all_ranks_hear_of_a_spike_under_any_schedule(schedule: str) -> None:
    worst = errors(config(schedule), lambda call, rank, tensor: 1e4 if (call, rank) == (STRUCK, 2) else 1.0)
    assert max(worst) < 2 * USUAL, worst


@pytest.mark.parametrize(
    "quantiser",
    [{"scale": "max"}, {"step": "value"}, {"rounding": "stochastic"}, {"bits": 8}, {"error_feedback": False}],
    ids=str,
)
def test_a_spike_is_right_with_any_quantiser(quantiser: dict[str, Any]) -> None:
    usual = max(errors(config(**quantiser), lambda *_: 1.0))
    for struck in ((1,), (0, 1, 2, 3)):
        worst = errors(
            config(**quantiser),
            lambda call, rank, tensor, struck=struck: 1e4 if call == STRUCK and rank in struck else 1.0,
        )
        assert max(worst) < 5 * usual, worst


@pytest.mark.parametrize("period", [2, 5])
def test_losses_that_take_turns_have_the_usual_error(period: int) -> None:
    worst = errors(config(), lambda call, rank, tensor: 1e3 if call % period == 0 else 1.0, calls=20)
    assert max(worst) < 2 * USUAL, worst


@pytest.mark.parametrize("zeros", [1, 4, 20])
def test_a_tensor_of_zeros_keeps_its_step_and_its_residual(zeros: int) -> None:
    """The residual does not leak out meanwhile, and the first gradient after it is as good as any."""

    def scale(call: int, rank: int, tensor: int) -> float:
        return 0.0 if tensor == 0 and STRUCK <= call < STRUCK + zeros else 1.0

    worst = errors(config(), scale, STRUCK + zeros + 3)
    assert worst[STRUCK : STRUCK + zeros] == pytest.approx([0.0] * zeros, abs=2 * USUAL)
    assert max(worst) < 2 * USUAL, worst
    cluster = LocalCluster(config())
    for call in range(STRUCK + zeros):
        mean = cluster.allreduce(gradients(call, 4, scale)).mean[0]
        if call == STRUCK - 1:
            waiting = [worker.residual[:1200].copy() for worker in cluster.workers]
    assert not mean.any()
    assert all(
        np.array_equal(worker.residual[:1200], one)
        for worker, one in zip(cluster.workers, waiting, strict=True)
    )


@pytest.mark.parametrize(
    "quantiser", [{}, {"rounding": "stochastic"}, {"step": "value"}, {"bits": 8}], ids=str
)
def test_no_residual_leaks_after_any_last_step(quantiser: dict[str, Any]) -> None:
    """Whatever happened to the step before: the tensor grew, its step fell, or a value saturated."""
    for last in (3.0, 0.4, 1.0):
        cluster = LocalCluster(config(**quantiser))
        for call in range(STRUCK):
            given = gradients(call, 4, lambda call, *_, last=last: last if call == STRUCK - 1 else 1.0)
            given[0][0][0, 0] = 1e3 * last  # saturates in every call
            cluster.allreduce(given)
        for call in range(STRUCK, STRUCK + 3):
            idle = gradients(call, 4, lambda call, rank, tensor: 0.0 if tensor == 0 else 1.0)
            assert not cluster.allreduce(idle).mean[0].any()


def test_many_ranks_that_agree_keep_their_step_through_zeros() -> None:
    """The sums of a call of zeros are no noise of the sums after it."""
    common = np.random.default_rng(0).normal(size=900).astype(np.float32)
    cluster = LocalCluster(config(nodes=8))
    for call in range(12):
        stats = cluster.allreduce([[common * np.float32(call % 2)]] * 8).stats
        assert (stats.exchange_bytes > 0) == (call in (0, 1))  # nothing but zeros, then the first step


def test_an_ordinary_call_asks_nothing() -> None:
    """After the first call no message but the sums: nothing is paid for calls whose steps fit."""
    cluster = LocalCluster(config())
    sent = [cluster.allreduce(gradients(call, 4, lambda *_: 1.0)).stats for call in range(12)]
    assert sent[0].exchange_bytes > 0
    assert [stats.exchange_bytes for stats in sent[1:]] == [0] * 11
    assert all(len(stats.moved) == 1 for stats in sent)


def test_a_rank_with_small_values_in_every_call_costs_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sums do not confirm its notice, and the passes that every call makes have squared them."""
    cluster, asked = LocalCluster(config()), []
    confirmed = renewal.confirmed

    def counted(steps: StepTracker, energies: Sequence[int]) -> list[int]:
        asked.append(confirmed(steps, energies))
        return asked[-1]

    monkeypatch.setattr(renewal, "confirmed", counted)
    for call in range(12):
        if call == STRUCK:
            asked.clear()
            monkeypatch.setattr(steps_module, "sum_of_squares", None)
            monkeypatch.setattr(ChunkPlan, "scatter", None)
        stats = cluster.allreduce(gradients(call, 4, lambda call, rank, _: 0.05 if rank == 1 else 1.0)).stats
        assert stats.exact
    assert asked == [[]] * (12 - STRUCK)  # once a call, for all workers of the process


def test_a_call_that_fails_between_its_messages_changes_nothing() -> None:
    cluster = LocalCluster(config())
    for call in range(STRUCK):
        cluster.allreduce(gradients(call, 4, lambda *_: 1.0))
    before, wire = digest(cluster.state_dict()), cluster.state.wire
    combine, names = wire.combine, []

    def failing(messages: Any) -> Any:
        names.append(messages[0].channel)
        if messages[0].channel == "sums again":
            raise PeerError("a peer dies", rank=0, peer=1, step=0, chunk=0)
        return combine(messages)

    wire.combine = failing
    spike = gradients(STRUCK, 4, lambda *_: 1e4)
    with pytest.raises(PeerError):
        cluster.allreduce(spike)
    assert names == ["sums", "steps again", "sums again"]
    assert digest(cluster.state_dict()) == before
    del wire.combine
    assert cluster.allreduce(spike).stats.exact


def test_forget_drops_residuals_and_nothing_else() -> None:
    cluster = LocalCluster(config())
    for call in range(3):
        cluster.allreduce(gradients(call, 4, lambda *_: 1.0))
    before = cluster.state_dict()
    cluster.forget()
    assert all(worker.residual is None for worker in cluster.workers)
    for part in ("scheme", "links"):
        assert digest(cluster.state_dict()[part]) == digest(before[part])
    assert cluster.allreduce(gradients(3, 4, lambda *_: 1.0)).stats.exact


@pytest.mark.parametrize("notice", [0, COARSE, SATURATED, COARSE | SATURATED])
def test_a_frame_carries_a_notice_beside_its_width(notice: int, seed: int) -> None:
    plain = pack_frame(Header(16, 1, 5, width=12), b"payload")
    marked = noticed(plain, notice)
    assert peek(unpack_frame(marked) and marked).width == 12 | notice << 6
    assert parted(marked) == (plain, notice)
    assert (marked is plain) == (notice == 0)
    if notice:  # what is damaged is refused, and not given a new checksum
        struck = bytearray(marked)
        struck[int(np.random.default_rng(seed).integers(8, len(struck)))] ^= 4
        with pytest.raises(FrameError, match=r"damaged|announces"):
            parted(bytes(struck))


def test_sums_of_new_steps_are_known_and_all_others_are_those_of_the_first_integers(seed: int) -> None:
    """The lab checks sums against the integers that ranks sent first."""
    random = np.random.default_rng(seed)
    every = [[random.laplace(size=n).astype(np.float32) for n in (3000, 500)] for _ in range(3)]
    config = Config.model_validate({"nodes": 3, "schedule": {"name": "direct"}})

    def work(transport: Any) -> tuple[Any, Any, Any]:
        communicator = CheckedCommunicator(config, transport, timeout_s=60)
        for _ in range(3):
            communicator.allreduce(every[transport.rank])
        communicator.allreduce([every[transport.rank][0], every[transport.rank][1] * np.float32(1e4)])
        state = communicator.states[0]
        (node,) = state.wire.links["sums"]
        scheme = state.scheme
        replaced = renewal.places_of(scheme.steps, scheme.plan, scheme.renewed)
        return node.local.copy(), node.result().copy(), replaced

    ranks = on_ranks(local_transports(3), work)

    total = np.sum([local for local, _, _ in ranks], axis=0)
    for _, result, replaced in ranks:
        assert replaced.size == 500
        others = np.setdiff1d(np.arange(3500), replaced)
        assert np.array_equal(result[others], total[others])
        assert not np.array_equal(result[replaced], total[replaced])
