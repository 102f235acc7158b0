"""Write entities as modules of Verilog-2001."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from oscar_hdl.flow.hierarchy.design import Design, Signal, closing_bracket
from oscar_hdl.flow.hierarchy.entities import PACKED, Entity, Instance, Local, Port, Process
from oscar_hdl.flow.hierarchy.interfaces import HierarchyError
from oscar_hdl.flow.hierarchy.layout import declared, grouped, packed, short_tables, wrapped

UNLINTED = "WIDTH", "CASEINCOMPLETE", "INITIALDLY"  # MyHDL's way to write Verilog
_CHOICE = re.compile(r" *\d+: [^;]*;$")
_ASSIGN = re.compile(r"^assign ", re.MULTILINE)
_SLICE = re.compile(r"^(.+?)( ?\+: ?|:)(.+)$")


class Verilog:
    """Writes the entities of a design; arrays that meet ports are vectors, as Verilog-2001 has no others."""

    suffix = ".v"
    comment = "//"

    def __init__(self, design: Design, entities: Sequence[Entity]) -> None:
        self.design = design

    def package_text(self) -> str:
        """Return "": Verilog-2001 has no packages."""
        return ""

    def entity_text(self, entity: Entity, name: str, children: Mapping[int, tuple[str, Entity]]) -> str:
        """Return a module; children: name and entity of each instance's block."""
        return wrapped(_Module(entity, children).text(name))


class _Module:
    def __init__(self, entity: Entity, children: Mapping[int, tuple[str, Entity]]) -> None:
        self.entity, self.children = entity, children
        self.widths = {
            each.name: each.signal.bits or 1
            for each in (*entity.ports, *entity.locals)
            if each.signal.depth and each.name in entity.packed
        }
        self.depths = {each.name: each.signal.depth for each in (*entity.ports, *entity.locals)}
        assigned = [process for process in entity.processes if _ASSIGN.search(process.text)]
        self.registers = {name for each in entity.processes if each not in assigned for name in each.writes}
        wires = {name for each in assigned for name in each.writes}
        if both := self.registers & (wires | self._from_outside()):
            raise HierarchyError(
                f"array {min(both)} has elements that a process assigns, and others that a port or `assign` "
                "drives, expected all of one kind"
            )

    def _from_outside(self) -> set[str]:
        """Names of the signals that instances or ports in a list drive."""
        names = {array for array, _, _, drives in self.entity.lists if not drives}
        for instance in self.entity.instances:
            ways = {port.key: port.way for port in self.children[instance.child][1].ports}
            names |= {
                match[0]
                for key, actual in instance.connections
                if ways[key] == "out" and (match := re.match(r"\w+", actual))
            }
        return names

    def text(self, name: str) -> str:
        """Return the module."""
        ports = [self._port(port) for port in self.entity.ports]
        lines, group = [], ("", "")
        for port, line in zip(self.entity.ports, ports, strict=True):
            if port.group != group and port.group[0]:
                lines.append(f"    // {': '.join(port.group)}")
            group = port.group
            lines.append(f"{line},")
        head = "\n".join(lines).removesuffix(",")
        combinational = any("always @(*)" in process.text for process in self.entity.processes)
        body = [f"`timescale 1ns/1ps\n\nmodule {name} (\n{head}\n);"]
        body += ["    reg at_start = 0;\n    initial at_start <= 1;"] * combinational
        body += ["\n".join(declared(map(self._local, self.entity.locals), "    "))]
        body += ["\n".join(_initial(local) for local in self.entity.locals if self._has_contents(local))]
        body += ["\n".join(self._joined(*join) for join in self.entity.lists)]
        body += [self._instance(each) for each in self.entity.instances]
        body += [self._process(each) for each in self.entity.processes]
        return "\n\n".join([part for part in body if part] + ["endmodule\n"])

    def _port(self, port: Port) -> str:
        signal = port.signal
        direction = "output" if port.way == "out" else "input"
        kind = "reg" if port.name in self.registers else "wire"
        first = f" = {_vector(signal)}" if kind == "reg" else ""
        return f"    {direction} {kind} {_range(signal, packed=True)}{port.name}{first}"

    def _local(self, local: Local) -> tuple[str, str, str]:
        """Return what is before a signal's name where it is declared, the name, and what is after it."""
        signal, name = local.signal, local.name
        constant = signal.depth > 0 and name not in self._driven()
        kind = "reg" if name in self.registers or constant else "wire"
        if signal.depth and name not in self.widths:
            return f"{kind} {_range(signal)}", f"{name} [0:{signal.depth - 1}]", ";"
        first = f" = {_vector(signal)}" if kind == "reg" else ""
        # A first value belongs to one name, not to all of a declaration.
        return f"{kind} {_range(signal, packed=True)}", f"{name}{first}", ";"

    def _has_contents(self, local: Local) -> bool:
        """Return True for an array of registers or constants."""
        return local.signal.depth > 0 and local.name not in self.widths and self._local(local)[0][:3] == "reg"

    def _driven(self) -> set[str]:
        """Names of the signals that something drives; other arrays are constants."""
        return self._from_outside() | {name for each in self.entity.processes for name in each.writes}

    def _joined(self, array: str, place: int, element: str, drives: bool) -> str:
        mine = self._unpacked(f"{array}{PACKED if array in self.widths else ''}[{place}]")
        mine, element = mine.replace(PACKED, ""), element.replace(PACKED, "")
        return f"    assign {element} = {mine};" if drives else f"    assign {mine} = {element};"

    def _instance(self, instance: Instance) -> str:
        name, child = self.children[instance.child]
        ports = {port.key: port for port in child.ports}
        pins = [
            (ports[key].group[0], f".{ports[key].name}({self._unpacked(actual)})")
            for key, actual in instance.connections
        ]
        return f"    {name} {instance.label} (\n{grouped(pins, ' ' * 8)}\n    );"

    def _process(self, process: Process) -> str:
        text = re.sub(r"begin: \w+", f"begin: {process.label}", process.text, count=1)
        text = short_tables(self._unpacked(text), _CHOICE)
        if "always @(*)" in text:
            reads = [each for name in sorted(process.reads) for each in self._sensitive(name)]
            text = text.replace("always @(*)", f"always @({', '.join([*reads, 'at_start'])})", 1)
        return "\n".join(f"    {line}" if line else line for line in text.split("\n"))

    def _sensitive(self, name: str) -> list[str]:
        """Return what starts a process that reads a signal."""
        depth = 0 if name in self.widths else self.depths[name]
        return [f"{name}[{n}]" for n in range(depth)] or [name]

    def _unpacked(self, text: str) -> str:
        """Return text in which elements of arrays that are vectors are slices of them."""
        while PACKED in text:
            before, _, after = text.partition(PACKED)
            name = re.search(r"\w+$", before)
            assert name
            width = self.widths.get(name[0])
            indices = []
            while width and after.startswith("["):
                end = closing_bracket(after, 0, "[", "]")
                indices.append(after[1:end])
                after = after[end + 1 :]
            text = before + (_part(indices, width) if width and indices else "") + after
        return text


