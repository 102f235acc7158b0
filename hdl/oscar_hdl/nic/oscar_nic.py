"""The NIC with its memory in block RAM, and streams to load and read it."""

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.decode.ports import CodedPosition, CodedSums
from oscar_hdl.coder.encode.ports import CodedSource
from oscar_hdl.coder.ports import RawSource
from oscar_hdl.nic.control.registers import ROW_BITS
from oscar_hdl.nic.memory.ports import MemoryPort, PlannedRows, RawRows, RowCommand, RowCommands, UnitRows
from oscar_hdl.nic.memory.row_memory import row_memory
from oscar_hdl.nic.memory.row_port import row_port
from oscar_hdl.nic.nic_core import nic_core
from oscar_hdl.nic.ports import FRAME_ROW_BITS, STREAM_BITS, BankBlock, MadeRows, NicProbe, TopPort
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_hdl.streams.reset_hold import reset_hold
from oscar_hdl.streams.zero import zero


@block
def made_turns(clk, rst, values: MadeRows, side: MadeRows, made: MadeRows):
    """Pass on what two ports of rows say, one by one, and its answer; `values` first."""
    of_side = bit()

    @always(clk.posedge)
    def choose():
        values.taken.next = made.taken and not of_side
        side.taken.next = made.taken and of_side
        values.refused.next = made.refused
        side.refused.next = made.refused
        if made.valid:
            made.valid.next = not made.taken
        elif values.valid and not values.taken:
            made.valid.next = True
            of_side.next = False
            made.ends.next = values.ends
            made.entry.next = values.entry
            made.values.next = values.values
        elif side.valid and not side.taken:
            made.valid.next = True
            of_side.next = True
            made.ends.next = side.ends
            made.entry.next = side.entry
            made.values.next = side.values
        if rst:
            made.valid.next = False
            values.taken.next = False
            side.taken.next = False

    return choose


@block
def refuse_made(clk, made: MadeRows):
    """Answer each request of a port of rows with `refused`: its rows count for no list."""

    @always(clk.posedge)
    def refuse():
        made.open.next = True
        made.taken.next = made.valid and not made.taken
        made.refused.next = True

    return refuse


