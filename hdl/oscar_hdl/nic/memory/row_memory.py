"""A NIC's memory of rows in block RAM: a bank for each barrel unit, and what all banks have once."""

from collections.abc import Sequence
from itertools import pairwise

from myhdl import always_comb, block

from oscar_hdl.nic.memory import ports
from oscar_hdl.nic.memory.frame_symbol import frame_symbol
from oscar_hdl.nic.memory.ports import SideWrite
from oscar_hdl.nic.memory.raw_rows import raw_decode_rows, raw_encode_rows, raw_sum_rows
from oscar_hdl.nic.memory.read_turns import read_turns
from oscar_hdl.nic.memory.row_bank import row_bank
from oscar_hdl.nic.memory.row_lines import RowLines, row_lines
from oscar_hdl.nic.memory.rows_out import rows_out
from oscar_hdl.nic.memory.side_in import side_in
from oscar_hdl.nic.memory.sum_rows import sum_rows
from oscar_hdl.nic.memory.values_in import values_in
from oscar_hdl.nic.ports import TopPort
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.copied import copied_fields
from oscar_hdl.streams.joined import joined
from oscar_hdl.streams.passed_on import next_phase
from oscar_hdl.streams.zero import zero


@block
def either_row(loaded, raw, writes, row):
    """Give the row that is loaded, or while `writes` the one to which the raw decoder added."""

    @always_comb
    def choose():
        row.next = loaded
        if writes:
            row.next = raw

    return choose


@block
def either_load(loaded, loaded_side, raw, raw_side, bank, writes, values, side, *, index: int):
    """Write what is loaded into a bank, or while `writes` what the raw decoder added, if it is there.

    loaded, raw, values: GroupWrite; loaded_side, raw_side, side: SideWrite.
    """

    @always_comb
    def choose_side():
        values.enable.next = loaded.enable or (raw.enable and bank[index])
        values.data.next = loaded.data
        if writes:
            values.data.next = raw.data
        side.kind.next = raw_side.kind and bank[index]
        side.header_data.next = loaded_side.header_data
        if writes:
            side.header_data.next = raw_side.header_data

    return copied_fields(None, loaded_side, side, "distances", "header", "clear", "data"), choose_side


@block
def some_busy(adders: Sequence[ports.BankAdds], raw_busy, busy):
    """Say whether a bank's decoder or the raw decoder has the row to which a loader would add."""
    levels = word(len(adders))

    @always_comb
    def look():
        busy.next = levels != 0 or raw_busy

    return joined([added.busy for added in adders], levels), look


