"""A rank's part of the host's schedule as commands of oscar_nic, with what each has to wait for."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from oscar.coding.frame import Header
from oscar.collective.actions import Action, Op, Phase
from oscar.collective.schedule import Schedule
from oscar_hdl.nic.ports import TO_ALL


class Key(NamedTuple):
    """What names a frame among those that a NIC sees in an AllReduce; source: the rank that encodes it."""

    phase: Phase
    source: int
    chunk: int
    sub: int

    @classmethod
    def of(cls, frame: Action) -> Key:
        """Return the key of an action's frame."""
        return cls(frame.phase, frame.source, frame.chunk, frame.sub)

    @classmethod
    def of_header(cls, source: int, header: Header, nodes: int) -> Key:
        """Return the key of a frame that arrives; final ones sum all workers."""
        phase = Phase.ALL_GATHER if header.step == nodes - 1 else Phase.REDUCE_SCATTER
        return cls(phase, source, header.chunk, header.sub)


@dataclass(frozen=True)
class Receive:
    """Decode a frame and add it, or adopt it; sends: those that must be encoded before (their numbers)."""

    frame: Action
    adopt: bool
    sends: tuple[int, ...] = ()


@dataclass
class Send:
    """Encode the partial sum of a chunk for `peers`; receives: those that must be decoded before."""

    frame: Action
    receives: tuple[Key, ...] = ()
    peers: list[int] = field(default_factory=list)

    @property
    def destination(self) -> int:
        """The peer, or all."""
        return self.peers[0] if len(self.peers) == 1 else TO_ALL


@dataclass
class Programme:
    """All that a NIC does in an AllReduce.

    receives: by frame, given when the frame comes, in whatever order that is; sends: in the order in which
    they are given; forwards: to whom a frame that comes is passed on unchanged.
    """

    receives: dict[Key, Receive] = field(default_factory=dict)
    sends: list[Send] = field(default_factory=list)
    forwards: dict[Key, list[int]] = field(default_factory=lambda: defaultdict(list))


def programme(rank: int, schedule: Schedule) -> Programme:
    """Return what the NIC of `rank` does.

    Raises ValueError for a schedule that keeps sums apart, or has a frame for some peers, not one or all.
    """
    if schedule.apart:
        raise ValueError(f"schedule {schedule.name} keeps two sums apart, a NIC's memory holds one")
    made = Programme()
    added: dict[tuple[int, int], list[Key]] = defaultdict(list)  # by chunk and sub-frame
    encoded: dict[tuple[int, int], list[int]] = defaultdict(list)
    for action in schedule.actions(rank):
        part = action.chunk, action.sub
        if action.op is Op.ENCODE:
            encoded[part].append(len(made.sends))
            made.sends.append(Send(action, tuple(added[part])))
        elif action.op is Op.SEND:
            made.sends[encoded[part][-1]].peers.append(action.peer)
        elif action.op in (Op.DECODE_ADD, Op.DECODE):
            adopt = action.op is Op.DECODE
            made.receives[Key.of(action)] = Receive(action, adopt, tuple(encoded[part]))
            added[part].append(Key.of(action))
        elif action.op is Op.FORWARD:
            made.forwards[Key.of(action)].append(action.peer)
    for send in made.sends:
        if len(send.peers) not in (1, schedule.nodes - 1):
            raise ValueError(f"schedule {schedule.name} has a frame for {send.peers}: expected one or all")
    return made