@block
def oscar_nic(
    clk, rst, s_axil, irq, s_axis_rx, m_axis_tx, s_axis_values, s_axis_side, s_axis_read, m_axis_values,
    m_axis_descriptors, s_axis_list, *, units: int = 1, bus_bits: int = 64, sets: int = 16,
    store_log2: int = 12, rows_log2: int = 10, block_log2: int = 12, granule_log2: int = 8, adds: bool = True,
    probe: NicProbe | None = None,
):  # fmt: skip
    """Decode frames into memory and encode memory into frames, as a driver asks.

    Frames are those of docs/reference/protocol.md. Rows come and go in packets (row_port), whose words have a
    lane for each bank. What is read goes to the planner, too (sum_rows). docs/how-to/nic-on-a-board.md says
    how to integrate and drive the NIC, docs/reference/registers.md has its registers and fields of words.

    Args:
        rst: Synchronous, active high, one clock or more, in any clock. The NIC stretches it to 64 clocks.
        s_axil: Registers; byte addresses.
        irq: Level: a bit of IRQ_STATUS that IRQ_ENABLE enables is 1.
        s_axis_rx: Frames from the MAC; tid is the number of the peer that made the frame.
        m_axis_tx: Frames to the MAC; tdest is the number of the peer, or 255: all.
        s_axis_values: Values into memory, lanes of 128 bits: eight values (values_in).
        s_axis_side: Side rows into memory, lanes of 128 bits: a row (side_in).
        s_axis_read: Packets of one word, which ask for rows.
        m_axis_values: Values of the rows that are read, lanes of 128 bits.
        m_axis_descriptors: Class, size and top of the rows that are read, lanes of 16 bits: a row (rows_out).
        s_axis_list: Lists of commands (list_unit).
        units: 1, 2, 4 or 8 units, each with a bank of memory.
        bus_bits: Bits of a word of frames: 64, 128, 256 or 512.
        sets: Table sets of a direction, a power of two.
        store_log2: log2 of a frame store's words of the bus, 6 to 16.
        rows_log2: log2 of memory's rows.
        block_log2: log2 of the values of a block of all frames, 10 to 17; others are refused.
        granule_log2: log2 of the values of a plan's block, 3 to 12.
        adds: True if values may be added to what memory has; otherwise such packets are refused.
        probe: What a bench may see.

    Clocks:
        4: A row of each unit, to load it or to read it.
        163: Tables of a frame, while blocks of frames before are coded.
        varies: Latency and rate of frames: docs/results/hardware.md.
    """
    never, held, resets, bad_values, bad_side, bad_read = (bit() for _ in range(6))
    no_row, no_rows, unused_values, unused_read = word(ROW_BITS), word(FRAME_ROW_BITS), bit(), bit()
    bank_bits = rows_log2 - (units.bit_length() - 1)
    if bank_bits <= block_log2 - 5:
        raise ValueError(
            f"a bank has two blocks or more: with {units} of them and blocks of 2^{block_log2} values "
            f"rows_log2 is {rows_log2 - bank_bits + block_log2 - 4} or more, got {rows_log2}"
        )
    rows = UnitRows(
        [CodedPosition() for _ in range(units)], [BankBlock(bank_bits) for _ in range(units)],
        [CodedSums() for _ in range(units)], [CodedSource() for _ in range(units)],
        [BankBlock(bank_bits) for _ in range(units)],
    )  # fmt: skip
    raw_rows = RawRows(RawSource(), word(ROW_BITS))
    top, made, made_values, made_side, none_made = TopPort(), *(MadeRows() for _ in range(4))
    made_values.open = made_side.open = made.open
    load_values, load_side, unload = RowCommand(rows_log2), RowCommand(rows_log2), RowCommand(rows_log2)
    values, side, nothing = Stream(units * STREAM_BITS), Stream(units * STREAM_BITS), Stream(64)
    planned = PlannedRows(bit(), Stream(STREAM_BITS, keep=STREAM_BITS // 8))
    own = MemoryPort(rows, raw_rows, top, planned, made)

    reset = reset_hold(clk, rst, held)
    # What takes packets of rows is released last: behind memory, and what counts bad packets.
    core = nic_core(
        clk, resets, s_axil, irq, s_axis_rx, m_axis_tx, s_axis_list, own, bus_bits=bus_bits, sets=sets,
        store_log2=store_log2, rows_log2=rows_log2, block_log2=block_log2, granule_log2=granule_log2,
        probe=probe,
    )  # fmt: skip
    memory = row_memory(
        clk, held, own.phase, rows, raw_rows, RowCommands(load_values, load_side, unload), top, planned,
        values, side, m_axis_values, m_axis_descriptors, row_bits=rows_log2, block_log2=block_log2,
        adds=bool(adds),
    )  # fmt: skip
    # Rows of several banks begin a block.
    BLOCK = 0 if units == 1 else block_log2 - 5
    ports = [
        row_port(
            clk, own.rows_rst, s_axis_values, values, never, no_row, no_rows, unused_values, load_values,
            bad_values, made_values, align=BLOCK, adds=bool(adds),
        ),
        row_port(
            clk, own.rows_rst, s_axis_side, side, own.clear, own.clear_row, own.clear_rows, own.cleared,
            load_side, bad_side, made_side, align=max(5, BLOCK),
        ),
        row_port(
            clk, own.rows_rst, s_axis_read, nothing, never, no_row, no_rows, unused_read, unload, bad_read,
            none_made, align=BLOCK,
        ),
        made_turns(clk, own.rows_rst, made_values, made_side, made),
        refuse_made(clk, none_made),
    ]  # fmt: skip

    @always_comb
    def join():
        resets.next = rst or held
        own.bad_packets.next = concat(bad_read, bad_side, bad_values)

    unused = [never, no_row, no_rows, nothing.tready]
    return reset, core, memory, ports, join, [zero(clk, signal) for signal in unused]
