"""One word of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always_comb, block, concat

from oscar_hdl.streams.bundles import word


@block
def word_join(words: Sequence[Any], whole: Any) -> Any:
    """Give `whole`, words[0] lowest; words are of one width and a power of two in number."""
    if len(words) == 2:
        low_word, high_word = words
        parts: tuple[Any, ...] = ()
    else:
        half = len(words) // 2
        low_word, high_word = (word(half * len(words[0])) for _ in range(2))
        parts = (word_join(words[:half], low_word), word_join(words[half:], high_word))

    @always_comb
    def join():
        whole.next = concat(high_word, low_word)

    return parts, join
