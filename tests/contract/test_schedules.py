"""What every schedule keeps: one exact sum on all ranks, whatever is late, cut or lost on the way."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from oscar.coding.registry import codec_names, make_codec
from oscar.collective import threaded
from oscar.collective.actions import SENDS
from oscar.collective.local import Fault, damaged
from oscar.collective.schedules import GROUPED, SCHEDULES, make_schedule
from oscar.config import Config
from oscar.errors import ConfigError, GradientError, OscarError, PeerError
from oscar.numerics.plans import PLANS
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.communicator import Communicator
from oscar.state import crc
from oscar.transports.base import Notice
from oscar.transports.threads import ThreadTransport, local_transports
from support.methods import gradients
from support.ranks import on_ranks

EVERY = pytest.mark.parametrize("name", SCHEDULES)
SHAPES = [(150, 40), (3,)]
CODED = {name: make_codec(name) for name in codec_names()}
EXACT = [name for name, codec in CODED.items() if codec.lossless and codec.domain == "int"]
IN_TURNS = {"boomerang", "duplex"}  # a rank's frames need one another: no two are coded at once
SLOW = {"constriction", "atalanta-dp"}  # oracles


def drawn(random: np.random.Generator, name: str, nodes: int) -> dict[str, Any]:
    """Return the section `schedule` with options that any of `nodes` ranks may have."""
    how: dict[str, Any] = {"name": name, "subframes": int(random.integers(1, 4))}
    if SCHEDULES[name] in GROUPED:
        how["group"] = int(random.integers(1, nodes + 1))
    if name == "star":
        how["root"] = int(random.integers(nodes))
    return how


def config(random: np.random.Generator, name: str, nodes: int, **changes: Any) -> Config:
    plan = {"name": str(random.choice(sorted(PLANS))), "granule": 16}
    how = {"schedule": drawn(random, name, nodes), "plan": plan, "nodes": nodes, **changes}
    print(how)
    return Config.model_validate(how)


def bits(result: Any) -> list[bytes]:
    return [*(mean.tobytes() for mean in result.mean), result.sums.tobytes()]


@EVERY
@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 8])
def test_schedule_has_the_sums_of_any_other(name: str, nodes: int, seed: int) -> None:
    """With each lossless codec and any plan of chunks; the coder's reference sends the same frames."""
    random = np.random.default_rng([seed, nodes])
    calls = [gradients(random, nodes) for _ in range(2)]
    plain = LocalCluster(Config.model_validate({"method": "int32", "schedule": {"name": "ring"}}))
    wanted = [bits(plain.allreduce(given)) for given in calls]
    for codec in EXACT:
        if codec not in SLOW or nodes <= 3:
            run = LocalCluster(config(random, name, nodes, method=codec))
            results = [run.allreduce(given) for given in calls]
            assert [bits(result) for result in results] == wanted
            assert all(result.stats.exact and result.stats.identical for result in results)
    if nodes == 2:
        chosen = config(random, name, nodes)
        runs = [LocalCluster(chosen.variant(nic=nic)) for nic in ("reference", "compiled")]
        for given in calls:
            one, other = (run.allreduce(given) for run in runs)
            assert one.stats.frames == other.stats.frames


@EVERY
@pytest.mark.parametrize("codec", CODED)
def test_schedule_takes_codecs_with_equal_sums_on_all_ranks(name: str, codec: str) -> None:
    changes = {"method": codec, "schedule": {"name": name}}
    if SCHEDULES[name].integers and codec not in EXACT:
        with pytest.raises(ConfigError, match=f"schedule {name} needs a lossless integer codec"):
            LocalCluster(Config.model_validate(changes))
    else:
        cluster = LocalCluster(Config.model_validate(changes))
        assert cluster.allreduce([[np.arange(9, dtype=np.float32)]] * 3).stats.identical


@EVERY
@pytest.mark.parametrize("kind", ["kill", "stall", "corrupt", "delay"])
def test_schedule_fault_is_named_and_the_next_call_is_right(name: str, kind: Any, seed: int) -> None:
    """A fault at any action, of which a delay changes nothing, nor one after the last frame."""
    random, nodes = np.random.default_rng(seed), 4
    for turn in range(5):
        chosen, rank = config(random, name, nodes), int(random.integers(nodes))
        actions = list(
            make_schedule(nodes=nodes, **chosen.schedule.model_dump(exclude_none=True)).actions(rank)
        )
        last = max(place for place, action in enumerate(actions) if action.op in SENDS)
        fault = Fault(kind, rank, int(random.integers(last + 1)) * (turn > 0), rounds=40)
        struck, calm = LocalCluster(chosen), LocalCluster(chosen)
        for cluster in (struck, calm):
            cluster.allreduce(gradients(np.random.default_rng(seed), nodes, SHAPES))
        given, before = gradients(random, nodes, SHAPES), crc(struck.state_dict())
        print(fault)
        error = None
        try:
            result = struck.allreduce(given, faults=[fault])
        except PeerError as caught:
            error, after = caught, crc(struck.state_dict())
            result = struck.allreduce(given)
        if kind == "delay" or turn == 0:  # or else all that came later may be without values, and not sent
            assert (error is None) == (kind == "delay")
        if error is not None:
            assert (error.peer, after) == (rank, before)
            assert f"rank {rank}" in str(error)
        expected = calm.allreduce(given)
        assert bits(result) == bits(expected)
        assert result.stats.frames == expected.stats.frames


