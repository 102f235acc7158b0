"""Text tables: a row is what results hold in JSON; a table shows some of its keys in aligned columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

Row = dict[str, Any]


class Table:
    """Columns, each given as "key:heading >8.3f": heading and format of the value that a row has at the key.

    The key is the heading where only one of them is given. `heading` is the first line. Text in place of a
    number takes only the column's alignment and width; None shows as "-", a bool as yes or no.
    """

    def __init__(self, *columns: str) -> None:
        self._forms: dict[str, tuple[str, str]] = {}  # by key: alignment and width, the whole format
        names = {}
        for column in columns:
            name, _, form = column.rpartition(" ")
            key, _, heading = name.partition(":")
            place = re.match(r"[<>]\d*", form)
            if place is None:
                raise ValueError(f"expected a column like 'loss >8.4f', got {column!r}")
            self._forms[key] = place[0], form
            names[key] = heading or key
        self.heading = self.line(names)

    def line(self, row: Mapping[str, Any], **more: Any) -> str:
        """Return the line of a row; more: values in place of its own, or beside them."""
        cells = {**row, **more}
        return " ".join(self._cell(key, cells[key]) for key in self._forms).rstrip()

    def markdown(self, rows: Iterable[Mapping[str, Any]], headings: Mapping[str, str]) -> list[str]:
        """Return the lines of a Markdown table; headings: of the columns that are shown, by key."""
        rules = ["---" if self._forms[key][0].startswith("<") else "--:" for key in headings]
        cells = [[self._cell(key, row[key]).strip().replace("|", r"\|") for key in headings] for row in rows]
        first, *others = (f"| {' | '.join(line)} |" for line in (headings.values(), *cells))
        return [first, f"|{'|'.join(rules)}|", *others]

    def _cell(self, key: str, value: Any) -> str:
        place, form = self._forms[key]
        if value is None or isinstance(value, bool):
            value = "-" if value is None else "yes" if value else "no"
        return format(value, place if isinstance(value, str) else form)
