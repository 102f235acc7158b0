"""Real text that every Python has: the sources of its own standard library, as characters or words."""

from __future__ import annotations

import os
import re
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.errors import OscarError
from oscar_studies.workloads.base import held_out_generator

# Not the standard library, or text of another kind: installed packages, tests, caches.
_SKIPPED_FOLDERS = frozenset({"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"})
# Written by the build or by the distributor: the text would differ between machines.
_SKIPPED_FILES = ("_sysconfigdata", "sitecustomize", "usercustomize")
_WORD = re.compile(r"[A-Za-z_]+|[0-9]+|\n|[^\sA-Za-z0-9_]")
_HELD_OUT = 0.05


def source_files(root: str) -> Iterator[str]:
    """Yield the .py files below `root`: breadth first and sorted, so that every run reads the same."""
    folders = [root]
    for folder in folders:  # grows while it is read
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in _SKIPPED_FOLDERS:
                    folders.append(entry.path)
            elif entry.name.endswith(".py") and not entry.name.startswith(_SKIPPED_FILES):
                yield entry.path


@lru_cache(maxsize=2)
def source_text(limit: int, root: str | None = None) -> str:
    """Return at most `limit` bytes of Python source below `root` (default: the standard library), as text.

    Files that cannot be read are skipped. Raises OscarError when none is left.
    """
    folder = sysconfig.get_path("stdlib") if root is None else root
    parts: list[bytes] = []
    left = limit
    for path in source_files(folder):
        try:
            with open(path, "rb") as file:
                data = file.read(left)
        except OSError:
            continue
        parts.append(data)
        left -= len(data)
        if left <= 0:
            break
    text = b"".join(parts).decode("utf-8", errors="replace").replace("\r\n", "\n")
    if not text.strip():
        raise OscarError(
            f"expected Python sources (*.py) of the standard library in {folder}, found none that can be "
            "read; use a Python that ships them unpacked, or a workload without text (numpy-digits, cnn)"
        )
    return text


def _split(ids: Array) -> tuple[Array, Array]:
    """Return (training, held-out) views: the held-out part is the end, so that no window spans both."""
    cut = int(ids.size * (1 - _HELD_OUT))
    ids.flags.writeable = False  # cached: a caller that writes would change every later workload
    return ids[:cut], ids[cut:]


@lru_cache(maxsize=2)
def character_ids(limit: int) -> tuple[Array, Array]:
    """Return (training, held-out) int64 codes 0..127, one per character; others than ASCII become `?`."""
    data = source_text(limit).encode("ascii", errors="replace")
    return _split(np.frombuffer(data, np.uint8).astype(np.int64))


@lru_cache(maxsize=2)
def word_ids(vocabulary: int, limit: int) -> tuple[Array, Array]:
    """Return (training, held-out) int64 word numbers: 1 is the most frequent word, 0 all that do not fit.

    Words are names, numbers, newlines and single signs.
    """
    words = _WORD.findall(source_text(limit))
    # Ties keep the order of first appearance, so the numbering is deterministic.
    number = {word: rank + 1 for rank, (word, _) in enumerate(Counter(words).most_common(vocabulary - 1))}
    return _split(np.fromiter((number.get(word, 0) for word in words), np.int64, len(words)))


def windows(ids: Array, *, count: int, length: int, rng: np.random.Generator) -> Array:
    """Return `count` random windows of `ids`: int64 [count, length]; raises OscarError if none fits."""
    if ids.size < length:
        raise OscarError(
            f"expected text of at least {length} symbols, got {ids.size}; "
            "raise text_bytes, or take a shorter length"
        )
    starts = rng.integers(ids.size - length + 1, size=count)
    return ids[starts[:, None] + np.arange(length)]


@dataclass(frozen=True)
class Text:
    """Samples of a text: what `cut` makes of windows of `length` symbols, inputs and targets.

    ids: of the training and of the held-out text; looks: held-out windows.
    """

    ids: tuple[Array, Array]
    length: int
    looks: int
    cut: Callable[[Array], tuple[Array, Array]]

    def batch(self, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
        return self.cut(windows(self.ids[0], count=count, length=self.length, rng=rng))

    def held_out(self) -> tuple[Array, Array]:
        return self.cut(windows(self.ids[1], count=self.looks, length=self.length, rng=held_out_generator()))


def characters(length: int, text_bytes: int, *, looks: int = 64) -> Text:
    """Return samples of `length` character codes, and the code that follows each of them."""
    return Text(character_ids(text_bytes), length + 1, looks, lambda drawn: (drawn[:, :-1], drawn[:, 1:]))


def words(options: Any, *, looks: int = 2000) -> Text:
    """Return samples of `context` word numbers, and the word that follows; options: of a model of words.

    Words beyond the `outputs` most frequent are folded into target 0, the rest.
    """

    def cut(drawn: Array) -> tuple[Array, Array]:
        following = drawn[:, -1]
        return drawn[:, :-1], np.where(following < options.outputs, following, 0)

    return Text(word_ids(options.vocabulary, options.text_bytes), options.context + 1, looks, cut)
