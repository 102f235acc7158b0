"""What frames that are built and not learnt yet had their tables built from, and which sets they save."""

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.ports import BANK_BITS, BANKS, TablesPort
from oscar_hdl.streams.bundles import bit, word


@block
def frame_sets(clk, rst, port: TablesPort, bank, reading, read_at, quad, learn_at, old, save):
    """Keep for each bank the histogram that a build reads, and the number of its set to save.

    reading: the quad at read_at u7 is read for `bank`, `quad` u64 comes two clocks later. old u32: the
    pair at learn_at u8 of port.count_bank, three clocks later; save: the set of the frame that is learnt.
    port.steady: see TablesPort.
    """
    memory = [word(64) for _ in range(BANKS << 7)]
    write1, write2, at1, at2 = bit(), bit(), word(7 + BANK_BITS), word(7 + BANK_BITS)
    look_at, fetched, whole, upper1, upper2 = word(7 + BANK_BITS), word(64), word(64), bit(), bit()
    saves = [word(len(port.save)) for _ in range(BANKS)]
    busy, same, learn_busy, learn_same, any_set = word(BANKS), word(BANKS), bit(), bit(), bit()

    @always_comb
    def address():
        look_at.next = concat(port.count_bank, learn_at[8:1])

    @always(clk.posedge)
    def use_memory():
        write1.next = reading
        write2.next = write1
        at1.next = concat(bank, read_at)
        at2.next = at1
        if write2:
            memory[at2].next = quad
        fetched.next = memory[look_at]
        whole.next = fetched
        upper1.next = learn_at[0]
        upper2.next = upper1
        old.next = whole[32:]
        if upper2:
            old.next = whole[64:32]

    @always(clk.posedge)
    def remember():
        for b in range(BANKS):
            if port.build and port.bank == b:
                saves[b].next = port.save
                busy.next[b] = True
            elif port.learn and port.count_bank == b:
                busy.next[b] = False
        if port.learn:
            learn_busy.next = True
            save.next = saves[port.count_bank]
        elif port.learnt:
            learn_busy.next = False
        if rst:
            busy.next = 0
            learn_busy.next = False

    @always(clk.posedge)
    def compare():
        any_set.next = port.query_fresh
        for b in range(BANKS):
            same.next[b] = busy[b] and saves[b] == port.query
        learn_same.next = learn_busy and save == port.query
        port.steady.next = any_set or not (same != 0 or learn_same)

    return address, use_memory, remember, compare
