"""Blocks that are converted on their own: one function each makes the ports and the block."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from oscar_hdl.params import LaneParams
from oscar_hdl.streams import bit, word

Top = Callable[[LaneParams], Any]
TOPS: dict[str, Top] = {}


def top(make: Top) -> Top:
    """Register a function whose name is the block's."""
    TOPS[make.__name__] = make
    return make


def find(name: str) -> Top:
    """Return a registered top, or the function of "module:function". Raises ValueError when there is none."""
    if name in TOPS:
        return TOPS[name]
    module, colon, function = name.partition(":")
    if not colon:
        raise ValueError(
            f"no top called {name!r}; there are {', '.join(TOPS) or 'none'} (or module:function)"
        )
    found: Top = getattr(importlib.import_module(module), function)
    return found


@top
def rans_encoder(params: LaneParams) -> Any:
    """Encoder core with its tables."""
    from oscar_hdl.rans_encoder import rans_encoder

    return rans_encoder(
        clk=bit(),
        rst=bit(),
        tw_en=bit(),
        tw_addr=word(9),
        tw_f=word(12),
        tw_c=word(12),
        tw_rcp=word(18),
        slot=word(4),
        in_valid=bit(),
        in_bank=bit(),
        in_ctx=word(4),
        in_sym=word(4),
        in_first=bit(),
        in_final=bit(),
        word_valid=bit(),
        word_out=word(12),
        word_end=bit(),
        state_valid=bit(),
        state_lane=word(4),
        state=word(24),
    )


@top
def rans_decoder(params: LaneParams) -> Any:
    """Decoder core with its tables, word FIFO and contexts."""
    from oscar_hdl.rans_decoder import rans_decoder

    return rans_decoder(
        clk=bit(),
        rst=bit(),
        tw_en=bit(),
        tw_addr=word(9),
        tw_f=word(12),
        tw_c=word(12),
        push_valid=bit(),
        push_ready=bit(),
        push_word=word(12),
        words_end=bit(),
        start=bit(),
        start_bank=bit(),
        start_zero=bit(),
        in_valid=bit(),
        in_ready=bit(),
        in_class=word(4),
        in_final=bit(),
        in_end=bit(),
        out_valid=bit(),
        out_lane=word(4),
        out_ctx=word(4),
        out_sym=word(4),
        end_valid=bit(),
        end_words=word(13),
        end_ok=bit(),
    )
