"""Bundles between the parts of the sender; all signals change with clk. A strobe lasts a clock."""

from __future__ import annotations

from myhdl import SignalType

from oscar_hdl.nic.ports import PEER_BITS
from oscar_hdl.streams.bundles import bit, word

RESULT_BITS = 43  # of a block: constant, value[0], bits u4, seeds u3, first u7, last u7, bytes u19, kept


class PlannedFrame:
    """A frame that leaves the first stage: `ready` (level) until `taken` (strobe)."""

    def __init__(self) -> None:
        self.ready, self.taken, self.bank, self.empty = bit(), bit(), bit(), bit()
        self.last_block, self.size, self.last_size, self.thinning = word(8), word(18), word(18), word(2)
        self.checksum = word(16)


class JobLists:
    """The EncoderJobs of all encoders, each field a list with a signal for each encoder."""

    def __init__(self, units: int, row_bits: int) -> None:
        self.starts, self.banks = ([bit() for _ in range(units)] for _ in range(2))
        self.idles = [word(1) for _ in range(units)]
        self.bads = [word(2) for _ in range(units)]  # strobe: it ends now and is bad, a bit for each bank
        self.thinnings = [word(2) for _ in range(units)]
        self.values = [word(18) for _ in range(units)]
        self.rows = [word(row_bits) for _ in range(units)]  # the block's first
        self.keeps = [bit() for _ in range(units)]  # strobe: what it coded is kept, it may have another block
        self.results = [word(RESULT_BITS) for _ in range(units)]  # the first field lowest


class OpenBlocks:
    """Blocks that were dealt and are not judged: between dealer and judge."""

    def __init__(self, units: int) -> None:
        self.ready = bit()  # level: there is one, and these are the number and the bit of the oldest's unit
        self.unit, self.hot = word(max(1, (units - 1).bit_length())), word(units)
        self.judged = bit()  # strobe: the oldest is settled
        self.settled = word(units)  # with it, a bit for each unit: whose it was


class SentFrame:
    """A frame in the second stage; fields hold from `begin` (strobe) to the next."""

    def __init__(self, row_bits: int) -> None:
        self.begin = bit()
        self.bank, self.empty = bit(), bit()  # empty: without values
        self.row = word(row_bits)  # of its first block
        self.last_block, self.size, self.last_size = word(8), word(18), word(18)


class Judging:
    """What the sender asks of the judge."""

    def __init__(self) -> None:
        self.run = bit()  # level: there may be blocks
        self.failed = bit()  # level: blocks are settled and forgotten
        self.over = bit()  # level: all blocks are settled
        self.idle = bit()  # level: nothing is under way
        self.head = bit()  # strobe, while idle: collect the frame's head
        self.full = bit()  # level: there is no place for more bytes
        self.overflow = bit()  # strobe: the frame is too long


class CollectPort:
    """A block for a collector of the store of frames.

    Unit u has collector u modulo their number, bit u // their number of `choice`; raw_packer and the head
    have collector 0, the bits behind its units.
    """

    def __init__(self, collectors: int, choices: int, place_bits: int) -> None:
        self.launch, self.launched = bit(), bit()  # level until launched, a strobe
        self.target, self.choice = word(max(1, (collectors - 1).bit_length())), word(choices)
        self.place = word(place_bits)  # where it begins, in bytes; holds two clocks behind launched
        self.heading = bit()  # level: it is the frame's head, kept for the CRC
        self.keep, self.drop, self.cancel = bit(), bit(), bit()  # strobes: what becomes of the target's
        self.busy, self.first_busy = bit(), bit()  # levels: the target is, collector 0 is


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


class Collectors:
    """What frame_builder and its collectors say to each other, each field a list with one for each."""

    def __init__(self, count: int, choice_bits: int) -> None:
        self.starts = [bit() for _ in range(count)]  # strobe, only in its turn, while not busy: a job
        self.choices = [word(choice_bits) for _ in range(count)]  # of which of its streams, a bit for each
        self.keeps, self.drops, self.cancels = ([bit() for _ in range(count)] for _ in range(3))
        self.rooms = [bit() for _ in range(count)]  # level: bytes may be taken
        self.busies = [bit() for _ in range(count)]  # level
        self.valids, self.firsts, self.endeds = ([bit() for _ in range(count)] for _ in range(3))

    def port(self, n: int, *, odd: SignalType, lane: SignalType, absorb: SignalType) -> CollectorPort:
        """Return what collector n has, with what all have in common."""
        return CollectorPort(
            start=self.starts[n], odd=odd, lane=lane, keep=self.keeps[n], drop=self.drops[n],
            cancel=self.cancels[n], room=self.rooms[n], busy=self.busies[n], valid=self.valids[n],
            first=self.firsts[n], ended=self.endeds[n], absorb=absorb,
        )  # fmt: skip


class CollectorPort:
    """A collector's part of the above."""

    start: SignalType  # strobe, only in its turn, while not busy: a job
    odd: SignalType  # its first byte goes to the upper half of a lane,
    lane: SignalType  # which is this one
    keep: SignalType  # strobes, one for each job, at any time after start: it ends when its last word was
    drop: SignalType  # given and absorbed; when it was given;
    cancel: SignalType  # or now, because no bytes come
    room: SignalType  # level: bytes may be taken
    busy: SignalType  # level
    valid: SignalType  # a clock behind its turn: a word,
    first: SignalType  # the job's first,
    ended: SignalType  # all words of a job that is kept were given; repeated until absorb,
    absorb: SignalType  # a strobe two clocks behind ended

    def __init__(self, **signals: SignalType) -> None:
        vars(self).update(signals)


class Written:
    """A word for the store, of whichever collector gives one; a clock behind the collector's."""

    def __init__(self, bits: int) -> None:
        self.valid, self.first, self.ended = bit(), bit(), bit()
        self.offset, self.address = word(bits), word(bits)  # its word of the frame, and of the store
