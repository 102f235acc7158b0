"""Name what each entity has: ports, signals, instances, and its processes in these names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from oscar_hdl.flow.hierarchy.design import Design, Reference, Signal, Statement
from oscar_hdl.flow.hierarchy.interfaces import HierarchyError, Interfaces, split
from oscar_hdl.flow.keywords import TAKEN

PACKED = "\0"  # after the name of an array that Verilog has as one vector


@dataclass(frozen=True)
class Port:
    """A port of an entity.

    Attributes:
        key: The signal by its flat name, an element or a slice of it.
        way: "in" or "out".
        group: Name and type of the argument that brings it, if that brings more than this.
    """

    key: str
    name: str
    way: str
    signal: Signal
    group: tuple[str, str]


@dataclass(frozen=True)
class Local:
    """A signal that an entity declares."""

    key: str
    name: str
    signal: Signal


@dataclass(frozen=True)
class Process:
    """A process, or concurrent assignments, in an entity's names.

    Attributes:
        label: Its name in the entity.
        reads: Names of the signals it reads.
        writes: Names of the signals it assigns.
    """

    label: str
    text: str
    reads: frozenset[str]
    writes: frozenset[str]


@dataclass(frozen=True)
class Instance:
    """An entity inside another: the child's number, and what each of its ports is connected to."""

    label: str
    child: int
    connections: tuple[tuple[str, str], ...]  # key of the child's port, expression


@dataclass
class Entity:
    """All that the text of an entity has, in neither language yet.

    Attributes:
        number: The block.
        lists: Arrays made of ports: local array, its place, the port, and True if the array drives the port.
        packed: Arrays that meet ports, here or of instances.
    """

    number: int
    ports: list[Port] = field(default_factory=list)
    locals: list[Local] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    lists: list[tuple[str, int, str, bool]] = field(default_factory=list)
    packed: set[str] = field(default_factory=set)


