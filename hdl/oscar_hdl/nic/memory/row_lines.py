"""Rows of a packet in lines of blocks: how many steps it has, and whose rows a step is of.

A line is a block of each bank, side by side. In a step a row of each bank of the line goes by, if the packet
has one there. So a packet is over in fewer steps than it has rows, where several banks have rows of it.
"""

from myhdl import always, always_comb, block, concat

from oscar_hdl.nic.memory.ports import RowCommand
from oscar_hdl.streams.bundles import bit, word

ROWS_BITS, WORDS_BITS = 15, 17  # of a packet's rows and steps, and of words of eight values
KNOWN = 4  # clocks behind a command until its shape is known
OPENED = 6  # clocks behind row_walk's restart until it can go forward


class RowLines:
    """The shape of a packet of blocks of 2^block_bits rows, until its command's fields change.

    rows: of it. steps: of all its lines. words: of eight values a bank, without those of the last step that
    no bank has. skip: banks of its first line before its first row's. line, bank: of its last row, counted
    from the first line and the first bank; end: the row's number in its block. part: of four, the last row's
    last word; tail: its values, a bit for each.
    """

    def __init__(self, block_bits: int) -> None:
        self.rows, self.steps, self.words = word(ROWS_BITS), word(ROWS_BITS), word(WORDS_BITS)
        self.skip, self.line, self.bank = word(3), word(ROWS_BITS - block_bits), word(3)
        self.end, self.part, self.tail = word(block_bits), word(2), word(8)


@block
def bank_row(base, row, found, *, block_bits: int, skip_bits: int):
    """Leave out the bits of a row's number that choose its bank; combinational.

    base: the first row of its block, or the row; row: its number in the block, or the row. Above block_bits
    come skip_bits that say the bank.
    """
    LOW = block_bits + skip_bits
    TOP = LOW + len(found) - block_bits
    if len(base) < TOP or len(found) <= block_bits:
        raise ValueError(
            f"a bank of two blocks or more of 2^{block_bits} rows, in a memory of rows of {len(base)} bits, "
            f"got rows of {len(found)} bits"
        )

    @always_comb
    def place():
        found.next = concat(base[TOP:LOW], row[block_bits:])

    return place


@block
def row_lines(clk, command: RowCommand, lines: RowLines, *, skip_bits: int):
    """Find the shape of a command's packet, KNOWN clocks behind its fields.

    2^skip_bits banks take turns with blocks. A packet of several banks' rows begins a block.
    """
    LINE, LOW = skip_bits, len(lines.end)
    PLACE_BITS, LONGEST = len(lines.line) + skip_bits, (1 << len(lines.end)) - 1
    less, last, skipped = word(len(command.count)), word(ROWS_BITS), word(3)
    blocks, placed, alone, only = word(len(lines.line)), word(PLACE_BITS), bit(), bit()
    last_step, last_part, step_end = word(ROWS_BITS), word(2), word(LOW)

    if skip_bits == 0:

        @always(clk.posedge)
        def cut():
            skipped.next = 0
            alone.next = True
            lines.bank.next = 0
    else:
        BANK_END = LOW + skip_bits

        @always(clk.posedge)
        def cut():
            skipped.next = command.first[BANK_END:LOW]
            only.next = blocks == 0
            alone.next = only or placed[LINE:] == 0
            lines.bank.next = placed[LINE:]

    # The last line has rows of the last block alone, or is as long as a block.
    @always_comb
    def see():
        less.next = command.count - 1
        blocks.next = last[ROWS_BITS:LOW]
        step_end.next = LONGEST
        last_part.next = 3
        if alone:
            step_end.next = lines.end
            last_part.next = lines.part

    @always_comb
    def join():
        last_step.next = concat(lines.line, step_end)

    @always(clk.posedge)
    def measure():
        last.next = less >> 5
        placed.next = skipped + blocks
        lines.rows.next = last + 1
        lines.skip.next = skipped
        lines.line.next = placed >> LINE
        lines.end.next = last[LOW:]
        lines.steps.next = last_step + 1
        lines.words.next = concat(last_step, last_part) + 1

    @always(clk.posedge)
    def cut_short():
        lines.part.next = less[5:3]
        for lane in range(8):
            lines.tail.next[lane] = command.count[3:] == 0 or command.count[3:] > lane

    return cut, see, join, measure, cut_short


@block
def row_walk(clk, restart, first, lines: RowLines, forward, row, here, final, behind, *, skip_bits: int):
    """Go through the steps of a packet.

    restart: strobe, go to the first step of the packet from `first` on; lines: its shape. forward: strobe, to
    the next step, four clocks or more behind another, OPENED behind restart. row: of the banks. A bit for
    each bank: here: the packet has this row of it; final: it is the packet's last; behind: it is behind the
    last one, in its group of 32. They are there two clocks before the first `forward` may be.
    """
    BANKS, BLOCK = len(here), len(lines.end)
    ROW_BITS = len(row)
    ahead, opening = word(ROWS_BITS), word(OPENED - 3)
    begun, earlier, last_line, inside, at_end, follows = (bit() for _ in range(6))
    here_next, final_next, behind_next, begin = word(BANKS), word(BANKS), word(BANKS), word(ROW_BITS)
    line, place, group_end = word(len(lines.line)), word(BLOCK), word(BLOCK)
    PRIMED = OPENED - 4

    locate = bank_row(first, first, begin, block_bits=BLOCK, skip_bits=skip_bits)

    @always_comb
    def split():
        line.next = ahead[ROWS_BITS:BLOCK]
        place.next = ahead[BLOCK:]
        group_end.next = lines.end | 31

    @always(clk.posedge)
    def look():
        # Of the step ahead of this one: steps are four clocks apart.
        begun.next = line != 0
        earlier.next = line < lines.line
        last_line.next = line == lines.line
        inside.next = place <= lines.end
        at_end.next = place == lines.end
        follows.next = place > lines.end and place <= group_end
        for i in range(BANKS):
            here_next.next[i] = (begun or lines.skip <= i) and (
                earlier or (last_line and (lines.bank > i or (lines.bank == i and inside)))
            )
            final_next.next[i] = last_line and lines.bank == i and at_end
            behind_next.next[i] = last_line and lines.bank == i and follows

    @always(clk.posedge)
    def move():
        opening.next = concat(opening[PRIMED:], restart)
        if forward or opening[PRIMED]:
            here.next = here_next
            final.next = final_next
            behind.next = behind_next
            ahead.next = ahead + 1
        if forward:
            row.next = row + 1
        if restart:
            ahead.next = 0
            row.next = begin

    return locate, split, look, move
