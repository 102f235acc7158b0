"""Break and pack lines of VHDL and Verilog, whose white space means nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

WIDTH = 110
TABLE = 16  # choices that make a table
_WORD = re.compile(r'(?:"[^"]*"|[^ "])+ *')


def wrapped(text: str) -> str:
    """Return text whose lines have up to 110 columns, where they have spaces; comments stay as they are."""
    return "\n".join(part for line in text.split("\n") for part in _broken(line))


def _broken(line: str) -> Iterator[str]:
    stripped = line.lstrip(" ")
    indent = " " * (len(line) - len(stripped))
    if len(line) <= WIDTH or stripped.startswith(("--", "//")):
        yield line
        return
    current = indent
    for word in _WORD.findall(stripped):
        if len(current.rstrip()) > len(indent) and len(current) + len(word.rstrip()) > WIDTH:
            yield current.rstrip()
            current = f"{indent}    "
        current += word
    yield current.rstrip()


def packed(parts: Iterable[str], indent: str, width: int = WIDTH) -> str:
    """Return parts, as many to a line as fit."""
    lines, current = [], indent
    for part in parts:
        if current.strip() and len(current) + len(part) > width:
            lines.append(current.rstrip())
            current = indent
        current += part + " "
    return "\n".join([*lines, current.rstrip()])


def grouped(pins: Iterable[tuple[str, str]], indent: str) -> str:
    """Return what ports are connected to, with commas: those of a bundle on lines of their own.

    Args:
        pins: Name of the bundle, or "", and the connection.
        indent: What each line begins with.
    """
    groups = [(name, [pin for _, pin in group]) for name, group in groupby(pins, lambda pin: pin[0])]
    lines = []
    for n, (_, parts) in enumerate(groups):
        last = n + 1 == len(groups)
        lines.append(packed([f"{part}," for part in parts[:-1]] + [parts[-1] + "," * (not last)], indent))
    return "\n".join(lines)


def declared(signals: Iterable[tuple[str, str, str]], indent: str) -> list[str]:
    """Return declarations, signals of the same kind that follow each other in one.

    Args:
        signals: What is before the name, the name, and what is after it.
        indent: What each declaration begins with.
    """
    lines = []
    for (before, after), group in groupby(signals, lambda each: (each[0], each[2])):
        names = [name for _, name, _ in group]
        while names:
            line, names = f"{indent}{before}{names[0]}", names[1:]
            while names and len(line) + len(names[0]) + len(after) + 2 <= WIDTH:
                line, names = f"{line}, {names[0]}", names[1:]
            lines.append(line + after)
    return lines


def short_tables(text: str, choice: re.Pattern[str]) -> str:
    """Return a process whose tables of constants have several choices to a line.

    Args:
        text: Process.
        choice: Pattern of a line that is a whole choice.
    """
    done: list[str] = []
    for is_choice, group in groupby(text.split("\n"), lambda line: choice.match(line) is not None):
        lines = list(group)
        if is_choice and len(lines) >= TABLE:
            lines = [packed((_hexadecimal(line.strip()) for line in lines), "    ", WIDTH - 4)]
        done += lines
    return "\n".join(done)


def _hexadecimal(choice: str) -> str:
    """Return a choice whose bits are written as a hexadecimal number."""
    return re.sub(r'"([01]+)"', lambda bits: f'{len(bits[1])}X"{int(bits[1], 2):X}"', choice)
