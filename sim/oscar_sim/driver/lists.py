"""A rank's programme as a list of commands, which the NIC runs by itself (nic-on-a-board.md, "A list")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from oscar.collective.actions import Action, Phase
from oscar.errors import ConfigError
from oscar_hdl.nic.control.list_ports import AFTER, COUNTS, NO_GATE, OWN
from oscar_hdl.nic.control.registers import LIST_ENTRIES, TRIGGER
from oscar_sim.driver.programme import Key, Programme, Receive, Send
from oscar_sim.driver.table_sets import Link

Count = Callable[[int, int], int]  # of values, by chunk and sub-frame
FIELDS = {field.name: field for field in TRIGGER}
MOST_EVENTS = (1 << FIELDS["events"].bits) - 1
PACKETS = 2  # that bring a value: one of values, one of side rows; where they add, one of values alone
FIRED, ENDED = 2, 3  # states of an entry (ENTRY_STATE)


def trigger(**fields: int) -> int:
    """Return an entry's third word."""
    return sum(FIELDS[name].put(value) for name, value in fields.items())


def entry_words(registers: dict[str, int], third: int) -> list[int]:
    """Return an entry's three words; registers: what its command would write (command_values)."""
    frame, shape, tables, command = registers.values()
    return [shape << 32 | frame, command << 32 | tables, third]


@dataclass(frozen=True)
class Entry:
    """An entry of a list: its command, which is the programme's, and its trigger."""

    command: Receive | Send
    events: int = 0
    gate: int = 0
    next: int = 0
    need: int = 0
    values: int = 0

    @property
    def name(self) -> str:
        """RECEIVE or SEND."""
        return "SEND" if isinstance(self.command, Send) else "RECEIVE"

    @property
    def frame(self) -> Action:
        """The frame's action."""
        return self.command.frame

    @property
    def trigger(self) -> int:
        """The third word."""
        kind = int(self.name == "SEND")
        names = "events", "gate", "next", "need", "values"
        return trigger(kind=kind, **{name: getattr(self, name) for name in names})


def link_of(command: Receive | Send) -> Link:
    """Return the link whose tables a command uses."""
    frame = command.frame
    return Link(frame.phase, frame.peer if isinstance(command, Send) else frame.source)


def named(command: Receive | Send) -> dict[str, int]:
    """Return the fields that name a command's frame, and what becomes of it."""
    frame = command.frame
    own = {"step": frame.table, "chunk": frame.chunk, "sub": frame.sub}
    if isinstance(command, Send):
        return own | {"peer": command.destination}
    return own | {"peer": frame.source, "adopt" if command.adopt else "add": 1}


def entries(
    programme: Programme, count: Count, *, made: Count | None = None, adds: bool = False
) -> list[Entry]:
    """Return the list of a programme: RECEIVEs, then SENDs, each in the programme's order.

    count(chunk, sub): values; parts without any have no entries. made(chunk, sub): own values come while the
    list runs, and so many, the last ones, in packets for the entries of `makers`; adds: packets add, so
    frames need not wait for them. Raises ConfigError for a list that is too long, and for a programme in
    which a command depends on more than a trigger can say.
    """
    receives = {k: r for k, r in programme.receives.items() if count(k.chunk, k.sub)}
    first = len(receives)
    numbers: dict[int, int] = {}  # of the entry of each SEND of the programme
    for n, send in enumerate(programme.sends):
        if count(send.frame.chunk, send.frame.sub):
            numbers[n] = first + len(numbers)
    if first + len(numbers) > LIST_ENTRIES:
        raise ConfigError(
            f"a list has at most {LIST_ENTRIES} entries, this schedule takes {first + len(numbers)}: "
            "use fewer pieces or nodes"
        )
    result = [
        Entry(receive, **_gate(key, receive, programme, numbers, made is not None, adds))
        for key, receive in receives.items()
    ]
    events = Counter(entry.gate for entry in result if entry.need in (COUNTS, OWN))
    own: dict[int, int] = {}  # values of the SEND that is the first of its part
    behind: dict[Link, int] = {}
    chain = dict(zip(numbers.values(), numbers.values(), strict=True))
    for n, number in numbers.items():
        frame = programme.sends[n].frame
        packets = 1 if adds else PACKETS
        own[number] = packets * made(frame.chunk, frame.sub) if made and _first(programme, n) else 0
        before = behind.get(link := link_of(programme.sends[n]))
        if before is not None:
            chain[before] = number
            events[number] += 1
        behind[link] = number
    if max(events.values(), default=0) > MOST_EVENTS:
        raise ConfigError(f"a SEND waits for at most {MOST_EVENTS} events, one has {max(events.values())}")
    sends = programme.sends
    result += [Entry(sends[n], events[at], next=chain[at], values=own[at]) for n, at in numbers.items()]
    return result


def makers(listed: Sequence[Entry]) -> dict[tuple[int, int], int]:
    """Return the entry for which the own values of a part count, by chunk and sub-frame."""
    return {(entry.frame.chunk, entry.frame.sub): n for n, entry in enumerate(listed) if entry.values}


def wholes(listed: Sequence[Entry]) -> dict[tuple[int, int], tuple[int, int]]:
    """Return which entry makes a part's sums whole, and its state then (ENTRY_STATE), by chunk and sub-frame.

    A rank's own part is whole when the SEND of its sum fires, the others when they have come. They are in the
    order in which that may be: of a sub-frame the own part first.
    """
    result = {}
    for n, entry in enumerate(listed):
        part = entry.frame.chunk, entry.frame.sub
        if isinstance(entry.command, Receive):
            if entry.command.adopt:
                result[part] = n, ENDED
        elif entry.frame.phase is Phase.ALL_GATHER:
            result.setdefault(part, (n, FIRED))
    return dict(sorted(result.items(), key=lambda item: (item[0][1], item[1][1])))


def _first(programme: Programme, n: int) -> bool:
    """Whether SEND n is the first of its part."""
    parts = [(send.frame.chunk, send.frame.sub) for send in programme.sends]
    return parts.index(parts[n]) == n


def _gate(
    key: Key, receive: Receive, programme: Programme, numbers: dict[int, int], made: bool, adds: bool
) -> dict[str, int]:  # fmt: skip
    """Return gate and need of a RECEIVE: the SEND of its sum, or the one that has to be encoded before."""
    after = [numbers[n] for n in receive.sends if n in numbers]
    sums = [number for n, number in numbers.items() if key in programme.sends[n].receives]
    if len(after) + len(sums) > 1:
        raise ConfigError(
            f"the frame of chunk {key.chunk} from node {key.source} is tied to {len(after) + len(sums)} "
            "SENDs, a list's RECEIVE to one: give this schedule's commands by registers"
        )
    if after:
        return {"gate": after[0], "need": AFTER}
    if sums:
        return {"gate": sums[0], "need": OWN if made and not adds else COUNTS}
    if made and not receive.adopt:
        raise ConfigError(
            f"chunk {key.chunk} is added to, but never sent, so nothing waits for its own values: load them "
            "before the list"
        )
    return {"need": NO_GATE}
