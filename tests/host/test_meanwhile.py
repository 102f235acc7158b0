"""What a rank does while frames are due: the bits of the cluster, and nothing left behind by a failure."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
import pytest

from oscar.checkpoint import digest
from oscar.collective.local import damaged
from oscar.config import Config
from oscar.errors import PeerError
from oscar.numerics import meanwhile
from oscar.numerics.meanwhile import Meanwhile
from oscar.numerics.plans import make_plan
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.communicator import Communicator
from oscar.schemes import exact
from oscar.transports.base import GATHER_TAGS, Bytes, TransportError
from oscar.transports.threads import ThreadTransport, local_transports
from support.ranks import on_ranks

BITE = 500
SIZES = [7, 5000, 0, 30_000, 1, 20_000]


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have calls of few values work in the meantime; return the values that were settled then, by turn."""
    turns: list[int] = []
    work = Meanwhile.work

    def counting(self: Meanwhile) -> bool:
        found = work(self)
        turns.append(self._settled)
        return found

    monkeypatch.setattr(exact, "EARLY_VALUES", 1)
    monkeypatch.setattr(meanwhile, "BITE", BITE)
    monkeypatch.setattr(Meanwhile, "work", counting)
    return turns


def tensors(rng: np.random.Generator, turn: int) -> list[np.ndarray]:
    """Return one rank's gradient; its steps change in turn 3."""
    scale = 2.0 ** (np.arange(len(SIZES)) % 3) * (30 if turn == 3 else 1)
    return [(rng.standard_normal(n) * s).astype(np.float32) for n, s in zip(SIZES, scale, strict=True)]


def draw_config(dice: random.Random) -> Config:
    name = dice.choice(["network", "ring", "boomerang", "duplex", "direct", "exchange", "star"])
    nodes = dice.choice([2, 3, 4])
    return Config.model_validate(
        {
            "nodes": nodes,
            "schedule": {
                "name": name,
                "subframes": dice.choice([1, 3, 8]),
                "group": dice.choice([1, 2]) if name == "exchange" else None,
            },
            "plan": {
                "name": dice.choice(["equal", "interleave", "splitter", "snake"]),
                "granule": dice.choice([7, 256]),
            },
            "quantiser": {
                "bits": dice.choice([8, 12, 16]),
                "error_feedback": dice.random() < 0.5,
                "coarseness": dice.choice([0.01, 0.125, 1.0]),
            },
        }
    )


@pytest.mark.filterwarnings("ignore::oscar.errors.SaturationWarning")
@pytest.mark.parametrize("draw", range(3))
def test_ranks_end_with_the_bits_and_states_of_the_cluster(draw: int, seed: int) -> None:
    dice = random.Random(f"{seed} {draw}")
    config = draw_config(dice)
    rng = np.random.default_rng(dice.randrange(2**32))
    every = [[tensors(rng, turn) for _ in range(config.nodes)] for turn in range(5)]
    cluster = LocalCluster(config)
    expected = [cluster.allreduce(one) for one in every]

    def work(transport: ThreadTransport) -> tuple[list[Any], dict[str, Any]]:
        with Communicator(config, transport, timeout_s=30) as communicator:
            mine = [one[transport.rank] for one in every]
            return [communicator.allreduce(one) for one in mine], communicator.state_dict()

    for rank, (results, state) in enumerate(on_ranks(local_transports(config.nodes), work)):
        for came, whole in zip(results, expected, strict=True):
            assert [m.tobytes() for m in came.mean] == [m.tobytes() for m in whole.mean], config
            assert came.stats.frames == whole.stats.moved[0].frames.of_sender(rank)
        saved, own = state["states"][0], cluster.state_dict()
        assert digest(saved["scheme"]) == digest(own["scheme"]), config
        assert digest(saved["workers"][0]) == digest(own["workers"][rank]), config


