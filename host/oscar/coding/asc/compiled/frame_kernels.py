"""A whole frame in one compiled call: `encode` and `decode`, stage by stage.

Encoding: survey all groups, choose tables and block size from its counts, code the blocks, move them
together. Decoding: read prefix and directory, build the tables, decode the blocks, learn from the counts.
A frame that one thread codes takes one call, with the stage WHOLE: calls from Python cost more than a short
frame's work. Threads share the groups of a survey, or blocks, each in a call of its own with that stage.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from oscar.coding.asc.compiled import decode_kernels, encode_kernels
from oscar.coding.asc.compiled.directory_kernels import BAD_PREFIX, TOO_SHORT, read_directory
from oscar.coding.asc.compiled.row_kernels import BANK_BYTES, BANKS, KERNEL, PART, SEARCHED, Frame, u64
from oscar.coding.asc.compiled.survey_kernels import Facts, survey
from oscar.coding.asc.compiled.table_kernels import (
    choose_tables,
    from_octaves,
    learn_from,
    tables_of_decoder,
    tables_of_encoder,
)
from oscar.coding.asc.compiled.vectors import get32
from oscar.coding.asc.params import (
    DIRECTORY_BYTES,
    GROUP,
    MASK_BYTES,
    MAX_BLOCK_LOG2,
    MIN_BLOCK_LOG2,
    PREFIX_BYTES,
    SENT_ROW_BYTES,
    SYMBOLS,
    TABLE_ROWS,
    group_cycle,
)  # fmt: skip
from oscar.kernels import njit

WHOLE, OPEN, TABLES, BLOCKS, CLOSE = range(5)  # stages; OPEN and BLOCKS are those that threads share
SCRATCH = max(decode_kernels.SCRATCH, encode_kernels.SCRATCH)  # bytes of memory for a thread
_cycle_of = njit(**PART)(group_cycle)

# What stages hand on, and where a coder's memory is. All int64:
#   classes to highs  addresses of what a survey writes (survey_kernels.Facts)
#   scratch           address of SCRATCH bytes for each thread
#   blocks            address of the descriptions of blocks
#   regions           address of the regions that blocks are coded to
#   copies, copy      address of the decoder's copies of blocks, and the bytes of one
#   log2              of the values of a block
#   shift             low bits that go round the tables, of a frame that is decoded
#   last, sent        last symbol, mask of sent rows
#   low, high         least and largest value
#   head              offset of the payload's directory
MEMORY = "classes", "means", "live", "lows", "highs", "scratch", "blocks", "regions", "copies"
RESULTS = "shift", "log2", "last", "sent", "low", "high", "head"
JOB = np.dtype([(name, np.int64) for name in (*MEMORY, "copy", *RESULTS)])


@njit(**PART)
def _bank(banks: Any, thread: int) -> Any:
    """Return the address of a thread's counters."""
    return u64(banks.ctypes.data) + u64(BANKS * BANK_BYTES * thread)


@njit(**PART)
def _extremes(facts: Facts, groups: int) -> tuple[int, int]:
    """Return the least and the largest value of a frame."""
    low, high = get32(facts.low), get32(facts.high)
    for g in range(1, groups):
        low = min(low, get32(facts.low + u64(4 * g)))
        high = max(high, get32(facts.high + u64(4 * g)))
    return low, high


