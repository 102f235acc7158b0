"""Index codecs: code which positions a sparse message is about (docs/reference/sparse.md, "Index streams").

To add one, write a class and add it to INDEX_CODECS.
"""

from __future__ import annotations

from collections.abc import Callable

from oscar.coding.index.base import IndexCodec
from oscar.coding.index.plain import Bitmap, Coo, Gaps, Roaring
from oscar.coding.index.popular import Popular, Popularity
from oscar.errors import ConfigError, did_you_mean

__all__ = ["INDEX_CODECS", "IndexCodec", "Popular", "Popularity", "make_index"]

INDEX_CODECS: dict[str, Callable[[], IndexCodec]] = {
    codec.name: codec for codec in (Coo, Bitmap, Gaps, Roaring, Popular)
}


def make_index(name: str) -> IndexCodec:
    """Return a new index codec; raises ConfigError for an unknown name."""
    if name not in INDEX_CODECS:
        hint = did_you_mean(name, INDEX_CODECS)
        raise ConfigError(f"unknown index codec {name!r}; {hint}valid ones: {', '.join(INDEX_CODECS)}")
    return INDEX_CODECS[name]()
