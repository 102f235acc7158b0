"""Keeps the directory of the frame that is made, and gives the frame's head: header, prefix, directory."""

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar.coding.asc.params import ASC_CODE
from oscar.coding.frame import MAGIC
from oscar_hdl.nic.ports import COUNT_BITS
from oscar_hdl.nic.send.ports import EntryPort
from oscar_hdl.streams.bundles import Bundle, bit, word
from oscar_hdl.streams.copied import copied

FIRST = MAGIC | ASC_CODE << 8  # the first two bytes of every frame
DIRECTORY_LOG2 = 10  # pairs: three for each of up to 256 blocks


class HeadFields(Bundle):
    """What header and prefix say of a frame."""

    step, chunk, sub, width = word(16), word(16), word(8), word(5)
    sequence, count, checksum = word(16), word(COUNT_BITS), word(16)
    last = word(4)


@block
def head_writer(
    clk, rst, begin, entries: EntryPort, fields: HeadFields, m_axis, *, block_log2: int,
    directory_log2: int = DIRECTORY_LOG2,
):  # fmt: skip
    """Give a frame's head as pairs of bytes, entries of the directory as they come.

    begin (strobe): a new frame, whose fields hold from here on. m_axis: Stream(16, keep=2): header, of whose
    length and CRC all bytes are 0, and if the frame has values prefix and directory; tlast with the last
    pair. directory_log2: of the pairs of a frame's entries.
    """
    # The places of fields in the header, and the prefix behind them.
    HEADER_END, PREFIX, BLOCK = 11, 12, block_log2
    memory = [word(17) for _ in range(1 << directory_log2)]
    write_at, read_at = word(directory_log2), word(directory_log2)
    states = enum("IDLE", "FIELDS", "DIRECTORY")
    state = Signal(states.IDLE)
    field, chosen = word(4), word(16)
    advance, some = bit(), bit()
    valid_1, last_1, listed_1, field_1, read_1 = bit(), bit(), bit(), word(16), word(17)
    valid_2, last_2, listed_2, field_2, read_2 = bit(), bit(), bit(), word(16), word(17)

    @always_comb
    def choose():
        advance.next = m_axis.tready or not m_axis.tvalid
        some.next = state == states.DIRECTORY and read_at != write_at
        m_axis.tkeep.next = 3
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
        elif field == PREFIX:
            chosen.next = concat(modbv(0)[1:], fields.last, modbv(BLOCK)[11:])

    @always(clk.posedge)
    def run():
        if entries.write:
            memory[write_at].next = concat(entries.last, entries.entry)
            write_at.next = write_at + 1
        if advance:
            if state == states.FIELDS:
                field.next = field + 1
                if field == PREFIX:
                    state.next = states.DIRECTORY
                elif field == HEADER_END and fields.count == 0:
                    state.next = states.IDLE
            if some:
                read_at.next = read_at + 1
        if begin:
            write_at.next = 0
            read_at.next = 0
            field.next = 0
            state.next = states.FIELDS
        if rst:
            state.next = states.IDLE

    # An entry is read behind the clock in which it is written.
    @always(clk.posedge)
    def give():
        if advance:
            field_1.next = chosen
            read_1.next = memory[read_at]
            listed_1.next = some
            valid_1.next = some or state == states.FIELDS
            last_1.next = field == HEADER_END and fields.count == 0
            valid_2.next = valid_1
            m_axis.tdata.next = field_2
            m_axis.tlast.next = last_2
            if listed_2:
                m_axis.tdata.next = read_2[16:]
                m_axis.tlast.next = read_2[16]
            m_axis.tvalid.next = valid_2
        if begin or rst:
            valid_1.next = False
            valid_2.next = False
            m_axis.tvalid.next = False

    later = (field_1, field_2), (read_1, read_2), (listed_1, listed_2), (last_1, last_2)
    return [copied(clk, *two, load=advance) for two in later], choose, run, give
