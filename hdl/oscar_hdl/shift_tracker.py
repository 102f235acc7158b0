"""The statistics of a frame's symbols, and the shift they lead to (docs/format2.md, "After a frame")."""

from __future__ import annotations

from typing import Any

from myhdl import always, block

from oscar_hdl.format2.params import WEIGHT
from oscar_hdl.streams.bundles import bit, word

COUNT_BITS = 18  # at most 2^17 symbols of a frame are counted
SUM_BITS = 30  # each weighs less than 2^12


@block
def shift_tracker(
    clk: Any, rst: Any, clear: Any, valid: Any, sym: Any, finish: Any, shift: Any, done: Any,
    new_shift: Any, changed: Any,
) -> Any:  # fmt: skip
    """Count symbols other than 0 and add up their weights; say the next frame's shift.

    clear (strobe): forget what was counted, a symbol given in this very clock too (start of a frame, raw
    block). valid: count `sym` u4; any clock. finish (strobe): no earlier than with the frame's last symbol;
    `shift` u4 holds still and no symbol is given from here to `done`, a pulse 37 clocks later. new_shift u4
    and changed (new_shift is not shift) are valid from `done` until the next finish.
    """
    weight, fresh = word(12), bit()
    count, total = word(COUNT_BITS), word(SUM_BITS)
    start, running, step = bit(), bit(), word(5)
    count_bit, total_bit, some = bit(), bit(), bit()
    past = word(11)  # past[i]: the bit of `count` i + 1 places below total_bit
    below = word(8)  # below[g], g > 0: total >> (4 + g) < count, as far as compared
    phase = word(3)  # below, change, moved are final
    change, moved = word(5), word(5)

    @always(clk.posedge)
    def accumulate():
        weight.next = WEIGHT[int(sym)]
        fresh.next = valid and sym != 0 and not clear and not rst
        if rst or clear:
            count.next = 0
            total.next = 0
        elif fresh:
            count.next = count + 1
            total.next = total + weight

    # floor(W / (16 Z)) >= 2^g unless W >> (4 + g) < Z: all g at once, a bit a clock from the lowest. The
    # mean is at least 1 and below 256, like every weight but 0, so g = 1 to 7 are enough.
    @always(clk.posedge)
    def compare():
        start.next = finish and not rst  # the last symbol is two clocks from `total`
        phase.next[0] = running and step == SUM_BITS and not rst
        phase.next[3:1] = phase[2:0]
        done.next = phase[2]
        if rst:
            phase.next = 0
            done.next = False
        if rst or step == SUM_BITS:
            running.next = False
        elif start:
            running.next = True
        count_bit.next = False
        total_bit.next = False
        if step < COUNT_BITS:
            count_bit.next = count[int(step)]
        if step < SUM_BITS:
            total_bit.next = total[int(step)]
        if not running:
            step.next = 0
            past.next = 0
            below.next = 0
            some.next = False
        else:
            step.next = step + 1
            if step != 0:  # bit step - 1 was read
                past.next[0] = count_bit
                past.next[11:1] = past[10:0]
                some.next = some or count_bit
                for g in range(1, 8):
                    if past[3 + g] != total_bit:
                        below.next[g] = past[3 + g]

    # Means of 16 to 63 keep the shift. A step past either end shows in bit 4 of the sum.
    @always(clk.posedge)
    def settle():
        if not some:
            change.next = 0
        elif not below[7]:
            change.next = 2
        elif not below[6]:
            change.next = 1
        elif not below[4]:
            change.next = 0
        elif not below[3]:
            change.next = 31
        elif not below[2]:
            change.next = 30
        elif not below[1]:
            change.next = 29
        else:
            change.next = 28
        moved.next = shift + change
        if phase[2]:
            changed.next = moved[4:] != shift and not moved[4]
            new_shift.next = moved[4:]
            if moved[4]:
                if moved[3]:
                    changed.next = shift != 0
                    new_shift.next = 0
                else:
                    changed.next = shift != 15
                    new_shift.next = 15

    return accumulate, compare, settle
