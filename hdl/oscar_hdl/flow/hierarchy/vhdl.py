"""Write entities in VHDL-2008."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from oscar_hdl.flow.hierarchy.design import Design, Signal
from oscar_hdl.flow.hierarchy.entities import PACKED, Entity, Instance, Local, Port, Process
from oscar_hdl.flow.hierarchy.interfaces import split
from oscar_hdl.flow.hierarchy.layout import declared, grouped, packed, short_tables, wrapped

LIBRARIES = "library ieee;\nuse ieee.std_logic_1164.all;\nuse ieee.numeric_std.all;\n"
_CHOICE = re.compile(r" *when \d+ => [^;]*;$")
_LABEL = re.compile(r"^\w+(?=: process)|(?<=^end process )\w+", re.MULTILINE)


class Vhdl:
    """Writes the entities of a design, and the package of the types that their ports have."""

    suffix = ".vhd"
    comment = "--"

    def __init__(self, design: Design, entities: Sequence[Entity]) -> None:
        self.design = design
        ports = [port for entity in entities if entity.number for port in entity.ports]
        self.arrays = {split(port.key)[0] for port in ports if port.signal.depth}
        homes: dict[str, set[int]] = {}
        for entity in entities:
            for each in (*entity.ports, *entity.locals):
                homes.setdefault(each.signal.enum, set()).add(entity.number)
        # States that one entity has are declared there.
        self.enums: dict[str, str] = {}
        for name in sorted(name for name, places in homes.items() if name and len(places) > 1):
            self.enums[name] = _unused(_states_type(name), self.enums.values())

    @property
    def package(self) -> str:
        """Name of the package."""
        return f"{self.design.top}_types"

    def package_text(self) -> str:
        """Return the package, or "" where no port needs it."""
        kinds = {
            (_array_type(s), _element(s, self.enums)) for s in map(self.design.signals.get, self.arrays) if s
        }
        lines = [f"    type {name} is array (natural range <>) of {kind};\n" for name, kind in sorted(kinds)]
        lines += [self._states(old, new) for old, new in self.enums.items()]
        if not lines:
            return ""
        body = "".join(lines)
        return wrapped(f"{LIBRARIES}\npackage {self.package} is\n{body}end package;\n")

    def _states(self, old: str, new: str) -> str:
        return f"    type {new} is ({', '.join(map(_state, self.design.enums[old]))});\n"

    def entity_text(self, entity: Entity, name: str, children: Mapping[int, tuple[str, Entity]]) -> str:
        """Return an entity and its architecture; children: name and entity of each instance's block."""
        enums, lines = dict(self.enums), []
        for local in entity.locals:
            if (old := local.signal.enum) and old not in enums:
                enums[old] = _unused(_states_type(old), enums.values())
                lines.append(self._states(old, enums[old]))
        numbers = list(self._numbers(entity))
        signals = [(inner, _element(port.signal, {}), port.signal) for port, inner in numbers]
        for local in entity.locals:
            kind = self._type(local, enums)
            if local.signal.depth and not self._shares(local):
                element = _element(local.signal, enums)
                lines.append(f"    type {kind} is array (0 to {local.signal.depth - 1}) of {element};\n")
            signals.append((local.name, kind, local.signal))
        wanted = [("signal ", name, f": {kind}{_initial(signal)};") for name, kind, signal in signals]
        lines += [f"{line}\n" for line in declared(wanted, "    ")]
        parts = ["\n".join(_conversion(port, inner) for port, inner in numbers)]
        parts.append("\n".join(_joined(*join) for join in entity.lists))
        parts += [self._instance(each, *children[each.child]) for each in entity.instances]
        parts += [_process(each) for each in entity.processes]
        shared = any(
            each.signal.enum in self.enums or self._shares(each) for each in (*entity.ports, *entity.locals)
        )
        use = f"use work.{self.package}.all;\n" if shared else ""
        ports = self._ports(entity, enums)
        text = (
            f"{LIBRARIES}use work.pck_myhdl_011.all;\n{use}\nentity {name} is\n    port (\n{ports}\n    );\n"
            f"end entity;\n\narchitecture rtl of {name} is\n{''.join(lines)}begin\n"
        )
        body = "\n\n".join(part for part in parts if part)
        return wrapped(text + body.replace(PACKED, "")) + "\nend architecture;\n"

    def _numbers(self, entity: Entity) -> Iterator[tuple[Port, str]]:
        """Yield the ports of a top that are vectors outside and numbers inside, with the names inside."""
        if entity.number == 0:
            yield from ((port, port.key) for port in entity.ports if port.key != port.name)

    def _shares(self, each: Port | Local) -> bool:
        return each.signal.depth > 0 and each.key in self.arrays

    def _type(self, each: Port | Local, enums: Mapping[str, str]) -> str:
        if self._shares(each):
            return f"{_array_type(each.signal)}(0 to {each.signal.depth - 1})"
        return f"{each.name}_array" if each.signal.depth else _element(each.signal, enums)

    def _ports(self, entity: Entity, enums: Mapping[str, str]) -> str:
        """Return the ports, those of a bundle under its name."""
        lines, group = [], ("", "")
        for port in entity.ports:
            if port.group != group and port.group[0]:
                lines.append(f"        -- {': '.join(port.group)}")
            group = port.group
            kind, first = self._type(port, enums), _initial(port.signal)
            if entity.number == 0 and port.signal.bits:
                kind, first = f"std_logic_vector({port.signal.bits - 1} downto 0)", " := (others => '0')"
            lines.append(f"        {port.name}: {port.way} {kind}{first if port.way == 'out' else ''};")
        return "\n".join(lines).removesuffix(";")

    def _instance(self, instance: Instance, name: str, child: Entity) -> str:
        ports = {port.key: port for port in child.ports}
        pins = [
            (ports[key].group[0], f"{ports[key].name} => {actual}") for key, actual in instance.connections
        ]
        body = grouped(pins, " " * 12)
        return f"    {instance.label}: entity work.{name}\n        port map (\n{body}\n        );"


