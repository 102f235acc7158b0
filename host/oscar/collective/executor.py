"""The loop that performs a rank's actions: in process, over a transport, and in the time model."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, Protocol

from oscar.array import Array
from oscar.collective.actions import SENDS, Action, Op
from oscar.collective.frames import FrameLog


class Performer(Protocol):
    """An object that performs actions: a Node with values, or a stand-in that only knows frame sizes."""

    rank: int

    def count(self, action: Action) -> int:
        """Return the number of values in the action's frame. An empty frame is never sent."""

    def coding_work(self, action: Action) -> Array | None:
        """Return the NIC's work for the action's frame (`Codec.work`); None where it is not known."""

    def cap(self, action: Action) -> int:
        """Return an upper bound of the action's frame, in bytes."""

    def receive(self, action: Action, frame: bytes) -> None:
        """Keep the frame that a WAIT has received."""

    def perform(self, action: Action) -> bytes | memoryview | None:
        """Perform any other action; return the frame of a SEND or FORWARD."""


class TransportEnd(Protocol):
    """The part of a rank's transport that never waits."""

    def post_recv(self, peer: int, tag: int, cap: int) -> None: ...

    def post_send(self, peer: int, tag: int, frame: Any) -> None: ...


def execute(
    node: Performer, actions: Iterable[Action], port: TransportEnd, log: FrameLog
) -> Generator[Action, Any, None]:
    """Perform `actions` on `node`. Each action is yielded first and performed when the driver resumes.

    The driver resumes a WAIT with the received frame. Actions on empty sub-frames are left out.
    """
    for action in actions:
        count = node.count(action)
        if count == 0:
            continue
        arrived = yield action
        if action.op is Op.POST_RECV:
            port.post_recv(action.peer, action.tag, node.cap(action))
        elif action.op is Op.WAIT:
            assert arrived is not None
            node.receive(action, arrived)
        else:
            frame = node.perform(action)
            if frame is not None and action.op in SENDS:
                log.add(action, node.rank, len(frame), count, node.coding_work(action))
                port.post_send(action.peer, action.tag, frame)


def drive(program: Generator[Action, Any, None], wait: Callable[[Action], Any]) -> None:
    """Run a generator of `execute` to its end. wait: returns the frame for a WAIT."""
    action = next(program, None)
    while action is not None:
        arrived = wait(action) if action.op is Op.WAIT else None
        try:
            action = program.send(arrived)
        except StopIteration:
            return
