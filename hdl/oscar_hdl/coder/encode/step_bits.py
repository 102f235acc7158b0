"""Raw bits of the encoder's steps: of symbols, of raw steps, of seeds."""

from __future__ import annotations

from typing import Any

from myhdl import always, block, concat

from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.lane_delay import lane_delay


@block
def step_bits(
    clk: Any, phase: Any, value: Any, taken: Any, upper: Any, symbol: Any, active: Any, stepping: Any,
    seeding: Any, width: Any, low_bits: Any, negative: Any, power: Any, shift: Any, keep: Any, raw: Any,
) -> Any:  # fmt: skip
    """Give what a step of encoder_core shifts by and in.

    Clocks as in encoder_core. -4: value u16, taken u8: which of its bits are raw bits (6 stands for 6 and 7,
    7 for all from 8 on), upper: bits 6 and 7 take the place of 0 and 1. 0: symbol u4; active: this lane has
    raw bits; stepping: not those of the symbol, but `width` u3 of value, or with seeding, for 6 and 7, 8 and
    16. 2: low_bits u5 and negative: of value_symbol; power u17 and shift u3. 6: keep u6, raw u16.
    """
    field_early, field_late = word(16), word(16)
    symbol1, big1, sixteen1, stepping1, stepping2 = word(4), bit(), bit(), bit(), bit()
    below2, below3, below4, below5 = word(6), word(6), word(6), word(6)  # bit i: i is below the number b
    raw3, raw4, raw5 = word(6), word(6), word(6)

    delay = lane_delay(clk, phase, field_early, field_late, 8)

    @always(clk.posedge)
    def take() -> None:
        field_early.next = 0
        if upper:
            field_early.next[2:] = value[8:6] & taken[2:]
        else:
            field_early.next[2:] = value[2:] & taken[2:]
        field_early.next[6:2] = value[6:2] & taken[6:2]
        if taken[6]:
            field_early.next[8:6] = value[8:6]
        if taken[7]:
            field_early.next[16:8] = value[16:8]

    # A symbol of 2 b has b raw bits.
    @always(clk.posedge)
    def choose() -> None:
        symbol1.next = symbol
        big1.next = False
        sixteen1.next = False
        if stepping:
            symbol1.next = concat(width, False)
        if seeding and width[3:1] == 3:
            symbol1.next = 0
            big1.next = not width[0]
            sixteen1.next = width[0]
        if not active:
            symbol1.next = 0
        stepping1.next = stepping
        stepping2.next = stepping1

    @always(clk.posedge)
    def number() -> None:
        below2.next[0] = symbol1 != 0
        below2.next[1] = symbol1[4:2] != 0
        below2.next[2] = symbol1[3] or symbol1[3:1] == 3
        below2.next[3] = symbol1[3]
        below2.next[4] = symbol1[3] and symbol1[3:1] != 0
        below2.next[5] = symbol1[3] and symbol1[2]
        power.next[16] = sixteen1
        power.next[16:9] = 0
        power.next[8] = big1
        power.next[7] = False
        power.next[6] = symbol1[3] and symbol1[2]
        power.next[5] = symbol1[4:1] == 5
        power.next[4] = symbol1[4:1] == 4
        power.next[3] = symbol1[4:1] == 3
        power.next[2] = symbol1[4:1] == 2
        power.next[1] = symbol1[4:2] == 0 and symbol1[2:] != 0
        power.next[0] = symbol1 == 0 and not big1 and not sixteen1
        shift.next = symbol1[4:1]
        if symbol1[4:2] == 3:
            shift.next = 6
        elif symbol1 == 1:
            shift.next = 1

    # The sign is the uppermost raw bit of a symbol.
    @always(clk.posedge)
    def join() -> None:
        for i in range(5):
            raw3.next[i] = below2[i] and ((low_bits[i] and below2[i + 1]) or (negative and not below2[i + 1]))
        raw3.next[5] = below2[5] and negative
        if stepping2:
            raw3.next = 0
        below3.next = below2
        below4.next = below3
        below5.next = below4
        keep.next = ~below5
        raw4.next = raw3
        raw5.next = raw4
        raw.next[16:6] = field_late[16:6]
        raw.next[6:] = field_late[6:] | raw5

    return delay, take, choose, number, join
