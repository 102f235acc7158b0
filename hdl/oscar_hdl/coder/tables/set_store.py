"""Histograms and checksums of table sets, in block RAM."""

from __future__ import annotations

import struct
import zlib
from typing import Any

from myhdl import always, always_comb, block, concat

from oscar.coding.asc.params import PRIOR, SYMBOLS, AscParams
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.linear_map import ONES, linear_map, step


@block
def set_store(
    clk: Any, load: Any, read_at: Any, quad: Any, save: Any, clear: Any, write: Any, away: Any, value: Any,
    written: Any, query: Any, query_fresh: Any, checksum: Any, keep: Any, new_checksum: Any, *,
    sets: int, initial: int,
) -> Any:  # fmt: skip
    """Keep `sets` (a power of two) table sets.

    quad u64: the four entries at read_at u7 of set `load` two clocks later. write: value u64 goes to the
    next place of set `save`, from 0 on after `clear`; `written` is high with the last; nothing is kept with
    `away`.
    checksum u16: of set `query`, or `initial` with query_fresh, two clocks later. keep: new_checksum u16
    becomes that of set `save`.
    """
    bits = sets.bit_length() - 1
    if sets != 1 << bits or not 1 <= bits <= len(save):
        raise ValueError(f"expected 2, 4, 8, .. {1 << len(save)} table sets, got {sets}")
    memory = [word(64) for _ in range(sets << 7)]
    checksums = [word(16) for _ in range(sets)]
    read_address, write_address, write_at = word(7 + bits), word(7 + bits), word(7)
    load_set, save_set, fetched = word(bits), word(bits), word(64)
    asked, asked_fresh = word(bits), bit()

    @always_comb
    def addresses():
        read_address.next = concat(load_set, read_at)
        write_address.next = concat(save_set, write_at)
        written.next = write and write_at == 127

    @always(clk.posedge)
    def use_memory():
        load_set.next = load[bits:]
        save_set.next = save[bits:]
        if write and not away:
            memory[write_address].next = value
        if write:
            write_at.next = write_at + 1
        if clear:
            write_at.next = 0
        fetched.next = memory[read_address]
        quad.next = fetched

    @always(clk.posedge)
    def check():
        asked.next = query[bits:]
        asked_fresh.next = query_fresh
        checksum.next = checksums[asked]
        if asked_fresh:
            checksum.next = initial
        if keep and not away:
            checksums[save_set].next = new_checksum

    return addresses, use_memory, check


QUAD = 64
OF_QUAD = [step(0, 1 << i, QUAD) for i in range(QUAD)]
OF_STATE = [step(1 << i, 0, QUAD) for i in range(32)]


def initial_checksum(params: AscParams) -> int:
    """Return the checksum of a table set from which nothing was coded yet."""
    entries = [h for row in PRIOR for h in (*row, *[0] * (SYMBOLS - len(row)))]
    crc = zlib.crc32(struct.pack(f"<{len(entries)}H", *entries), params.fingerprint)
    return (crc ^ crc >> 16) & 0xFFFF


@block
def set_checksum(clk: Any, clear: Any, run: Any, quad: Any, checksum: Any, *, params: AscParams) -> Any:
    """Take 128 quads u64, one a clock, with `run`.

    clear: before; two clocks behind the last, checksum u16 is docs/asc.md's, "Frame", and holds until clear.
    """
    begin = params.fingerprint ^ ONES
    state, moved, part, mixed, run1 = word(32), word(32), word(32), word(32), bit()
    of_quad = linear_map(quad, part, OF_QUAD)
    of_state = linear_map(state, moved, OF_STATE)

    @always(clk.posedge)
    def move():
        mixed.next = part
        run1.next = run
        if run1:
            state.next = moved ^ mixed
        if clear:
            run1.next = False
            state.next = begin

    @always_comb
    def fold():
        checksum.next = state[32:16] ^ state[16:]  # inverted twice: not at all

    return of_quad, of_state, move, fold
