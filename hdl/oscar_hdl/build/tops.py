"""Blocks that are converted on their own, with the ports and parameters they are converted for."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from oscar_hdl.asc_decoder import asc_decoder
from oscar_hdl.asc_encoder import asc_encoder
from oscar_hdl.asc_tables import asc_tables
from oscar_hdl.deframer import deframer
from oscar_hdl.framer import framer
from oscar_hdl.nic_lane import nic_lane
from oscar_hdl.oscar_nic import oscar_nic
from oscar_hdl.params import LaneParams
from oscar_hdl.rans_decoder import rans_decoder
from oscar_hdl.rans_encoder import rans_encoder
from oscar_hdl.splitter import splitter
from oscar_hdl.streams.bundles import AxiLite, Stream, bit, word

Value = int | str | bool
Top = Callable[..., Any]  # of parameters, given by name
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
            "redo_count:19 s_axis_redo:s20 m_axis:s16 enc_cnt_valid enc_cnt_addr:8 enc_cnt_bank enc_wipe "
            "enc_req enc_op:3 enc_bank enc_tbank enc_ack tw_en tw_addr:9 tw_f:12 tw_c:12 tw_rcp:18 done "
            "new_shift:4 stall_input stall_output stall_tables"
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


def _asc_tables(_: LaneParams) -> Any:
    return asc_tables(
        **ports(
            "clk rst dec_cnt_valid dec_cnt_addr:8 dec_cnt_bank dec_req dec_op:3 dec_bank dec_tbank dec_ack "
            "enc_cnt_valid enc_cnt_addr:8 enc_cnt_bank enc_wipe enc_req enc_op:3 enc_bank enc_tbank enc_ack "
            "state_client s_axis_state:s10 m_axis_state:s10 dec_tw_en dec_tw_addr:9 dec_tw_f:12 dec_tw_c:12 "
            "enc_tw_en enc_tw_addr:9 enc_tw_f:12 enc_tw_c:12 enc_tw_rcp:18"
        )
    )


def _asc_decoder(params: LaneParams) -> Any:
    return asc_decoder(
        **ports(
            "clk rst start fresh count:19 width:5 shift:4 words:19 idle rd_valid rd_ready rd_addr:19 "
            "rd_data:16 rd_data_valid s_axis_class:s4 m_axis:s16 dec_cnt_valid dec_cnt_addr:8 dec_cnt_bank "
            "dec_req dec_op:3 dec_bank dec_tbank dec_ack tw_en tw_addr:9 tw_f:12 tw_c:12 done error:4 "
            "new_shift:4"
        ),
        params=params,
    )


def _splitter(_: LaneParams) -> Any:
    return splitter(
        **ports(
            "clk rst clear_smoothing nodes:5 blocks:10 seg_start:17 s_axis:s16 finish m_axis:s16 equal done"
        ),
        granule_log2=8,
    )


def _nic_lane(params: LaneParams) -> Any:
    return nic_lane(
        **ports(
            "clk rst start idle op_decode op_add op_encode op_keep count:19 dec_fresh dec_width:5 "
            "dec_shift:4 dec_words:19 enc_fresh enc_width:5 enc_shift:4 rd_valid rd_ready rd_addr:19 "
            "rd_data:16 rd_data_valid s_axis_class:s4 s_axis_local:s16 m_axis_sum:s16 redo_valid redo_ready "
            "redo_first:19 redo_count:19 s_axis_redo:s20 m_axis_payload:s16 state_client s_axis_state:s10 "
            "m_axis_state:s10 dec_done dec_error:4 dec_new_shift:4 enc_done enc_new_shift:4 strobes:5"
        ),
        params=params,
    )


def _oscar_nic(params: LaneParams) -> Any:
    return oscar_nic(
        **ports(
            "clk rst irq s_axis_rx:s16k2 m_axis_tx:s16k2 s_axis_class:s4 s_axis_local:s16 m_axis_sum:s16 "
            "redo_valid redo_ready redo_first:19 redo_count:19 s_axis_redo:s20"
        ),
        s_axil=AxiLite(8),
        params=params,
        sets=16,
        depth_log2=STORE_LOG2,
    )


def _of_lane(top: Callable[[LaneParams], Any]) -> Top:
    return lambda block_log2=12, width_max=12: top(LaneParams(block_log2=block_log2, width_max=width_max))


_LANE: dict[str, Callable[[LaneParams], Any]] = {
    "rans_encoder": _rans_encoder,
    "rans_decoder": _rans_decoder,
    "asc_tables": _asc_tables,
    "splitter": _splitter,
    "asc_encoder": _asc_encoder,
    "asc_decoder": _asc_decoder,
    "nic_lane": _nic_lane,
    "framer": _framer,
    "deframer": _deframer,
    "oscar_nic": _oscar_nic,
}
# From small to large: the last one is what a project takes.
TOPS: dict[str, Top] = {name: _of_lane(top) for name, top in _LANE.items()}

TOP_HELP = f"of {', '.join(TOPS)}; or module:function, which returns a block (all)"


def find(name: str) -> Top:
    """Return a registered top, or the function of "module:function". Raises ValueError when there is none."""
    if name in TOPS:
        return TOPS[name]
    module, colon, function = name.partition(":")
    if not colon:
        raise ValueError(f"no top called {name!r}; there are {', '.join(TOPS)} (or module:function)")
    try:
        found: Top = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"no top {name!r}: expected module:function of a module that can be imported ({error})"
        ) from None
    return found
