"""Write a converted top as a tree of entities: a file for each, equal ones once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from textwrap import wrap
from typing import Any

from oscar_hdl.flow.hierarchy.design import SYNTAXES, Block, load
from oscar_hdl.flow.hierarchy.entities import Entity, Namer
from oscar_hdl.flow.hierarchy.interfaces import HierarchyError, Interfaces
from oscar_hdl.flow.hierarchy.layout import WIDTH
from oscar_hdl.flow.hierarchy.verilog import UNLINTED, Verilog
from oscar_hdl.flow.hierarchy.vhdl import Vhdl
from oscar_hdl.flow.keywords import KEYWORDS, TAKEN

__all__ = "HierarchyError", "files"

WRITERS = {"vhdl": Vhdl, "verilog": Verilog}
_NAME = "\1"  # in the place of an entity's name, while equal ones are looked for


def files(top: str, language: str, text: str, record: Mapping[str, Any], first: str) -> dict[str, str]:
    """Return the files of a top by their names, those first that others need.

    Args:
        top: Name of the top.
        language: "vhdl" or "verilog".
        text: Flat text, with the marks of `capture`.
        record: What `capture` recorded of the same conversion.
        first: What each file says of its origin.
    """
    design = load(top, text, record, SYNTAXES[language], KEYWORDS[language])
    interfaces = Interfaces(design)
    entities = {n: Namer(design, interfaces, n).make() for n in sorted(interfaces.entities)}
    writer = WRITERS[language](design, list(entities.values()))
    made: dict[str, str] = {}
    if package := writer.package_text():
        made[f"{top}_types{writer.suffix}"] = _comment([first], writer.comment) + f"\n{package}"
    names: dict[int, tuple[str, Entity]] = {}
    known: dict[tuple[str, str], str] = {}
    for number in reversed(entities):  # instances have higher numbers than what they are in
        block, entity = design.blocks[number], entities[number]
        body = writer.entity_text(entity, _NAME, names)
        key = (block.block, body)
        if key not in known:
            known[key] = _unused(block.block if number else top, known.values())
            head = _header(block, known[key], writer.comment, first)
            made[known[key] + writer.suffix] = f"{head}\n{body.replace(_NAME, known[key])}"
        names[number] = known[key], entity
    return made


def _unused(name: str, names: Collection[str]) -> str:
    """Return a name for an entity: its block's, or _v2 and so on after it for a block that differs."""
    candidate, count = f"{name}_block" if name in TAKEN else name, 1
    while candidate in names:
        count += 1
        candidate = f"{name}_v{count}"
    return candidate


def _comment(lines: Iterable[str], comment: str) -> str:
    """Return lines as a comment, long ones broken."""
    parts = (part for line in lines for part in wrap(line, WIDTH - 3) or [""])
    return "".join(f"{comment} {part}".rstrip() + "\n" for part in parts)


def _header(block: Block, name: str, comment: str, first: str) -> str:
    """Return the comment before an entity: its block's docstring."""
    lines = [name, "", *block.doc.split("\n")]
    if block.parameters:
        lines += ["", "Parameters: " + ", ".join(f"{key}={value}" for key, value in block.parameters.items())]
    text = _comment([*lines, "", f"Source: oscar_hdl/{block.source}", first], comment)
    if comment == "//":
        text += "".join(f"/* verilator lint_off {rule} */\n" for rule in UNLINTED)
    return text
