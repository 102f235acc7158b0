"""The in-process transport: mailboxes instead of wires, no threads, and faults at any chosen action."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from oscar.errors import PeerError

FaultKind = Literal["kill", "stall", "corrupt", "delay"]


@dataclass(frozen=True)
class Fault:
    """What goes wrong on `rank` when it is about to perform its action number `action`.

    kill: it is gone, and its peers can tell; stall: it does nothing more, and only the deadline tells;
    corrupt: one bit of the next frame it sends is flipped; delay: it pauses for `rounds` scheduler rounds.
    """

    kind: FaultKind
    rank: int
    action: int
    rounds: int = 8

    def __post_init__(self) -> None:
        if self.kind not in ("kill", "stall", "corrupt", "delay"):
            raise ValueError(f"fault must be kill, stall, corrupt or delay, got {self.kind!r}")
        if min(self.rank, self.action, self.rounds) < 0:
            raise ValueError(f"rank, action and rounds of a fault are 0 or more, got {self}")


class LocalTransport:
    """Frames between the nodes of one process; a send without a posted receive of that cap is refused."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self._caps: dict[tuple[int, int, int], int] = {}
        self._frames: dict[tuple[int, int, int], bytes] = {}

    def post_recv(self, rank: int, peer: int, tag: int, cap: int) -> None:
        """Make room on `rank` for a frame of up to `cap` bytes from `peer`."""
        self._caps[(peer, rank, tag)] = cap

    def post_send(self, rank: int, peer: int, tag: int, frame: bytes) -> None:
        """Deliver `frame` from `rank` to `peer`; raises ValueError where nobody made room for it."""
        key = (rank, peer, tag)
        cap = self._caps.get(key)
        if cap is None or len(frame) > cap:
            room = "no receive was posted" if cap is None else f"at most {cap} bytes fit"
            raise ValueError(f"rank {rank} sent {len(frame)} bytes to rank {peer} (tag {tag}), {room}")
        self._frames[key] = frame

    def take(self, rank: int, peer: int, tag: int) -> bytes | None:
        """Return the frame from `peer` if it has arrived."""
        return self._frames.pop((peer, rank, tag), None)

    @property
    def pending(self) -> int:
        """Frames delivered and not taken."""
        return len(self._frames)


def damaged(frame: bytes, seed: int) -> bytes:
    """Return `frame` with one bit flipped, at a place that depends on `seed`."""
    bit = (seed * 2654435761) % (8 * len(frame))
    out = bytearray(frame)
    out[bit // 8] ^= 1 << (bit % 8)
    return bytes(out)


def silent(rank: int, peer: int, step: int, chunk: int, *, dead: bool) -> PeerError:
    """The error of a node whose peer will never send what it waits for."""
    what = "died" if dead else "was silent past the deadline"
    return PeerError(
        f"rank {rank}: peer {peer} {what} while its frame of step {step}, chunk {chunk} was due; "
        f"gradients are untouched: restart rank {peer}",
        advice=", or go on without it",
        rank=rank,
        peer=peer,
        step=step,
        chunk=chunk,
    )
