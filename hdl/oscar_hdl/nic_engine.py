"""A lane with everything that makes it an end of two links: frames in and out, tables, command control."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar_hdl.deframer import deframer
from oscar_hdl.event_counters import event_counters
from oscar_hdl.framer import framer
from oscar_hdl.nic_lane import STROBES, nic_lane
from oscar_hdl.params import COUNT_BITS, LaneParams
from oscar_hdl.registers import BY_NAME, ERROR_ABORTED, ERROR_TOO_LONG
from oscar_hdl.state_store import fresh_checksum, state_store
from oscar_hdl.streams.bundles import Stream, bit, word


class Report:
    """What lanes tell the registers; it passes from lane to lane, and each adds its own."""

    def __init__(self) -> None:
        self.accepted = bit()  # pulse: a lane has taken the pending command
        self.status, self.events = word(32), word(32)  # as STATUS; pulses, as IRQ_STATUS
        self.shown = word(32)  # RESULT or the counter that is read, of the lane chosen


@block
def nic_engine(
    clk: Any, rst: Any, s_axis_rx: Any, m_axis_tx: Any, s_axis_class: Any, s_axis_local: Any,
    m_axis_sum: Any, redo_valid: Any, redo_ready: Any, redo_first: Any, redo_count: Any, s_axis_redo: Any,
    pending: Any, command: Any, count: Any, step: Any, chunk: Any, sub_width: Any, sequence: Any,
    sets_used: Any, abort: Any, chosen: Any, rd_index: Any, before: Any, after: Any, *, params: LaneParams,
    sets: int = 16, depth_log2: int = 12, lanes: int = 1, lane: int = 0,
) -> Any:  # fmt: skip
    """Run the commands of one lane.

    s_axis_rx, m_axis_tx: Stream(16, keep=2), frames. s_axis_class to s_axis_redo: as nic_lane.
    pending: a command waits; command, count, step, chunk, sub_width, sequence, sets_used u32: the registers
    COMMAND, COUNT, STEP, CHUNK, SUB_WIDTH, SEQUENCE and SETS; they hold still while pending. abort u32:
    register ABORT in the clock in which it is written, otherwise 0. chosen u32: register LANE. rd_index u6:
    word address of the register that is read. before, after: Report of the lanes so far, and with this one.

    sets, depth_log2: as state_store, framer and deframer; lanes, lane: which frames are this lane's.
    """
    set_bits = sets.bit_length() - 1
    FRESH, LANE = fresh_checksum(params), lane
    RESULT = BY_NAME["RESULT"].index

    states = enum("IDLE", "ASK_IN", "ASK_OUT", "KNOWN", "EXPECT", "LAUNCH", "CODING", "FINAL")
    state = Signal(states.IDLE)
    error, reason, busy, expecting = word(5), word(4), bit(), bit()

    # The command, and the fields of its two frames.
    op_decode, op_add, op_encode, op_keep, fresh_in, fresh_out = (bit() for _ in range(6))
    values = word(COUNT_BITS)
    in_step, in_chunk, in_sub, in_width, in_sequence = word(16), word(16), word(8), word(8), word(16)
    out_step, out_chunk, out_sub, out_width, out_sequence = word(16), word(16), word(8), word(8), word(16)
    load_in, save_in, load_out, save_out = (word(set_bits) for _ in range(4))
    in_shift, in_checksum, out_shift, out_checksum = word(4), word(16), word(4), word(16)

    # State store
    restart, client, commit, commit_shift, computing = bit(), bit(), bit(), word(4), bit()
    load, save = Stream(10), Stream(10)
    q_set, q_shift, q_checksum = word(set_bits), word(4), word(16)

    # Frames
    matched, words, free, bad, bad_reason = bit(), word(19), bit(), bit(), word(4)
    word_taken, word_sent = bit(), bit()
    rd_valid, rd_ready, rd_addr, rd_data, rd_data_valid = bit(), bit(), word(19), word(16), bit()
    payload = Stream(16)
    complete, finish, drop, framed, overflow = (bit() for _ in range(5))

    # Lane
    begin, dec_done, dec_error, dec_shift = bit(), bit(), word(4), word(4)
    enc_done, enc_shift = bit(), word(4)
    idle, lane_strobes = bit(), word(len(STROBES))
    dec_over, enc_over, sent = bit(), bit(), bit()
    dec_width, enc_width = word(5), word(5)

    accepted, aborting, done, failed = bit(), bit(), bit(), bit()
    result, shown, zero = word(5), word(32), word(3)
    strobes, rd_counter, counted = word(16), word(4), word(32)

    store = state_store(
        clk, rst, restart, load_in, save_in, load_out, save_out, client, load, save, commit, commit_shift,
        computing, q_set, q_shift, q_checksum, params=params, sets=sets,
    )  # fmt: skip
    receiver = deframer(
        clk, rst, s_axis_rx, expecting, in_step, in_chunk, in_sub, in_width, in_sequence, in_checksum, values,
        matched, words, rd_valid, rd_ready, rd_addr, rd_data, rd_data_valid, free, bad, bad_reason,
        word_taken, depth_log2=depth_log2, lanes=lanes, lane=lane,
    )  # fmt: skip
    sender = framer(
        clk, rst, payload, complete, finish, drop, out_step, out_chunk, out_sub, out_width, out_sequence,
        out_checksum, values, framed, overflow, m_axis_tx, word_sent, depth_log2=depth_log2,
    )  # fmt: skip
    core = nic_lane(
        clk=clk, rst=rst, start=begin, idle=idle, op_decode=op_decode, op_add=op_add, op_encode=op_encode,
        op_keep=op_keep, count=values, dec_fresh=fresh_in, dec_width=dec_width, dec_shift=in_shift,
        dec_words=words, enc_fresh=fresh_out, enc_width=enc_width, enc_shift=out_shift, rd_valid=rd_valid,
        rd_ready=rd_ready, rd_addr=rd_addr, rd_data=rd_data, rd_data_valid=rd_data_valid,
        s_axis_class=s_axis_class, s_axis_local=s_axis_local, m_axis_sum=m_axis_sum, redo_valid=redo_valid,
        redo_ready=redo_ready, redo_first=redo_first, redo_count=redo_count, s_axis_redo=s_axis_redo,
        m_axis_payload=payload, state_client=client, s_axis_state=load, m_axis_state=save,
        dec_done=dec_done, dec_error=dec_error, dec_new_shift=dec_shift, enc_done=enc_done,
        enc_new_shift=enc_shift, strobes=lane_strobes, params=params,
    )  # fmt: skip
    counters = event_counters(clk, rst, strobes, rd_counter, counted)

    @always_comb
    def wires():
        busy.next = state != states.IDLE
        expecting.next = state == states.EXPECT
        q_set.next = load_out
        if state == states.ASK_IN:
            q_set.next = load_in
        dec_width.next = in_width[5:]
        enc_width.next = out_width[5:]
        finish.next = op_encode and not sent and dec_over and error == 0 and (complete or enc_over)
        drop.next = op_encode and not sent and dec_over and error != 0 and enc_over
        rd_counter.next = rd_index[4:]

    @always_comb
    def count_events():
        bits = modbv(0)[16:]
        bits[0] = busy
        bits[1] = lane_strobes[0]  # value_in
        bits[2] = lane_strobes[1]  # value_out
        bits[3] = word_taken
        bits[4] = word_sent
        bits[5] = matched
        bits[6] = framed and finish and not overflow
        bits[7] = bad
        bits[8] = expecting
        bits[9] = lane_strobes[2]  # stall_values
        bits[10] = lane_strobes[3]  # stall_tables
        bits[11] = payload.tvalid and not payload.tready
        bits[12] = lane_strobes[4]  # stall_sum
        strobes.next = bits

    @always_comb
    def report():
        status = modbv(0)[32:]
        told = modbv(0)[32:]
        status[LANE] = busy
        status[8 + LANE] = expecting
        told[LANE] = done
        told[8 + LANE] = failed
        told[16 + LANE] = bad
        after.accepted.next = before.accepted or accepted
        after.status.next = before.status | status
        after.events.next = before.events | told
        after.shown.next = before.shown | shown

    @always(clk.posedge)
    def show():
        shown.next = 0
        if chosen[3:] == LANE:
            shown.next = counted
            if rd_index == RESULT:
                shown.next = concat(reason, zero, result)

    @always(clk.posedge)
    def control():
        accepted.next = False
        restart.next = False
        begin.next = False
        free.next = False
        done.next = False
        failed.next = False
        zero.next = 0
        commit.next = enc_done or (dec_done and dec_error == 0)
        commit_shift.next = enc_shift
        if dec_done:
            commit_shift.next = dec_shift
        if bad:
            reason.next = bad_reason

        if abort[LANE]:  # it may come before the tables are known
            aborting.next = True

        if state == states.IDLE:
            aborting.next = False
            op_decode.next = command[0]
            op_add.next = command[1]
            op_encode.next = command[2]
            op_keep.next = command[3]
            fresh_in.next = command[4]
            fresh_out.next = command[5]
            values.next = count[COUNT_BITS:]
            in_step.next = step[16:]
            out_step.next = step[32:16]
            in_chunk.next = chunk[16:]
            out_chunk.next = chunk[32:16]
            in_sub.next = sub_width[8:]
            in_width.next = sub_width[13:8]
            out_sub.next = sub_width[24:16]
            out_width.next = sub_width[29:24]
            in_sequence.next = sequence[16:]
            out_sequence.next = sequence[32:16]
            load_in.next = sets_used[set_bits:]
            save_in.next = sets_used[8 + set_bits : 8]
            load_out.next = sets_used[16 + set_bits : 16]
            save_out.next = sets_used[24 + set_bits : 24]
            error.next = 0
            if pending and command[11:8] == LANE:
                accepted.next = True
                restart.next = True
                state.next = states.ASK_IN

        elif state == states.ASK_IN:
            if not computing:
                state.next = states.ASK_OUT

        elif state == states.ASK_OUT:
            in_shift.next = q_shift
            in_checksum.next = q_checksum
            if fresh_in:
                in_shift.next = 0
                in_checksum.next = FRESH
            state.next = states.KNOWN

        elif state == states.KNOWN:
            out_shift.next = q_shift
            out_checksum.next = q_checksum
            if fresh_out:
                out_shift.next = 0
                out_checksum.next = FRESH
            state.next = states.LAUNCH
            if op_decode:
                state.next = states.EXPECT

        elif state == states.EXPECT:
            if matched:
                state.next = states.LAUNCH
            elif aborting:
                error.next = ERROR_ABORTED
                state.next = states.FINAL

        elif state == states.LAUNCH:
            dec_over.next = not op_decode
            enc_over.next = not op_encode
            sent.next = not op_encode
            if idle:
                begin.next = True
                state.next = states.CODING

        elif state == states.CODING:
            if dec_done:
                dec_over.next = True
                free.next = True
                if dec_error != 0:
                    error.next = dec_error
            if enc_done:
                enc_over.next = True
            if framed:
                sent.next = True
                if overflow and error == 0:
                    error.next = ERROR_TOO_LONG
            if dec_over and enc_over and sent:
                state.next = states.FINAL

        else:
            done.next = True
            failed.next = error != 0
            result.next = error
            state.next = states.IDLE

        if matched and state != states.EXPECT:  # it was aborted in the same moment
            free.next = True

        if rst:
            state.next = states.IDLE
            accepted.next = False
            restart.next = False
            begin.next = False
            commit.next = False
            free.next = False
            done.next = False
            failed.next = False
            sent.next = True
            result.next = 0
            reason.next = 0

    return (
        store, receiver, sender, core, counters,
        wires, count_events, report, show, control,
    )  # fmt: skip
