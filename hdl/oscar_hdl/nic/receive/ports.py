"""Bundles between the parts of the receiver; all signals change with clk. A strobe lasts a clock."""

from collections.abc import Sequence

from oscar_hdl.coder.decode.ports import DecoderJob, FeedPort
from oscar_hdl.coder.ports import BANK_BITS, BANKS
from oscar_hdl.coder.unit.ports import THREAD_BITS, WORD_BYTES
from oscar_hdl.nic.ports import COUNT_BITS, ERROR_BITS, FRAME_ROW_BITS, PEER_BITS, BankBlock
from oscar_hdl.nic.receive.block_counter import Blocks
from oscar_hdl.nic.receive.block_places import BlockPlaces
from oscar_hdl.streams.bundles import Bundle, bit, word

FRAMES = BANKS  # of which blocks may be under way at once


class DecodeUnits:
    """What decodes: barrel decoders, with their bytes and where in their banks blocks are.

    A block whose number in memory is b is for decoder b modulo their number: 1, 2, 4 or 8.
    """

    def __init__(
        self, jobs: Sequence[DecoderJob], feeds: Sequence[FeedPort], places: Sequence[BankBlock]
    ) -> None:
        if len(jobs) not in (1, 2, 4, 8) or len(feeds) != len(jobs) or len(places) != len(jobs):
            raise ValueError(
                f"expected 1, 2, 4 or 8 jobs, and as many feeds and places, "
                f"got {len(jobs)}, {len(feeds)} and {len(places)}"
            )
        self.jobs, self.feeds, self.places = list(jobs), list(feeds), list(places)


class DealtBlock:
    """A block that is dealt; start (strobe): a bit for each unit. The rest holds until the next."""

    def __init__(self, units: int, row_bits: int) -> None:
        self.start, self.thread = word(units), word(THREAD_BITS)
        self.bank, self.raw = word(BANK_BITS), bit()
        self.values, self.seeds, self.first, self.last = word(18), word(3), word(7), word(7)
        self.bytes, self.offset, self.row = word(19), word(4), word(row_bits)  # row: in the bank


class RawBlock(Bundle):
    """A raw or a constant block to be unpacked: start (strobe) with fields that hold until `idle` (level)."""

    start, idle = bit(), bit()
    values, width = word(18), word(5)
    constant, value = bit(), word(16)


class RawWord:
    """Eight values for a thread: want (level) with at (unit << 3 | thread) and data until land (strobe)."""

    def __init__(self, at_bits: int) -> None:
        self.want, self.at, self.data, self.land = bit(), word(at_bits), word(8 * WORD_BYTES), bit()


class Dropped(Bundle):
    """A frame that was not taken."""

    bad, reason = bit(), word(4)  # strobe; why: deframer.REASONS
    peer = word(PEER_BITS)  # who made it


class FrameName(Bundle):
    """What a command compares of a frame's header, and the bytes of its payload (length)."""

    peer, step, chunk, sub = word(PEER_BITS), word(16), word(16), word(8)
    width, sequence, checksum = word(8), word(16), word(16)
    count, more, length = word(COUNT_BITS), bit(), word(20)  # more: than fits into count


class CameFrame(FrameName):
    """A frame that comes; its name holds from `put` until the next frame's first word."""

    put = bit()  # strobe: all of the header is there
    push = bit()  # strobe: it is in the store, whole and right
    full = bit()  # level: but this one, no other may come
    lost = bit()  # strobe: it was dropped


class OldestFrame(FrameName):
    """The oldest frame in the store that no command has taken."""

    there, arrived = bit(), bit()  # level: there is one; strobe: it just became the oldest
    number = word(8)  # how many frames were the oldest before it


class HeldFrame(Bundle):
    """What a list wants of the oldest frame, and what becomes of it."""

    hold, discard = bit(), bit()  # levels: no command may have it; it is to be dropped
    refused, gone = bit(), bit()  # strobes: it is dropped; it left the store


class ClearPort(Bundle):
    """Rows of a frame to adopt, which become 0: from the command's first row on."""

    start, done = bit(), bit()  # strobes
    rows = word(FRAME_ROW_BITS)  # how many; holds until done


class MatchPort(Bundle):
    """What frame_match is asked for, and says."""

    seek = bit()  # level: a frame as the command names it is wanted
    matched = bit()  # strobe: the next unit is the payload's first
    forget = bit()  # strobe: the matched frame is the next stage's
    idle = bit()  # level: no frame is looked at
    refuse, reason = bit(), word(4)  # level, until heard: a frame is dropped, and why
    heard = bit()  # strobe
    gone = bit()  # strobe: the oldest frame left the store


class ReaderUse(Bundle):
    """Who uses the reader of units."""

    opens = bit()  # strobe: frame_match begins a span
    reads = bit()  # level: frame_match and those behind it
    released = bit()  # level: those are through with the frame
    raw_reads = bit()  # level: a raw block


class StepPort(Bundle):
    """A step of a command."""

    go, done, right = bit(), bit(), bit()  # strobes; with done: what was read may be so


class FrontFrame(Bundle):
    """A frame that leaves the first stage: `ready` (level) until `taken` (strobe)."""

    ready, taken = bit(), bit()
    error, failed, bank = word(ERROR_BITS), bit(), word(BANK_BITS)
    matched, built = bit(), bit()  # it lies in the store; its tables were asked for
    right = bit()  # level: prefix and directory are right; its blocks will be dealt
    crowded = bit()  # level: no other may enter the first stage


class DealPort:
    """The frame that is dealt; its fields hold from `go` to `done`, strobes both."""

    def __init__(self, row_bits: int, at_bits: int, entry_bits: int) -> None:
        self.go, self.done = bit(), bit()
        self.stop = bit()  # level: blocks that are not dealt yet need not be
        self.bank = word(BANK_BITS)
        self.count, self.row = word(COUNT_BITS), word(row_bits)
        self.number, self.entry = word(8), word(entry_bits)  # of the directory, two clocks later
        self.blocks, self.places = Blocks(row_bits), BlockPlaces(at_bits)  # the walk
        self.quiet = word(FRAMES)  # levels, a bit for each bank: no unit has a block of it
        self.wrong = word(FRAMES)  # strobes, a bit for each bank: a block of it was bad