@njit(**KERNEL)
def encode(
    stage: int, thread: int, first: int, last: int, jobs: Any, values: Any, size: int, count: int,
    positions: Any, stride: int, least: int, width: int, shift: int, log2: int, may_send: bool,
    hist: Any, counts: Any, freq: Any, levels: Any, table: Any, banks: Any, payload: Any,
) -> int:  # fmt: skip
    """Encode a frame, or do a stage of that; return the bytes of the payload, or -1.

    Args:
        stage: WHOLE, or OPEN: survey the groups `first` to `last` - 1; TABLES; BLOCKS: code the blocks
            `first` to `last` - 1; CLOSE: move them together.
        thread: Number of the thread that calls.
        jobs: A JOB.
        values: Octets of `count` values of `size` bytes.
        positions: Position classes; stride: 32, or 0 where one row of zeros serves all rows.
        least, width: Lowest class that a row may have; bits of a value.
        shift: Low bits of every value that go round the tables.
        log2: Of the values of a block, 0 where the frame's counts choose.
        may_send: Whether the frame may carry table rows.
        hist: The tables' histograms, which learn.
        counts, freq, levels, table: Filled as `tables_of_encoder` says.
        banks: Counters of all threads, 0 unless WHOLE.
        payload: Octets, to be filled.

    Returns:
        The bytes of the payload, once it is there. -1 where the values do not fit `width` (see low, high).
    """
    job = jobs[0]
    frame = Frame(
        u64(values.ctypes.data), size, count, u64(positions.ctypes.data), stride, shift,
        _cycle_of(log2), least, width, False, u64(0),
    )  # fmt: skip
    groups, scratch = (count + GROUP - 1) // GROUP, u64(job.scratch) + u64(SCRATCH * thread)
    facts = Facts(u64(job.classes), u64(job.means), u64(job.live), u64(job.lows), u64(job.highs))
    if stage == WHOLE:
        banks[:] = 0
        first, last = 0, groups
    if stage in (WHOLE, OPEN):
        survey(frame, first, last, facts, _bank(banks, thread), scratch)
    if stage in (WHOLE, TABLES):
        low, high = job.low, job.high = _extremes(facts, groups)
        if low < -(np.int64(1) << (width - 1)) or high >= np.int64(1) << (width - 1):
            return -1
        job.last, job.sent, job.log2 = tables_of_encoder(
            banks, low, high, count, log2, may_send, SEARCHED, hist, counts, freq, levels, table
        )
        job.head = _write_prefix(job, shift, levels, payload)
    number = (count + (1 << job.log2) - 1) >> job.log2
    region = ((1 << job.log2) * width >> 3) + encode_kernels.SLACK
    blocks, regions, at = u64(job.blocks), u64(job.regions), u64(table.ctypes.data)
    if stage == WHOLE:
        first, last = 0, number
    if stage in (WHOLE, BLOCKS):
        encode_kernels.encode_blocks(
            frame, job.log2, first, last, facts, at, regions, region, blocks, scratch
        )
    if stage in (WHOLE, CLOSE):
        out = u64(payload.ctypes.data) + u64(job.head)
        return job.head + encode_kernels.write_blocks(blocks, job.log2, number, regions, region, out)
    return 0


@njit(**PART)
def _write_prefix(job: Any, shift: int, levels: Any, payload: Any) -> int:
    """Write prefix, mask and sent rows (docs/reference/asc.md); return how many bytes they take."""
    prefix, at = job.log2 | shift << 5 | np.int64(job.sent != 0) << 10 | job.last << 11, PREFIX_BYTES
    for i in range(PREFIX_BYTES):
        payload[i] = prefix >> (8 * i) & 255
    if job.sent:
        for i in range(MASK_BYTES):
            payload[at + i] = job.sent >> (8 * i) & 255
        at += MASK_BYTES
        for q in range(TABLE_ROWS):
            if job.sent >> q & 1:
                for s in range(0, SYMBOLS, 2):
                    payload[at] = levels[q, s] | levels[q, s + 1] << 4
                    at += 1
    return at