@EVERY
def test_schedule_threads_change_no_bit(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor a byte that is sent or saved, beside one process and beside one thread."""
    random, used, perform = np.random.default_rng(seed), set(), threaded.perform
    nodes = int(random.integers(3, 7))
    monkeypatch.setattr(threaded, "LEAST_VALUES", 1)
    monkeypatch.setattr(threaded, "perform", lambda node, *args: used.add(node.rank) or perform(node, *args))
    chosen = config(random, name, nodes)
    calls = [gradients(random, nodes, SHAPES) for _ in range(3)]
    cluster = LocalCluster(chosen)
    wanted = [bits(cluster.allreduce(given)) for given in calls]
    saved = []
    for threads in (1, 3):

        def work(transport: Any, threads: int = threads) -> Any:
            one = Communicator(chosen.variant(threads=threads), transport, timeout_s=30)
            results = [one.allreduce(given[transport.rank]) for given in calls]
            assert [bits(result) for result in results] == wanted
            return [result.stats.sent_bytes for result in results], crc(one.state_dict()["states"])

        saved.append(on_ranks(local_transports(nodes), work))
        assert not any(isinstance(one, BaseException) for one in saved[-1]), saved[-1]
        assert bool(used) == (threads > 1 and name not in IN_TURNS)
    assert saved[0] == saved[1]


SILENT_S = 8.0  # after which a rank that sleeps is named; a busy machine may stop others for seconds, too


class Striking(ThreadTransport):
    """A transport that calls `deed` in place of its send number `left`."""

    left, deed = -1, "none"

    def post_send(self, peer: int, tag: int, frame: bytes | memoryview) -> None:
        self.left -= 1
        if self.left == 0 and self.deed == "corrupt":
            frame = damaged(bytes(frame), 99)
        if self.left == 0 and self.deed == "close":
            self.close()
            raise SystemExit
        if self.left <= 0 and self.deed == "sleep":
            time.sleep(2 * SILENT_S)
            raise SystemExit
        if self.left == 0 and self.deed == "raise":
            raise RuntimeError("out of luck")
        super().post_send(peer, tag, frame)

    def abort(self, notice: Notice) -> None:
        if self.deed not in ("close", "sleep"):  # dead and stopped ranks report nothing
            super().abort(notice)


DEEDS = [(name, deed) for name in SCHEDULES for deed in ("corrupt", "close", "raise", "nan")]


# Sleep takes its time: a ring, and groups.
@pytest.mark.parametrize(("name", "deed"), [*DEEDS, ("ring", "sleep"), ("hierarchical", "sleep")])
def test_schedule_failure_is_named_by_all_ranks(name: str, deed: str, seed: int) -> None:
    nodes, bad = 4, 2
    random, how = np.random.default_rng(seed), {"name": name, "subframes": 2}
    chosen = Config.model_validate({"schedule": how})
    first, given = (gradients(random, nodes, SHAPES) for _ in range(2))
    transports = local_transports(nodes)
    transports[bad].__class__ = Striking
    all_have_the_first = threading.Barrier(nodes, timeout=30)  # or a notice reaches the first call, too

    def work(transport: Any) -> Any:
        communicator = Communicator(chosen, transport, timeout_s=30)
        communicator.allreduce(first[transport.rank])
        all_have_the_first.wait()
        if deed == "sleep":
            communicator.party.timeout_s = SILENT_S
        if isinstance(transport, Striking):
            transport.left, transport.deed = 3, deed
            given[bad][0].flat[5] = np.nan if deed == "nan" else 0.0
        states = []

        def twice() -> None:
            for _ in range(2):  # a rank that has all it needs finishes, and gets the error in its next call
                states.append(crc(communicator.state_dict()))
                communicator.allreduce(given[transport.rank])

        with pytest.raises((OscarError, RuntimeError, SystemExit)) as caught:
            twice()
        assert crc(communicator.state_dict()) == states[-1]
        with pytest.raises(PeerError, match="failed before"):
            communicator.allreduce(given[transport.rank])
        return caught.value

    for rank, error in enumerate(on_ranks(transports, work)):
        if rank == bad and deed != "corrupt":
            assert isinstance(error, {"nan": GradientError, "raise": RuntimeError}.get(deed, SystemExit))
            continue
        assert isinstance(error, PeerError)
        assert error.peer == bad
        assert f"rank {bad}" in str(error)
        if deed in ("corrupt", "close", "sleep"):
            assert 0 <= error.chunk < nodes
            assert f"step {error.step} of the " in str(error)
            assert f", chunk {error.chunk}" in str(error)
        else:
            assert {"nan": "NaN", "raise": "out of luck"}[deed] in str(error)
