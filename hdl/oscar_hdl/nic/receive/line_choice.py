"""Which thread of the unit whose turn it is gets the next line of the store."""

from collections.abc import Sequence

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.unit.ports import THREAD_BITS, THREADS
from oscar_hdl.streams.bundles import bit, word


@block
def line_choice(clk, rst, turn, wants: Sequence, pause, thread, some):
    """Choose a thread of unit `turn`, in a ring of threads; the last one that was chosen waits for once.

    wants: u8 of each unit. pause: nobody is chosen. thread u3, some: two clocks later.
    """
    UNITS, TURNS = len(wants), 1 << len(turn)
    can, above, below, mine = (word(THREADS) for _ in range(4))
    pick, picks, last, kept = word(THREAD_BITS), bit(), word(THREAD_BITS), word(THREAD_BITS)
    # Who was last, of each unit, and whether that was in its last turn: it comes out when its turn is again.
    KEPT = THREAD_BITS + 1
    lasts, old, just = word(KEPT * (TURNS - 1)), word(THREAD_BITS), bit()
    TOP = KEPT * (TURNS - 2)

    @always_comb
    def seek():
        mine.next = 0
        for u in range(UNITS):
            if turn == u:
                mine.next = wants[u]
        pick.next = 0
        for i in range(THREADS):
            if can[THREADS - 1 - i] and below[THREADS - 1 - i]:
                pick.next = THREADS - 1 - i
        if (can & above) != 0:
            for i in range(THREADS):
                if can[THREADS - 1 - i] and above[THREADS - 1 - i]:
                    pick.next = THREADS - 1 - i
        picks.next = (can & (above | below)) != 0

    @always_comb
    def settle():
        last.next = kept
        if picks:
            last.next = pick
        old.next = lasts[TOP + THREAD_BITS : TOP]
        just.next = lasts[TOP + THREAD_BITS]

    @always(clk.posedge)
    def choose():
        can.next = mine
        if pause:
            can.next = 0
        thread.next = pick
        some.next = picks
        kept.next = old
        for i in range(THREADS):
            above.next[i] = old < i
            below.next[i] = old > i or (old == i and not just)
        if rst:
            can.next = 0
            some.next = False

    if TURNS == 2:

        @always(clk.posedge)
        def pass_on():
            lasts.next = concat(picks, last)
    else:

        @always(clk.posedge)
        def pass_on():
            lasts.next = concat(lasts[TOP:], picks, last)

    return seek, settle, choose, pass_on