class Namer:
    """Makes the entity of one block."""

    def __init__(self, design: Design, interfaces: Interfaces, number: int) -> None:
        self.design = design
        self.interfaces = interfaces
        self.entity = Entity(number)
        self.inside = interfaces.inside(number)
        self.taken = {interfaces.blocks[number].block}  # an instance of this name would hide the entity
        self.names: dict[tuple[int, str], str] = {}  # of a block and a key that is no port of it

    def make(self) -> Entity:
        """Return the entity, all in its own names."""
        # A name that a process has for a variable would hide the signal, so the signal takes another one.
        hidden: dict[str, set[str]] = {}
        for statement in self._statements():
            for reference in statement.references:
                hidden.setdefault(reference.base, set()).update(statement.locals)
        self._name_ports(hidden)
        self._name_locals(hidden)
        self._connect()
        self.entity.processes = [self._process(statement) for statement in self._statements()]
        self._check()
        return self.entity

    def _check(self) -> None:
        """Raise HierarchyError unless each signal has one driver; arrays may have several, or none."""
        drivers = Counter(name for process in self.entity.processes for name in process.writes)
        for instance in self.entity.instances:
            ways = self.interfaces.ports(instance.child)
            drivers.update(actual for key, actual in instance.connections if ways[key] == "out")
        drivers.update(element for _, _, element, drives in self.entity.lists if drives)
        wanted = {each.name: 1 for each in self.entity.locals if not each.signal.depth}
        wanted |= {each.name: int(each.way == "out") for each in self.entity.ports if self.entity.number}
        for name, count in wanted.items():
            if drivers[name] != count:
                place = self.interfaces.path(self.entity.number)
                raise HierarchyError(f"{name} in {place} has {drivers[name]} drivers, expected {count}")

    def _statements(self) -> Iterator[Statement]:
        for block in self.inside:
            yield from self.interfaces.own[block]

    def unique(self, wanted: str, hidden: Collection[str] = ()) -> str:
        """Return a name that nothing else in the entity has, in both languages."""
        name = re.sub(r"__+", "_", re.sub(r"\W", "_", wanted)).strip("_") or "signal"
        name = f"n{name}" if name[0].isdigit() else name
        taken = self.taken | {each.lower() for each in hidden} | TAKEN
        count, candidate = 1, name
        while candidate.lower() in taken:
            count += 1
            candidate = f"{name}_{count}"
        self.taken.add(candidate.lower())
        return candidate

    def _name_ports(self, hidden: dict[str, set[str]]) -> None:
        number = self.entity.number
        block = self.interfaces.blocks[number]
        ways = self.interfaces.ports(number)
        if number == 0:
            self._name_top()
            return
        for argument, kind, keys in block.arguments:
            group = (argument, kind) if len(keys) > 1 else ("", "")
            for key in keys:
                if key in ways and (number, key) not in self.names:
                    name = self.unique(block.interface[key], hidden.get(split(key)[0], set()))
                    self.names[number, key] = name
                    self.entity.ports.append(Port(key, name, ways[key], self.signal(key), group))

    def _name_top(self) -> None:
        """Give a top the ports that it has always had, used or not."""
        groups = {
            key: (argument, kind) if len(keys) > 1 else ("", "")
            for argument, kind, keys in self.design.blocks[0].arguments
            for key in keys
        }
        for name, way, bits, key in self.design.ports:
            self.taken.add(name.lower())
            signal = self.design.signals.get(key, Signal(bits, 0))
            self.entity.ports.append(Port(key, name, way, signal, groups.get(key, ("", ""))))
            inner = key if key != name else name  # VHDL has numbers inside, and vectors outside
            self.taken.add(inner.lower())
            self.names[0, key] = inner

    def _name_locals(self, hidden: dict[str, set[str]]) -> None:
        order = {name: n for n, name in enumerate(self.design.signals)}
        for block in self.inside:
            keys = [key for key in self.interfaces.uses[block] if not self.interfaces.is_port(block, key)]
            for key in sorted(keys, key=lambda key: (order[split(key)[0]], len(key), key)):
                name = self.unique(
                    self.prefix(block) + self._known(block, key), hidden.get(split(key)[0], set())
                )
                self.names[block, key] = name
                self.entity.locals.append(Local(key, name, self.signal(key)))

    def _known(self, number: int, key: str) -> str:
        """Return a name for a signal of a block's own: the block's, else that of an instance's port."""
        names = self.interfaces.blocks[number].names
        base, indices = split(key)
        if key in names:
            return names[key]
        if base in names:
            return "_".join([names[base], *(index.strip("[]").replace(":", "_") for index in indices)])
        for child in self.interfaces.blocks[number].children:
            block = self.interfaces.blocks[child]
            if key in block.interface:
                return f"{block.label}_{block.interface[key]}"
        raise HierarchyError(f"{self.interfaces.path(number)} has no name for signal {key}")

    def prefix(self, number: int) -> str:
        """Return what tells names of a block that has no entity from those of the entity it is in."""
        if number == self.entity.number:
            return ""
        block = self.interfaces.blocks[number]
        assert block.parent is not None
        return f"{self.prefix(block.parent)}{block.label}_"

    def signal(self, key: str) -> Signal:
        """Return the type of a key: of a signal, of an element, or of a slice."""
        base, indices = split(key)
        signal = self.design.signals[base]
        for index in indices:
            high, colon, low = index.strip("[]").partition(":")
            if signal.depth:
                signal = Signal(signal.bits, signal.inits[int(high)], signal.enum, signal.signed)
            else:
                signal = Signal(int(high) - int(low) if colon else 0, 0)
        return signal

    def expression(self, number: int, key: str) -> str:
        """Return what the entity calls a key of a block inside it."""
        if (number, key) in self.names:
            name = self.names[number, key]
            packed = "[" not in key and self.design.signals[key].depth
            return name + PACKED if packed else name
        parent = self.interfaces.blocks[number].parent
        if parent is None or number == self.entity.number:
            raise HierarchyError(
                f"{self.interfaces.path(number)} uses signal {key}, expected one that it declares or is given"
            )
        base, indices = split(key)
        driven = self.interfaces.uses[number][key]
        above, taken = self.interfaces.resolve(parent, base, indices, driven)
        return self.expression(parent, above) + "".join(self.index(index) for index in indices[taken:])

    def index(self, index: str) -> str:
        """Return a constant index in the text's language."""
        high, colon, low = index.strip("[]").partition(":")
        opening, closing = self.design.syntax.brackets
        to = " downto " if opening == "(" else ":"
        return f"{opening}{high}-1{to}{low}{closing}" if colon else f"{opening}{high}{closing}"

    def _connect(self) -> None:
        for block in self.inside:
            for child in self.interfaces.blocks[block].children:
                if child in self.interfaces.entities:
                    label = self.unique(self.prefix(block) + self.interfaces.blocks[child].label)
                    self.entity.instances.append(
                        Instance(label, child, tuple(self._connections(block, child)))
                    )
            for key in self.interfaces.uses[block]:
                if self.interfaces.is_list(block, key):
                    self._join(block, key)
        whole = {port.name for port in self.entity.ports if port.signal.depth}
        met = (actual for instance in self.entity.instances for _, actual in instance.connections)
        self.entity.packed = whole | {actual.partition(PACKED)[0] for actual in met if PACKED in actual}

    def _connections(self, block: int, child: int) -> Iterator[tuple[str, str]]:
        for key, way in self.interfaces.ports(child).items():
            base, indices = split(key)
            above, taken = self.interfaces.resolve(block, base, indices, way == "out")
            rest = "".join(self.index(index) for index in indices[taken:])
            yield key, self.expression(block, above) + rest

    def _join(self, block: int, key: str) -> None:
        """Connect an array to the ports that are its elements."""
        for element, place in self.interfaces.elements(block, key).items():
            drives = key in self.interfaces.whole
            self.entity.lists.append((self.names[block, key], place, self.expression(block, element), drives))

    def _process(self, statement: Statement) -> Process:
        names: dict[int, str] = {}

        def new(reference: Reference) -> tuple[str, int]:
            driven = reference.start in statement.written
            key, taken = self.interfaces.resolve(statement.block, reference.base, reference.indices, driven)
            names[reference.start] = self.expression(statement.block, key)
            return names[reference.start], taken

        text = statement.replaced(new)
        plain = {start: re.match(r"\w+", name)[0] for start, name in names.items()}  # type: ignore[index]
        writes = frozenset(name for start, name in plain.items() if start in statement.written)
        reads = frozenset(name for start, name in plain.items() if start not in statement.written) - writes
        label = self.unique(self.prefix(statement.block) + statement.name)
        return Process(label, text, reads, writes)
