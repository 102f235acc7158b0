"""What becomes of histogram rows by a frame's counts."""

from myhdl import always, always_comb, block, concat, modbv

from oscar.coding.asc.params import FADE_ABOVE
from oscar_hdl.coder.ports import COUNT_BITS
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.lane_delay import lane_delay


@block
def row_scale(clk, turn, counts, olds, scale, fade):
    """Find what a row's counts and what it was are divided by.

    turn: strobe, a clock behind the row's first pair. counts u34, olds u32: its pairs. scale u18: 2^(17 - z),
    and fade: three clocks behind its last pair, until the next row's.
    """
    two, total, old_two, old_total = word(18), word(COUNT_BITS), word(11), word(14)
    large, over = bit(), bit()

    @always(clk.posedge)
    def add():
        two.next = counts[17:] + counts[34:17]
        old_two.next = olds[10:] + olds[26:16]
        large.next = olds[16:10] != 0 or olds[32:26] != 0
        base = modbv(0)[COUNT_BITS:]
        old_base = modbv(0)[14:]
        base[:] = total
        old_base[:] = old_total
        over.next = over or large
        if turn:
            base[:] = 0
            old_base[:] = 0
            over.next = large
        total.next = base + two
        old_total.next = old_base + old_two

    @always(clk.posedge)
    def decide():
        if turn:
            fade.next = over or old_total > FADE_ABOVE
            scale.next = 0
            if total[16]:
                scale.next[13] = True
            elif total[15]:
                scale.next[14] = True
            elif total[14]:
                scale.next[15] = True
            elif total[13]:
                scale.next[16] = True
            else:
                scale.next[17] = True

    return add, decide


@block
def merged(clk, counts, olds, scale, fade, learnt, *, lane: int):
    """Give learnt u16 of a lane of counts u34 and olds u32, four clocks later.

    scale and fade come a clock later than they. A symbol was counted once where it stands for four.
    """
    LOW, HIGH, OLD_LOW, OLD_HIGH = 17 * lane, 17 * lane + 17, 16 * lane, 16 * lane + 16
    factor, product, new = word(17), word(35), word(16)
    old1, old2, old3 = word(16), word(16), word(16)

    @always(clk.posedge)
    def merge():
        factor.next = counts[HIGH:LOW]
        product.next = factor * scale
        new.next = product[31:15]
        old1.next = olds[OLD_HIGH:OLD_LOW]
        old2.next = old1
        if fade:
            old2.next = old1 >> 1
        old3.next = old2
        learnt.next = old3 + new

    return merge


LATE = 9  # clocks in which a row's scale is known
CLOCKS = LATE + 4  # from a pair of counts to what is learnt


@block
def learn_rows(clk, clear, counted, counts, olds, write, learnt):
    """Merge counts u34 into olds u32, a pair a clock (docs/reference/asc.md, "After a frame").

    counted: level, while pairs of rows come, without a pause. CLOCKS later `write` is high with learnt u32,
    each entry (old >> 1 if the row's sum is above 512, else old) + (4 count >> z), z the least from 0 on with
    which four times the row's counts add up to less than 2^15. clear: before.
    """
    ticks, phase, turn, counted1 = word(4), word(3), bit(), bit()
    scale, fade, way = word(18), bit(), word(CLOCKS)
    counts_late, olds_late = word(34), word(32)
    learnt0, learnt1 = word(16), word(16)

    limits = row_scale(clk, turn, counts, olds, scale, fade)
    delays = [
        lane_delay(clk, ticks, counts, counts_late, LATE), lane_delay(clk, ticks, olds, olds_late, LATE)
    ]  # fmt: skip
    lanes = [
        merged(clk, counts_late, olds_late, scale, fade, one, lane=i)
        for i, one in enumerate((learnt0, learnt1))
    ]

    @always_comb
    def join():
        learnt.next = concat(learnt1, learnt0)
        write.next = way[CLOCKS - 1]

    @always(clk.posedge)
    def move():
        ticks.next = ticks + 1
        phase.next = phase + 1
        if not counted:
            phase.next = 0
        counted1.next = counted
        turn.next = phase == 0 and (counted or counted1)
        way.next[CLOCKS:1] = way[CLOCKS - 1 :]
        way.next[0] = counted
        if clear:
            way.next = 0

    return limits, delays, lanes, join, move