@pytest.mark.parametrize("name", ["equal", "interleave", "splitter"])
@pytest.mark.parametrize("values", [1, 499, 2001, 10_000])
def test_values_are_settled_once_they_are_final_and_in_order(name: str, values: int, seed: int) -> None:
    """Sub-frames become final in any order; all before an end that is told must be final then."""
    dice = np.random.default_rng([seed, values])
    plan = make_plan(name, values, 3, granule=256)
    order = plan.gather(np.arange(values))  # natural place of each value in plan order
    cuts = np.unique([0, values, *plan.bounds, *dice.integers(0, values + 1, 6)])
    spans = list(zip(cuts.tolist(), cuts[1:].tolist(), strict=False))
    dice.shuffle(spans)
    final, ends = np.zeros(values, np.bool_), [0]

    def settle(sums: np.ndarray, end: int) -> None:
        assert final[:end].all()
        assert end == ends[-1] + BITE
        ends.append(end)

    job = Meanwhile(plan, settle)
    for low, high in spans:
        job.final(np.zeros(values, np.int16), low, high)
        final[order[low:high]] = True
        while job.work():
            pass
    assert values - ends[-1] < BITE


class Struck(ThreadTransport):
    """Strikes once, at the frame after some were waited for: `kind` is damage, error, death or silence."""

    kind = ""
    left = 0

    def post_send(self, peer: int, tag: int, frame: Bytes) -> None:
        if tag < GATHER_TAGS[0] and self.kind:
            self.left -= 1
            if self.left == 0:
                kind, self.kind = self.kind, ""
                time.sleep(0.3)  # the other rank waits
                if kind == "death":
                    self.close()
                    raise TransportError("this rank dies", peer=-1, kind="dead")
                if kind == "error":
                    raise MemoryError("no room")
                if kind == "silence":
                    time.sleep(7)
                frame = damaged(bytes(frame), tag + 1)
        super().post_send(peer, tag, frame)


@pytest.mark.parametrize("kind", ["damage", "error", "death", "silence"])
@pytest.mark.parametrize("plan", ["equal", "interleave"])
def test_a_call_that_fails_after_passes_were_made_leaves_all_as_it_was(
    kind: str, plan: str, counted: list[int]
) -> None:
    config = Config.model_validate({
        "nodes": 2, "schedule": {"name": "direct", "subframes": 8}, "plan": {"name": plan},
        "quantiser": {"error_feedback": True},
    })  # fmt: skip
    rng = np.random.default_rng(0)
    every = [[tensors(rng, turn) for _ in range(2)] for turn in range(5)]
    cluster = LocalCluster(config)
    expected = [cluster.allreduce(one) for one in every]

    def work(transport: Struck) -> dict[str, Any]:
        communicator = Communicator(config, transport, timeout_s=3 if kind == "silence" else 30)
        for turn in range(3):
            communicator.allreduce(every[turn][transport.rank])
        before, state = digest(communicator.state_dict()), communicator.state_dict()
        classes = communicator.states[0].scheme.position.classes.copy()
        counted.clear()
        if transport.rank:
            transport.kind, transport.left = kind, 13  # of 14 frames
        try:
            communicator.allreduce(every[3][transport.rank])
        except (PeerError, TransportError, MemoryError):
            assert digest(communicator.state_dict()) == before
            assert np.array_equal(communicator.states[0].scheme.position.classes, classes)
        else:
            assert transport.rank  # who had received everything finishes the call
        return state

    pair = local_transports(2)
    for end in pair:
        end.__class__ = Struck  # ends of their own: those that nobody held would be dead
    states = on_ranks(pair, work)
    assert all(isinstance(state, dict) for state in states), states
    assert max(counted) > 0  # passes had been made

    def again(transport: ThreadTransport) -> list[bytes]:
        communicator = Communicator(config, transport, timeout_s=30)
        communicator.load_state_dict(states[transport.rank])
        done = [communicator.allreduce(every[turn][transport.rank]) for turn in (3, 4)]
        return [mean.tobytes() for one in done for mean in one.mean]

    for came in on_ranks(local_transports(2), again):
        assert came == [mean.tobytes() for one in expected[3:] for mean in one.mean]
