"""Histograms and checksums of table sets, in block RAM."""

import struct
import zlib

from myhdl import always, always_comb, block, concat

from oscar.coding.asc.params import PRIOR, SYMBOLS, AscParams
from oscar_hdl.coder.ports import TablesPort
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.linear_map import ONES, linear_map, step, unstep


@block
def set_store(
    clk, port: TablesPort, read_at, quad, save, clear, write, away, value, written, keep, new_checksum, *,
    sets: int,
):  # fmt: skip
    """Keep `sets` (a power of two) table sets.

    quad u64: the four entries at read_at u7 of the set that port.load was at port.build, two clocks later.
    write: the two entries of value u32 go to the next place of set `save`, from 0 on after `clear`; `written`
    is high with the last; nothing is kept with `away`.
    port.checksum: of set port.query, or with query_fresh of an initial one, two clocks later. keep (strobe):
    new_checksum u16 becomes that of set `save`.
    """
    bits, INITIAL = sets.bit_length() - 1, initial_checksum()
    if sets != 1 << bits or not 1 <= bits <= len(save):
        raise ValueError(f"expected 2, 4, 8, .. {1 << len(save)} table sets, got {sets}")
    memory = [word(64) for _ in range(sets << 7)]
    checksums = [word(16) for _ in range(sets)]
    read_address, write_address, write_at = word(7 + bits), word(7 + bits), word(8)
    load_set, save_set, fetched = word(bits), word(bits), word(64)
    asked, asked_fresh = word(bits), bit()

    @always_comb
    def addresses():
        read_address.next = concat(load_set, read_at)
        write_address.next = concat(save_set, write_at[8:1])
        written.next = write and write_at == 255

    @always(clk.posedge)
    def use_memory():
        if port.build:
            load_set.next = port.load[bits:]
        save_set.next = save[bits:]
        if write and not away and not write_at[0]:
            memory[write_address].next[32:] = value
        if write and not away and write_at[0]:
            memory[write_address].next[64:32] = value
        if write:
            write_at.next = write_at + 1
        if clear:
            write_at.next = 0
        fetched.next = memory[read_address]
        quad.next = fetched

    @always(clk.posedge)
    def check():
        asked.next = port.query[bits:]
        asked_fresh.next = port.query_fresh
        port.checksum.next = checksums[asked]
        if asked_fresh:
            port.checksum.next = INITIAL
        if keep and not away:
            checksums[save_set].next = new_checksum

    return addresses, use_memory, check


PAIR = 32  # bits
OF_PAIR = [step(1 << i, 0, PAIR) for i in range(PAIR)]


def initial_checksum() -> int:
    """Return the checksum of a table set from which nothing was coded yet."""
    entries = [h for row in PRIOR for h in (*row, *[0] * (SYMBOLS - len(row)))]
    crc = zlib.crc32(struct.pack(f"<{len(entries)}H", *entries), AscParams().fingerprint)
    return (crc ^ crc >> 16) & 0xFFFF


@block
def set_checksum(clk, clear, run, pair, checksum):
    """Take 256 pairs of entries u32, one a clock, with `run`.

    clear: before; two clocks behind the last, checksum u16 is asc.md's, "Frame", and holds until clear.
    """
    begin = unstep(AscParams().fingerprint ^ ONES, PAIR)
    mixed, state = word(32), word(32)  # the CRC with the next pair, before it goes through them
    of_pair = linear_map(mixed, state, OF_PAIR)

    @always(clk.posedge)
    def move():
        if run:
            mixed.next = state ^ pair
        if clear:
            mixed.next = begin
        checksum.next = state[32:16] ^ state[16:]  # inverted twice: not at all

    return of_pair, move
