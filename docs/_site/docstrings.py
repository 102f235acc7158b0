"""Docstrings of this project as Markdown, which takes brackets and lines of arguments for something else."""

from __future__ import annotations

import re
from typing import Any

import griffe

# `name, name: text` at the start of a line or after a semicolon: an item of a list
ARGUMENTS = re.compile(r"(?:^|; |;\n)(\w+(?:, \w+)*): (?=\S)", re.MULTILINE)
INDEXED = re.compile(r"(?<![`\w])(\w+(?:\[\w+\]){2,})(?!`)")  # gradients[node][tensor]: code, not a link


class Plain(griffe.Extension):
    """Rewrites every docstring that is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = INDEXED.sub(r"`\1`", obj.docstring.value)
            text = ARGUMENTS.sub(r"\n- `\1`: ", text)
            obj.docstring.value = re.sub(r"\n(?=Raises )", "\n\n", text)