@block
def row_memory(
    clk, rst, phase, units: ports.UnitRows, raw: ports.RawUnits, commands: ports.RowCommands, top: TopPort,
    planned: ports.PlannedRows, s_axis_values, s_axis_side, m_axis_values, m_axis_descriptors, *,
    row_bits: int, block_log2: int, adds: bool,
):  # fmt: skip
    """Serve 1, 2, 4 or 8 barrel encoders and decoders, and the raw units.

    phase: of the units. top: see frame_symbol. s_axis_values, m_axis_values, s_axis_side: Stream(128 B),
    m_axis_descriptors: Stream(16 B), with B banks, one for each unit; see values_in, side_in and rows_out.
    planned: see sum_rows. adds: values may be added to what rows hold. The memory has 2^row_bits rows; all
    frames have blocks of 2^block_log2 values, and begin where blocks do.
    """
    BANKS = len(units.positions)
    if BANKS not in (1, 2, 4, 8):
        raise ValueError(f"memory serves 1, 2, 4 or 8 barrel units, got {BANKS}")
    SKIP, BLOCK = BANKS.bit_length() - 1, block_log2 - 5
    ROW_BITS = row_bits - SKIP
    loaded_row, value_row, loaded_side_row, side_row, raw_row = (word(ROW_BITS) for _ in range(5))
    clears, row, top_row, top_words = word(8), word(ROW_BITS), word(ROW_BITS), word(ROW_BITS - 2)
    loaded, values = ([ports.GroupWrite(at) for _ in range(BANKS)] for at in (loaded_row, value_row))
    loaded_side, side = ([SideWrite(at, clears) for _ in range(BANKS)] for at in (loaded_side_row, side_row))
    raw_values, raw_side, raw_bank = ports.GroupWrite(raw_row), SideWrite(raw_row, clears), word(BANKS)
    reads = [ports.GroupRead(row) for _ in range(BANKS)]
    tops = [ports.BankTop(top_row, top_words) for _ in range(BANKS)]
    asks = [ports.RowAsk(BANKS, ROW_BITS) for _ in range(5)]
    found, line = ports.RowsRead(), ports.LineRead(BANKS)
    raw_wants, held, writes, written, behind, counting = bit(), bit(), bit(), bit(), bit(), bit()
    under_way, kind_row = ports.AddedRows(ROW_BITS), word(ROW_BITS)
    adders, raw_busy = [ports.BankAdds(kind_row, under_way if adds else None) for _ in range(BANKS)], bit()
    adding = ports.Adding(asks[3], [read.data for read in reads], under_way, adders)
    value_lines, side_lines, read_lines = (RowLines(BLOCK) for _ in range(3))
    phases = [word(4) for _ in range(BANKS + 1)]
    own_phase = phases[0]
    skips, placing = {"skip_bits": SKIP}, {"block_bits": BLOCK, "skip_bits": SKIP}

    banks = [
        row_bank(
            clk, rst, phases[i + 1], units.positions[i], units.decode_blocks[i], units.sums[i],
            units.sources[i], units.encode_blocks[i], ports.BankLoads(values[i], side[i], adders[i]),
            reads[i], tops[i], block_bits=BLOCK,
        )
        for i in range(BANKS)
    ]  # fmt: skip
    loaders = [
        row_lines(clk, commands.load_values, value_lines, **skips),
        row_lines(clk, commands.load_side, side_lines, **skips),
        values_in(
            clk, rst, own_phase, commands.load_values, value_lines, raw_wants, s_axis_values, adding,
            loaded_row, loaded, adds=adds, **skips,
        ),
        side_in(
            clk, rst, own_phase, commands.load_side, side_lines, held, s_axis_side, loaded_side_row, clears,
            loaded_side, behind, **skips,
        ),
        raw_sum_rows(
            clk, rst, own_phase, raw.sums, raw.decode_row, raw_wants, held, writes, written, raw_bank,
            raw_values, raw_side, **placing,
        ),
        some_busy(adders, raw_busy, adding.busy),
        either_row(loaded_row, raw_row, writes, value_row),
        either_row(loaded_side_row, raw_row, writes, side_row),
    ]  # fmt: skip
    raw_load = raw_values, raw_side, raw_bank, writes
    loaders += [
        either_load(loaded[i], loaded_side[i], *raw_load, values[i], side[i], index=i) for i in range(BANKS)
    ]
    readers = [
        row_lines(clk, commands.unload, read_lines, **skips),
        raw_decode_rows(
            clk, rst, raw.position, raw.sums, raw.decode_row, under_way.under_way, written, raw_busy, asks[0],
            found, **placing,
        ),
        raw_encode_rows(clk, rst, raw.source, raw.encode_row, asks[1], found, **placing),
        sum_rows(clk, rst, commands.unload, planned, asks[2], found, counting, **placing),
        rows_out(
            clk, rst, commands.unload, read_lines, asks[4], line, counting, m_axis_values,
            m_axis_descriptors, **skips,
        ),
        read_turns(clk, rst, own_phase, asks, row, reads, found, line),
        frame_symbol(clk, rst, top, behind, top_row, top_words, tops, **placing),
    ]  # fmt: skip
    if not adds:
        loaders += [
            zero(clk, kind_row),
            [zero(clk, one) for added in adders for one in (added.enable, added.kind)],
        ]
    turns = [next_phase(clk, one, other) for one, other in pairwise([phase, *phases])]
    return banks, loaders, readers, turns
