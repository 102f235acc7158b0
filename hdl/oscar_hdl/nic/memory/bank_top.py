"""The largest symbol of rows of a bank that serves barrel units."""

from myhdl import always, always_comb, block

from oscar_hdl.coder.unit.ports import WIDTH
from oscar_hdl.nic.memory.bank_means import ROW_LOG2
from oscar_hdl.nic.memory.ports import DESCRIPTOR_BITS, SYMBOL_BITS
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.largest import largest

TREE = 4  # clocks from the descriptors of eight rows to the largest symbol


@block
def top_of(clk, found, symbol, *, lane: int):
    """Give the largest symbol of one of eight rows, a clock later: a block RAM is far from who compares."""
    HIGH, LOW = DESCRIPTOR_BITS * (lane + 1), DESCRIPTOR_BITS * (lane + 1) - SYMBOL_BITS

    @always(clk.posedge)
    def cut():
        symbol.next = found[HIGH:LOW]

    return cut


@block
def bank_top(clk, rst, phase, port, free, at, found):
    """Look at the descriptors of eight rows in a clock of phase 3 or 0 with `free`.

    port: BankTop. at: which eight; found u88: their descriptors, three clocks later.
    """
    ROW_BITS = len(port.row)
    symbols, most = [word(SYMBOL_BITS) for _ in range(WIDTH)], word(SYMBOL_BITS)
    busy, left, asks, marks = bit(), word(len(port.words)), bit(), word(3 + TREE)
    parts = [top_of(clk, found, symbols[i], lane=i) for i in range(WIDTH)] + [largest(clk, symbols, most)]

    @always_comb
    def look():
        asks.next = busy and left != 0 and free and (phase[2:] == 3 or phase[2:] == 0)

    @always(clk.posedge)
    def go():
        port.known.next = False
        marks.next = (marks << 1) | asks
        if asks:
            at.next = at + 1
            left.next = left - 1
        if busy and left == 0 and marks == 0:
            busy.next = False
            port.known.next = True
        if port.ask:
            busy.next = True
            at.next = port.row[ROW_BITS:ROW_LOG2]
            left.next = port.words
            port.symbol.next = 0
        elif marks[2 + TREE] and most > port.symbol:
            port.symbol.next = most
        if rst:
            busy.next = False
            port.known.next = False
            marks.next = 0

    return parts, look, go
