"""How many bytes there are of each thread, and whether there is room for more."""

from myhdl import always, always_comb, block

from oscar_hdl.coder.encode.ports import BYTES_BITS, END, HIGH, REST
from oscar_hdl.coder.unit.ports import THREAD_BITS, THREADS
from oscar_hdl.streams.bundles import bit, word

MOST_WORDS = 112  # of 128: two turns of four words and a part fit


@block
def byte_levels(clk, phase, start, start_thread, plan9, total12, drain, place12, thread12, room, ended):
    """Count the bytes of each thread's block.

    start: a block of start_thread u3 begins. plan9: Plan. total12 u5: bytes of a clock. drain: Level, of
    which the words that were taken of a thread are told, and the level is given. place12 u19, thread12 u3: of
    the clock's first byte. room u8: threads that may go on: two turns fit. ended: Ended.
    """
    places, stale = [word(BYTES_BITS) for _ in range(THREADS)], word(THREADS)
    sum12, acts12, ends12 = word(BYTES_BITS), bit(), bit()
    level, taken, checked, checks, used = word(8), word(8), word(THREAD_BITS), bit(), word(8)
    told, tells = word(THREAD_BITS), bit()

    @always_comb
    def add():
        sum12.next = place12 + total12
        used.next = level - taken

    @always(clk.posedge)
    def count():
        place12.next = sum12
        ended.strobe16.next = phase[2:] == 3 and ends12
        if phase[2:] == 3:
            place12.next = places[plan9.thread]
            if stale[plan9.thread]:
                place12.next = 0
            thread12.next = plan9.thread
            acts12.next = plan9.op != REST
            ends12.next = plan9.op == HIGH or plan9.op == END
            ended.thread16.next = thread12
            ended.bytes16.next = sum12
            if acts12:
                places[thread12].next = sum12

    @always(clk.posedge)
    def check():
        drain.level.next = places[drain.thread]
        drain.stale.next = stale[drain.thread]
        told.next = drain.thread
        tells.next = drain.busy
        level.next = drain.level[12:4]
        taken.next = drain.taken[8:]
        checked.next = told
        checks.next = tells and not drain.stale
        if phase[2:] == 3:
            level.next = sum12[12:4]
            checked.next = thread12
            checks.next = acts12
            if not drain.busy or drain.thread != thread12:
                taken.next = 0

    @always(clk.posedge)
    def allow():
        for i in range(THREADS):
            if checks and checked == i:
                room.next[i] = used < MOST_WORDS
            if phase[2:] == 3 and acts12 and thread12 == i:
                stale.next[i] = False
            if start and start_thread == i:
                room.next[i] = True
                stale.next[i] = True

    return add, count, check, allow