def _states_type(name: str) -> str:
    """Return a name for a type of states, without MyHDL's number."""
    return re.sub(r"^t_enum_|_?\d*$", "", name).lower() + "_t"


def _unused(name: str, names: object) -> str:
    """Return the name with a number if it is in `names`."""
    taken, count, candidate = set(names), 1, name  # type: ignore[call-overload]
    while candidate in taken:
        count += 1
        candidate = f"{name.removesuffix('_t')}_{count}_t"
    return candidate


def _state(name: object) -> str:
    """Return the literal of a state, which is apart from signals and keywords."""
    return f"S_{name}"


def _element(signal: Signal, enums: Mapping[str, str]) -> str:
    """Return the type of a signal, or of an element of an array."""
    if signal.enum:
        return enums[signal.enum]
    kind = "signed" if signal.signed else "unsigned"
    return f"{kind}({signal.bits - 1} downto 0)" if signal.bits else "std_logic"


def _array_type(signal: Signal) -> str:
    """Return the package's type of an array."""
    kind = "signed" if signal.signed else "unsigned"
    return f"{kind}_{signal.bits}_array" if signal.bits else "std_logic_array"


def _value(signal: Signal, init: int | str) -> str:
    """Return the first value of a signal or of an element."""
    if isinstance(init, str):
        return _state(init)
    return f'{signal.bits}X"{init % 2**signal.bits:X}"' if signal.bits else f"'{init}'"


def _initial(signal: Signal) -> str:
    """Return the first value of a signal or of an array, with := before it."""
    if not signal.depth:
        return f" := {_value(signal, signal.init)}"
    if len(set(signal.inits)) == 1:
        return f" := (others => {_value(signal, signal.inits[0])})"
    values = [_value(signal, init) for init in signal.inits]
    return " := (\n" + packed([f"{each}," for each in values[:-1]] + values[-1:], "        ") + "\n    )"


def _conversion(port: Port, inner: str) -> str:
    if port.way == "in":
        return f"    {inner} <= unsigned({port.name});"
    return f"    {port.name} <= std_logic_vector({inner});"


def _joined(array: str, place: int, element: str, drives: bool) -> str:
    return f"    {element} <= {array}({place});" if drives else f"    {array}({place}) <= {element};"


def _process(process: Process) -> str:
    text = _LABEL.sub(process.label, process.text)
    text = short_tables(text, _CHOICE)
    return "\n".join(f"    {line}" if line else line for line in text.split("\n"))
