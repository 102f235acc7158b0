"""Gives a NIC its commands over AXI4-Lite and keeps both directions busy."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from oscar.collective.actions import Action
from oscar_hdl.nic.control.registers import BY_NAME, COUNTER_EVENTS, VERSION, command_values
from oscar_sim.driver.lists import Entry, entry_words, link_of, named, wholes
from oscar_sim.driver.programme import Key, Programme, Receive, Send
from oscar_sim.driver.table_sets import TableSets
from oscar_sim.errors import RtlError

Script = Generator[None, None, Any]  # a step for each clock
SHOWN = 20  # clocks from LIST_SHOW until ENTRY_STATE is that of its entry
MOST_GIVEN = 5  # commands of a direction that have not ended: four under way, one that waits


class Bus(Protocol):
    """Registers, by byte address."""

    def read(self, address: int) -> Script: ...

    def write(self, address: int, data: int) -> Script: ...


class ListStream(Protocol):
    """The stream on which lists go to the NIC. idle: all is taken."""

    idle: bool

    def put(self, words: Sequence[int]) -> None: ...


@dataclass(frozen=True)
class Place:
    """Where a sub-frame lies: first row in memory, number of values, and its first one's in the gradient."""

    row: int
    count: int
    first: int = 0


Places = Callable[[int, int], Place]
Reads = Callable[[int, int], Script]  # read the sums of a chunk and sub-frame
Whole = tuple[tuple[int, int], tuple[int, int]]  # a part, and which entry's which state says that it is


@dataclass
class Command:
    """A command that was given, and the clocks in which it was given and had ended.

    name: RECEIVE or SEND; key: what the programme calls it; count: values.
    """

    name: str
    key: Any
    frame: Action
    count: int
    given: int
    ended: int = 0


