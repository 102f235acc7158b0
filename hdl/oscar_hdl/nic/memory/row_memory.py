"""A NIC's memory of rows in block RAM: a bank for each barrel unit, and what all banks have once."""

from collections.abc import Sequence
from itertools import pairwise

from myhdl import always_comb, block

from oscar_hdl.nic.memory import ports
from oscar_hdl.nic.memory.frame_symbol import frame_symbol
from oscar_hdl.nic.memory.ports import SideWrite
from oscar_hdl.nic.memory.raw_rows import raw_encode_rows
from oscar_hdl.nic.memory.read_turns import read_turns
from oscar_hdl.nic.memory.row_bank import row_bank
from oscar_hdl.nic.memory.row_lines import RowLines, row_lines
from oscar_hdl.nic.memory.rows_out import rows_out
from oscar_hdl.nic.memory.side_in import side_in
from oscar_hdl.nic.memory.sum_rows import sum_rows
from oscar_hdl.nic.memory.values_in import values_in
from oscar_hdl.nic.ports import TopPort
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.joined import joined
from oscar_hdl.streams.passed_on import next_phase
from oscar_hdl.streams.zero import zero


@block
def some_busy(adders: Sequence[ports.BankAdds], busy):
    """Say whether a bank's decoder has the row to which a loader would add."""
    levels = word(len(adders))

    @always_comb
    def look():
        busy.next = levels != 0

    return joined([added.busy for added in adders], levels), look


@block
def row_memory(
    clk, rst, phase, units: ports.UnitRows, raw: ports.RawRows, commands: ports.RowCommands, top: TopPort,
    planned: ports.PlannedRows, s_axis_values, s_axis_side, m_axis_values, m_axis_descriptors, *,
    row_bits: int, block_log2: int, adds: bool, floats: ports.FloatPacket | None = None,
):  # fmt: skip
    """Serve 1, 2, 4 or 8 barrel encoders and decoders, and the raw packer.

    phase: of the units. top: see frame_symbol. s_axis_values, m_axis_values, s_axis_side: Stream(128 B),
    m_axis_descriptors: Stream(16 B), with B banks, one for each unit; see values_in, side_in and rows_out.
    planned: see sum_rows. adds: values may be added to what rows hold. floats: packets of values may bring
    floats. The memory has 2^row_bits rows; all frames have blocks of 2^block_log2 values, and begin where
    blocks do.
    """
    BANKS = len(units.positions)
    if BANKS not in (1, 2, 4, 8):
        raise ValueError(f"memory serves 1, 2, 4 or 8 barrel units, got {BANKS}")
    SKIP, BLOCK = BANKS.bit_length() - 1, block_log2 - 5
    ROW_BITS = row_bits - SKIP
    value_row, side_row = word(ROW_BITS), word(ROW_BITS)
    clears, row, top_row, top_words = word(8), word(ROW_BITS), word(ROW_BITS), word(ROW_BITS - 2)
    values = [ports.GroupWrite(value_row) for _ in range(BANKS)]
    side = [SideWrite(side_row, clears) for _ in range(BANKS)]
    reads = [ports.GroupRead(row) for _ in range(BANKS)]
    tops = [ports.BankTop(top_row, top_words) for _ in range(BANKS)]
    asks = [ports.RowAsk(BANKS, ROW_BITS) for _ in range(4)]
    found, line = ports.RowsRead(), ports.LineRead(BANKS)
    behind, counting = bit(), bit()
    under_way, kind_row = ports.AddedRows(ROW_BITS), word(ROW_BITS)
    adders = [ports.BankAdds(kind_row, under_way if adds else None) for _ in range(BANKS)]
    adding = ports.Adding(asks[2], [read.data for read in reads], under_way, adders)
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
            clk, rst, own_phase, commands.load_values, value_lines, s_axis_values, adding,
            value_row, values, adds=adds, floats=floats, **skips,
        ),
        side_in(
            clk, rst, own_phase, commands.load_side, side_lines, s_axis_side, side_row, clears,
            side, behind, **skips,
        ),
        some_busy(adders, adding.busy),
    ]  # fmt: skip
    readers = [
        row_lines(clk, commands.unload, read_lines, **skips),
        raw_encode_rows(clk, rst, raw.source, raw.first, asks[0], found, **placing),
        sum_rows(clk, rst, commands.unload, planned, asks[1], found, counting, **placing),
        rows_out(
            clk, rst, commands.unload, read_lines, asks[3], line, counting, m_axis_values,
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