def _part(indices: Sequence[str], width: int) -> str:
    """Return the slice of a vector that is an element of this width, or a part of the element."""
    element = indices[0]
    start = f"{element}*{width}" if re.fullmatch(r"\w+", element) else f"({element})*{width}"
    if len(indices) == 1:
        return f"[{element}]" if width == 1 else f"[{start} +: {width}]"
    slice_ = _SLICE.match(indices[1])
    if not slice_:
        return f"[{start} + ({indices[1]})]"
    first, kind, second = slice_.groups()
    if kind == ":":
        return f"[{start} + ({second}) +: ({first}) - ({second}) + 1]"
    return f"[{start} + ({first}) +: {second}]"


def _range(signal: Signal, *, packed: bool = False) -> str:
    bits = (signal.bits or 1) * (signal.depth or 1) if packed else signal.bits
    sign = "signed " if signal.signed else ""
    return f"{sign}[{bits - 1}:0] " if signal.bits or (packed and signal.depth) else ""


def _vector(signal: Signal) -> str:
    """Return the first value of a signal, or of all elements of an array, as one number."""
    width = signal.bits or 1
    number = 0
    for n, init in enumerate(signal.inits if signal.depth else (signal.init,)):
        number |= (int(init) % 2**width) << (n * width)
    return str(number) if number < 2**31 else f"{width * (signal.depth or 1)}'h{number:x}"


def _initial(local: Local) -> str:
    """Return what gives the elements of an array their first values."""
    signal, name = local.signal, local.name
    width = signal.bits or 1
    values = [int(init) % 2**width for init in signal.inits]
    if len(set(values)) == 1:
        number = f"{width}'h{values[0]:x}"
        return (
            f"    initial begin: initial_{name}\n        integer i;\n"
            f"        for (i = 0; i < {signal.depth}; i = i + 1) {name}[i] = {number};\n    end"
        )
    parts = [f"{name}[{n}] = {width}'h{each:x};" for n, each in enumerate(values)]
    return f"    initial begin\n{packed(parts, ' ' * 8)}\n    end"
