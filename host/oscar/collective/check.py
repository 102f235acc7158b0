"""Checks a schedule: follows the actions of all its ranks, without values and without a clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, NoReturn

from oscar.collective.actions import MAX_SLOTS, SENDS, Action, Op, Phase
from oscar.collective.schedule import Schedule
from oscar.errors import ConfigError

CORRECT = "correct the schedule, or take a built-in one"
FEWER = "take it for fewer ranks, or another schedule"
MAX_TABLE = MAX_CHUNK = (1 << 16) - 1  # a frame's header has 16 bits for each

_RECEIVES = (Op.POST_RECV, Op.WAIT)
_TAKES = (Op.DECODE_ADD, Op.DECODE, Op.ADOPT)
_SAME = ("phase", "step", "chunk", "sub", "source", "table", "terms", "slot")
_Place = tuple[int, int]  # chunk, sub-frame
_Wire = tuple[int, int, int]  # sender, receiver, tag
_End = tuple[int, Phase, int]  # rank, phase, peer or source: one encoder or decoder with its tables


class _Frame(NamedTuple):
    """A frame under way.

    terms: ranks that it sums, as bits.
    table: set of tables that coded it.
    end: its encoder.
    number: how many frames that encoder had coded, this one included.
    """

    terms: int
    table: int
    end: _End
    number: int


def check(schedule: Schedule) -> None:
    """Raise ConfigError for the first rule that `schedule` breaks; the message names rank, step and chunk.

    docs/reference/schedules.md lists the rules. Every action of every rank and sub-frame is followed once.

    >>> from oscar.collective.schedules import make_schedule
    >>> check(make_schedule("hierarchical", 8, group=4))
    """
    check_programs(schedule, [list(schedule.actions(rank)) for rank in range(schedule.nodes)])


def check_programs(schedule: Schedule, programs: Sequence[Sequence[Action]]) -> None:
    """Check `programs`, the actions by rank, against the rules of `schedule`; see `check`."""
    if len(programs) != schedule.nodes:
        raise ConfigError(
            f"schedule {schedule.name}: expected a program for each of {schedule.nodes} ranks, "
            f"got {len(programs)}; write one for every rank"
        )
    _Ranges(schedule).check(programs)
    _Wires(schedule).check(programs)
    _Run(schedule, programs).check()


class _Rules:
    """The base of all checks: refuses a schedule with the place of the broken rule."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.every = (1 << schedule.valued) - 1

    def refuse(self, rank: int, action: Action, what: str) -> NoReturn:
        raise ConfigError(
            f"schedule {self.schedule.name}: rank {rank}, {action.place}, sub-frame {action.sub}: {what}; "
            f"{CORRECT if self.schedule.name == 'file' else FEWER}"
        )


class _Ranges(_Rules):
    """Checks that every number is in its range, and that receives come first."""

    def check(self, programs: Sequence[Iterable[Action]]) -> None:
        for rank, program in enumerate(programs):
            begun: Action | None = None
            for action in program:
                self._check(rank, action)
                if action.op is not Op.POST_RECV:
                    begun = action
                elif begun is not None:
                    self.refuse(rank, action, "expected all receives posted first, this one comes later")

    def _check(self, rank: int, action: Action) -> None:
        s, wired = self.schedule, action.op in _RECEIVES or action.op in SENDS
        for name, value, limit in (
            ("chunk", action.chunk, min(s.chunks, MAX_CHUNK + 1)),
            ("sub-frame", action.sub, s.subframes),
            ("slot", action.slot, MAX_SLOTS),
            ("table", action.table, MAX_TABLE + 1),
            ("source", action.source, s.nodes),
            ("peer", action.peer, s.nodes),
        ):
            if not 0 <= value < limit and (name != "peer" or wired or value != -1):
                self.refuse(rank, action, f"expected a {name} of 0 to {limit - 1}, got {value}")
        if wired and action.peer == rank:
            self.refuse(rank, action, "expected another rank at the end of the wire, got the rank itself")
        if not 0 < action.terms <= self.every or action.workers > s.most_terms:
            self.refuse(
                rank,
                action,
                f"expected terms of 1 to {s.most_terms} of {s.nodes} ranks, got {action.terms:#x}",
            )


