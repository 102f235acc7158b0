"""A converted top before it has files: its blocks, its signals, and the text of each process."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from oscar_hdl.flow.hierarchy.capture import MARK

_MARK = re.compile(r"^ *(?:--|//) " + MARK.format(r"(\d+)") + "\n", re.MULTILINE)

# What may be before an assignment on its line: a choice of a table, for one.
_BEFORE = re.compile(r"^ *(?:assign |when [^=\n]* => |[\w']+: )?(?=[A-Za-z])", re.MULTILINE)


@dataclass(frozen=True)
class Syntax:
    """What names, slices and assignments look like in a language."""

    name: str
    comment: str
    words: re.Pattern[str]
    suffix: re.Pattern[str]
    locals: re.Pattern[str]
    written: str  # after a name and its indices, where a statement assigns
    brackets: str


VHDL = Syntax(
    name="vhdl",
    comment="--",
    words=re.compile(r"""(?P<skip>--[^\n]*|"[^"]*"|'.'|\d\w*)|(?P<name>[A-Za-z]\w*)"""),
    suffix=re.compile(r"\((?P<high>\d+)(?:-1 downto (?P<low>\d+))?\)"),
    locals=re.compile(r"^ *(?:variable (\w+):|for (\w+) in )", re.MULTILINE),
    written="<=",
    brackets="()",
)
VERILOG = Syntax(
    name="verilog",
    comment="//",
    words=re.compile(r"""(?P<skip>//[^\n]*|"[^"]*"|\d*'s?[bdho]\w+|\$\w+|\d\w*)|(?P<name>[A-Za-z]\w*)"""),
    suffix=re.compile(r"\[(?P<high>\d+)(?:-1:(?P<low>\d+))?\]"),
    locals=re.compile(r"^ +(?:integer|reg(?: signed)?(?: \[[^\]]*\])?) (\w+);()", re.MULTILINE),
    written="<?=",
    brackets="[]",
)
SYNTAXES = {syntax.name: syntax for syntax in (VHDL, VERILOG)}


@dataclass(frozen=True)
class Signal:
    """Type and initial value of a signal.

    Attributes:
        bits: Width of a number, 0 for a bit or a state.
        init: First value, or the name of a state.
        enum: Type of a state.
        signed: True if numbers may be negative.
        depth: Length of an array, 0 if it is none.
        inits: First value of each element of an array.
    """

    bits: int
    init: int | str
    enum: str = ""
    signed: bool = False
    depth: int = 0
    inits: tuple[int | str, ...] = ()


@dataclass(frozen=True)
class Reference:
    """A place in the text of a process that names a signal, with its constant indices: [3], [8:0]."""

    start: int
    end: int
    base: str
    indices: tuple[str, ...]
    texts: tuple[str, ...]


@dataclass
class Block:
    """An instance of a block of the source; signals have their flat names, [3] and [8:0] after some.

    Attributes:
        arguments: Name, type and flat signals of each argument.
        interface: Name of each signal that comes by an argument.
        names: Name of each other signal that the block knows.
    """

    block: str
    parent: int | None
    doc: str
    source: str
    arguments: list[tuple[str, str, list[str]]]
    parameters: dict[str, Any]
    interface: dict[str, str]
    names: dict[str, str]
    label: str = ""
    children: list[int] = field(default_factory=list)


@dataclass
class Statement:
    """A process, or concurrent assignments, with flat names."""

    block: int
    name: str
    text: str
    syntax: Syntax
    signals: Mapping[str, Signal]

    @cached_property
    def locals(self) -> set[str]:
        """Variables of the process, which hide signals."""
        return {name for pair in self.syntax.locals.findall(self.text) for name in pair if name}

    @cached_property
    def references(self) -> list[Reference]:
        """All places that name a signal, in order."""
        found = []
        for match in self.syntax.words.finditer(self.text):
            base = match["name"]
            if base is None or base not in self.signals or base in self.locals:
                continue
            end, indices, texts = match.end(), [], []
            while suffix := self.syntax.suffix.match(self.text, end):
                low = suffix["low"]
                indices.append(f"[{suffix['high']}]" if low is None else f"[{suffix['high']}:{low}]")
                texts.append(suffix[0])
                end = suffix.end()
            found.append(Reference(match.start(), match.end(), base, tuple(indices), tuple(texts)))
        return found

    @cached_property
    def written(self) -> set[int]:
        """Starts of the references that are assigned."""
        starts = {reference.start for reference in self.references}
        written = re.compile(rf" *{self.syntax.written}")
        found = set()
        for line in _BEFORE.finditer(self.text):
            if line.end() not in starts:
                continue
            if written.match(self.text, after_indices(self.text, line.end(), self.syntax)):
                found.add(line.end())
        return found

    def replaced(self, new: Callable[[Reference], tuple[str, int]]) -> str:
        """Return the text with new names; `new` gives one, and how many of the indices it takes in."""
        parts, at = [], 0
        for reference in self.references:
            name, taken = new(reference)
            parts += [self.text[at : reference.start], name]
            at = reference.end + sum(map(len, reference.texts[:taken]))
        return "".join([*parts, self.text[at:]])


