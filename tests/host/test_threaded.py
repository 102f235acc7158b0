"""Coding in threads: equal sums, frames and states, whatever the schedule; damage and deaths are told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oscar.collective import threaded
from oscar.collective.actions import Op
from oscar.collective.node import Node
from oscar.config import Config
from oscar.errors import FrameError, PeerError
from oscar.reducers.communicator import Communicator
from oscar.transports.threads import local_transports
from support.ranks import on_ranks


@pytest.fixture
def threads_pay(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let short frames be worth a thread; return a list that grows with each use."""
    used: list[int] = []
    monkeypatch.setattr(threaded, "LEAST_VALUES", 1)
    perform = threaded.perform

    def noted(node: Node, *args: Any) -> None:
        used.append(node.rank)
        perform(node, *args)

    monkeypatch.setattr(threaded, "perform", noted)
    return used


def run(config: Config, calls: list[list[np.ndarray]]) -> list[Any]:
    """Return for each rank its means [call], its bytes [call] and the state of its links."""

    def work(transport: Any) -> Any:
        one = Communicator(config, transport, timeout_s=30)
        results = [one.allreduce([gradients[transport.rank]]) for gradients in calls]
        means = [result.mean[0].copy() for result in results]
        return means, [result.stats.sent_bytes for result in results], one.state_dict()

    return on_ranks(local_transports(config.nodes), work)


@pytest.mark.usefixtures("threads_pay")
def test_a_frame_that_does_not_decode_ends_the_call_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config.model_validate({"nodes": 4, "schedule": {"name": "direct"}, "threads": 2})
    decode, struck = Node._decode, []

    def bad(node: Node, action: Any, *args: Any, **more: Any) -> None:
        if node.rank == 2 and action.phase and not struck:
            struck.append(action)
            raise node._bad(action, FrameError("struck by the test"))
        decode(node, action, *args, **more)

    monkeypatch.setattr(Node, "_decode", bad)
    gradients = [np.linspace(-1, 1, 9000, dtype=np.float32) * (rank + 1) for rank in range(4)]
    results = run(config, [gradients, gradients])
    assert all(isinstance(error, PeerError) for error in results)
    assert "struck by the test" in str(results[2])


@pytest.mark.usefixtures("threads_pay")
def test_an_error_of_the_coder_is_raised_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config.model_validate({"nodes": 3, "schedule": {"name": "direct"}, "threads": 2})
    encode = Node._encode

    def fails(node: Node, action: Any) -> None:
        if node.rank == 1 and action.phase:
            raise MemoryError("struck by the test")
        encode(node, action)

    monkeypatch.setitem(Node._HANDLERS, Op.ENCODE, fails)
    gradients = [np.linspace(-1, 1, 9000, dtype=np.float32)] * 3
    results = run(config, [gradients])
    assert isinstance(results[1], MemoryError)
    assert all(isinstance(error, PeerError) for error in (results[0], results[2]))
