"""Index codecs: code which positions a sparse message is about (docs/sparse.md, "Index streams")."""

from oscar.coding.index.base import IndexCodec
from oscar.coding.index.popular import Popular
from oscar.coding.index.popularity import Popularity
from oscar.coding.index.registry import INDEX_CODECS, make_index

__all__ = ["INDEX_CODECS", "IndexCodec", "Popular", "Popularity", "make_index"]
