"""Rows that are read, once more for the planner: in the order of the gradient, eight values a word."""

from myhdl import always, always_comb, block, concat

from oscar_hdl.nic.memory import ports
from oscar_hdl.nic.memory.row_lines import ROWS_BITS
from oscar_hdl.streams.bundles import bit, word


@block
def sum_rows(
    clk, rst, command: ports.RowCommand, planned: ports.PlannedRows, ask: ports.RowAsk, found: ports.RowsRead,
    busy, *, block_bits: int, skip_bits: int,
):  # fmt: skip
    """Give the values of a packet that is read, if it counts at its start.

    command: RowCommand of one value or more, which holds while `busy` (level). planned: of Stream(128,
    keep=16): whole values, from the lowest lane on. A row is asked for when the one before has been taken,
    one in 44 clocks: the planner takes 36. Blocks have 2^block_bits rows; 2^skip_bits banks take turns with
    them.
    """
    memory, at, full, asking = [word(ports.GROUP_BITS) for _ in range(ports.GROUPS)], word(2), bit(), bit()
    row, left, last = word(len(command.first)), word(ROWS_BITS), bit()  # last: of the packet's rows
    end, ended, ends, last_part, tail = bit(), bit(), bit(), word(2), word(2 * ports.STREAM_LANES)
    BANKS, LOW, TOP = 1 << skip_bits, block_bits + skip_bits, len(ask.row) + skip_bits
    BLOCK, m_axis = block_bits, planned.words

    if skip_bits == 0:

        @always_comb
        def where():
            ask.row.next = row
            ask.bank.next = 1
    else:

        @always_comb
        def where():
            ask.row.next = concat(row[TOP:LOW], row[BLOCK:])
            for i in range(BANKS):
                ask.bank.next[i] = row[LOW:BLOCK] == i

    @always_comb
    def show():
        ask.want.next = asking
        ends.next = last and at == last_part
        m_axis.tvalid.next = full
        m_axis.tdata.next = memory[at]
        end.next = full and m_axis.tready and (ends or at == ports.GROUPS - 1)

    @always_comb
    def tell():
        m_axis.tlast.next = ends
        m_axis.tkeep.next = 0xFFFF
        if ends:
            m_axis.tkeep.next = tail

    @always(clk.posedge)
    def measure():
        last.next = left == 1
        last_part.next = (command.count - 1) >> 3
        for lane in range(ports.STREAM_LANES):
            tail.next[2 * lane] = command.count[3:] == 0 or command.count[3:] > lane
            tail.next[2 * lane + 1] = command.count[3:] == 0 or command.count[3:] > lane

    # A row's words come one behind the other, so `at` counts them, and then those that are taken.
    @always(clk.posedge)
    def move():
        if ask.comes:
            memory[at].next = found.data
            at.next = at + 1
            full.next = at == ports.GROUPS - 1
        elif full and m_axis.tready:
            at.next = at + 1
        if ask.taken:
            asking.next = False
        ended.next = end  # a register, since the planner is far away
        if end:
            full.next = False
            at.next = 0
        if ended:
            row.next = row + 1
            left.next = left - 1
            asking.next = not last
            busy.next = not last
        if command.start and planned.counts:
            busy.next = True
            asking.next = True
            row.next = command.first
            left.next = ((command.count - 1) >> 5) + 1
        if rst:
            busy.next = False
            asking.next = False
            ended.next = False
            full.next = False
            at.next = 0

    return where, show, tell, measure, move