@njit(**KERNEL)
def read_prefix(payload: Any, width: int, hist: Any, jobs: Any, counts: Any, freq: Any, levels: Any) -> int:
    """Build the frequencies with which a payload was coded; return 0 or the reason to refuse it.

    jobs: a JOB, which gets log2, shift, last symbol, and the offset of the directory. A payload that is
    shorter than it says is for the directory to refuse.
    """
    job, prefix = jobs[0], np.int64(0)
    for i in range(min(PREFIX_BYTES, len(payload))):
        prefix |= np.int64(payload[i]) << (8 * i)
    job.log2, job.shift, job.last = prefix & 31, prefix >> 5 & 31, prefix >> 11 & 15
    small = not MIN_BLOCK_LOG2 <= job.log2 <= MAX_BLOCK_LOG2
    if prefix >> 15 or small or job.shift > max(0, width - 16):
        return BAD_PREFIX
    choose_tables(hist, job.last, counts, False, freq, levels)
    head = PREFIX_BYTES
    if prefix >> 10 & 1:
        mask = np.int64(0)
        for i in range(head, min(head + MASK_BYTES, len(payload))):
            mask |= np.int64(payload[i]) << (8 * (i - head))
        head += MASK_BYTES
        for q in range(TABLE_ROWS):
            if mask >> q & 1:
                if head + SENT_ROW_BYTES <= len(payload):
                    for i in range(SENT_ROW_BYTES):
                        pair = payload[head + i]
                        levels[q, 2 * i], levels[q, 2 * i + 1] = pair & 15, pair >> 4
                    from_octaves(levels[q], q, job.last, freq[q])
                head += SENT_ROW_BYTES
    job.head = head
    return 0


@njit(**KERNEL)
def decode(
    stage: int, thread: int, first: int, last: int, jobs: Any, payload: Any, out: Any, plus: Any, add: bool,
    size: int, count: int, positions: Any, stride: int, least: int, width: int,
    hist: Any, counts: Any, freq: Any, levels: Any, table: Any, banks: Any,
) -> int:  # fmt: skip
    """Decode a frame, or do a stage of that; return 0, or the reason to refuse it.

    Args:
        stage: WHOLE, or TABLES: read prefix and directory; BLOCKS: decode the blocks `first` to `last` - 1;
            CLOSE: learn.
        thread: Number of the thread that calls.
        jobs: A JOB.
        payload: Octets of the payload.
        out: Octets of `count` values of `size` bytes, to be filled.
        plus: Octets of what values are added to if `add`, like `out`.
        positions, stride, least, width: As for `encode`.
        hist: The tables' histograms, which learn.
        counts, freq, levels, table: Filled.
        banks: Counters of all threads, 0 unless WHOLE.
    """
    job = jobs[0]
    begin = u64(payload.ctypes.data)
    end = begin + u64(len(payload))
    if stage in (WHOLE, TABLES):
        status = read_prefix(payload, width, hist, jobs, counts, freq, levels)
        if status:
            return status
        if job.head + DIRECTORY_BYTES * ((count + (1 << job.log2) - 1) >> job.log2) > len(payload):
            return TOO_SHORT
        status = read_directory(
            begin + u64(job.head), end, count, job.log2, width, job.shift, u64(job.blocks)
        )
        if status:
            return status
        tables_of_decoder(freq, SEARCHED, table)
    if stage == WHOLE:
        banks[:] = 0
        first, last = 0, (count + (1 << job.log2) - 1) >> job.log2
    if stage in (WHOLE, BLOCKS):
        at = u64(out.ctypes.data)
        frame = Frame(
            at, size, count, u64(positions.ctypes.data), stride, job.shift, _cycle_of(job.log2), least,
            width, add, u64(plus.ctypes.data) - at if add else u64(0),
        )  # fmt: skip
        copies = u64(job.copies) + u64(decode_kernels.SIDES * job.copy * thread)
        status = decode_kernels.decode_blocks(
            begin, end, frame, job.log2, first, last, u64(job.blocks), u64(table.ctypes.data),
            _bank(banks, thread), copies, job.copy, u64(job.scratch) + u64(SCRATCH * thread),
        )  # fmt: skip
        if status:
            return status
    if stage in (WHOLE, CLOSE):
        learn_from(banks, counts, hist)
    return 0
