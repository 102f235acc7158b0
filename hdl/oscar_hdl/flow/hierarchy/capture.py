"""Record the tree of blocks while MyHDL converts a top, and mark each process in the flat text.

MyHDL flattens: its output has neither blocks nor the names that signals have in them. Both are known to the
converter, which calls `_convert_filter` with them just before it writes.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from myhdl._block import _Block
from myhdl._enum import EnumItemType, EnumType
from myhdl._extractHierarchy import _getMemInfo, _isMem, _UserVerilogCode, _UserVhdlCode
from myhdl._ShadowSignal import _SliceSignal
from myhdl._Signal import _Signal
from myhdl.conversion import _toVerilog, _toVHDL

import oscar_hdl

MARK = "process {} of the tree"  # a comment before each process of the flat text
ROOT = Path(oscar_hdl.__file__).parent
_CONVERTERS = {
    "vhdl": (_toVHDL._ToVHDLConvertor, _UserVhdlCode, "--"),
    "verilog": (_toVerilog._ToVerilogConvertor, _UserVerilogCode, "//"),
}
_PLAIN = _Block, EnumType, EnumItemType, Enum, FunctionType, ModuleType, type  # what has no signals in it
Json = dict[str, Any]


def capture(language: str) -> Json:
    """Return a dictionary that the next conversion in this process fills with the top's tree.

    `design.load` reads it. The flat text of that conversion has a comment before each process.
    """
    converter, code, comment = _CONVERTERS[language]
    record: Json = {}

    def mark(number: int) -> Any:
        text = f"{comment} {MARK.format(number)}\n"
        return type(
            "Mark", (code,), {"__slots__": (), "__init__": lambda self: None, "__str__": lambda self: text}
        )()

    def keep(self: Any, hierarchy: Any, top: Any, signals: Any, memories: Any, processes: list[Any]) -> None:
        record.update(_Recorder(language, top).tree(hierarchy.top, signals, memories))
        if len(record["processes"]) != len(processes):
            raise ValueError(f"MyHDL writes {len(processes)} processes, expected {len(record['processes'])}")
        processes[:] = [part for n, process in enumerate(processes) for part in (mark(n), process)]

    converter._convert_filter = keep
    return record


class _Recorder:
    """Reads the objects of one conversion."""

    def __init__(self, language: str, top: Any) -> None:
        self.vhdl = language == "vhdl"
        self.top = top
        # MyHDL gives a number behind a port of std_logic_vector this name only when it writes the ports.
        self.numbers = {id(top.argdict[name]): f"{name}_num" for name in top.argnames} if self.vhdl else {}
        self.enums: dict[str, list[str]] = {}

    def tree(self, top: _Block, signals: Any, memories: Any) -> Json:
        """Return all of one conversion."""
        blocks: list[Json] = []
        processes: list[tuple[int, str]] = []
        self._add(top, None, blocks, processes)
        known = {self.key(s): self.signal(s) for s in signals if s._used and not isinstance(s, _SliceSignal)}
        for memory in memories:
            if memory._used:
                first = memory.mem[0]
                inits = [self.init(s) for s in memory.mem]
                known[memory.name] = {**self.signal(first), "depth": memory.depth, "inits": inits}
        ports = [
            (name, "out" if s._driven else "in", self.bits(s), self.key(s))
            for name in self.top.argnames
            for s in [self.top.argdict[name]]
        ]
        return {
            "ports": ports, "signals": known, "enums": self.enums, "blocks": blocks, "processes": processes
        }  # fmt: skip

    def _add(self, block: _Block, parent: int | None, blocks: list[Json], processes: list[Any]) -> None:
        number = len(blocks)
        blocks.append(self.block(block, parent))
        for part in block.subs:
            if isinstance(part, _Block):
                self._add(part, number, blocks, processes)
            else:
                processes.append((number, getattr(part, "func", part).__name__))

    def block(self, block: _Block, parent: int | None) -> Json:
        """Return what the text of an entity needs of a block."""
        signature = inspect.signature(block.func)
        bound = signature.bind(*block.args, **block.kwargs)
        bound.apply_defaults()
        interface: dict[str, str] = {}
        arguments, parameters = [], {}
        for name, value in bound.arguments.items():
            before = len(interface)
            self.walk(value, name, interface)
            keys = list(interface)[before:]
            if keys:
                arguments.append((name, type(value).__name__, keys))
            elif isinstance(value, int | str | bool):
                parameters[name] = value
        names: dict[str, str] = {}
        for name, value in self.locals(block):
            self.walk(value, name, names)
        source = Path(inspect.getsourcefile(block.func) or "").resolve()
        return {
            "block": block.func.__name__, "parent": parent, "doc": inspect.getdoc(block.func) or "",
            "source": str(source.relative_to(ROOT)) if source.is_relative_to(ROOT) else source.name,
            "arguments": arguments, "parameters": parameters, "interface": interface,
            "names": {key: name for key, name in names.items() if key not in interface},
        }  # fmt: skip

    def locals(self, block: _Block) -> Iterator[tuple[str, Any]]:
        """Yield the names of a block's function and their values, those that processes use first."""
        yield from block.sigdict.items()
        yield from ((name, memory.mem) for name, memory in block.memdict.items())
        outer = block.func.__globals__
        for part in block.subs:
            symbols = part.callinfo.symdict
            yield from ((name, value) for name, value in symbols.items() if outer.get(name) is not value)

    def walk(self, value: Any, name: str, names: dict[str, str], outer: tuple[Any, ...] = ()) -> None:
        """Name the signals of an argument: of a list by their place, of a bundle by their field."""
        if any(value is each for each in outer):
            return
        if isinstance(value, _Signal):
            if value._name is not None:
                names.setdefault(self.key(value), name)
        elif isinstance(value, list | tuple):
            if isinstance(value, list) and value and _isMem(value) and _getMemInfo(value)._used:
                names.setdefault(_getMemInfo(value).name, name)
            fields = getattr(value, "_fields", range(len(value)))
            for field, part in zip(fields, value, strict=True):
                self.walk(part, f"{name}_{field}", names, (*outer, value))
        elif hasattr(value, "__dict__") and not isinstance(value, _PLAIN):
            for field, part in vars(value).items():
                self.walk(part, f"{name}_{field}", names, (*outer, value))

    def key(self, signal: Any) -> str:
        """Return the flat name of a signal: a name, and for elements and slices [2] or [8:0] after it."""
        if isinstance(signal, _SliceSignal):
            last = "" if signal._right is None else f":{signal._right}"
            return f"{self.key(signal._sig)}[{signal._left}{last}]"
        if id(signal) in self.numbers and self.bits(signal):
            return self.numbers[id(signal)]
        return re.sub(r"\((\d+)\)", r"[\1]", signal._name)

    def bits(self, signal: Any) -> int:
        """Return the width of a number, 0 for a bit or, in VHDL, for a state."""
        if isinstance(signal._val, EnumItemType):
            return 0 if self.vhdl else int(signal._val._type._nrbits)
        return 0 if signal._type is bool else int(signal._nrbits)

    def init(self, signal: Any) -> int | str:
        """Return what a signal begins with: a number, or the name of a state in VHDL."""
        state = self.vhdl and isinstance(signal._init, EnumItemType)
        return str(signal._init) if state else int(signal._init)

    def signal(self, signal: Any) -> Json:
        """Return type and initial value of a signal."""
        facts: Json = {"bits": self.bits(signal), "init": self.init(signal)}
        if self.vhdl and isinstance(signal._val, EnumItemType):
            kind = signal._val._type
            self.enums[kind._name] = list(kind._names)
            facts["enum"] = kind._name
        elif signal._min is not None and signal._min < 0:
            facts["signed"] = True
        return facts
