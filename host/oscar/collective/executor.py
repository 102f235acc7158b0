"""The one loop that performs a rank's actions: in process, over a transport, and in replays."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any, Protocol

from oscar.array import Array
from oscar.collective.actions import SENDS, Action, Op
from oscar.collective.frames import FrameLog


class Performer(Protocol):
    """Performs actions: a Node, which has the values, or something that only knows the frames' sizes."""

    rank: int

    def count(self, action: Action) -> int:
        """Return how many values the action's frame has; one without values is never sent."""

    def coding_work(self, action: Action) -> Array | None:
        """Return what coding the action's frame is to a NIC (`Codec.work`), where that is known."""

    def cap(self, action: Action) -> int:
        """Return the bytes that the action's frame never exceeds."""

    def receive(self, action: Action, frame: bytes) -> None:
        """Keep the frame that a WAIT waited for."""

    def perform(self, action: Action) -> bytes | memoryview | None:
        """Do any other action; return the frame of a SEND or FORWARD."""


class TransportEnd(Protocol):
    """One rank's end of a transport: the part that never waits."""

    def post_recv(self, peer: int, tag: int, cap: int) -> None: ...

    def post_send(self, peer: int, tag: int, frame: Any) -> None: ...


def execute(
    node: Performer, actions: Iterable[Action], port: TransportEnd, log: FrameLog
) -> Generator[Action, Any, None]:
    """Perform `actions` on `node`. Each is yielded first, and performed when the driver resumes.

    The driver resumes a WAIT with the frame that came. Actions on empty sub-frames are left out.
    """
    for action in actions:
        count = node.count(action)
        if count == 0:
            continue
        came = yield action
        if action.op is Op.POST_RECV:
            port.post_recv(action.peer, action.tag, node.cap(action))
        elif action.op is Op.WAIT:
            assert came is not None
            node.receive(action, came)
        else:
            frame = node.perform(action)
            if frame is not None and action.op in SENDS:
                log.add(action, node.rank, len(frame), count, node.coding_work(action))
                port.post_send(action.peer, action.tag, frame)


def drive(program: Generator[Action, Any, None], wait: Callable[[Action], Any]) -> None:
    """Perform a whole program of `execute`; wait: returns the frame that a WAIT is for."""
    action = next(program, None)
    while action is not None:
        came = wait(action) if action.op is Op.WAIT else None
        try:
            action = program.send(came)
        except StopIteration:
            return
