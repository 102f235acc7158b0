"""Which rows are cleared next: eight of a bank in a step, of all banks at the same time."""

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.streams.bundles import bit, word

EIGHT = 8  # rows of a step


@block
def line_begin(first, line, skip, *, block_bits: int, skip_bits: int):
    """Say in which line of blocks a row's is, a block of each bank, and how many are before it there."""
    LOW, TOP = block_bits + skip_bits, block_bits + skip_bits + len(line)

    if skip_bits == 0:

        @always_comb
        def cut():
            line.next = first[TOP:LOW]
            skip.next = 0
    else:

        @always_comb
        def cut():
            line.next = first[TOP:LOW]
            skip.next = first[LOW:block_bits]

    return cut


@block
def clear_walk(
    clk, restart, first, count, forward, bank, row, lanes, final, *, block_bits: int, skip_bits: int
):
    """Go through `count` rows from the first one of a block on.

    restart: strobe; first, count hold. forward: strobe, to the next step, four clocks or more behind the
    last one. bank: a bit for each bank of which eight rows from `row` on are cleared, those with a bit in
    lanes; final: it is the last step. All are there three clocks behind the strobes.
    Blocks have 2^block_bits rows; 2^skip_bits banks take turns with them.
    """
    BANKS, LINE_BITS, EIGHTS = len(bank), len(row) - block_bits, block_bits - 3
    WHOLE_BITS, LAST = max(4, len(count) - block_bits), (1 << EIGHTS) - 1
    # A line: a block of each bank. skip: its banks before the first row; whole: blocks that are left. Behind
    # these are eights of rows, and a few more. edge: the bank of the last block, if it is not a whole one.
    line, skip, whole, room = word(LINE_BITS), word(4), word(WHOLE_BITS), word(4)
    first_line, first_skip, edge = word(LINE_BITS), word(4), word(WHOLE_BITS + 1)
    eight, eights, most, few = word(EIGHTS), word(EIGHTS), word(EIGHTS), word(3)
    line_ends, more, at_few = bit(), bit(), bit()
    begin = line_begin(first, first_line, first_skip, block_bits=block_bits, skip_bits=skip_bits)

    @always_comb
    def see():
        room.next = BANKS - skip
        edge.next = skip + whole
        most.next = eights - 1

    @always(clk.posedge)
    def move():
        more.next = whole > room or (whole == room and (eights != 0 or few != 0))
        line_ends.next = eight == LAST or (whole == 0 and (eights == 0 or eight == most))
        if forward:
            if not line_ends:
                eight.next = eight + 1
            elif more:
                eight.next = 0
                line.next = line + 1
                whole.next = whole - room
                skip.next = 0
            else:
                at_few.next = True
        if restart:
            eight.next = 0
            line.next = first_line
            skip.next = first_skip
            whole.next = count[:block_bits]
            eights.next = count[block_bits:3]
            few.next = count[3:]
            at_few.next = False

    @always(clk.posedge)
    def show():
        final.next = at_few or (line_ends and not more and few == 0)
        row.next = concat(line, eight, modbv(0)[3:])
        if at_few:
            row.next = concat(line, eights, modbv(0)[3:])
        for i in range(BANKS):
            bank.next[i] = i == edge and (at_few or eight < eights)
            if not at_few and skip <= i and edge > i:
                bank.next[i] = True
        for lane in range(EIGHT):
            lanes.next[lane] = not at_few or few > lane

    return begin, see, move, show
