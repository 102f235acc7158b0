"""Bundles between the parts of the sender of barrel units; a strobe lasts a clock."""

from __future__ import annotations

from oscar_hdl.streams.bundles import bit, word

# Of a block: constant, value u16, bits u4, seeds u3, first u7, last u7, bytes u19, bad; the first one lowest.
RESULT_BITS = 58


class DealtBlock:
    """The block that is dealt; holds with UnitRing.go. first: its first row in the unit's bank."""

    def __init__(self, bank_row_bits: int) -> None:
        self.bank, self.thinning, self.values = bit(), word(2), word(18)
        self.first = word(bank_row_bits)


class SettledBlock:
    """What becomes of a block, with UnitRing.settle: its bytes are kept, from byte `place` of the frame on.

    here: where the bytes of the block go that the judge looks at.
    """

    def __init__(self, place_bits: int) -> None:
        self.keep, self.place, self.here = bit(), word(place_bits), word(place_bits)


class UnitRing:
    """A unit's threads, which have blocks in turn: between dealer, judge and what collects bytes."""

    def __init__(self) -> None:
        self.go, self.room = bit(), bit()  # strobe: the next thread has a block; level: it may
        self.ready, self.result = bit(), word(RESULT_BITS)  # level: the oldest that was not taken has ended
        self.take = bit()  # strobe: the judge has its result
        self.early = bit()  # level: it is what the judge waits for, so its bytes may be collected
        self.settle = bit()  # strobe: of the block that was taken last
        self.resting = bit()  # level: no byte is collected, or is to be


class CollectJob:
    """A block for a collector: from start on all words of its stream up to tlast, if there are any."""

    def __init__(self, place_bits: int) -> None:
        self.start, self.place = bit(), word(place_bits)  # strobe; its first byte in the frame
        self.mute = bit()  # level: its bytes are not wanted, what is left of them is not written
        self.busy = bit()  # level: from its first word until all is in store and CRC
        self.sum, self.summed = bit(), bit()  # level, while not busy: its CRC counts; strobe: it was taken
        self.claimed, self.free = bit(), bit()  # levels: another has it or wants it; nobody has it


class PairJob:
    """Bytes that come in pairs: those of raw_packer, or the frame's head, which goes to its begin."""

    def __init__(self, place_bits: int) -> None:
        self.raw, self.head = bit(), bit()  # strobes, while idle
        self.place = word(place_bits)  # where a raw block begins; holds
        self.final = bit()  # level: of a head, it is not for the CRC
        self.idle = bit()  # level


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
        self.valid, self.first, self.head = bit(), bit(), bit()  # a block begins; it's of the frame's head
        self.data, self.enable, self.address = word(8 * size), word(size), word(bits)
