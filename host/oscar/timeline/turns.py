"""Clocks of a NIC's units, and the blocks that they code (docs/engine.md, "Barrel units").

A turn begins when memory answers it, in a clock that four divides. Each constant is a number of clocks unless
its comment says otherwise. All are the RTL's; `oscar_sim.step_clocks` compares.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from oscar.kernels import njit

# Units. A pair is for encoders and decoders, in that order.
TURN, THREADS = 4, 8  # clocks of a turn; threads of a unit
# From a thread's turn to its next one; behind a header, of a decoder behind classes.
AGAIN, HEADED = (20, 28), (24, 36)
FINAL = 2  # turns for the final states
SEEDS = 4  # seed rows of a block where nobody tells how many it has
SEED_TURNS = (0, 5, 3, 2, 2, 2)  # turns of an encoder for each seed row, by how many there are
IN_FLIGHT = 2, 4  # frames of a direction that are under way, in a NIC of one unit and of more
NEVER = 1e18

# Fronts. A pair is for encoders and decoders, in that order.
# From a sender's front until tables are asked for; from there, if no build is in the way, until the deal.
TABLES_ASKED, TABLES_BUILT = 5, (137, 117)
BUILD = 163  # from one build of tables to the next
NEXT_FRONT = 2, 0  # from when a frame may be dealt to the next one's front
# To learn: from being asked, of a NIC and of each unit; from the end before. Then until blocks may be dealt.
# Before its end, the tables of a frame that takes the same bank may be built.
LEARN, LEARN_UNIT, NEXT_LEARN, LEARNT, LEARN_READ = (280, 281), 2, 2, (6, 10), 143
LEARN_ASKED = 7, 1  # from the last settled block, from the end of the command
LEARN_FRONT = 3, 5  # from where learning begins to the front of the frame that waits for it
# A sender looks for the last symbol: from the front until the first unit's bank does, a clock later the next
# one's; rows that a bank looks at twice in a turn without a header; from the last look until it is known.
SOUGHT_FROM, SOUGHT_ROWS, SOUGHT = 9, 8, 18
KNOWN_DEAL = 4  # from there until blocks may be dealt, if tables are there
SENT_FRONT = 3  # from a frame's first word to the front of the frame that waits for it

# From a command to send until its blocks may be dealt, and from a received frame's last word, in the mean. A
# sender builds tables first, for the last symbol of the frame before; a receiver has built them by then.
FRONT = 153, 25
COMMANDED = 11  # from a command to send until its front begins
WHOLE = 22  # of a received frame whose last word is whole
# A receiver reads a frame's head: from the front until the first chunk is asked for; from there until it is
# there, if it is a line's last column; then until the next one is asked for, or the tables.
HEAD_ASKED, HEAD_LANDS, HEAD_AGAIN, HEAD_TABLES = 13, 6, 3, 7
HEAD_LISTS, LISTED = 2, 24  # from there until the first entry is read; from the last one until the deal

# Encoders: dealer and judge.
DEAL, BEHIND = 3, 6  # the dealer's for a block; behind the last block of a frame
FIRST = 14  # from the deal to the block's first turn
JUDGED, JUDGE = 23, 4  # from the last turn until the block is settled; the judge's for a block
# From when the frame before is out, and this one's blocks may be dealt, until the judge takes it.
NEXT_JUDGED = 5

# Encoders: a block on its way to the store.
KEPT = 2  # from when the block is settled until its drain begins, or until it is dropped
DRAIN = 14  # until a collector has the first 16 bytes of a drain, less a clock
# From the last turn until it has the first 16 bytes behind that; how many follow.
LATE, LATE_CHUNKS = 27, 4
LASTED, SETTLED = 41, 3  # least until a block is dropped; until it is in the store, from when it is settled
BUFFER = 112 * 16  # bytes of a thread's block, beyond which the thread waits for the drain
# Units' collectors take turns at the store, a clock each.
STORED_TURN, CRC_TURN = 5, 3  # from the turn until a block is in the store; until its CRC may be asked for
# Two bytes of the head are taken a clock: from when a block is settled, from when the judge takes the frame.
# From the last ones of a word until it takes a turn, and the next ones may be taken.
ENTRY_PAIR, HEAD_BEGUN, HEAD_WORD = 6, 2, 2
NEXT_DRAIN, THREAD_FREE = 1, 2  # from when a block leaves: to the next drain; until its thread is free
RAW_SENT = 60, 41  # to send a raw block: of the block, of each row
RAW_CODED = 1.66  # bytes that the encoder makes of a raw block, for each byte that is sent

# Encoders: the end of a frame.
CRC = 3, 5, 2  # to add a CRC: the first, or one that ends in the same word; any other; each step of that
LENGTH_CRC, HEAD_CRC = 7, 2  # from the last settled block to asking for the length's CRC; then for the head's
HEAD_MADE = 2  # least from the head's last word to that; and a clock for two bytes that this word lacks
OUT = 11  # from the last CRC to the first word
PAD = 2  # for each step by which the CRC goes back over the pad, and a clock for all
FRAME_GAP = 4  # from a frame's last word to the next one's first

# Decoders: dealer and turns.
GIVE, BEHIND_SENT = 5, 17  # the dealer's for a block; behind the last block of a frame
START = 17  # from the deal to the first turn, if its bytes are there
OVER, FREE = 41, 7  # from the last turn until a look may find the block over; then until its thread is free
QUIET = 2  # from when the last thread is free to the end of the command
DONE, NEXT_DONE = 20, 2  # to that from the frame's last sum, in the mean; from the end before

# Decoders: bytes. Each thread is looked at once in LOOK_EVERY clocks.
FETCH, FED = 6, 9  # from the deal until a line may be chosen for the thread; until its last column counts
LOOK_EVERY = 8
COLUMN = 2  # from a column of a line, of CHUNK bytes, to the one before it
LEVEL_LOOK, ROOM_LOOK = 18, 4  # how old the look is that a turn goes by; that the choice of a line goes by
TAKEN = 31  # from a turn's begin until its bytes count as taken
ENOUGH, BEGUN, ROOM = 128, 64, 384  # bytes: for a turn, for a block's first turn, from which on no line comes
CHUNK = 16  # bytes of a unit's word
STATES, CLASSES = (64, 32), 12  # bytes: of the turns for final states, of one for classes in the mean
RAW_GROUP, RAW_ROW = 192, 32  # to receive each 1,024 raw values; each row, beside one for each value or byte


class CodedBlocks(NamedTuple):
    """The blocks of frames, one frame behind the other.

    Of turns: gaps uint8, clocks to the thread's next turn; takes float64, bytes that a decoder takes. Of
    blocks: turns int64 [blocks + 1], where each block's turns begin; sizes, bytes, 0 if it is constant;
    places, the byte of the frame at which it begins; raw, rows to send if it is raw, or clocks to receive it;
    unit, which codes it. frames: int64 [frames + 1], where each frame's blocks begin.
    """

    gaps: Any
    takes: Any
    turns: Any
    sizes: Any
    places: Any
    raw: Any
    unit: Any
    frames: Any


@njit(cache=True, nogil=True)
def waits_for(frame: int, units: int) -> int:
    """Return the frame of the same direction that has to be done before this one; below 0: none."""
    return frame - (IN_FLIGHT[1] if units > 1 else IN_FLIGHT[0])


@njit(cache=True, nogil=True)
def learn_end(asked: float, before: float, units: int, way: int) -> float:
    """Return when a frame is learnt; asked: when that was asked for; before: when the frame before was."""
    return max(asked, before + NEXT_LEARN) + LEARN[way] + LEARN_UNIT * units