class NicDriver:
    """Performs a rank's programme; `run` and `run_list` are scripts that take a step each clock.

    list_stream: s_axis_list; then interrupts are those of lists and errors. width(workers): bits of a raw
    value; block_log2: of frames that are made. now(): the clock, for `commands`, which keeps all that were
    given.
    """

    def __init__(
        self, bus: Bus, irq: Any, *, rank: int, width: Callable[[int], int], block_log2: int,
        now: Callable[[], int] = lambda: 0, list_stream: ListStream | None = None,
    ) -> None:  # fmt: skip
        self.bus, self.irq = bus, irq
        self.rank, self.width, self.block_log2, self.now = rank, width, block_log2, now
        self.list_stream = list_stream
        self.commands: list[Command] = []
        self.coming: tuple[int, int, int, int] | None = None  # peer, step, chunk, sub of the oldest frame
        self.seen = -1  # the number of the last frame that was looked at
        self.books: dict[str, TableSets] = {}

    def attach(self) -> Script:
        """Look what the NIC is and enable interrupts; before anything else."""
        config = BY_NAME["CONFIG"].unpack((yield from self.bus.read(BY_NAME["CONFIG"].offset)))
        if config["version"] != VERSION:
            raise RtlError(f"the NIC has registers of version {config['version']}, expected {VERSION}")
        status = BY_NAME["STATUS"].unpack((yield from self.bus.read(BY_NAME["STATUS"].offset)))
        if status["block_log2"] != self.block_log2:
            raise RtlError(f"the NIC has blocks of 2^{status['block_log2']} values, not 2^{self.block_log2}")
        sets = 1 << config["sets_log2"]
        self.books = {"RECEIVE": TableSets(sets), "SEND": TableSets(sets)}
        self.ended = {"RECEIVE": 0, "SEND": 0}
        self.coming, self.seen = None, -1
        enable = BY_NAME["IRQ_ENABLE"]
        bits = enable.mask
        if self.list_stream:
            bits = enable.pack(list=1, receive_error=1, bad_frame=1, send_error=1, bad_packet=1, refused=1)
        yield from self.bus.write(enable.offset, bits)

    def run(self, programme: Programme, places: Places) -> Script:
        """Perform all commands of an AllReduce."""
        self.places = places
        to_send = deque(s for s in programme.sends if places(s.frame.chunk, s.frame.sub).count)
        receives = {
            (k.source, r.frame.table, k.chunk, k.sub): r
            for k, r in programme.receives.items()
            if places(k.chunk, k.sub).count
        }
        given: dict[str, deque[Command]] = {"RECEIVE": deque(), "SEND": deque()}
        decoded: set[Key] = set()
        encoded: set[int] = set()
        numbers = {id(send): n for n, send in enumerate(programme.sends)}
        while receives or to_send or any(given.values()):
            if self.irq:
                yield from self._ends(given)
                decoded.update(self.done["RECEIVE"])
                encoded.update(self.done["SEND"])
            if self.coming is not None:
                if (receive := receives.get(self.coming)) is None:
                    raise RtlError(
                        f"node {self.rank}: a frame came that nobody asked for; peer, step, chunk and "
                        f"sub-frame are {self.coming}"
                    )
                if encoded.issuperset(receive.sends) and (yield from self._free("RECEIVE", given)):
                    del receives[self.coming]
                    self.coming = None
                    key = Key.of(receive.frame)
                    given["RECEIVE"].append(self._noted("RECEIVE", key, receive.frame))
                    yield from self._give(receive)
            if to_send and decoded.issuperset(to_send[0].receives) and (yield from self._free("SEND", given)):
                send = to_send.popleft()
                given["SEND"].append(self._noted("SEND", numbers[id(send)], send.frame))
                yield from self._give(send)
            yield

    def _noted(self, name: str, key: Any, frame: Action) -> Command:
        count = self.places(frame.chunk, frame.sub).count
        self.commands.append(Command(name, key, frame, count, self.now()))
        return self.commands[-1]

    def _free(self, name: str, given: dict[str, deque[Command]]) -> Script:
        """Return whether a command can be given."""
        waiting = len(given[name])
        return not waiting or (waiting < MOST_GIVEN and not (yield from self._pending(name)))

    def _pending(self, name: str) -> Script:
        status = BY_NAME["STATUS"]
        return status.unpack((yield from self.bus.read(status.offset)))[f"{name.lower()}_pending"]

    def _ends(self, given: dict[str, deque[Command]]) -> Script:
        """Look which commands have ended, into `done`."""
        status = BY_NAME["IRQ_STATUS"]
        bits = yield from self.bus.read(status.offset)
        yield from self.bus.write(status.offset, bits)
        found = status.unpack(bits)
        self.done: dict[str, list[Any]] = {"RECEIVE": [], "SEND": []}
        for name, flag in (("RECEIVE", "received"), ("SEND", "sent")):
            if found[flag] or found["bad_frame"]:
                register = BY_NAME[f"{name}_RESULT"]
                result = register.unpack((yield from self.bus.read(register.offset)))
                if found["bad_frame"] or found["receive_error"] or found["send_error"]:
                    raise RtlError(f"node {self.rank}, {name}: {found}, {result} (registers.md)")
                while self.ended[name] != result["ended"]:
                    command = given[name].popleft()
                    command.ended = self.now()
                    self.done[name].append(command.key)
                    self.ended[name] = self.ended[name] + 1 & 255
        if found["bad_packet"]:
            raise RtlError(f"node {self.rank}: a packet of rows was wrong (docs/reference/registers.md)")
        if found["refused"]:
            raise RtlError(f"node {self.rank}: the NIC refused a write (docs/reference/registers.md)")
        if found["arrived"]:
            yield from self._look()

    def _look(self) -> Script:
        """Look which frame is the oldest, into `coming`."""
        register = BY_NAME["OLDEST_NAME"]
        name = register.unpack((yield from self.bus.read(register.offset)))
        if name["there"] and name["number"] != self.seen:
            register = BY_NAME["OLDEST_FRAME"]
            frame = register.unpack((yield from self.bus.read(register.offset)))
            self.seen = name["number"]
            self.coming = name["peer"], frame["step"], frame["chunk"], name["sub"]

    def _registers(self, command: Receive | Send) -> dict[str, int]:
        """Return the four registers of a command; its tables count as used."""
        name, frame = "SEND" if isinstance(command, Send) else "RECEIVE", command.frame
        place = self.places(frame.chunk, frame.sub)
        tables = self.books[name].take(link_of(command), frame.table)
        fields = {"row": place.row, "count": place.count, "width": self.width(frame.workers)}
        return command_values(name, **named(command), **fields, **tables._asdict())

    def _give(self, command: Receive | Send) -> Script:
        """Write a command's four registers."""
        for name, value in self._registers(command).items():
            yield from self.bus.write(BY_NAME[name].offset, value)

    def run_list(self, listed: Sequence[Entry], places: Places, *, reads: Reads | None = None) -> Script:
        """Let the NIC perform all commands of an AllReduce as a list, see `entries`.

        reads: is run for each part whose sums are whole, one after another, beside what asks for them.
        """
        self.places = places
        if not listed:
            return
        assert self.list_stream is not None, "a driver of lists has a stream for them"
        registers = [self._registers(entry.command) for entry in listed]
        words = [entry_words(own, entry.trigger) for own, entry in zip(registers, listed, strict=True)]
        self.list_stream.put([word for entry in words for word in entry])
        while not self.list_stream.idle:
            yield
        order, told = BY_NAME["LIST_COMMAND"], deque[tuple[int, int]]()
        yield from self.bus.write(order.offset, order.pack(entries=len(listed), run=1))
        unread = deque(wholes(listed).items() if reads else ())
        scripts = [self._watch(len(listed), unread, told)]
        if reads:
            scripts.append(_read(told, len(unread), reads))
        yield from together(scripts)

    def _watch(self, count: int, unread: deque[Whole], told: deque[tuple[int, int]]) -> Script:
        """See a list of `count` entries end; tell of each part of `unread` when its sums are whole."""
        status, result = BY_NAME["IRQ_STATUS"], BY_NAME["LIST_RESULT"]
        found = dict.fromkeys(("list", "refused"), 0)
        while not any(found.values()):  # a frame that was dropped raises an interrupt, too
            while not self.irq:
                if unread and (yield from self._reached(*unread[0][1])):
                    told.append(unread.popleft()[0])
                yield
            bits = yield from self.bus.read(status.offset)
            yield from self.bus.write(status.offset, bits)
            found = {name: status.unpack(bits)[name] for name in found}
        if found["refused"]:
            raise RtlError(f"node {self.rank}: the NIC refused a list of {count} entries")
        ended = result.unpack((yield from self.bus.read(result.offset)))
        if ended["error"]:
            raise RtlError(f"node {self.rank}: a list ended with {ended} (registers.md, LIST_RESULT)")
        told.extend(part for part, _ in unread)

    def _reached(self, entry: int, state: int) -> Script:
        """Ask whether an entry of the list that runs has come to a state."""
        show, shown = BY_NAME["LIST_SHOW"], BY_NAME["ENTRY_STATE"]
        yield from self.bus.write(show.offset, show.pack(entry=entry))
        for _ in range(SHOWN):
            yield
        return shown.unpack((yield from self.bus.read(shown.offset)))["state"] >= state

    def count_sums(self, first: int, count: int = 1) -> Script:
        """Let the next packets of sums, from value `first` of the gradient on, count for the plan, or not."""
        register = BY_NAME["PLAN_SEGMENT"]
        yield from self.bus.write(register.offset, register.pack(first=first, count=count))

    def cut_plan(self, nodes: int, blocks: int) -> Script:
        """Return where the next chunks begin, but the first, in blocks; None if they shall be equal."""
        order, result = BY_NAME["PLAN_COMMAND"], BY_NAME["PLAN_RESULT"]
        yield from self.bus.write(order.offset, order.pack(nodes=nodes, blocks=blocks, cut=1))
        status = BY_NAME["IRQ_STATUS"]
        told = dict.fromkeys(("planned", "refused"), 0)
        while not any(told.values()):
            bits = status.unpack((yield from self.bus.read(status.offset)))
            told = {name: bits[name] for name in told}
        yield from self.bus.write(status.offset, status.pack(**told))
        if told["refused"]:
            raise RtlError(f"node {self.rank}: the NIC refused to cut a plan (docs/reference/registers.md)")
        if result.unpack((yield from self.bus.read(result.offset)))["equal"]:
            return None
        edges = []
        for n in range(1, nodes):
            edges.append((yield from self.bus.read(BY_NAME[f"PLAN_EDGE_{n}"].offset)))
        return edges

    def counters(self) -> Script:
        """Return all counters by name."""
        result = {}
        for name, _ in COUNTER_EVENTS:
            result[name] = yield from self.bus.read(BY_NAME[name].offset)
        return result


def together(scripts: Iterable[Script]) -> Script:
    """Run scripts side by side until all are done."""
    running = list(scripts)
    while running:
        running = [script for script in running if next(script, "end") != "end"]
        yield


def _read(told: deque[tuple[int, int]], parts: int, reads: Reads) -> Script:
    """Read so many parts, each when it is told of."""
    for _ in range(parts):
        while not told:
            yield
        yield from reads(*told.popleft())
