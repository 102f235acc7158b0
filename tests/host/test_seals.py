"""Everything that ranks exchange has a checksum, and so has the state that they share."""

from __future__ import annotations

import argparse
import importlib.util
from typing import Any

import pytest

from oscar.config import Config
from oscar.errors import PeerError
from oscar.reducers.communicator import Communicator
from oscar.transports.base import GATHER_TAGS
from oscar.transports.threads import ThreadTransport, local_transports
from oscar_lab.trials import flips
from support.gradients import laplace
from support.ranks import on_ranks

CONFIG = Config.model_validate({"plan": {"name": "splitter", "granule": 64}})
NODES, SHAPES = 3, [(700,)]


def flipped(*words: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    flips.add_arguments(parser)
    return flips.run(parser.parse_args(words))


def test_a_bit_of_any_message_is_told_or_without_effect() -> None:
    """A slice of the benchmark with a seed of its own, which is printed."""
    plays = ["asc", "fp32", "notice"] + ["powersgd"] * (importlib.util.find_spec("torch") is not None)
    result = flipped("--transport", "threads", "--plays", *plays, "--every", "61")
    assert result["ok"], result["faults"]
    assert result["told"] > 100
    assert {"frame", "handshake", "shapes", "steps of tensors", "state digests", "a gather", "control"} <= {
        row["message"] for row in result["rows"]
    }


class _Behind(ThreadTransport):
    """Damages one message before it is sealed, as a bug or bad memory would."""

    tag, left = GATHER_TAGS[0], 0

    def post_send(self, peer: int, tag: int, frame: Any) -> None:
        if tag == self.tag:
            self.left -= 1
            if self.left == 0:
                frame = bytes([frame[0] ^ 1]) + bytes(frame[1:])
        super().post_send(peer, tag, frame)


def test_steps_that_came_to_differ_are_found_in_the_same_call() -> None:
    """Rank 1, and through it rank 2, receives the summaries of rank 0 with a flipped bit and a valid seal."""
    transports = local_transports(NODES)
    transports[0].__class__ = _Behind

    def work(transport: ThreadTransport) -> Any:
        communicator = Communicator(CONFIG, transport, timeout_s=20)
        if isinstance(transport, _Behind):
            transport.left = 2  # after the shapes come the steps
        return communicator.allreduce(laplace(transport.rank, 0, SHAPES))

    errors = on_ranks(transports, work)
    assert all(isinstance(error, PeerError) for error in errors), errors
    assert any("has another replicated state than this rank, in its steps" in str(error) for error in errors)


def _of(communicator: Communicator) -> Any:
    return communicator.states[0].scheme


PARTS = {
    "iterations": lambda replica: setattr(replica, "iteration", 7),
    "steps": lambda replica: replica.steps.variances.__setitem__(0, replica.steps.variances[0] + 1),
    "classes": lambda replica: replica.position.classes.__setitem__(5, 9),
    "costs": lambda replica: replica.costs.__setitem__(0, 1 << 20),
}


@pytest.mark.parametrize("part", PARTS)
def test_a_state_that_drifted_is_named_at_the_next_call_with_rank_and_part(part: str) -> None:
    def work(transport: ThreadTransport) -> Any:
        communicator = Communicator(CONFIG, transport, timeout_s=20)
        communicator.allreduce(laplace(transport.rank, 0, SHAPES))
        if transport.rank == 1:
            PARTS[part](_of(communicator))
        return communicator.allreduce(laplace(transport.rank, 1, SHAPES))

    errors = on_ranks(local_transports(NODES), work)
    assert all(isinstance(error, PeerError) for error in errors), errors
    assert f"rank 1 has another replicated state than this rank, in its {part};" in str(errors[2])
    assert errors[2].peer == 1


def test_a_rank_that_lacks_a_step_is_told_and_waits_for_nobody() -> None:
    def work(transport: ThreadTransport) -> Any:
        communicator = Communicator(CONFIG, transport, timeout_s=60)
        communicator.allreduce(laplace(transport.rank, 0, SHAPES))
        if transport.rank == 1:
            _of(communicator).steps.exponents[0] = None
        return communicator.allreduce(laplace(transport.rank, 1, SHAPES))

    errors = on_ranks(local_transports(NODES), work)
    assert all(isinstance(error, PeerError) for error in errors), errors
    assert "in its steps" in str(errors[2])
