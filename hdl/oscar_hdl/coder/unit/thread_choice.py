"""Whose turn is next: the threads in a ring, those that are ready."""

from myhdl import always, always_comb, block

from oscar_hdl.coder.unit.ports import THREAD_BITS, THREADS
from oscar_hdl.streams.bundles import bit, word


@block
def ring_pick(asks, above, pick):
    """Pick the lowest thread that asks: of those above the last one that had its turn, else of all."""

    @always_comb
    def seek():
        pick.next = 0
        for i in range(THREADS):
            if asks[THREADS - 1 - i]:
                pick.next = THREADS - 1 - i
        if (asks & above) != 0:
            for i in range(THREADS):
                if asks[THREADS - 1 - i] and above[THREADS - 1 - i]:
                    pick.next = THREADS - 1 - i

    return seek


@block
def thread_choice(clk, rst, phase, start, start_thread, back, room, thread, some):
    """Choose the thread for which the next turn is decided.

    phase: of all barrel units. start: thread start_thread u3 has a new block. back u8: these threads may go
    on (in phase 0). room u8: bytes do not keep these from it. thread u3, some: the choice, from phase 0 to
    3. Who was chosen is ready again when `back` says so.
    """
    ready, news, can, above = word(THREADS), word(THREADS), word(THREADS), word(THREADS)
    pick, picked, picks, current = word(THREAD_BITS), word(THREAD_BITS), bit(), word(THREAD_BITS)

    seek = ring_pick(can, above, pick)

    @always(clk.posedge)
    def choose():
        if phase[2:] == 1:
            can.next = (ready | news) & room
            for i in range(THREADS):
                above.next[i] = current < i
        if phase[2:] == 2:
            picked.next = pick
            picks.next = can != 0
        if phase[2:] == 3:
            thread.next = picked
            some.next = picks
            if picks:
                current.next = picked
        if rst:
            can.next = 0
            picks.next = False
            some.next = False

    @always(clk.posedge)
    def keep():
        for i in range(THREADS):
            if phase[2:] == 3 and picks and picked == i:
                ready.next[i] = False
            news.next[i] = back[i] or (start and start_thread == i)
            if news[i]:
                ready.next[i] = True
        if rst:
            ready.next = 0
            news.next = 0

    return seek, choose, keep
