"""Classes of a raw block's rows: the last one of each thread, and those of its group that are counted."""

from collections.abc import Sequence

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.decode.ports import DecodeChoice, DecodePlan, Looked
from oscar_hdl.coder.unit.ports import THREAD_BITS, THREADS
from oscar_hdl.streams.bundles import bit, word

AT_BITS = THREAD_BITS + 2


@block
def sampled_classes(clk, write, at, row_class, read_at, class35):
    """Keep a class of each eight rows of all threads' groups."""
    classes = [word(4) for _ in range(4 * THREADS)]

    @always(clk.posedge)
    def access():
        if write:
            classes[at].next = row_class
        class35.next = classes[read_at]

    return access


@block
def raw_classes(
    clk, phase, looked: Looked, choice: DecodeChoice, looked1, plan33: DecodePlan, classes35: Sequence
):
    """Give classes that were looked at.

    looked1 u4: the last one of choice's thread, from phase 1 on. classes35: of each eight rows, in the order
    of a turn's clocks, the two that are counted, u4 each; plan33: of their turn.
    """
    lasts = [word(4) for _ in range(THREADS)]
    writes, at, read_at = [bit() for _ in classes35], word(AT_BITS), word(AT_BITS)
    thread34, beat = word(THREAD_BITS), word(2)
    low, high = writes
    kept = [
        sampled_classes(clk, write, at, looked.row_class, read_at, class35)
        for write, class35 in zip(writes, classes35, strict=True)
    ]

    @always_comb
    def place():
        at.next = concat(looked.thread, looked.row[5:3])
        read_at.next = concat(thread34, beat)
        low.next = looked.strobe and looked.row[2:] == looked.row[7:5] and not looked.row[2]
        high.next = looked.strobe and looked.row[2:] == looked.row[7:5] and looked.row[2]

    @always_comb
    def count():  # the last eight rows come first, in clock 34
        beat.next = 1 - phase[2:]

    @always(clk.posedge)
    def keep():
        if looked.strobe:
            lasts[looked.thread].next = looked.row_class
        if phase[2:] == 0:
            looked1.next = lasts[choice.thread]
        if phase[2:] == 1:
            thread34.next = plan33.thread

    return kept, place, count, keep