class _Wires(_Rules):
    """Checks that every frame has one send, one posted receive and one wait, and that the three agree."""

    def check(self, programs: Sequence[Iterable[Action]]) -> None:
        ends: dict[Op, dict[_Wire, Action]] = {Op.SEND: {}, Op.POST_RECV: {}, Op.WAIT: {}}
        for rank, program in enumerate(programs):
            for action in program:
                op = Op.SEND if action.op in SENDS else action.op
                if op in ends:
                    self._note(ends[op], rank, action, receives=op is not Op.SEND)
        posts = ends[Op.POST_RECV]
        for wire, post in posts.items():
            if wire not in ends[Op.SEND]:
                self.refuse(
                    wire[1], post, f"expected a frame from rank {wire[0]}, got none: it sends no such frame"
                )
            if wire not in ends[Op.WAIT]:
                self.refuse(wire[1], post, "expected a wait for the receive that is posted, got none")
        for wire, send in ends[Op.SEND].items():
            if wire not in posts:
                self.refuse(
                    wire[0], send, f"expected room at rank {wire[1]}, got none: it posts no such receive"
                )
            self._compare(wire[0], send, posts[wire], f"rank {wire[1]} posts")
        for wire, wait in ends[Op.WAIT].items():
            if wire not in posts:
                self.refuse(wire[1], wait, "expected a receive posted before it is waited for, got none")
            self._compare(wire[1], wait, posts[wire], "it posted")

    def _note(self, result: dict[_Wire, Action], rank: int, action: Action, *, receives: bool) -> None:
        wire = (action.peer, rank, action.tag) if receives else (rank, action.peer, action.tag)
        if wire in result:
            self.refuse(
                rank,
                action,
                f"expected a unique tag on the link {wire[0]} -> {wire[1]}, tag {wire[2]} is also used by "
                f"{result[wire].place}",
            )
        result[wire] = action

    def _compare(self, rank: int, action: Action, other: Action, who: str) -> None:
        for name in _SAME:
            mine, theirs = getattr(action, name), getattr(other, name)
            if mine != theirs:
                theirs, mine = (_ranks(n) if name == "terms" else int(n) for n in (theirs, mine))
                self.refuse(rank, action, f"expected the {name} that {who}, {theirs}, got {mine}")


