"""Bundles of ports between the blocks of the NIC: what signals mean; docs/develop/engine.md says when."""

from oscar.coding.asc.params import MAX_BLOCK_LOG2, MIN_BLOCK_LOG2
from oscar_hdl.coder.ports import SET_BITS
from oscar_hdl.coder.unit.ports import THREAD_BITS
from oscar_hdl.streams.bundles import Bundle, Stream, bit, word

COUNT_BITS = 19  # a frame has at most 2^18 values
FRAME_ROW_BITS = 14  # rows of a frame
ROW_BITS = 20  # of a row's number on registers, whatever memory there is
ENTRIES_LOG2 = 8  # of a list, at most
ERROR_BITS = 3  # of FrameCommand.error
PEER_BITS, TO_ALL = 8, 255  # of a peer's number; TO_ALL: to every peer
STREAM_BITS = 128  # of a lane of a NIC's streams of rows: eight values, or all of a row but its values
DESCRIBED_BITS = 16  # of a lane of m_axis_descriptors

# Of a packet of rows, in its first word: row, entry of a list, number of values, whether they count for it.
ROW_AT, ENTRY_AT, COUNT_AT, MADE_AT, ADDS_AT = 0, 24, 32, 62, 63
# And of a packet of values, for floats: how they come, bits of an integer, exponent of the step, tensor.
FORMAT_AT, WIDTH_AT, EXPONENT_AT, TENSOR_AT = 64, 68, 80, 96
FORMAT_BITS, WIDTH_BITS, EXPONENT_BITS, TENSOR_BITS = 2, 5, 9, 16
INT16, BFLOAT16, FLOAT32 = range(3)  # formats
LEAST_EXPONENT = -126  # of a step
LEAST_WIDTH, MOST_WIDTH = 8, 16  # bits of an integer
NO_STEP = 255  # an exponent with which all floats become 0


def check_block(block_log2: int) -> None:
    """Raise ValueError unless block_log2 is the log2 of the values of a block that a frame may have."""
    if not MIN_BLOCK_LOG2 <= block_log2 <= MAX_BLOCK_LOG2:
        raise ValueError(f"block_log2 is {MIN_BLOCK_LOG2} to {MAX_BLOCK_LOG2}, got {block_log2}")


def frames_in(bus_bits: int) -> Stream:
    """Return s_axis_rx of a NIC: frames, and who made each (tid)."""
    return Stream(bus_bits, keep=bus_bits // 8, id=PEER_BITS)


def frames_out(bus_bits: int) -> Stream:
    """Return m_axis_tx of a NIC: frames, and to whom each goes (tdest)."""
    return Stream(bus_bits, keep=bus_bits // 8, dest=PEER_BITS)


def row_streams(units: int) -> dict[str, Stream]:
    """Return streams of an oscar_nic's rows by name, in the order of its arguments: a lane for each unit."""
    return {
        "s_axis_values": Stream(units * STREAM_BITS),
        "s_axis_side": Stream(units * STREAM_BITS),
        "s_axis_read": Stream(64),
        "m_axis_values": Stream(units * STREAM_BITS),
        "m_axis_descriptors": Stream(units * DESCRIBED_BITS),
    }


class TopPort(Bundle):
    """What a sender asks memory of a frame's rows: the largest symbol.

    ask: strobe, with the frame's first row and number of values, 1 or more, which hold until `known`
    (strobe). symbol holds until the next ask.
    """

    ask, row, count = bit(), word(ROW_BITS), word(COUNT_BITS)
    known, symbol = bit(), word(4)


class FrameCommand(Bundle):
    """A frame to receive or to send, and its tables; fields hold from start until `idle` rises again."""

    start, idle, done, error = bit(), bit(), bit(), word(ERROR_BITS)
    step, chunk, sub, width = word(16), word(16), word(8), word(5)
    peer = word(PEER_BITS)  # who made it, or to whom it goes
    sequence, count = word(16), word(COUNT_BITS)
    load, save, fresh = word(SET_BITS), word(SET_BITS), bit()
    abort, adopt = bit(), bit()  # receive: give up waiting; rows are replaced, not added to


class BankBlock:
    """Where a thread's next block is in the bank: with or before its start, and when its last one is done.

    start: strobe. first: the block's first row.
    """

    def __init__(self, row_bits: int) -> None:
        self.start, self.thread, self.first = bit(), word(THREAD_BITS), word(row_bits)


class MadeRows(Bundle):
    """A packet of rows tells a list that its values are in memory.

    open: level, a list takes such packets. valid: level until taken (strobe), with fields that hold: whether
    the packet may come for the entry (ends 0), or that its rows are written (ends 1). refused: with taken,
    the entry does not wait for so many values.
    """

    open, valid, taken, refused = bit(), bit(), bit(), bit()
    ends, entry, values = bit(), word(ENTRIES_LOG2), word(COUNT_BITS)


class FloatReport(Bundle):
    """What became of packets of floats.

    bad: strobe, a packet had NaN or Inf. tensor: of the last such packet, packets: how many, modulo 256.
    saturated: values, modulo 2^32.
    """

    bad, tensor, packets, saturated = bit(), word(TENSOR_BITS), word(8), word(32)


class NicProbe(Bundle):
    """What tells a bench what a NIC does inside, strobes and the phase; no part of the NIC needs it."""

    received, sent = bit(), bit()  # a command ends
    decode_row, encode_row = bit(), bit()  # a row's positions, or its values, are read
    phase = word(4)  # of all units
