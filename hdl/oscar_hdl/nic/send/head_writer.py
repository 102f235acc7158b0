"""Keeps the directory of the frame that is made, and gives the frame's head: header, prefix, directory."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar.coding.asc.params import ASC_CODE
from oscar.coding.frame import MAGIC
from oscar_hdl.nic.ports import COUNT_BITS
from oscar_hdl.nic.send.ports import EntryPort
from oscar_hdl.streams.bundles import bit, word

FIRST = MAGIC | ASC_CODE << 8  # the first two bytes of every frame
DIRECTORY_LOG2 = 10  # pairs: three for each of up to 256 blocks


class HeadFields:
    """What header and prefix say of a frame."""

    def __init__(self) -> None:
        self.step, self.chunk, self.sub, self.width = word(16), word(16), word(8), word(5)
        self.sequence, self.count, self.checksum = word(16), word(COUNT_BITS), word(16)
        self.last, self.block_log2 = word(4), word(5)


@block
def head_writer(
    clk: Any, rst: Any, clear: Any, entries: EntryPort, fields: HeadFields, length: Any, crc: Any,
    start: Any, final: Any, m_axis: Any,
) -> Any:  # fmt: skip
    """Give a frame's head as pairs of bytes.

    clear (strobe): a new directory. entries: its pairs.
    start (strobe): give, unless final, what the frame's CRC covers: four bytes of 0, twenty of the header,
    and if the frame has values prefix and directory; if final, the header as it is sent.
    fields, length (bytes of the payload), crc u32 (not inverted): hold from start on. m_axis: Stream(16,
    keep=2), tlast with the last pair.
    """
    # The places of fields in the header, the prefix behind them, and two fields of 0.
    HEADER_END, CRC_END, PREFIX, ZEROS = 9, 11, 12, 14
    memory = [word(17) for _ in range(1 << DIRECTORY_LOG2)]
    write_at, read_at = word(DIRECTORY_LOG2), word(DIRECTORY_LOG2)
    states = enum("IDLE", "FIELDS", "DIRECTORY")
    state = Signal(states.IDLE)
    field, whole, chosen = word(4), bit(), word(16)
    advance = bit()
    valid_1, last_1, listed_1, field_1, read_1 = bit(), bit(), bit(), word(16), word(17)
    valid_2, last_2, listed_2, field_2, read_2 = bit(), bit(), bit(), word(16), word(17)

    @always_comb
    def look():
        advance.next = m_axis.tready or not m_axis.tvalid
        m_axis.tkeep.next = 3

    @always_comb
    def choose():
        chosen.next = 0
        if field == 0:
            chosen.next = FIRST
        elif field == 1:
            chosen.next = fields.step
        elif field == 2:
            chosen.next = fields.chunk
        elif field == 3:
            chosen.next = concat(modbv(0)[3:], fields.width, fields.sub)
        elif field == 4:
            chosen.next = fields.sequence
        elif field == 5:
            chosen.next = fields.checksum
        elif field == 6:
            chosen.next = fields.count[16:]
        elif field == 7:
            chosen.next = fields.count[19:16]
        elif field == 8:
            chosen.next = length[16:]
        elif field == 9:
            chosen.next = length[20:16]
        elif field == 10:
            chosen.next = ~crc[16:]
        elif field == 11:
            chosen.next = ~crc[32:16]
        elif field == 12:
            chosen.next = concat(modbv(0)[1:], fields.last, modbv(0)[6:], fields.block_log2)

    @always(clk.posedge)
    def run():
        if entries.write:
            memory[write_at].next = concat(entries.last, entries.entry)
            write_at.next = write_at + 1
        if clear:
            write_at.next = 0
        if state == states.IDLE:
            read_at.next = 0
            whole.next = final
            field.next = 0 if final else ZEROS
            if start:
                state.next = states.FIELDS
        elif advance:
            if state == states.FIELDS:
                field.next = field + 1
                if field == HEADER_END and not whole:
                    field.next = PREFIX
                elif field == PREFIX:
                    state.next = states.DIRECTORY
            else:
                read_at.next = read_at + 1
            if m_axis.tvalid and m_axis.tlast:
                state.next = states.IDLE
        if rst:
            state.next = states.IDLE

    @always(clk.posedge)
    def give():
        if advance:
            field_1.next = chosen
            read_1.next = memory[read_at]
            listed_1.next = state == states.DIRECTORY
            valid_1.next = state != states.IDLE
            last_1.next = field == CRC_END or (field == HEADER_END and not whole and fields.count == 0)
            field_2.next = field_1
            read_2.next = read_1
            listed_2.next = listed_1
            last_2.next = last_1
            valid_2.next = valid_1
            m_axis.tdata.next = field_2
            m_axis.tlast.next = last_2
            if listed_2:
                m_axis.tdata.next = read_2[16:]
                m_axis.tlast.next = read_2[16]
            m_axis.tvalid.next = valid_2
            if m_axis.tvalid and m_axis.tlast:  # what was begun behind it
                valid_1.next = False
                valid_2.next = False
                m_axis.tvalid.next = False
        if rst:
            valid_1.next = False
            valid_2.next = False
            m_axis.tvalid.next = False

    return look, choose, run, give
