"""Source code as sparse samples: which hashed n-grams of words a few lines have, and of which family it is.

The family asks whether a file of the standard library is about networks and concurrency. The larger family is
thinned out evenly, so both have as many samples. Every tenth file is held out.
"""

from __future__ import annotations

import re
import sysconfig
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from oscar.array import Array
from oscar.errors import OscarError
from oscar_studies.workloads.text import source_files

NETWORK = frozenset({
    "asynchat", "asyncio", "asyncore", "cgi", "cgitb", "concurrent", "email", "ftplib", "http", "imaplib",
    "ipaddress", "mailbox", "multiprocessing", "netrc", "nntplib", "poplib", "queue", "sched", "selectors",
    "smtpd", "smtplib", "socket", "socketserver", "ssl", "telnetlib", "threading", "urllib", "webbrowser",
    "wsgiref", "xmlrpc",
})  # fmt: skip
_TABLES = frozenset({"encodings", "pydoc_data"})  # data in the form of code
_WORD = re.compile(r"[A-Za-z_]+|[0-9]+|[^\sA-Za-z0-9_]")
_HELD_OUT = 10  # every so many files
_FACTORS = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # of words, pairs and triples; odd


@dataclass(frozen=True)
class NgramSamples:
    """Sparse rows. Row i has `scale[i]` in each of `columns[start[i] : start[i + 1]]`: its length is 1.

    labels: 1 for the network family, else -1.
    """

    start: Array
    columns: Array
    scale: Array
    labels: Array

    def rows(self, which: Array) -> NgramSamples:
        """Return some of the rows."""
        lengths = np.diff(self.start)[which]
        start = np.concatenate([[0], np.cumsum(lengths)])
        moved = np.repeat(self.start[which] - start[:-1], lengths) + np.arange(start[-1])
        return NgramSamples(start, self.columns[moved], self.scale[which], self.labels[which])

    def crc(self) -> int:
        """Return a CRC-32 of what the samples are."""
        return zlib.crc32(self.labels.tobytes(), zlib.crc32(self.columns.tobytes(), len(self.start)))


@lru_cache(maxsize=2)
def code_samples(lines: int, limit: int, features_log2: int) -> tuple[NgramSamples, NgramSamples]:
    """Return training and held-out samples of `lines` lines each, at most `limit` of either family.

    Raises OscarError where the standard library has too few sources.
    """
    families: tuple[list[tuple[bool, str]], ...] = [], []
    for held_out, network, text in _files():
        full = [line for line in text.splitlines() if line.strip()]
        for at in range(0, len(full) - lines + 1, lines):
            families[network].append((held_out, "\n".join(full[at : at + lines])))
    count = min(limit, *map(len, families))
    chosen = [
        (*family[i * len(family) // count], label)
        for family, label in zip(families, (-1, 1), strict=True)
        for i in range(count)
    ]
    parts = [[(text, label) for out, text, label in chosen if out == wanted] for wanted in (False, True)]
    if not all(parts):
        raise OscarError(
            f"expected sources of the standard library in files of {lines} lines, found too few; use a "
            "Python that ships them unpacked, or a workload without text (numpy-digits, cnn)"
        )
    training, held_out_part = (_hashed(part, features_log2) for part in parts)
    return training, held_out_part


def _files() -> Iterator[tuple[bool, bool, str]]:
    """Yield whether a file is held out, whether it is of the network family, and its text."""
    root = sysconfig.get_path("stdlib")
    for number, path in enumerate(source_files(root)):
        family = Path(path).relative_to(root).parts[0].removesuffix(".py")
        if family not in _TABLES:
            try:
                text = Path(path).read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            yield number % _HELD_OUT == _HELD_OUT - 1, family in NETWORK, text


def _hashed(part: list[tuple[str, int]], features_log2: int) -> NgramSamples:
    known: dict[str, int] = {}
    columns = [_features(_WORD.findall(text), features_log2, known) for text, _ in part]
    lengths = np.array([row.size for row in columns])
    start = np.concatenate([[0], np.cumsum(lengths)])
    labels = np.array([label for _, label in part], np.float64)
    result = NgramSamples(
        start, np.concatenate(columns).astype(np.int32), 1 / np.sqrt(np.maximum(lengths, 1)), labels
    )
    for array in vars(result).values():
        array.flags.writeable = False  # cached
    return result


def _features(words: list[str], features_log2: int, known: dict[str, int]) -> Array:
    """Return the columns, ascending, of words, pairs and triples: the top bits of a product of hashes."""
    for word in words:
        if word not in known:
            known[word] = zlib.crc32(word.encode())
    hashes = np.array([known[word] for word in words], np.uint64)
    one, two, three = map(np.uint64, _FACTORS)
    single = hashes * one
    pair = (single[:-1] ^ hashes[1:]) * two
    triple = (pair[:-1] ^ hashes[2:]) * three
    return np.unique(np.concatenate([single, pair, triple]) >> np.uint64(64 - features_log2))
