"""The bytes of a block as a stream of words."""

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.encode.ports import BYTES_BITS, WORD_BITS
from oscar_hdl.coder.unit.ports import THREAD_BITS, THREADS, WORD_BYTES
from oscar_hdl.streams.balance import balance
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.copied import chain

QUEUE = 16  # words


@block
def byte_drain(clk, rst, start, start_thread, ask, ended, level, address, issues, data, m_axis):
    """Give the words of a thread's block as a stream, while it is coded and behind that.

    start, start_thread u3: a block begins. ask: DrainPort. ended: Ended. level: Level. address u10, issues:
    a word is read; data u128 comes three clocks later. m_axis: Stream(128, keep=16).
    """
    over, thread, taken, settle = word(THREADS), word(THREAD_BITS), word(BYTES_BITS - 4), word(4)
    busy, known, before, nothing, over1, over2 = bit(), bit(), word(BYTES_BITS), bit(), bit(), bit()
    some, final, can, next_taken, meets = bit(), bit(), bit(), word(BYTES_BITS - 4), bit()
    queue, marks = [word(128) for _ in range(QUEUE)], [word(5) for _ in range(QUEUE)]
    issued1, issued2, issued3 = bit(), bit(), bit()
    mark, mark1, mark2, mark3 = (word(5) for _ in range(4))
    head, tail, used, pops = word(4), word(4), word(4), bit()
    # Words leave the queue into two registers in turn: so no path goes from m_axis.tready into the queue.
    valid, given, marked = word(2), [word(128), word(128)], [word(5), word(5)]
    put_at, get_at, shown = bit(), bit(), word(5)

    @always(clk.posedge)
    def look():
        for i in range(THREADS):
            if ended.strobe16 and ended.thread16 == i:
                over.next[i] = True
            if start and start_thread == i:
                over.next[i] = False
        # A word is given when there is more behind it, or the block has ended.
        over1.next = over[thread]
        over2.next = over1
        before.next = level.level - 1
        nothing.next = level.stale or level.level == 0
        some.next = busy and known and not (final and issues) and not nothing and (over2 or not meets)
        final.next = over2 and meets
        can.next = used < QUEUE - 5

    @always_comb
    def wires():
        issues.next = some and can
        next_taken.next = taken
        if some and can:
            next_taken.next = taken + 1
        meets.next = next_taken == before[BYTES_BITS:4]
        address.next = concat(thread, taken[WORD_BITS:])
        mark.next = concat(final, before[4:])
        ask.idle.next = not busy and used == 0 and valid == 0
        level.thread.next = thread
        level.busy.next = busy
        level.taken.next = taken

    @always(clk.posedge)
    def go_on():
        taken.next = next_taken
        settle.next = concat(settle[3:], False)
        if settle[3]:
            known.next = True
        if (issues and final) or (known and nothing and over2):
            busy.next = False
            known.next = False
        if ask.start:
            busy.next = True
            known.next = False
            thread.next = ask.thread
            taken.next = 0
            settle.next = 1
        if rst:
            busy.next = False
            known.next = False
            settle.next = 0

    # Words that were read wait in a queue, which is longer than what is on its way into it.
    @always(clk.posedge)
    def push():
        issued1.next = issues
        issued2.next = issued1
        issued3.next = issued2
        if issued3:
            queue[tail].next = data
            marks[tail].next = mark3
            tail.next = tail + 1
        if rst:
            issued1.next = False
            issued2.next = False
            issued3.next = False
            tail.next = 0

    @always_comb
    def move():
        pops.next = head != tail and not valid[put_at]
        m_axis.tvalid.next = valid[get_at]
        m_axis.tdata.next = given[get_at]
        shown.next = marked[get_at]

    @always_comb
    def keep():
        m_axis.tlast.next = shown[4]
        for i in range(WORD_BYTES):
            m_axis.tkeep.next[i] = not shown[4] or shown[4:] >= i

    @always(clk.posedge)
    def pop():
        for i in range(2):
            if m_axis.tready and valid[i] and get_at == i:
                valid.next[i] = False
                get_at.next = not get_at
            if pops and put_at == i:
                valid.next[i] = True
                given[i].next = queue[head]
                marked[i].next = marks[head]
        if pops:
            head.next = head + 1
            put_at.next = not put_at
        if rst:
            valid.next = 0
            head.next = 0
            put_at.next = False
            get_at.next = False

    waits = balance(clk, rst, issues, pops, used)
    return waits, chain(clk, mark, mark1, mark2, mark3), look, wires, go_on, push, move, keep, pop
