"""Bundles between the parts of the sender; all signals change with clk. A strobe lasts a clock."""

from __future__ import annotations

from oscar_hdl.nic.ports import PEER_BITS
from oscar_hdl.streams.bundles import bit, word


class PlannedFrame:
    """A frame that leaves the first stage: `ready` (level) until `taken` (strobe)."""

    def __init__(self) -> None:
        self.ready, self.taken, self.bank, self.empty = bit(), bit(), bit(), bit()
        self.last_block, self.size, self.last_size, self.thinning = word(8), word(18), word(18), word(2)
        self.checksum = word(16)


class SentFrame:
    """A frame in the second stage; fields hold from `begin` (strobe) to the next."""

    def __init__(self, row_bits: int) -> None:
        self.begin = bit()
        self.bank, self.empty = bit(), bit()  # empty: without values
        self.row = word(row_bits)  # of its first block
        self.last_block, self.size, self.last_size = word(8), word(18), word(18)
        self.width = word(5)  # bits of a value


class EntryPort:
    """Pairs of bytes for the directory, three for a block."""

    def __init__(self) -> None:
        self.write, self.entry, self.last = bit(), word(16), bit()  # write: strobe; last: of the frame's


class FrameSum:
    """The CRC of the frame that is collected."""

    def __init__(self, pad_bits: int) -> None:
        self.finish, self.pad = bit(), word(pad_bits)  # strobe: it is to be without so many bytes at its end
        self.crc, self.idle = word(32), bit()  # not inverted; complete where idle


class Leaving:
    """The frame that leaves the store."""

    def __init__(self, word_bits: int, tail_bits: int) -> None:
        self.send, self.sent = bit(), bit()  # strobe, while sent: nothing is leaving
        self.words, self.tail = word(word_bits), word(tail_bits)  # bytes of the last word, 0: all
        self.peer = word(PEER_BITS)  # to whom


class Written:
    """A word for the store, of whichever collector gives one; a clock behind the collector's."""

    def __init__(self, bits: int) -> None:
        self.valid, self.first, self.ended = bit(), bit(), bit()
        self.offset, self.address = word(bits), word(bits)  # its word of the frame, and of the store
