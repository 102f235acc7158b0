"""What frames that are built and not learnt yet had their tables built from, and which sets they save."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.ports import TablesPort
from oscar_hdl.streams.bundles import bit, word


@block
def frame_sets(
    clk: Any, rst: Any, port: TablesPort, reading: Any, read_at: Any, quad: Any, learn_at: Any, old: Any,
    save: Any,
) -> Any:  # fmt: skip
    """Keep for each bank the histogram that a build reads, and the number of its set to save.

    reading: the quad at read_at u7 is read for port.bank, `quad` u64 comes two clocks later. old u32: the
    pair at learn_at u8 of port.count_bank, three clocks later; save: the set of the frame that is learnt.
    port.steady: see TablesPort.
    """
    memory = [word(64) for _ in range(1 << 8)]
    write1, write2, at1, at2 = bit(), bit(), word(8), word(8)
    look_at, fetched, whole, upper1, upper2 = word(8), word(64), word(64), bit(), bit()
    first_save, second_save = word(len(port.save)), word(len(port.save))
    first_busy, second_busy, learn_busy = bit(), bit(), bit()
    first_same, second_same, learn_same, any_set = (bit() for _ in range(4))

    @always_comb
    def address():
        look_at.next = concat(port.count_bank, learn_at[8:1])

    @always(clk.posedge)
    def use_memory():
        write1.next = reading
        write2.next = write1
        at1.next = concat(port.bank, read_at)
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
        if port.build:
            if port.bank:
                second_save.next = port.save
                second_busy.next = True
            else:
                first_save.next = port.save
                first_busy.next = True
        if port.learn:
            learn_busy.next = True
            if port.count_bank:
                save.next = second_save
                second_busy.next = False
            else:
                save.next = first_save
                first_busy.next = False
        elif port.learnt:
            learn_busy.next = False
        if rst:
            first_busy.next = False
            second_busy.next = False
            learn_busy.next = False

    @always(clk.posedge)
    def compare():
        any_set.next = port.query_fresh
        first_same.next = first_busy and first_save == port.query
        second_same.next = second_busy and second_save == port.query
        learn_same.next = learn_busy and save == port.query
        port.steady.next = any_set or not (first_same or second_same or learn_same)

    return address, use_memory, remember, compare