def after_indices(text: str, start: int, syntax: Syntax) -> int:
    """Return where the name at `start` ends, with its indices."""
    opening, closing = syntax.brackets
    end = start
    while text[end].isalnum() or text[end] == "_":
        end += 1
    while text[end] == opening:
        end = closing_bracket(text, end, opening, closing) + 1
    return end


def closing_bracket(text: str, start: int, opening: str, closing: str) -> int:
    """Return the place of the bracket that closes the one at `start`."""
    depth = 0
    for at in range(start, len(text)):
        depth += {opening: 1, closing: -1}.get(text[at], 0)
        if depth == 0:
            return at
    raise ValueError(f"no {closing} closes the {opening} of {text[start : start + 40]!r}")


@dataclass
class Design:
    """All of a converted top.

    Attributes:
        ports: Name, direction, width and flat signal of each port, in order.
        signals: By their flat names.
        enums: Literals of each type of states.
    """

    top: str
    syntax: Syntax
    ports: list[tuple[str, str, int, str]]
    signals: dict[str, Signal]
    enums: dict[str, list[str]]
    blocks: list[Block]
    statements: list[Statement]


def unmarked(text: str) -> str:
    """Return flat text without the marks of `capture`."""
    return _MARK.sub("", text)


def load(top: str, text: str, record: Mapping[str, Any], syntax: Syntax, keywords: Collection[str]) -> Design:
    """Return the design of a flat text and of what `capture` recorded.

    Args:
        top: Name of the top's entity.
        text: Flat VHDL or Verilog, with a mark before each process.
        record: Tree of the same conversion.
        syntax: Language of the text.
        keywords: Words to which the text has `_0` added where MyHDL takes them for names.
    """

    def flat(key: str) -> str:
        base, bracket, indices = key.partition("[")
        return f"{base}_0{bracket}{indices}" if base in keywords else key

    signals = {
        flat(name): Signal(**{**facts, "inits": tuple(facts.get("inits", ()))})
        for name, facts in record["signals"].items()
    }
    blocks = [
        Block(
            **{
                **block,
                "arguments": [
                    (name, kind, [flat(k) for k in keys]) for name, kind, keys in block["arguments"]
                ],
                "interface": {flat(key): name for key, name in block["interface"].items()},
                "names": {flat(key): name for key, name in block["names"].items()},
            }
        )
        for block in record["blocks"]
    ]
    parts = _MARK.split(text)[1:]  # a number, a text, a number ...
    end = "end architecture" if syntax is VHDL else "endmodule"
    texts = {int(n): part.rpartition(end)[0] or part for n, part in zip(parts[::2], parts[1::2], strict=True)}
    statements = [
        Statement(block, name, _insensitive(texts[n].strip("\n")), syntax, signals)
        for n, (block, name) in enumerate(record["processes"])
    ]
    for number, block in enumerate(blocks):
        if block.parent is not None:
            blocks[block.parent].children.append(number)
    _label(blocks)
    ports = [(name, way, bits, flat(key)) for name, way, bits, key in record["ports"]]
    return Design(top, syntax, ports, signals, record["enums"], blocks, statements)


def _insensitive(text: str) -> str:
    """Return a process without the signals that start it, unless that is a clock."""
    if "rising_edge(" not in text:
        text = re.sub(r"process \(.*\) is$", "process (all) is", text, flags=re.MULTILINE)
    return re.sub(r"^always @\((?!posedge).*\) begin", "always @(*) begin", text, flags=re.MULTILINE)


def _label(blocks: list[Block]) -> None:
    """Call each instance by its block, with a number where its parent has several."""
    for block in blocks:
        kinds = [blocks[child].block for child in block.children]
        counts: dict[str, int] = {}
        for child, kind in zip(block.children, kinds, strict=True):
            counts[kind] = counts.get(kind, 0) + 1
            blocks[child].label = kind if kinds.count(kind) == 1 else f"{kind}_{counts[kind]}"
