"""Whether a sender may have written an entry of the directory (docs/asc.md, "A receiver refuses")."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar.coding.asc.params import CODED, CONSTANT, MOST_SEED_ROWS, RAW
from oscar_hdl.streams.bundles import bit, word


@block
def entry_check(
    clk: Any, rst: Any, check: Any, entry: Any, width: Any, values: Any, top: Any, done: Any, right: Any
) -> Any:
    """Judge an entry of a block of `values` u18 with last group `top` u7, of values of `width` u5 bits.

    check (strobe): from then to done (strobe) entry u48, width, values and top hold. done comes with right,
    9 clocks later.
    """
    states = enum("IDLE", "LOOK", "MULTIPLY", "JUDGE", "TELL")
    state = Signal(states.IDLE)
    kind, size = word(2), word(24)
    # 4 (n·r - 8·bytes) - 32, from -bytes - 1 on, a bit of the factor r after the other.
    ACC = 25
    size_now = word(ACC)
    UPPER, UPPER_5 = (1 << (ACC - 6)) - 1, (1 << (ACC - 5)) - 1
    excess, factor, bits, addend = word(ACC), word(5), word(3), word(ACC)
    coded, raw, constant, fits, large = (bit() for _ in range(5))
    few, ordered, inside, enough, empty, some, narrow, plain, upper = (bit() for _ in range(9))
    wide_at, beyond, sign = word(15), word(15), bit()
    WIDE = tuple(0x7FFF >> max(0, w - 1) << max(0, w - 1) for w in range(32))  # bits that repeat the sign

    @always_comb
    def fields():
        kind.next = entry[2:]
        size.next = entry[48:24]
        sign.next = entry[47]
        size_now.next = entry[43:24]

    @always_comb
    def parts():
        addend.next = 0
        if factor[4]:
            addend.next = concat(modbv(0)[5:], values, modbv(0)[2:])

    @always(clk.posedge)
    def look():
        """What needs no product, in two clocks."""
        wide_at.next = WIDE[int(width)]
        large.next = size[24:19] != 0
        few.next = entry[5:2] <= MOST_SEED_ROWS and entry[24:19] == 0
        ordered.next = entry[12:5] <= entry[19:12]
        inside.next = entry[19:12] <= top
        enough.next = size[24:7] != 0 or size[7:5] == 3  # 96: the final states
        empty.next = entry[24:8] == 0
        some.next = entry[8:2] != 0
        narrow.next = entry[8:2] <= width
        plain.next = entry[16:2] == 0
        upper.next = entry[48:31] == 0 or entry[48:31] == 0x1FFFF
        beyond.next = entry[31:16] & wide_at
        if sign:
            beyond.next = ~entry[31:16] & wide_at
        coded.next = kind == CODED and few and ordered and inside and enough
        raw.next = kind == RAW and empty and some and narrow
        constant.next = kind == CONSTANT and plain and upper and beyond == 0

    @always(clk.posedge)
    def judge():
        """Coded is shorter than n·w bits; raw has exactly the bytes that hold n·r."""
        fits.next = False
        if raw:
            fits.next = excess[ACC:6] == UPPER and excess[5] == (excess[5:2] == 0)
        elif coded:
            fits.next = not excess[ACC - 1] or (excess[ACC:5] == UPPER_5 and excess[5:2] != 0)

    @always(clk.posedge)
    def run():
        done.next = False
        right.next = constant or (fits and not large)
        if state == states.LOOK:
            excess.next = ~size_now
            factor.next = width
            if kind == RAW:
                factor.next = entry[7:2]
            bits.next = 5
            state.next = states.MULTIPLY
        elif state == states.MULTIPLY:
            excess.next = concat(excess[ACC - 1 :], False) + addend
            factor.next = concat(factor[4:], False)
            bits.next = bits - 1
            if bits == 1:
                state.next = states.JUDGE
        elif state == states.JUDGE:
            state.next = states.TELL
        elif state == states.TELL:
            done.next = True
            state.next = states.IDLE
        if check:
            state.next = states.LOOK
        if rst:
            state.next = states.IDLE
            done.next = False

    return fields, parts, look, judge, run
