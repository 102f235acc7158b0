"""Bundles between the parts of the sender; all signals change with clk. A strobe lasts a clock."""

from oscar_hdl.coder.ports import BANK_BITS
from oscar_hdl.nic.ports import PEER_BITS
from oscar_hdl.streams.bundles import Bundle, bit, word

# Of a block: constant, value u16, bits u4, seeds u3, first u7, last u7, bytes u19, bad; the first one lowest.
RESULT_BITS = 58


class PlannedFrame(Bundle):
    """A frame in the first stage, with which it leaves it."""

    bank, empty = word(BANK_BITS), bit()  # empty: without values
    last_block, last_size = word(8), word(18)
    checksum = word(16)


class SentFrame:
    """A frame in the second stage; fields hold from `begin` (strobe) to the next."""

    def __init__(self, row_bits: int) -> None:
        self.begin = bit()
        self.bank, self.empty = word(BANK_BITS), bit()  # empty: without values
        self.row = word(row_bits)  # of its first block
        self.last_block, self.last_size = word(8), word(18)
        self.width = word(5)  # bits of a value


class EntryPort(Bundle):
    """Pairs of bytes for the directory, three for a block."""

    write, entry, last = bit(), word(16), bit()  # write: strobe; last: of the frame's


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


class DealtBlock:
    """The block that is dealt; holds with UnitRing.go. first: its first row in the unit's bank."""

    def __init__(self, bank_row_bits: int) -> None:
        self.bank, self.values = word(BANK_BITS), word(18)
        self.first = word(bank_row_bits)


class SettledBlock:
    """What becomes of a block, with UnitRing.settle: its bytes are kept, from byte `place` of the frame on.

    judge_place: byte of the frame at which the block under decision begins.
    """

    def __init__(self, place_bits: int) -> None:
        self.keep, self.place, self.judge_place = bit(), word(place_bits), word(place_bits)


class UnitRing(Bundle):
    """A unit's threads, which have blocks in turn: between dealer, judge and what collects bytes."""

    go, room = bit(), bit()  # strobe: the next thread has a block; level: it may
    ready, result = bit(), word(RESULT_BITS)  # level: the oldest that was not taken has ended
    take = bit()  # strobe: the judge has its result
    early = bit()  # level: it is what the judge waits for, so its bytes may be collected
    settle = bit()  # strobe: of the block that was taken last
    drained = bit()  # level: no block waits for its collection or is being collected


class CollectJob:
    """A block for a collector: from start on all words of its stream up to tlast, if there are any."""

    def __init__(self, place_bits: int) -> None:
        self.start, self.place = bit(), word(place_bits)  # strobe; its first byte in the frame
        self.discard = bit()  # level: drop the bytes that are not written yet
        self.busy = bit()  # level: from its first word until all is in store and CRC
        self.sum, self.summed = bit(), bit()  # level, while not busy: its CRC counts; strobe: it was taken
        self.claimed, self.free = bit(), bit()  # levels: another has it or wants it; nobody has it


class PairJob:
    """Bytes that come in pairs: those of raw_packer."""

    def __init__(self, place_bits: int) -> None:
        self.raw = bit()  # strobe, while idle
        self.place = word(place_bits)  # where the block begins; holds
        self.idle = bit()  # level


class HeadJob:
    """The frame's head: it goes into the store as entries come, and has its length and CRC in the end."""

    def __init__(self, place_bits: int) -> None:
        self.close, self.seal = bit(), bit()  # strobes: the length is known; it is over, and so is the CRC
        self.length = word(place_bits)  # of the payload, in bytes; holds from close on
        self.over = bit()  # level: all but length and CRC is in the store, and in the frame's CRC
        self.idle = bit()  # level: no word waits for the store


class HeadLane:
    """Words of the head on their way into the store of words of `size` bytes, and its CRC.

    given: data, and above them a bit for each byte that counts.
    """

    def __init__(self, size: int, bits: int) -> None:
        self.given, self.offset = word(9 * size), word(bits)  # offset: its word of the frame
        self.wants, self.granted = bit(), bit()  # level: there is one; strobe, a clock later: it is taken
        self.sum, self.summed = bit(), bit()  # level: a CRC counts; strobe: it was taken
        self.state, self.sum_at = word(32), word(bits)  # the CRC of words before sum_at


class Judging:
    """What the sender asks of the judge."""

    def __init__(self, place_bits: int) -> None:
        self.run = bit()  # level: there may be blocks
        self.over = bit()  # level: all blocks are settled
        self.idle = bit()  # level: nothing is under way
        self.wrong, self.long, self.failed = bit(), bit(), bit()  # levels: a bad block; no place; one of both
        self.place = word(place_bits)  # the end of the frame so far, in bytes


class Written:
    """A word for the store, of whichever collector gives one."""

    def __init__(self, size: int, bits: int) -> None:
        self.valid, self.first = bit(), bit()  # it is a block's; one begins
        self.data, self.enable, self.address = word(8 * size), word(size), word(bits)
