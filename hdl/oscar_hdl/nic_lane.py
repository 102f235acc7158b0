"""A lane: decoder, adder, encoder, and the tables that serve both (docs/hardware.md)."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.asc_decoder import asc_decoder
from oscar_hdl.asc_encoder import asc_encoder
from oscar_hdl.asc_tables import asc_tables
from oscar_hdl.params import LaneParams
from oscar_hdl.reducer import reducer
from oscar_hdl.streams.bundles import Stream, bit, word

STROBES = ("value_in", "value_out", "stall_values", "stall_tables", "stall_sum")


@block
def nic_lane(
    clk: Any, rst: Any, start: Any, idle: Any, op_decode: Any, op_add: Any, op_encode: Any, op_keep: Any,
    count: Any, dec_fresh: Any, dec_width: Any, dec_shift: Any, dec_words: Any, enc_fresh: Any,
    enc_width: Any, enc_shift: Any, rd_valid: Any, rd_ready: Any, rd_addr: Any, rd_data: Any,
    rd_data_valid: Any, s_axis_class: Any, s_axis_local: Any, m_axis_sum: Any, redo_valid: Any,
    redo_ready: Any, redo_first: Any, redo_count: Any, s_axis_redo: Any, m_axis_payload: Any,
    state_client: Any, s_axis_state: Any, m_axis_state: Any, dec_done: Any, dec_error: Any,
    dec_new_shift: Any, enc_done: Any, enc_new_shift: Any, strobes: Any = None, *, params: LaneParams,
) -> Any:  # fmt: skip
    """Decode a frame's payload, add local values, encode the sums; or only some of that.

    start (pulse, while `idle`): op_decode, op_add, op_encode, op_keep, count u19 and, for each end, fresh,
    width u5, shift u4 (and dec_words u19 of payload) hold still until both ends that take part are done.
    rd_*: reads of the payload, docs/hardware.md "asc_decoder". s_axis_class: Stream(4), s_axis_local,
    m_axis_sum: Stream(16): "reducer". redo_*, s_axis_redo: Stream(20): "asc_encoder". m_axis_payload:
    Stream(16). state_client, s_axis_state, m_axis_state: Stream(10): "asc_tables". dec_done, dec_error u4,
    dec_new_shift u4, enc_done, enc_new_shift u4: pulses with what they report. strobes u5: as STROBES, from
    bit 0.
    """
    if strobes is None:
        strobes = word(len(STROBES))

    dec_start, dec_idle, enc_start, encoding = bit(), bit(), bit(), bit()
    decoded, classes, code, redo = Stream(16), Stream(4), Stream(20), Stream(20)
    dec_cnt_valid, dec_cnt_addr, dec_cnt_bank = bit(), word(8), bit()
    dec_req, dec_op, dec_bank, dec_tbank, dec_ack = bit(), word(3), bit(), bit(), bit()
    dec_tw_en, dec_tw_addr, dec_tw_f, dec_tw_c = bit(), word(9), word(12), word(12)
    enc_cnt_valid, enc_cnt_addr, enc_cnt_bank, enc_wipe = bit(), word(8), bit(), bit()
    enc_req, enc_op, enc_bank, enc_tbank, enc_ack = bit(), word(3), bit(), bit(), bit()
    enc_tw_en, enc_tw_addr, enc_tw_f, enc_tw_c, enc_tw_rcp = bit(), word(9), word(12), word(12), word(18)
    value_in, value_out, stall_sum = bit(), bit(), bit()
    stall_input, stall_output, stall_tables = bit(), bit(), bit()

    decoder = asc_decoder(
        clk=clk, rst=rst, start=dec_start, fresh=dec_fresh, count=count, width=dec_width, shift=dec_shift,
        words=dec_words, idle=dec_idle, rd_valid=rd_valid, rd_ready=rd_ready, rd_addr=rd_addr,
        rd_data=rd_data, rd_data_valid=rd_data_valid, s_axis_class=classes, m_axis=decoded,
        dec_cnt_valid=dec_cnt_valid, dec_cnt_addr=dec_cnt_addr, dec_cnt_bank=dec_cnt_bank, dec_req=dec_req,
        dec_op=dec_op, dec_bank=dec_bank, dec_tbank=dec_tbank, dec_ack=dec_ack, tw_en=dec_tw_en,
        tw_addr=dec_tw_addr, tw_f=dec_tw_f, tw_c=dec_tw_c, done=dec_done, error=dec_error,
        new_shift=dec_new_shift, params=params,
    )  # fmt: skip
    adder = reducer(
        clk, rst, start, op_decode, op_add, op_encode, op_keep, count, s_axis_class, decoded, s_axis_local,
        classes, code, m_axis_sum, value_in, value_out, stall_sum,
    )  # fmt: skip
    encoder = asc_encoder(
        clk=clk, rst=rst, start=enc_start, fresh=enc_fresh, count=count, width=enc_width, shift=enc_shift,
        s_axis=code, redo_valid=redo_valid, redo_ready=redo_ready, redo_first=redo_first,
        redo_count=redo_count, s_axis_redo=redo, m_axis=m_axis_payload, enc_cnt_valid=enc_cnt_valid,
        enc_cnt_addr=enc_cnt_addr, enc_cnt_bank=enc_cnt_bank, enc_wipe=enc_wipe, enc_req=enc_req,
        enc_op=enc_op, enc_bank=enc_bank, enc_tbank=enc_tbank, enc_ack=enc_ack, tw_en=enc_tw_en,
        tw_addr=enc_tw_addr, tw_f=enc_tw_f, tw_c=enc_tw_c, tw_rcp=enc_tw_rcp, done=enc_done,
        new_shift=enc_new_shift, stall_input=stall_input, stall_output=stall_output,
        stall_tables=stall_tables, params=params,
    )  # fmt: skip
    tables = asc_tables(
        clk, rst, dec_cnt_valid, dec_cnt_addr, dec_cnt_bank, dec_req, dec_op, dec_bank, dec_tbank, dec_ack,
        enc_cnt_valid, enc_cnt_addr, enc_cnt_bank, enc_wipe, enc_req, enc_op, enc_bank, enc_tbank, enc_ack,
        state_client, s_axis_state, m_axis_state, dec_tw_en, dec_tw_addr, dec_tw_f, dec_tw_c, enc_tw_en,
        enc_tw_addr, enc_tw_f, enc_tw_c, enc_tw_rcp,
    )  # fmt: skip

    @always_comb
    def wires():
        dec_start.next = start and op_decode
        enc_start.next = start and op_encode
        idle.next = dec_idle and not encoding
        redo.tdata.next = s_axis_redo.tdata
        redo.tvalid.next = s_axis_redo.tvalid
        redo.tlast.next = s_axis_redo.tlast
        s_axis_redo.tready.next = redo.tready

    @always(clk.posedge)
    def watch():
        strobes.next = concat(stall_sum, stall_tables, stall_input, value_out, value_in)
        if enc_start:
            encoding.next = True
        elif enc_done:
            encoding.next = False
        if rst:
            strobes.next = 0
            encoding.next = False

    return decoder, adder, encoder, tables, wires, watch
