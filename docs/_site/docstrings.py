"""Docstrings of this project as Markdown: examples become blocks of code, brackets and short lists stay."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\n|\Z).*)*", re.MULTILINE)  # up to the next empty line
# `name, name: text` at the start of a line or after a semicolon: an item of a list
ARGUMENTS = re.compile(r"(?:^|; |;\n)(\w+(?:, \w+)*): (?=\S)", re.MULTILINE)
INDEXED = re.compile(r"(?<![`\w])(\w+(?:\[\w+\]){2,})(?!`)")  # gradients[node][tensor]: code, not a link


class Plain(griffe.Extension):
    """Rewrites every docstring that is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text, *examples = re.split(r"(?=^>>> )", obj.docstring.value, maxsplit=1, flags=re.MULTILINE)
            text = INDEXED.sub(r"`\1`", text)
            if not re.search(r"^(?:Args|Attributes|Returns|Raises):$", text, re.MULTILINE):
                text = ARGUMENTS.sub(r"\n- `\1`: ", text)
                text = re.sub(r"\n(?=Raises )", "\n\n", text)
            code = EXAMPLE.sub(lambda block: f"```pycon\n{block[0]}\n```", "".join(examples))
            obj.docstring.value = text + code