class _Run(_Rules):
    """Follows all ranks until they are done: tracks the terms that every rank holds, and every frame."""

    def __init__(self, schedule: Schedule, programs: Sequence[Sequence[Action]]) -> None:
        super().__init__(schedule)
        self.programs = programs
        ranks = range(schedule.nodes)
        places = [(c, k) for c in range(schedule.chunks) for k in range(schedule.subframes)]
        self.sums = [dict.fromkeys(places, 1 << rank & self.every) for rank in ranks]
        self.apart = [dict.fromkeys(places, 0) for _ in ranks]
        self.final: list[set[_Place]] = [set() for _ in ranks]
        self.frames: list[dict[tuple[int, ...], _Frame]] = [{} for _ in ranks]
        self.wires: dict[_Wire, _Frame] = {}
        self.coded: dict[_End, int] = defaultdict(int)
        self.taken: dict[_End, int] = defaultdict(int)
        self.paired: dict[_End, tuple[_End, Action]] = {}

    def check(self) -> None:
        at, moved = [0] * len(self.programs), True
        while moved:
            moved = False
            for rank, program in enumerate(self.programs):
                while at[rank] < len(program) and self._perform(rank, program[at[rank]]):
                    at[rank], moved = at[rank] + 1, True
        for rank, program in enumerate(self.programs):
            if at[rank] < len(program):
                stuck = program[at[rank]]
                self.refuse(
                    rank, stuck, f"expected no deadlock, this action waits for rank {stuck.peer} forever"
                )
        # A decoder that misses frames of its encoder would have other tables in the next call.
        for end, (coder, action) in self.paired.items():
            coded, taken = self.coded[coder], self.taken[end]
            if taken != coded:
                self.refuse(
                    end[0], action, f"expected all {coded} frames of that coder of rank {end[2]}, got {taken}"
                )
        self._check_whole()

    def _perform(self, rank: int, a: Action) -> bool:
        """Perform one action; return False where it has to wait."""
        key = (a.phase, a.source, a.chunk, a.sub)
        frames = self.frames[rank]
        if a.op is Op.WAIT:
            arrived = self.wires.pop((a.peer, rank, a.tag), None)
            if arrived is None:
                return False
            frames[key] = arrived
        elif a.op is Op.ENCODE:
            frames[key] = self._encode(rank, a)
        elif a.op is not Op.POST_RECV:
            if key not in frames:
                self.refuse(rank, a, f"expected a frame of rank {a.source} before it is used, got none yet")
            if frames[key].terms != a.terms:
                self._wrong(rank, a, frames[key].terms)
            if frames[key].table != a.table:
                self.refuse(
                    rank, a, f"expected table {frames[key].table}, which coded the frame, got {a.table}"
                )
            if a.op in SENDS:
                self.wires[rank, a.peer, a.tag] = frames[key]
            if a.op in _TAKES:
                self._take(rank, a, frames[key] if a.op is Op.ADOPT else frames.pop(key))
        return True

    def _wrong(self, rank: int, action: Action, terms: int) -> NoReturn:
        self.refuse(
            rank, action, f"expected the terms of the sum, {_ranks(terms)}, got {_ranks(action.terms)}"
        )

    def _encode(self, rank: int, a: Action) -> _Frame:
        place = a.chunk, a.sub
        back = self.schedule.apart and a.phase is Phase.ALL_GATHER
        terms = self.apart[rank][place] | 1 << rank if back else self.sums[rank][place]
        if a.source != rank:
            self.refuse(rank, a, f"expected the rank that codes as the frame's source, got {a.source}")
        if terms != a.terms:
            self._wrong(rank, a, terms)
        end = rank, a.phase, a.peer
        self.coded[end] += 1
        return _Frame(terms, a.table, end, self.coded[end])

    def _take(self, rank: int, a: Action, frame: _Frame) -> None:
        """Decode a frame. An encoder's frames are decoded in coding order; each term is added once."""
        end, place = (rank, a.phase, a.source), (a.chunk, a.sub)
        self.taken[end] += 1
        first, _ = self.paired.setdefault(end, (frame.end, a))
        if frame.end != first or frame.number != self.taken[end]:
            self.refuse(
                rank,
                a,
                f"expected frame {self.taken[end]} of rank {a.source}, got its frame {frame.number} (table "
                f"{a.table}): frames are decoded in the order in which they were coded",
            )
        if a.op is not Op.DECODE_ADD:
            self._finish(rank, a, place)
            return
        sums = (self.apart if self.schedule.apart and a.phase else self.sums)[rank]
        twice = frame.terms & (self.sums[rank][place] | self.apart[rank][place])
        if twice:
            self.refuse(rank, a, f"expected each term once, got {_ranks(twice)} again")
        sums[place] |= frame.terms

    def _finish(self, rank: int, a: Action, place: _Place) -> None:
        owner = self.schedule.owners[a.chunk]
        if self.schedule.apart or (a.source != owner and not self.schedule.integers):
            self.refuse(
                rank, a, f"expected the final frame of the owner, rank {owner}, got one of rank {a.source}"
            )
        if a.terms != self.every:
            self.refuse(
                rank,
                a,
                f"expected the whole sum in a final frame, {_ranks(self.every & ~a.terms)} are missing",
            )
        self.sums[rank][place] = a.terms
        self.final[rank].add(place)

    def _check_whole(self) -> None:
        s = self.schedule
        owners = s.owners
        for rank, (sums, apart) in enumerate(zip(self.sums, self.apart, strict=True)):
            for place, terms in sums.items():
                mine, valued = owners[place[0]] == rank, rank < s.valued
                if not mine and not valued:
                    continue
                all_terms = terms if mine else terms | apart[place]
                if all_terms != self.every:
                    missing = _ranks(self.every & ~all_terms)
                    self._lack(rank, place, f"expected the whole sum in the end, {missing} are missing")
                added = s.integers or s.nodes == 1 or (mine and not (s.adopt and valued))
                if not added and place not in self.final[rank]:
                    self._lack(
                        rank, place, "expected the owner's final frame decoded, got the rank's own sum"
                    )

    def _lack(self, rank: int, place: _Place, what: str) -> NoReturn:
        """Refuse a rank's final state; the message gives the step of its last action with the chunk."""
        steps = [a.step for a in self.programs[rank] if a.chunk == place[0] and a.phase]
        self.refuse(rank, Action(Op.ADOPT, Phase.ALL_GATHER, max(steps, default=0), *place), what)


def _ranks(terms: int) -> str:
    """Return the ranks of `terms` in words."""
    ranks = [str(rank) for rank in range(terms.bit_length()) if terms >> rank & 1]
    shown = ranks if len(ranks) <= 8 else [*ranks[:7], f".. {len(ranks)} in all"]
    return f"rank{'s' * (len(ranks) != 1)} {', '.join(shown) or 'none'}"
