"""What becomes of histogram rows by a frame's counts."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar.coding.asc.params import FADE_ABOVE
from oscar_hdl.coder.tables.row_delay import row_delay
from oscar_hdl.streams.bundles import bit, word

ROW_CLOCKS = 16


@block
def learn_rows(clk: Any, clear: Any, counted: Any, count: Any, old: Any, write: Any, learnt: Any) -> Any:
    """Merge count u19 into old u16, an entry a clock (docs/asc.md, "After a frame").

    counted: level, while entries of rows come, without a pause. Twenty clocks later `write` is high with
    learnt u16: (old >> 1 if the row's sum is above 64, else old) + (count >> z), z the least from 0 on with
    which the row's counts add up to less than 2^15. clear: before.
    """
    phase, first, counted1, due = word(4), bit(), bit(), bit()
    total, scale = word(19), word(17)
    low, over, fade = word(8), bit(), bit()
    here, late = word(36), word(36)
    factor, product, carry, new = word(19), word(35), bit(), word(16)
    old1, old2, old3, due1, due2 = word(16), word(16), word(16), bit(), bit()

    delay = row_delay(clk, here, late, delay=ROW_CLOCKS)

    @always_comb
    def wires():
        here.next = concat(modbv(0)[1:], count, old)
        first.next = phase == 0

    @always(clk.posedge)
    def add():
        base = modbv(0)[19:]
        less = modbv(0)[8:]
        base[:] = total
        less[:] = low
        if first:
            base[:] = 0
            less[:] = 0
        total.next = base + count
        low.next = less + old[7:]
        over.next = (over and not first) or less > FADE_ABOVE or old[16:7] != 0

    # In the first clock of a row the sums are those of the row before.
    @always(clk.posedge)
    def turn():
        counted1.next = counted
        phase.next = phase + 1
        if not (counted or due):
            phase.next = 0
        if first:
            due.next = counted1
            fade.next = over or low > FADE_ABOVE
            scale.next = 0
            if total[18]:
                scale.next[12] = True
            elif total[17]:
                scale.next[13] = True
            elif total[16]:
                scale.next[14] = True
            elif total[15]:
                scale.next[15] = True
            else:
                scale.next[16] = True
        if clear:
            counted1.next = False
            phase.next = 0
            due.next = False

    @always(clk.posedge)
    def merge():
        factor.next = late[35:16]
        product.next = factor[18:] * scale
        carry.next = factor[18]
        new.next = product[32:16]
        new.next[14] = product[30] or carry  # a count of 2^18: the rest of it is 0
        old1.next = late[16:]
        old2.next = old1
        if fade:
            old2.next = old1 >> 1
        old3.next = old2
        due1.next = due
        due2.next = due1
        write.next = due2
        learnt.next = old3 + new
        if not due2:
            learnt.next = 0
        if clear:
            due1.next = False
            due2.next = False
            write.next = False

    return delay, wires, add, turn, merge
