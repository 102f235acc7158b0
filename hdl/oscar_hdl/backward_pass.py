"""Order and flags of the symbols that the encoder codes backwards."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, modbv

from oscar_hdl.format2.params import LANES
from oscar_hdl.params import LaneParams
from oscar_hdl.streams.bundles import bit, word


@block
def backward_pass(
    clk: Any, rst: Any, load: Any, load_n: Any, load_lane: Any, load_odd: Any, load_bank: Any, abort: Any,
    hold: Any, hold_start: Any, states_sent: Any, slot: Any, rd_left: Any, finished: Any, in_valid: Any,
    in_bank: Any, in_first: Any, in_final: Any, counted: Any, *, params: LaneParams,
) -> Any:  # fmt: skip
    """Go from the last symbol of a block to the first, each in its lane's slot of rans_encoder.

    load (strobe, after `finished`): a block of load_n u13 symbols, the last in lane load_lane u4 of an odd
    row or not, coded with table bank load_bank. abort: stop. hold, hold_start: from word_stack. states_sent
    (strobe): the states of the block before are out of the way of row 0.
    rd_left u13: three clocks later symbol_buffer shows symbol rd_left - 1, with in_valid, in_bank, in_first,
    in_final for it (docs/hardware.md, "rans_encoder"); counted: strobe with it, if statistics take it in.
    finished: pulse after the last.
    """
    match, busy, awake1, awake2, begun, stop, issue = (bit() for _ in range(7))
    lane, odd, bank = word(4), bit(), bit()
    fresh = word(4, LANES)  # symbols to come that are the first of their lanes
    low, free = bit(), bit(1)  # the next is one of the first 31; states of row 0 have a place
    valid1, valid2, first1, first2, final1, final2, counted1, counted2 = (bit() for _ in range(8))

    @always_comb
    def choose():
        issue.next = awake2 and busy and not stop and match

    @always(clk.posedge)
    def control():
        # Slots and lanes both count down: after a symbol, the next slot is that of the next lane.
        phase = modbv(0)[4:]  # slot three clocks from the next
        if slot < 4:
            phase[:] = slot + 8
        else:
            phase[:] = slot - 4
        match.next = issue or phase == lane
        # `stop` and `low` follow one clock and two behind, which word_stack allows and row 0 does not notice.
        low.next = rd_left[params.block_log2 + 1 : 5] == 0
        stop.next = (hold and begun) or (hold_start and not begun) or (low and not free)
        awake1.next = busy
        awake2.next = awake1 and busy
        finished.next = issue and rd_left == 1
        if issue:
            rd_left.next = rd_left - 1
            begun.next = True
            if fresh != 0:
                fresh.next = fresh - 1
            if lane == 0:
                lane.next = LANES - 1
                odd.next = not odd
            else:
                lane.next = lane - 1
            if rd_left == 1:
                busy.next = False
        if states_sent:
            free.next = True
        elif issue and rd_left == 1:
            free.next = False
        if load:
            rd_left.next = load_n
            lane.next = load_lane
            odd.next = load_odd
            bank.next = load_bank
            fresh.next = LANES
            begun.next = False
            busy.next = True

        valid1.next = issue
        first1.next = fresh != 0
        final1.next = rd_left <= LANES
        counted1.next = issue and lane[0] == odd and lane != LANES - 1
        valid2.next = valid1
        first2.next = first1
        final2.next = final1
        counted2.next = counted1
        in_valid.next = valid2
        in_first.next = first2
        in_final.next = final2
        in_bank.next = bank
        counted.next = counted2
        if rst or abort:
            busy.next = False
            awake1.next = False
            awake2.next = False
            finished.next = False
            free.next = True
            valid1.next = False
            valid2.next = False
            in_valid.next = False
            counted1.next = False
            counted2.next = False
            counted.next = False

    return choose, control
