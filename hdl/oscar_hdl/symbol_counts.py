"""Memory of one client of asc_tables: its two banks of symbol counts, and a histogram."""

from __future__ import annotations

from typing import Any

from myhdl import always, block, concat, modbv

from oscar_hdl.streams.bundles import bit, word

COUNT_BITS = 13
ADDRESS_BITS = 10  # 0, bank, context, symbol: counts; 1, 0, context, symbol: histogram


@block
def symbol_counts(
    clk: Any, rst: Any, phase: Any, cnt_valid: Any, cnt_addr: Any, cnt_bank: Any, wipe: Any,
    rd_addr: Any, rd_data: Any, wr_en: Any, wr_both: Any, wr_addr: Any, wr_data: Any,
) -> Any:  # fmt: skip
    """Count symbols in every second clock; read and write for somebody else in the clocks between.

    phase: toggles in every clock; the other side's addresses, data and enables change with its fall only.
    cnt_valid: strobe, at most every second clock, in either phase: two more in word cnt_bank, cnt_addr u8.
    rd_data u13 is the word at rd_addr u10 three clocks after a clock of phase 0. wr_en: wr_data u10 goes to
    wr_addr u10 if that is in the histogram, 0 if it is a count; wr_both clears the other bank's count as well
    (nothing may be counted meanwhile). What is written is there for reads of two clocks later.

    wipe: strobe, 8 clocks after the last cnt_valid or later: counts of its symbol in bank cnt_bank become 0,
    in all contexts, within 40 clocks, in which nothing may be counted. They go the way of what is counted.
    """
    if (len(rd_addr), len(wr_addr), len(rd_data)) != (ADDRESS_BITS, ADDRESS_BITS, COUNT_BITS):
        raise ValueError(f"expected {ADDRESS_BITS} bits of address and {COUNT_BITS} of data")
    memory = [word(COUNT_BITS) for _ in range(1 << ADDRESS_BITS)]
    rd, fetched = word(ADDRESS_BITS), word(COUNT_BITS)
    wr, value, write = word(ADDRESS_BITS), word(COUNT_BITS), bit()
    waiting, place = bit(), word(ADDRESS_BITS - 1)  # a symbol to be counted
    reading, read_place = bit(), word(ADDRESS_BITS - 1)
    adding, add_place = bit(), word(ADDRESS_BITS - 1)
    wiping, read_wiped, add_wiped = bit(), bit(), bit()
    same, once, twice = word(5), bit(), bit()  # places; what is added

    @always(clk.posedge)
    def access():
        if write:
            memory[wr].next = value
        fetched.next = memory[rd]

    # A count is read in a clock of phase 0 and written three clocks later, in one of phase 1: in time for the
    # symbol after the next. If the next is the same it finds the value of before, so it adds twice.
    @always(clk.posedge)
    def count():
        rd_data.next = fetched
        # Compared in two steps: both places hold still for two clocks.
        same.next[0] = read_place[2:] == add_place[2:]
        same.next[1] = read_place[4:2] == add_place[4:2]
        same.next[2] = read_place[6:4] == add_place[6:4]
        same.next[3] = read_place[8:6] == add_place[8:6]
        same.next[4] = read_place[8] == add_place[8]
        following = modbv(0)[4:]
        following[:] = place[8:4] + 1
        if cnt_valid:
            place.next = concat(cnt_bank, cnt_addr)
        elif wipe:
            place.next = concat(cnt_bank, modbv(0)[4:], place[4:])
            wiping.next = True
        elif phase and wiping:
            place.next[8:4] = following
            wiping.next = place[8:4] != 15
        if phase:
            rd.next = place
            waiting.next = cnt_valid
            reading.next = waiting or wiping
            read_wiped.next = wiping
            add_wiped.next = read_wiped
            read_place.next = place
            adding.next = reading
            add_place.next = read_place
            twice.next = adding and same == 31
            once.next = not (adding and same == 31)
        else:
            rd.next = rd_addr
            waiting.next = waiting or cnt_valid
        if phase or wr_both:
            write.next = wr_en
            wr.next = wr_addr
            if not phase:
                wr.next[8] = not wr_addr[8]
            value.next = 0
            if wr_addr[9]:
                value.next = wr_data
        else:
            write.next = adding
            wr.next = add_place
            value.next = rd_data + concat(twice, once, modbv(0)[1:])  # COUNT_STEP is 2
            if add_wiped:
                value.next = 0
        if rst:
            wiping.next = False
            waiting.next = False
            reading.next = False
            adding.next = False
            write.next = False

    return access, count
