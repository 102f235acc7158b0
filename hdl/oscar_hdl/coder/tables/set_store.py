"""Histograms and checksums of table sets, in block RAM."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.streams.bundles import bit, word


@block
def set_store(
    clk: Any, load: Any, read_at: Any, entry: Any, save: Any, clear: Any, write: Any, away: Any, value: Any,
    written: Any, query: Any, query_fresh: Any, checksum: Any, keep: Any, new_checksum: Any, *,
    sets: int, initial: int,
) -> Any:  # fmt: skip
    """Keep `sets` (a power of two) table sets.

    entry u16: what is at read_at u9 of set `load` two clocks later. write: value u16 goes to the next place
    of set `save`, from 0 on after `clear`; `written` is high with the last; nothing is kept with `away`.
    checksum u16: of set `query`, or `initial` with query_fresh, two clocks later. keep: new_checksum u16
    becomes that of set `save`.
    """
    bits = sets.bit_length() - 1
    if sets != 1 << bits or not 1 <= bits <= len(save):
        raise ValueError(f"expected 2, 4, 8, .. {1 << len(save)} table sets, got {sets}")
    memory = [word(16) for _ in range(sets << 9)]
    checksums = [word(16) for _ in range(sets)]
    read_address, write_address, write_at = word(9 + bits), word(9 + bits), word(9)
    load_set, save_set, fetched = word(bits), word(bits), word(16)
    asked, asked_fresh = word(bits), bit()

    @always_comb
    def addresses():
        read_address.next = concat(load_set, read_at)
        write_address.next = concat(save_set, write_at)
        written.next = write and write_at == 511

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
        entry.next = fetched

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
