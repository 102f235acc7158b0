"""Ranks that are no neighbours on a ring: heard when they abort, die or stay silent, at little cost."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import pytest

from needs import TRANSPORTS, needs
from oscar.transports import base
from oscar.transports.base import CONTROL_TAG, Bytes, Notice, Transport, TransportError
from oscar.transports.keyed import KeyedTransport
from oscar.transports.threads import ThreadTransport, local_transports
from oscar_lab.lab.launch import launch
from support import direct
from support.ranks import on_ranks

NODES = 5
TIMEOUT_S = 30.0  # that nobody reaches but one who is to be found silent
SILENT_S = 3.0
LIMIT_S = 120.0
SEND_S = 0.02  # at least: a busy machine sleeps longer
MISTAKE = Notice(rank=direct.VICTIM, peer=-1, step=0, chunk=0, reason="a mistake")


@pytest.mark.parametrize(("shape", "keyed"), [("direct", False), ("chain", False), ("chain", True)])
@pytest.mark.parametrize(
    ("fault", "said"), [("none", ""), ("abort", "gave up"), ("die", "died"), ("silent", "silent")]
)
def test_who_fails_is_named_by_every_rank(fault: str, said: str, shape: str, keyed: bool) -> None:
    key = os.urandom(32)

    def work(end: Transport) -> Any:
        transport = KeyedTransport(end, key, timeout_s=20) if keyed else end
        deeds = {
            "abort": lambda: transport.abort(MISTAKE),
            "die": transport.close,
            "silent": lambda: time.sleep(2 * SILENT_S),
        }
        deed = deeds.get(fault) if end.rank == direct.VICTIM else None
        return direct.outcome(transport, shape, SILENT_S if fault == "silent" else TIMEOUT_S, deed)

    results = on_ranks(local_transports(NODES), work)
    named = -1 if fault == "none" else direct.VICTIM
    for rank, (blamed, text) in enumerate(results):
        if fault == "none" or rank != direct.VICTIM:
            assert (blamed, said in text) == (named, True), (rank, results)


@pytest.mark.parametrize(
    ("transport", "fault", "shape"),
    [("tcp", "kill", "direct"), ("tcp", "stop", "chain"), ("mpi", "kill", "chain")],
)
def test_a_process_that_fails_is_named_by_every_rank(transport: str, fault: str, shape: str) -> None:
    needs(TRANSPORTS[transport])
    token, timeout_s = f"oscar-{time.monotonic_ns()}", 4.0
    program = [direct.__file__, transport, fault, shape, str(timeout_s), token]
    ended = launch(transport, NODES, program, limit_s=LIMIT_S, token=token)
    lines = [json.loads(line) for line in ended.output.splitlines() if line.startswith('{"rank"')]
    assert sorted(line["rank"] for line in lines) == [1, 2, 3, 4], ended.output
    assert {line["named"] for line in lines} == {direct.VICTIM}, lines
    assert not ended.orphans


def test_a_peer_among_many_is_heard_while_another_is_waited_for() -> None:
    ends = local_transports(64)
    ends[40].meet([5])
    ends[5].meet(range(64))
    ends[5].meet([40])  # again: nothing is expected twice
    begin = time.monotonic()
    with pytest.raises(TransportError, match="was silent"):
        ends[5].wait(6, 7, begin + 0.2)  # by now, listening to all comes in rounds
    ends[40].abort(Notice(rank=40, peer=-1, step=0, chunk=0, reason="enough"))
    begin = time.monotonic()
    with pytest.raises(TransportError, match="rank 40 gave up: enough"):
        ends[5].wait(6, 7, begin + TIMEOUT_S)


def test_a_long_wait_spends_little_on_listening_to_many(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: dict[int, int] = {}
    ends = local_transports(200)  # kept: one that nobody holds closes
    end = ends[0]
    end.meet(range(200))
    hear, clock = end._hear, [0.0]

    def passes(seconds: float) -> float:
        clock[0] += seconds
        return clock[0]

    def counted(peer: int) -> None:
        looks[peer] = looks.get(peer, 0) + 1
        passes(1e-4)  # of a slow library
        hear(peer)

    monkeypatch.setattr(time, "monotonic", lambda: passes(1e-6))
    monkeypatch.setattr(end, "_hear", counted)
    monkeypatch.setattr(end, "_pause", lambda tries: None)
    with pytest.raises(TransportError, match="was silent"):
        end.wait(77, 7, 1.0)
    assert 3 <= looks[78] <= 30  # a round takes 20 ms and more; then 50 ms pass without
    assert looks[77] > 20 * looks[78]


def test_whom_nobody_met_is_not_waited_for() -> None:
    end = local_transports(NODES)[0]
    with pytest.raises(ValueError, match="rank 0 would wait for rank 2 and has not met it"):
        end.post_recv(2, 7, 10)
    for stranger in (-1, NODES):
        with pytest.raises(ValueError, match=f"expected ranks of 0 to 4 to meet, got {stranger}"):
            end.meet([1, stranger])
    end.meet(range(NODES))
    assert list(end.neighbours) == [1, 4, 2, 3]  # those of the ring are told first


class Slow(ThreadTransport):
    """Sends take long, and what is sent stays under way."""

    def _send(self, peer: int, tag: int, parts: tuple[Bytes, ...]) -> None:
        self.told = [*getattr(self, "told", []), peer]
        time.sleep(SEND_S)

    def _unsent(self) -> list[tuple[int, int]]:
        return [(peer, CONTROL_TAG) for peer in self.told]


def test_telling_many_takes_no_longer_than_it_may_and_holds_up_no_flush() -> None:
    end = local_transports(256)[0]
    end.__class__ = Slow
    end.meet(range(256))
    end.abort(MISTAKE)
    assert end.told[:2] == [1, 255]  # type: ignore[attr-defined]
    assert len(end.told) <= base.ABORT_S / SEND_S + 1  # type: ignore[attr-defined]
    end.flush(time.monotonic())  # signs of life, and such, are read later
