"""Exports a schedule as MSCCL's XML, which some runtimes read (docs/reference/schedules.md)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple
from xml.etree import ElementTree

from oscar.collective.actions import SENDS, Action, Op
from oscar.collective.check import check
from oscar.collective.schedule import Schedule
from oscar.errors import ConfigError

_Tb = tuple[int, int, int]  # thread block: phase, peer to send to, peer to receive from (-1: none)


class _At(NamedTuple):
    """The position of a step: its thread block, and its number there."""

    tb: _Tb
    place: int


@dataclass
class _Step:
    kind: str  # s: send; r: receive; rrc: receive, reduce and copy
    cell: int  # the sub-frame's number in the buffer
    needs: list[_At] = field(default_factory=list)


@dataclass
class _Cell:
    """The last step that wrote a piece of the buffer, and the steps that have read it since."""

    wrote: _At | None = None
    read: list[_At] = field(default_factory=list)


def to_msccl(schedule: Schedule, name: str | None = None) -> str:
    """Return `schedule` as MSCCL XML: a deterministic in-place allreduce, one GPU for each rank.

    Each sub-frame becomes an MSCCL chunk. A rank has two thread blocks for each phase and peer, one to send
    and one to receive; each phase has its own channel. A step depends on earlier steps that read or write the
    same piece. MSCCL moves plain floats; nothing is coded.
    Raises ConfigError where `schedule` breaks a rule, or would deadlock on links that keep their order;
    ValueError for a schedule that is for integers only, or has ranks without values.

    >>> from oscar.collective.schedules import make_schedule
    >>> to_msccl(make_schedule("ring", 2), name="pair").startswith('<algo name="pair"')
    True
    """
    if schedule.integers:
        raise ValueError(
            f"expected a schedule whose owners send final sums, got {schedule.name}: its ranks add in "
            "different orders, so sums of floats would differ; take ring, direct, hierarchical, star or file"
        )
    if schedule.valued < schedule.nodes:
        raise ValueError(
            f"expected a schedule of ranks that have values, got {schedule.name}: its last ranks add for them"
        )
    check(schedule)
    ranks = [_rank(schedule, rank) for rank in range(schedule.nodes)]
    _check_order(schedule, ranks)
    pieces = schedule.chunks * schedule.subframes
    algo = ElementTree.Element(
        "algo", name=name or f"oscar-{schedule.name}-{schedule.digest}", proto="Simple", nchannels="2",
        nchunksperloop=str(pieces), ngpus=str(schedule.nodes), coll="allreduce", inplace="1", outofplace="0",
        redop="sum", minBytes="0", maxBytes=str(1 << 40),
    )  # fmt: skip
    for rank, blocks in enumerate(ranks):
        gpu = ElementTree.SubElement(
            algo, "gpu", id=str(rank), i_chunks=str(pieces), o_chunks="0", s_chunks="0"
        )
        _write(gpu, blocks)
    ElementTree.indent(algo)
    return ElementTree.tostring(algo, encoding="unicode") + "\n"


_Blocks = dict[_Tb, list[_Step]]


def _rank(schedule: Schedule, rank: int) -> _Blocks:
    """Return a rank's steps by thread block, each with its dependencies.

    Links keep their order, so a thread block receives in the order in which the peer sends.
    """
    order = {
        (peer, a.tag): place
        for peer in schedule.peers(rank)
        for place, a in enumerate(schedule.actions(peer))
        if a.op in SENDS and a.peer == rank
    }
    mine = [a for a in schedule.actions(rank) if a.op in SENDS or a.op is Op.WAIT]
    adds = {_frame(a) for a in schedule.actions(rank) if a.op is Op.DECODE_ADD}
    received: dict[_Tb, list[Action]] = defaultdict(list)
    for a in mine:
        if a.op is Op.WAIT:
            received[a.phase, -1, a.peer].append(a)
    places = {
        (a.peer, a.tag): place
        for actions in received.values()
        for place, a in enumerate(sorted(actions, key=lambda a: order[a.peer, a.tag]))
    }
    blocks: _Blocks = {tb: [_Step("r", 0)] * len(actions) for tb, actions in received.items()}
    cells: dict[int, _Cell] = defaultdict(_Cell)
    for a in mine:
        cell = a.chunk * schedule.subframes + a.sub
        if a.op is Op.WAIT:
            at = _At((a.phase, -1, a.peer), places[a.peer, a.tag])
            blocks[at.tb][at.place] = _Step(
                "rrc" if _frame(a) in adds else "r", cell, _writes(cells[cell], at)
            )
        else:
            tb = (a.phase, a.peer, -1)
            at = _At(tb, len(blocks.setdefault(tb, [])))
            blocks[tb].append(_Step("s", cell, _reads(cells[cell], at)))
    return blocks


def _frame(a: Action) -> tuple[int, ...]:
    return a.phase, a.source, a.chunk, a.sub


def _reads(cell: _Cell, at: _At) -> list[_At]:
    cell.read.append(at)
    return [cell.wrote] if cell.wrote is not None else []


def _writes(cell: _Cell, at: _At) -> list[_At]:
    needs = cell.read or ([cell.wrote] if cell.wrote is not None else [])
    cell.wrote, cell.read = at, []
    return needs


def _check_order(schedule: Schedule, ranks: list[_Blocks]) -> None:
    """Raise ConfigError unless all steps can run in the order of their thread blocks."""
    done = [dict.fromkeys(blocks, 0) for blocks in ranks]
    moved = True
    while moved:
        moved = False
        for rank, blocks in enumerate(ranks):
            for tb, steps in blocks.items():
                while done[rank][tb] < len(steps) and _ready(rank, tb, steps[done[rank][tb]], done):
                    done[rank][tb], moved = done[rank][tb] + 1, True
    for rank, blocks in enumerate(ranks):
        for tb, steps in blocks.items():
            if done[rank][tb] < len(steps):
                chunk = steps[done[rank][tb]].cell // schedule.subframes
                half = "all-gather" if tb[0] else "reduce-scatter"
                raise ConfigError(
                    f"schedule {schedule.name}: rank {rank}, step {done[rank][tb]} of the {half} with rank "
                    f"{max(tb[1:])}, chunk {chunk}: expected an order that links can keep, got a deadlock; "
                    "export the schedule with one sub-frame, or export another schedule"
                )


def _ready(rank: int, tb: _Tb, step: _Step, done: list[dict[_Tb, int]]) -> bool:
    """Whether a step can run: its dependencies are done, and a receive's frame has been sent."""
    phase, _, source = tb
    if source >= 0 and done[source].get((phase, rank, -1), 0) <= done[rank][tb]:
        return False
    return all(done[rank][need.tb] > need.place for need in step.needs)


