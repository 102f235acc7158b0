"""Rows for raw_packer, lane by lane, of banks that read eight lanes a clock."""

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.ports import RawSource
from oscar_hdl.nic.memory.ports import RowAsk, RowsRead
from oscar_hdl.nic.memory.row_lines import bank_row
from oscar_hdl.streams.bundles import bit, word


@block
def bank_of(clk, base, bank, *, block_bits: int, skip_bits: int):
    """Give the bank of a block, a bit for each, of the block's first row."""
    BANKS, LOW, HIGH = len(bank), block_bits, block_bits + skip_bits

    if skip_bits == 0:

        @always(clk.posedge)
        def find():
            bank.next = 1
    else:

        @always(clk.posedge)
        def find():
            for i in range(BANKS):
                bank.next[i] = base[HIGH:LOW] == i

    return find


@block
def kept_lanes(clk, rst, put, eight, take, lane):
    """Keep two rows, of four words of eight lanes each, and give the lanes of one.

    put: strobe, the next word is `eight`. take: strobe, the lanes of the last row come, one a clock from
    three clocks behind it on.
    """
    BITS, END = len(lane), len(eight)
    memory, top, kept = [word(END) for _ in range(8)], word(END), word(END)
    write_at, read_at, number, half = word(3), word(3), word(5), bit()

    @always_comb
    def order():
        read_at.next = concat(half, number[5:3])

    @always_comb
    def look():
        top.next = memory[read_at]

    @always(clk.posedge)
    def move():
        if put:
            memory[write_at].next = eight
            write_at.next = write_at + 1
        number.next = number + 1
        if take:
            number.next = 0
            half.next = not write_at[2]
        kept.next = kept[END:BITS]
        if number[3:] == 0:
            kept.next = top
        lane.next = kept[BITS:]
        if rst:
            write_at.next = 0

    return order, look, move


@block
def raw_encode_rows(
    clk, rst, source: RawSource, base, ask: RowAsk, found: RowsRead, *, block_bits: int, skip_bits: int
):
    """Give the raw packer the values of rows that it asks for; base: the first row of its block."""
    wanted, beat, wants, lane = word(len(source.row)), word(2), bit(), word(len(source.data))
    placing = {"block_bits": block_bits, "skip_bits": skip_bits}
    parts = [
        bank_row(base, wanted, ask.row, **placing),
        bank_of(clk, base, ask.bank, **placing),
        kept_lanes(clk, rst, ask.comes, found.data, source.take, lane),
    ]

    @always_comb
    def show():
        ask.want.next = wants

    @always(clk.posedge)
    def request():
        if source.ask:
            wanted.next = source.row
            wants.next = True
        elif ask.taken:
            wants.next = False
        if rst:
            wants.next = False

    @always(clk.posedge)
    def receive():
        source.data.next = lane
        beat.next = 0
        if ask.comes:
            beat.next = beat + 1
        if ask.comes and beat == 3:
            source.ok.next = True
        if source.ask or source.take or rst:
            source.ok.next = False

    return parts, show, request, receive
