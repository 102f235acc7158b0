"""Blocks that are converted on their own, with the ports and parameters they are converted for."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from oscar_hdl.asc_encoder import asc_encoder
from oscar_hdl.deframer import deframer
from oscar_hdl.framer import framer
from oscar_hdl.params import LaneParams
from oscar_hdl.rans_decoder import rans_decoder
from oscar_hdl.rans_encoder import rans_encoder
from oscar_hdl.streams import Stream, bit, word

Top = Callable[[LaneParams], Any]
STORE_LOG2 = 12  # words of 16 bits in a frame store

# The fields of a frame's header, as inputs of framer (head_*) and deframer (exp_*).
HEADER = "{0}_step:16 {0}_chunk:16 {0}_sub:8 {0}_width:8 {0}_sequence:16 {0}_checksum:16 {0}_count:19"


def ports(text: str) -> dict[str, Any]:
    """Return signals by name: `a` is a bit, `a:8` a word, `a:s8` a stream, `a:s16k2` one with tkeep."""
    made: dict[str, Any] = {}
    for item in text.split():
        name, _, kind = item.partition(":")
        if kind.startswith("s"):
            bits, _, keep = kind[1:].partition("k")
            made[name] = Stream(int(bits), keep=int(keep or 0))
        else:
            made[name] = word(int(kind)) if kind else bit()
    return made


def _rans_encoder(_: LaneParams) -> Any:
    return rans_encoder(
        **ports(
            "clk rst tw_en tw_addr:9 tw_f:12 tw_c:12 tw_rcp:18 slot:4 in_valid in_bank in_ctx:4 in_sym:4 "
            "in_first in_final word_valid word_out:12 word_end state_valid state_lane:4 state:24"
        )
    )


def _rans_decoder(_: LaneParams) -> Any:
    return rans_decoder(
        **ports(
            "clk rst tw_en tw_addr:9 tw_f:12 tw_c:12 push_valid push_ready push_word:12 words_end start "
            "start_bank start_zero in_valid in_ready in_class:4 in_final in_end out_valid out_lane:4 "
            "out_ctx:4 out_sym:4 end_valid end_words:13 end_ok"
        )
    )


def _asc_encoder(params: LaneParams) -> Any:
    return asc_encoder(
        **ports(
            "clk rst start fresh count:19 width:5 shift:4 s_axis:s20 redo_valid redo_ready redo_first:19 "
            "redo_count:19 s_axis_redo:s20 m_axis:s16 enc_cnt_valid enc_cnt_addr:8 enc_cnt_bank enc_req "
            "enc_op:3 enc_bank enc_tbank enc_ack tw_en tw_addr:9 tw_f:12 tw_c:12 tw_rcp:18 done new_shift:4 "
            "stall_input stall_output stall_tables"
        ),
        params=params,
    )


def _framer(_: LaneParams) -> Any:
    return framer(
        **ports(
            f"clk rst s_axis:s16 complete finish drop {HEADER.format('head')} done overflow "
            "m_axis:s16k2 word_sent"
        ),
        depth_log2=STORE_LOG2,
    )


def _deframer(_: LaneParams) -> Any:
    return deframer(
        **ports(
            f"clk rst s_axis:s16k2 wanted {HEADER.format('exp')} matched words:19 rd_valid rd_ready "
            "rd_addr:19 rd_data:16 rd_data_valid free bad reason:4 word_taken"
        ),
        depth_log2=STORE_LOG2,
        lanes=1,
        lane=0,
    )


# From small to large: the last one is what a project takes.
TOPS: dict[str, Top] = {
    "rans_encoder": _rans_encoder,
    "rans_decoder": _rans_decoder,
    "asc_encoder": _asc_encoder,
    "framer": _framer,
    "deframer": _deframer,
}


def find(name: str) -> Top:
    """Return a registered top, or the function of "module:function". Raises ValueError when there is none."""
    if name in TOPS:
        return TOPS[name]
    module, colon, function = name.partition(":")
    if not colon:
        raise ValueError(f"no top called {name!r}; there are {', '.join(TOPS)} (or module:function)")
    found: Top = getattr(importlib.import_module(module), function)
    return found