def _write(gpu: ElementTree.Element, blocks: _Blocks) -> None:
    """Write the thread blocks of a rank. MSCCL allows one dependency per step; a `nop` carries each other."""
    numbers = {tb: number for number, tb in enumerate(sorted(blocks))}
    placed: dict[_At, int] = {}
    needed = {need for steps in blocks.values() for step in steps for need in step.needs}
    waits = {tb: [_others(tb, step) for step in steps] for tb, steps in blocks.items()}
    for tb, needs in waits.items():
        place = 0
        for number, others in enumerate(needs):
            place += max(1, len(others))
            placed[_At(tb, number)] = place - 1
    for tb, number in numbers.items():
        block = ElementTree.SubElement(
            gpu, "tb", id=str(number), send=str(tb[1]), recv=str(tb[2]), chan=str(tb[0])
        )
        for at, step in enumerate(blocks[tb]):
            others = waits[tb][at]
            lines: Iterator[tuple[str, _At | None]] = iter(
                [("nop", need) for need in others[:-1]] + [(step.kind, others[-1] if others else None)]
            )
            for kind, need in lines:
                real = kind != "nop"
                ElementTree.SubElement(
                    block, "step", s=str(len(block)), type=kind,
                    srcbuf="i", srcoff=str(step.cell if real else -1),
                    dstbuf="i", dstoff=str(step.cell if real else -1), cnt=str(int(real)),
                    depid=str(numbers[need.tb] if need else -1), deps=str(placed[need] if need else -1),
                    hasdep=str(int(real and _At(tb, at) in needed)),
                )  # fmt: skip


def _others(tb: _Tb, step: _Step) -> list[_At]:
    """Return a step's dependencies outside its own thread block; steps inside one run in order anyway."""
    return [need for need in step.needs if need.tb != tb]
