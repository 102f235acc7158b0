"""Clocks of a NIC's barrel units, and the blocks that they code (docs/engine.md, "Barrel units")."""

from __future__ import annotations

from typing import Any, NamedTuple

TURN, THREADS = 4, 8  # clocks; threads of a unit
# Clocks from a thread's turn to its next one, and behind a header (decoding: classes).
AGAIN, HEADED = (20, 28), (24, 36)
SEED_TURNS = 4  # of an encoder, beside one for each seed row: most blocks have 1 to 5 such rows, and 3 to 5
FINAL = 2  # turns for the final states
# Encoding: clocks of the dealer for a block; from there to its first turn; from its last turn's begin until
# the judge finds it; of the judge for a block, and until its bytes may be drained.
DEAL, FIRST, JUDGED, JUDGE, SETTLE = 3, 14, 20, 4, 4
# From a drain's begin to its first word; from its last word, or the last turn, until all is collected; until
# its thread is free.
DRAIN, GATHERED, LEFT = 8, 12, 4
BUFFER = 112 * 16  # bytes of a thread's block beyond which it waits to be drained
CRC = 3, 11, 1  # to add a block's CRC, and for each digit of how many words lie between, of 16: not 0, or 0
HEAD = 140, 3  # from the last byte to the frame's first word: header, CRC; and for each block, its entry
# Decoding: clocks of the dealer for a block; from there until its first line of bytes counts; from its last
# turn's begin until its thread is free.
GIVE, FETCH, FREE = 7, 30, 52
ENOUGH, BEGUN, ROOM = 128, 64, 384  # bytes for a turn, for a block's first one, that a thread takes
STATES = 96  # bytes of the final states
SUMMED = 34  # clocks from a turn's begin to its last sum
RAW_SENT, RAW_CODED = (60, 41), 1.6  # to send a raw block, and its rows; how many times as long it was coded
# To receive one: each 1,024 values, and each row beside the clock that a value or a byte takes to come.
RAW_GROUP, RAW_ROW = 192, 32
# From a command, or a frame's last word, until its blocks may be dealt: tables are built. To send, memory
# finds the last symbol before, in some clocks more for each 1,024 values of a bank.
FRONT, SEARCH = (180, 250), 8
# Received: blocks whose entries of the directory are read while tables are built, and clocks for each more.
LISTED, ENTRY = 18, 8
NEXT = 20, 20  # until they may behind the first word of the frame before, or its last block that is dealt
DONE, LEARN = 20, 300  # from the last sum to the end of a command; to learn
NEVER = 1e18


class CodedBlocks(NamedTuple):
    """The blocks of frames, one frame behind the other.

    gaps: uint8, of every turn the clocks to the thread's next one. turns: int64 [blocks + 1], where each
    block's begin. sizes: bytes. raw: rows of raw blocks (sent), or their clocks (received). unit: who does
    each. frames: int64 [frames + 1], where each frame's begin.
    """

    gaps: Any
    turns: Any
    sizes: Any
    raw: Any
    unit: Any
    frames: Any
