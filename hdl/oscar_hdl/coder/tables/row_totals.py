"""Sums and largest entries of histogram rows, four entries a clock."""

from myhdl import always, block, concat, modbv

from oscar_hdl.streams.bundles import bit, word

TOTAL_BITS = 17  # of the sum and 1: what is learnt is less than 2^15, on top of half of what was before


@block
def row_totals(clk, phase, entries, possible, total, lost, peak):
    """Add up the quads of a row and find the largest entry.

    possible u4: of the row's first quad in phase 2; entries u64 a clock later, 0 where impossible. lost u4:
    impossible symbols of the row, five clocks behind its first quad's `possible`, in phase 3; total u17: the
    sum and 1, a clock later; peak u4: the lowest symbol with the largest entry, a clock later, in phase 1.
    """
    low, high, none = word(17), word(17), word(3)
    low_most, high_most, low_at, high_at = word(16), word(16), bit(), bit()
    most, most_at, largest = word(16), word(2), word(16)
    in_3, in_0, in_1 = bit(), bit(), bit()  # phases

    @always(clk.posedge)
    def count():
        in_3.next = phase == 2
        in_0.next = phase == 3
        in_1.next = phase == 0
        missing = modbv(0)[3:]
        base = modbv(0)[4:]
        missing[:] = 0
        for i in range(4):
            if not possible[i]:
                missing[:] = missing + 1
        none.next = missing
        base[:] = lost
        if in_3:
            base[:] = 0
        lost.next = base + none

    @always(clk.posedge)
    def compare():
        base = modbv(0)[TOTAL_BITS:]
        low.next = entries[16:] + entries[32:16]
        high.next = entries[48:32] + entries[64:48]
        base[:] = total
        if in_0:
            base[:] = 1
        total.next = base + low + high
        # Differences, as a carry is faster than a tree of comparisons: the highest bit says what is larger.
        less = modbv(0)[17:]
        less[:] = concat(modbv(0)[1:], entries[16:]) - entries[32:16]
        low_most.next = entries[16:]
        low_at.next = False
        if less[16]:
            low_most.next = entries[32:16]
            low_at.next = True
        less[:] = concat(modbv(0)[1:], entries[48:32]) - entries[64:48]
        high_most.next = entries[48:32]
        high_at.next = False
        if less[16]:
            high_most.next = entries[64:48]
            high_at.next = True
        less[:] = concat(modbv(0)[1:], low_most) - high_most
        most.next = low_most
        most_at.next = concat(modbv(0)[1:], low_at)
        if less[16]:
            most.next = high_most
            most_at.next = concat(modbv(1)[1:], high_at)

    # The row's first quad is here in phase 1.
    @always(clk.posedge)
    def choose():
        quad = modbv(0)[2:]
        less = modbv(0)[17:]
        less[:] = concat(modbv(0)[1:], largest) - most
        if in_1 or less[16]:
            quad[:] = phase - 1
            largest.next = most
            peak.next = concat(quad, most_at)

    return count, compare, choose
