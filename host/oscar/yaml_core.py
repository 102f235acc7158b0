"""YAML for configurations: the core schema of YAML 1.2, without what is easily misread.

PyYAML reads YAML 1.1, in which `010` is 8, `1:30` is 90, `no` is false and `1e-3` is text, and of a key that
is given twice it takes the last without a word.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from oscar.errors import ConfigError

MAX_SIZE = 200_000  # characters
MAX_DEPTH = 32
MAX_ITEMS = 50_000  # an alias counts as all that it stands for
MAX_DIGITS = 30

_TAG = "tag:yaml.org,2002:"
_NULL = re.compile(r"(?:~|null|Null|NULL|)$")
_BOOL = re.compile(r"(?:true|True|TRUE|false|False|FALSE)$")
_INT = re.compile(r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$")
_FLOAT = re.compile(
    r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
_OCTAL = re.compile(r"[-+]?0[0-9]")


class _Loader(yaml.SafeLoader):
    """PyYAML's reader with the types of the core schema."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _error(f"nested deeper than {MAX_DEPTH} levels", self.peek_event().start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def text(self, node: Any) -> str:
        value = str(self.construct_scalar(node))
        if not value.isprintable():
            raise _error(f"expected characters that can be printed, got {value[:40]!r}", node.start_mark)
        return value

    def number(self, node: Any) -> int | float:
        value = self.text(node)
        if _OCTAL.match(value) and "." not in value:
            plain = re.sub(r"0+(?=[0-9])", "", value, count=1)
            raise _error(
                f"{value}: some readers of YAML take a leading zero for octal; write {plain} (octal: 0o...)",
                node.start_mark,
            )
        if len(value) > MAX_DIGITS:
            raise _error(f"expected a number of at most {MAX_DIGITS} characters", node.start_mark)
        if _INT.match(value):
            return int(value, {"0o": 8, "0x": 16}.get(value[:2], 10))
        if _FLOAT.match(value) and value[-1] not in "fFnN" and math.isfinite(float(value)):
            return float(value)
        raise _error(f"expected a finite number, got {value!r}", node.start_mark)

    def truth(self, node: Any) -> bool:
        value = self.text(node)
        if not _BOOL.match(value):
            raise _error(f"expected true or false, got {value!r}", node.start_mark)
        return value.lower() == "true"

    def sequence(self, node: Any) -> list[Any]:
        if not isinstance(node, yaml.SequenceNode):
            raise _error("expected a list", node.start_mark)
        return [self.construct_object(item, deep=True) for item in node.value]

    def mapping(self, node: Any) -> dict[str, Any]:
        if not isinstance(node, yaml.MappingNode):
            raise _error("expected keys and values", node.start_mark)
        pairs: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            key, mark = self.construct_object(key_node, deep=True), key_node.start_mark
            if not isinstance(key, str):
                raise _error(f"expected text as a key, got {str(key)[:40]}", mark)
            if key in pairs:
                raise _error(f"key {key!r} is given again, it has a value from line {lines[key]}", mark)
            pairs[key], lines[key] = self.construct_object(value_node, deep=True), mark.line + 1
        return pairs

    def foreign(self, node: Any) -> Any:
        raise _error(f"expected plain YAML, got the type {node.tag!r}", node.start_mark)


_Loader.yaml_implicit_resolvers, _Loader.yaml_constructors = {}, {}  # nothing of YAML 1.1
for _tag, _pattern, _first in (
    ("null", _NULL, ["~", "n", "N", ""]),
    ("bool", _BOOL, list("tTfF")),
    ("int", _INT, list("-+0123456789")),
    ("float", _FLOAT, list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(_TAG + _tag, _pattern, _first)

for _tag, _make in (
    ("null", lambda loader, node: None),
    ("bool", _Loader.truth),
    ("int", _Loader.number),
    ("float", _Loader.number),
    ("str", _Loader.text),
    ("seq", _Loader.sequence),
    ("map", _Loader.mapping),
):
    _Loader.add_constructor(_TAG + _tag, _make)
_Loader.add_constructor(None, _Loader.foreign)


def _error(problem: str, mark: Any) -> ConstructorError:
    return ConstructorError(None, None, problem, mark)


def parse(text: str) -> Any:
    """Return what `text` holds: dict with text as keys, list, str, int, float, bool or None.

    Raises ValueError, with the line and what to write instead, for anything that is not YAML, is a tree
    without end, has a key twice, or is a number that readers of YAML disagree about.
    """
    try:
        data = yaml.load(text, _Loader)  # a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = error.problem or error.context
        if problem == "found unconstructable recursive node":
            problem = "an alias stands for what it is a part of"
        if problem == "second occurrence":
            problem = "an anchor is given a second time; anchors need different names"
        raise ValueError(f"{where}{problem}") from None
    except yaml.YAMLError as error:  # a character that no YAML file may hold
        raise ValueError(str(error)) from None
    _count(data, 0, 0)
    return data


def read(path: Path) -> Any:
    """Return what the file holds; raises ConfigError, also where that is nothing."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MAX_SIZE + 1)
        if len(text) > MAX_SIZE:
            raise ValueError(f"it is longer than {MAX_SIZE:,} characters")
        data = parse(text)
    except (OSError, ValueError) as error:
        raise ConfigError(f"not a readable YAML file: {error}") from None
    if data is None:
        raise ConfigError(
            "expected keys and values, got a file that holds none; write {} for the defaults alone"
        )
    return data


def _count(value: Any, depth: int, seen: int) -> int:
    """Return `seen` plus the items of `value`; raises ValueError for a tree that is too large."""
    if depth > MAX_DEPTH:
        raise ValueError(f"an alias makes it nested deeper than {MAX_DEPTH} levels")
    if seen > MAX_ITEMS:
        raise ValueError(f"aliases make it larger than {MAX_ITEMS:,} values")
    if isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            seen = _count(item, depth + 1, seen)
    return seen + 1
