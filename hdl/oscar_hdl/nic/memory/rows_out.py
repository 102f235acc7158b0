"""Values and descriptors out of a NIC's banks of rows for barrel units, into streams."""

from myhdl import always, always_comb, block, concat

from oscar_hdl.nic.memory.ports import DESCRIPTOR_BITS, LineRead, RowAsk, RowCommand
from oscar_hdl.nic.memory.row_lines import KNOWN, ROWS_BITS, RowLines, bank_row
from oscar_hdl.nic.memory.words_out import words_out
from oscar_hdl.nic.ports import DESCRIBED_BITS
from oscar_hdl.streams.bundles import Stream, bit, lane, word
from oscar_hdl.streams.copied import copied
from oscar_hdl.streams.joined import joined


@block
def rows_out(
    clk, rst, command: RowCommand, lines: RowLines, ask: RowAsk, found: LineRead, waits, m_axis_values,
    m_axis_descriptors, *, skip_bits: int,
):  # fmt: skip
    """Read a packet's values and descriptors, a row of each bank in four clocks.

    command: RowCommand of one value or more; `clear` is ignored. lines: its shape. m_axis_values: Stream of
    as many bits as LineRead has values, lines.words words; m_axis_descriptors: Stream of 16 bits for each
    bank, lines.steps words; both with tlast at the end. Of a bank that a step has no row of, anything. Up to
    eight steps are read ahead of what was taken of either. waits (level): the last word of values waits.
    """
    opening, asking, draining = word(KNOWN), bit(), bit()
    row, first, LAST = word(len(ask.row)), word(len(ask.row)), KNOWN - 1
    begin, issue, put = opening(LAST), ask.taken, ask.comes
    left, before, last = word(ROWS_BITS), word(ROWS_BITS), bit()  # rows to be asked for
    put_descriptor, part = bit(), word(2)  # part: of four words of a row, which comes next
    room, descriptor_room, over, descriptor_over = bit(), bit(), bit(), bit()
    kinds, values = Stream(len(found.descriptor)), Stream(len(found.data))

    parts = [
        words_out(clk, rst, begin, lines.words, issue, put, found.data, values, room, over, words=4),
        words_out(
            clk, rst, begin, lines.steps, issue, put_descriptor, found.descriptor, kinds, descriptor_room,
            descriptor_over, words=1,
        ),
        spread(kinds, m_axis_descriptors),
        bank_row(command.first, command.first, first, block_bits=len(lines.end), skip_bits=skip_bits),
    ]  # fmt: skip

    @always_comb
    def show():
        before.next = left - 1
        ask.want.next = asking and room and descriptor_room
        ask.row.next = row
        put_descriptor.next = ask.comes and part == 0
        m_axis_values.tdata.next = values.tdata
        m_axis_values.tlast.next = values.tlast
        m_axis_values.tvalid.next = values.tvalid and not (values.tlast and waits)
        values.tready.next = m_axis_values.tready and not (values.tlast and waits)

    @always(clk.posedge)
    def control():
        part.next = 0
        if put:
            part.next = part + 1
        # Rows are asked for every fourth clock at most, the first one in the clock behind `begin` or later.
        last.next = left == 1
        if issue:
            row.next = row + 1
            left.next = before
        if begin:
            row.next = first
            left.next = lines.steps
            last.next = lines.steps == 1
        command.done.next = False
        opening.next = concat(opening[LAST:], command.start)
        if command.start:
            command.idle.next = False
        if begin:
            asking.next = True
        if issue and last:
            asking.next = False
            draining.next = True
        if draining and over and descriptor_over:
            draining.next = False
            command.done.next = True
            command.idle.next = True
        if rst:
            opening.next = 0
            asking.next = False
            draining.next = False
            command.done.next = False
            command.idle.next = True

    return parts, show, control


@block
def spread(kinds: Stream, m_axis: Stream):
    """Give descriptors in 16 bits each."""
    lanes = [word(DESCRIBED_BITS) for _ in range(len(kinds.tdata) // DESCRIPTOR_BITS)]

    @always_comb
    def connect():
        m_axis.tvalid.next = kinds.tvalid
        m_axis.tlast.next = kinds.tlast
        kinds.tready.next = m_axis.tready

    parts = [copied(None, lane(kinds.tdata, n, DESCRIPTOR_BITS), one) for n, one in enumerate(lanes)]
    return parts, joined(lanes, m_axis.tdata), connect
