"""Find what each block shows: which signals cross its border, and which way."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from oscar_hdl.flow.hierarchy.design import Design, Statement

_INDEX = re.compile(r"\[[^\]]*\]")
SMALL = 3  # assignments of a block that its parent's entity has in its own text
MANY = 12  # texts of a block from which on it has no entity: it is a function, and each call another one


class HierarchyError(Exception):
    """A signal is used where no argument brings it, or has two drivers."""


class Interfaces:
    """The signals of each block of a design.

    A block uses keys: flat signals, elements and slices. A key that its arguments bring is a port. Any other
    is an element or a slice of a signal of its own, or that signal.

    Attributes:
        uses: For each block, the keys that it or a block inside it uses; True if they are driven in there.
        entities: Numbers of the blocks that have entities.
        whole: Arrays with a driver that writes all elements.
    """

    def __init__(self, design: Design) -> None:
        self.design = design
        self.blocks = design.blocks
        self.own: dict[int, list[Statement]] = defaultdict(list)
        for statement in design.statements:
            self.own[statement.block].append(statement)
        self.whole = {
            r.base
            for s in design.statements
            for r in s.references
            if r.start in s.written and design.signals[r.base].depth and not r.indices
        }
        self.uses: list[dict[str, bool]] = [{} for _ in self.blocks]
        sizes = [sum(len(s.written) for s in self.own[n]) for n in range(len(self.blocks))]
        for number in reversed(range(len(self.blocks))):  # children have higher numbers than their parents
            self._use(number)
            sizes[number] += sum(sizes[child] for child in self.blocks[number].children)
        varied = self._varied({n for n, size in enumerate(sizes) if size <= SMALL})
        own_text = (
            n for n, block in enumerate(self.blocks) if sizes[n] > SMALL and block.block not in varied
        )
        self.entities = {0, *own_text}
        self._check()

    def _varied(self, parts: set[int]) -> set[str]:
        """Return the blocks that have many texts, and no instances but `parts`, which have no entities."""
        texts: dict[str, set[tuple[str, ...]]] = defaultdict(set)
        for number, block in enumerate(self.blocks):
            known = {**block.names, **block.interface}
            own = self.own[number] if parts.issuperset(block.children) else []
            texts[block.block].add(
                tuple(s.replaced(lambda r, known=known: (known.get(r.base, ""), 0)) for s in own)  # type: ignore[misc]
            )
        return {name for name, various in texts.items() if len(various) > MANY}

    def _use(self, number: int) -> None:
        uses = self.uses[number]
        for statement in self.own[number]:
            for reference in statement.references:
                driven = reference.start in statement.written
                key, _ = self.resolve(number, reference.base, reference.indices, driven)
                uses[key] = uses.get(key, False) or driven
        for child in self.blocks[number].children:
            for key, driven in self.uses[child].items():
                if self.is_port(child, key):
                    above, _ = self.resolve(number, *split(key), driven)
                    uses[above] = uses.get(above, False) or driven
        for base in [key for key in uses if self.is_list(number, key)]:
            for element in self.elements(number, base):
                uses[element] = uses.get(element, False) or base in self.whole

    def is_port(self, number: int, key: str) -> bool:
        """Return True if the block's arguments bring this signal."""
        return key in self.blocks[number].interface

    def is_list(self, number: int, key: str) -> bool:
        """Return True for an array that a block makes of signals; its arguments may bring some of them."""
        return "[" not in key and self.design.signals[key].depth > 0 and not self.is_port(number, key)

    def elements(self, number: int, base: str) -> dict[str, int]:
        """Return the elements of a list that arguments bring, with their places."""
        keys = {f"{base}[{n}]": n for n in range(self.design.signals[base].depth)}
        return {key: n for key, n in keys.items() if self.is_port(number, key)}

    def resolve(self, number: int, base: str, indices: Sequence[str], driven: bool) -> tuple[str, int]:
        """Return the key by which a block knows a signal, and how many of the indices belong to it.

        An argument that is a slice comes before the whole signal, but drives nothing.
        """
        block = self.blocks[number]
        known = base in block.interface or base in block.names
        array = bool(self.design.signals[base].depth)
        if known and (base in self.whole if array else driven):
            return base, 0
        for taken in range(1, len(indices) + 1):
            key = base + "".join(indices[:taken])
            if key in block.interface:
                return key, taken
        if array and indices and not known:
            return base + indices[0], 1
        return base, 0

    def ports(self, number: int) -> dict[str, str]:
        """Return the direction of each port of a block, in the order of its arguments."""
        uses = self.uses[number]
        return {key: "out" if uses[key] else "in" for key in self.blocks[number].interface if key in uses}

    def inside(self, number: int) -> list[int]:
        """Return the block and those inside it whose text is in its entity, in order."""
        found = [number]
        for child in self.blocks[number].children:
            if child not in self.entities:
                found += self.inside(child)
        return found

    def _check(self) -> None:
        """Raise HierarchyError unless each signal has one home."""
        homes: dict[str, int] = {}
        for number, uses in enumerate(self.uses):
            for key in uses:
                if number and self.is_port(number, key):
                    continue
                if key in homes:
                    places = " and ".join(self.path(n) for n in (homes[key], number))
                    raise HierarchyError(
                        f"signal {key} is used in {places}, expected in one of them, or passed as an argument"
                    )
                homes[key] = number

    def path(self, number: int) -> str:
        """Return the labels of the instances from the top to a block."""
        block = self.blocks[number]
        return f"{self.path(block.parent)}.{block.label}" if block.parent is not None else block.block


def split(key: str) -> tuple[str, tuple[str, ...]]:
    """Return the flat signal of a key, and its indices."""
    base, bracket, rest = key.partition("[")
    return base, tuple(_INDEX.findall(bracket + rest))
