"""Bundles between the parts of the receiver; all signals change with clk. A strobe lasts a clock."""

from __future__ import annotations

from collections.abc import Sequence

from myhdl import SignalType

from oscar_hdl.coder.barrel.ports import THREAD_BITS
from oscar_hdl.coder.barrel_decode.ports import BarrelDecoderJob, BarrelFeed
from oscar_hdl.coder.ports import RawJob
from oscar_hdl.nic.ports import COUNT_BITS, FRAME_ROW_BITS, PEER_BITS, BankBlock
from oscar_hdl.nic.receive.block_counter import Blocks
from oscar_hdl.nic.receive.block_places import BlockPlaces
from oscar_hdl.streams.bundles import Stream, bit, word

FRAMES = 2  # of which blocks may be under way at once: banks of tables and counts


class BarrelUnits:
    """What decodes: barrel decoders, with their bytes and where in their banks blocks are, and raw_decoder.

    A block whose number in memory is b is for decoder b modulo their number: 1, 2, 4 or 8.
    """

    def __init__(
        self, jobs: Sequence[BarrelDecoderJob], feeds: Sequence[BarrelFeed], places: Sequence[BankBlock],
        raw: RawJob, raw_bytes: Stream, raw_base: SignalType,
    ) -> None:  # fmt: skip
        if len(jobs) not in (1, 2, 4, 8) or len(feeds) != len(jobs) or len(places) != len(jobs):
            raise ValueError(
                f"expected 1, 2, 4 or 8 jobs, and as many feeds and places, "
                f"got {len(jobs)}, {len(feeds)} and {len(places)}"
            )
        self.jobs, self.feeds, self.places = list(jobs), list(feeds), list(places)
        self.raw, self.raw_bytes, self.raw_base = raw, raw_bytes, raw_base  # raw_base: its block's first row


class DealtBlock:
    """A coded block that is dealt; start (strobe): a bit for each unit. The rest holds until the next."""

    def __init__(self, units: int, row_bits: int) -> None:
        self.start, self.thread, self.bank, self.thinning = word(units), word(THREAD_BITS), bit(), word(2)
        self.values, self.seeds, self.first, self.last = word(18), word(3), word(7), word(7)
        self.bytes, self.offset, self.row = word(19), word(4), word(row_bits)  # row: in the bank


class Dropped:
    """A frame that was not taken."""

    def __init__(self) -> None:
        self.bad, self.reason = bit(), word(4)  # strobe; why: deframer.REASONS


class CameFrame:
    """A frame that is in the store, whole and right; its name holds for two clocks from push on."""

    def __init__(self) -> None:
        self.push, self.full = bit(), bit()  # strobe; level: but this one, no other may come
        self.peer, self.step, self.chunk, self.sub = word(PEER_BITS), word(16), word(16), word(8)


class OldestFrame:
    """The oldest frame in the store that no command has taken."""

    def __init__(self) -> None:
        self.there, self.arrived = bit(), bit()  # level: there is one; strobe: it just became the oldest
        self.number = word(8)  # how many frames were the oldest before it
        self.peer, self.step, self.chunk, self.sub = word(PEER_BITS), word(16), word(16), word(8)


class HeldFrame:
    """What a list wants of the oldest frame, and what becomes of it."""

    def __init__(self) -> None:
        self.peer = word(PEER_BITS)  # who made it
        self.hold, self.discard = bit(), bit()  # levels: no command may have it; it is to be dropped
        self.refused, self.gone = bit(), bit()  # strobes: it is dropped; it left the store


class ClearPort:
    """Rows of a frame to adopt, which become 0: from the command's first row on."""

    def __init__(self) -> None:
        self.start, self.done = bit(), bit()  # strobes
        self.rows = word(FRAME_ROW_BITS)  # how many; holds until done


class MatchPort:
    """What frame_match is asked for, and says."""

    def __init__(self) -> None:
        self.seek = bit()  # level: a frame as the command names it is wanted
        self.matched = bit()  # strobe: the next unit is the payload's first
        self.forget = bit()  # strobe: the matched frame is the next stage's
        self.idle = bit()  # level: no frame is looked at
        self.refuse, self.reason = bit(), word(4)  # level, until heard: a frame is dropped, and why
        self.heard = bit()  # strobe
        self.gone = bit()  # strobe: the oldest frame left the store


class ReaderUse:
    """Who uses the reader of units."""

    def __init__(self) -> None:
        self.reads = bit()  # level: frame_match and those behind it
        self.released = bit()  # level: those are through with the frame
        self.raw_reads = bit()  # level: a raw block


class StepPort:
    """A step of a command."""

    def __init__(self) -> None:
        self.go, self.done, self.right = bit(), bit(), bit()  # strobes; with done: what was read may be so


class FrontFrame:
    """A frame that leaves the first stage: `ready` (level) until `taken` (strobe)."""

    def __init__(self) -> None:
        self.ready, self.taken = bit(), bit()
        self.error, self.failed, self.bank = word(5), bit(), bit()
        self.matched, self.built = bit(), bit()  # it lies in the store; its tables were asked for
        self.right = bit()  # a level: prefix and directory are, its blocks will be dealt
        self.thinning = word(2)
        self.crowded = bit()  # level: no other may enter the first stage


class DealPort:
    """The frame that is dealt; its fields hold from `go` to `done`, strobes both."""

    def __init__(self, row_bits: int, at_bits: int, entry_bits: int) -> None:
        self.go, self.done = bit(), bit()
        self.stop = bit()  # level: blocks that are not dealt yet need not be
        self.bank, self.thinning = bit(), word(2)
        self.count, self.row = word(COUNT_BITS), word(row_bits)
        self.number, self.entry = word(8), word(entry_bits)  # of the directory, two clocks later
        self.blocks, self.places = Blocks(row_bits), BlockPlaces(at_bits)  # the walk
        self.quiet = word(FRAMES)  # levels, a bit for each bank: no unit has a block of it
        self.wrong = word(FRAMES)  # strobes, a bit for each bank: a block of it was bad
