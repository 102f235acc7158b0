"""A lane's step: raw bits and a symbol into its state, bytes out (docs/asc.md, "The coder")."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.barrel.ports import STATE_BITS
from oscar_hdl.coder.encode.divide import divide
from oscar_hdl.streams.block_ram import block_ram
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.lane_delay import lane_delay


@block
def lane_tables(
    clk: Any, tables: Any, address7: Any, f9: Any, c_low9: Any, c_high12: Any, ratio12: Any
) -> Any:
    """Keep two banks of tables.

    tables: BarrelTables, a write in any clock. f u10 and c_low u8 come two clocks behind the address u10,
    c_high u2 and ratio u16 three later, so that neither waits in flip-flops.
    """
    address8, address9, address10, early9, late12 = word(10), word(10), word(10), word(18), word(18)
    early, late = word(18), word(18)
    first = block_ram(clk, tables.enable, tables.address, early, address7, early9)
    second = block_ram(clk, tables.enable, tables.address, late, address10, late12)

    @always(clk.posedge)
    def delay() -> None:
        address8.next = address7
        address9.next = address8
        address10.next = address9

    @always_comb
    def split() -> None:
        early.next = tables.data[18:]
        late.next = tables.data[36:18]
        f9.next = early9[10:]
        c_low9.next = early9[18:10]
        c_high12.next = late12[2:]
        ratio12.next = late12[18:2]

    return first, second, delay, split


@block
def lane_shift(
    clk: Any,
    x7: Any,
    idle7: Any,
    raw7: Any,
    f9: Any,
    reading: Any,
    f10: Any,
    over11: Any,
    two11: Any,
    y12: Any,
) -> Any:
    """Shift raw bits into a state, and as many bytes out that y12 u24 is below f10 u11 << 14.

    x7 u24, idle7 u3, raw7 u6: of the lane. f9 u10: 0 for 1024. reading: Reading, of the final states' turns.
    over11: a byte leaves, the lowest of x7; two11: the next, too.
    """
    v8, v9, v10, v11, far8, joined7 = word(30), word(30), word(30), word(30), bit(), word(30)
    idle8, idle9, idle10, below11 = word(3), word(3), word(3), word(6)

    @always_comb
    def join() -> None:
        joined7.next = concat(x7, raw7)

    @always(clk.posedge)
    def shift() -> None:
        if idle7[1]:
            if idle7[0]:
                v8.next = joined7[30:3]
            else:
                v8.next = joined7[30:2]
        else:
            if idle7[0]:
                v8.next = joined7[30:1]
            else:
                v8.next = joined7
        far8.next = idle7[2]
        v9.next = v8
        if far8:
            v9.next = v8[30:4]
        f10.next = f9
        if f9 == 0:
            f10.next = 1024
        v10.next = v9
        v11.next = v10

    @always(clk.posedge)
    def compare() -> None:
        over11.next = not reading.quiet10 and (reading.low10 or reading.high10 or v10[30:14] >= f10)
        two11.next = not reading.quiet10 and (reading.high10 or v10[30:22] >= f10)

    # Raw bits stay when bytes leave.
    @always(clk.posedge)
    def renormalise() -> None:
        idle8.next = idle7
        idle9.next = idle8
        idle10.next = idle9
        for i in range(6):
            below11.next[i] = idle10 < 6 - i
        y12.next = v11[24:]
        if two11:
            y12.next[24:14] = 0
            y12.next[14:6] = v11[30:22]
            y12.next[6:] = (v11[22:16] & ~below11) | (v11[6:] & below11)
        elif over11:
            y12.next[24:22] = 0
            y12.next[22:6] = v11[30:14]
            y12.next[6:] = (v11[14:8] & ~below11) | (v11[6:] & below11)

    return join, shift, compare, renormalise


@block
def lane_core(
    clk: Any, phase: Any, tables: Any, step: Any, reading: Any, begins21: Any, begin21: Any, leaving: Any,
    x22: Any,
) -> Any:  # fmt: skip
    """Code a step a clock; a number in a name is the clock of the turn's first lanes.

    phase u4: of lane_delay. tables: BarrelTables. step: Step, what is coded. begins21: the state begins with
    begin21 u17 instead. leaving: Leaving, the bytes. x22 u24: the new state.
    """
    f9, f10, c_low9, c_low20, c_high12, c_high20 = word(10), word(11), word(8), word(8), word(2), word(2)
    ratio12, y12, c20, x21, low7 = word(16), word(STATE_BITS), word(10), word(STATE_BITS), word(16)
    must8, must9 = bit(), bit()

    entries = lane_tables(clk, tables, step.address7, f9, c_low9, c_high12, ratio12)
    shift = lane_shift(
        clk, step.x7, step.idle7, step.raw7, f9, reading, f10, leaving.over11, leaving.two11, y12
    )
    quotient = divide(clk, phase, f10, y12, ratio12, c20, x21)
    late_low = lane_delay(clk, phase, c_low9, c_low20, 11)
    late_high = lane_delay(clk, phase, c_high12, c_high20, 8)
    late_bytes = lane_delay(clk, phase, low7, leaving.bytes13, 6)

    @always_comb
    def join() -> None:
        low7.next = step.x7[16:]
        c20.next = concat(c_high20, c_low20)

    @always(clk.posedge)
    def keep() -> None:
        x22.next = x21
        if begins21:
            x22.next = begin21
        must8.next = step.must7
        must9.next = must8
        leaving.impossible10.next = must9 and f9 == 0

    return entries, shift, quotient, late_low, late_high, late_bytes, join, keep
