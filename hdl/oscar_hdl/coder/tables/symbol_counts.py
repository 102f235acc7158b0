"""What a unit counted: two banks, a block RAM each, so that one is drained while the other counts."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.coder.ports import CountChain, CountPort
from oscar_hdl.streams.block_ram import block_ram
from oscar_hdl.streams.bundles import bit, word

COUNT_BITS = 18


@block
def count_memory(
    clk: Any, place: Any, take: Any, take_place: Any, got: Any, counts: Any, written_place: Any, amount: Any,
    again: Any, over: Any,
) -> Any:  # fmt: skip
    """Read place u9, or with `take` (level) take_place u9, and clear it; got u18 comes three clocks later.

    counts (strobe, with got): got, or with `again` the sum of three clocks before, and amount u5 go to
    written_place u9; a sum of 2^18 and more does not, but gives `over` (strobe, a clock later). While counts
    are taken there are none to write.
    """
    read_at, write_at = word(9), word(9)
    total, total3, total4, total5 = word(COUNT_BITS + 1), *(word(COUNT_BITS) for _ in range(3))
    taking, clears, mine, carry, write = bit(), bit(), bit(), bit(), bit()
    memory = block_ram(clk, write, write_at, total3, read_at, got)

    @always_comb
    def add():
        base = modbv(0)[COUNT_BITS:]
        base[:] = got
        if again:
            base[:] = total5
        total.next = base + amount

    @always_comb
    def choose():
        write.next = clears or (mine and not carry)
        over.next = mine and carry

    @always(clk.posedge)
    def prepare():
        read_at.next = place
        if take:
            read_at.next = take_place
        taking.next = take
        clears.next = taking
        write_at.next = written_place
        total3.next = total[COUNT_BITS:]
        if taking:
            write_at.next = read_at
            total3.next = 0
        total4.next = total3
        total5.next = total4
        mine.next = counts
        carry.next = total[COUNT_BITS]

    return memory, add, choose, prepare


ADDRESS_BITS = 10  # bank, context, symbol
MOST = 1 << COUNT_BITS


@block
def symbol_counts(
    clk: Any, rst: Any, unit: CountPort, unit_bank: Any, before: CountChain, after: CountChain
) -> Any:
    """Count a symbol a clock, whatever its address, and hand counts to the chain (docs/engine.md).

    unit_bank: where the unit counts. With `valid` of the chain, in 512 clocks one after another, counts are
    taken and cleared, of a bank in which nobody counts: the last symbol came four clocks before or earlier.
    Address, bank and valid are passed on one clock later, a total too, which comes five clocks behind its
    address.
    A count is at most 2^18; 2^18 itself only where nothing else of its bank counts values.
    A reset leaves counts alone: link_tables takes them all after it.
    """
    near, near_counts, near_step = word(ADDRESS_BITS), bit(), word(2)
    # The clocks of an entry: its place is read in 0, the count arrives in 2, the sum is written in 3.
    place0, place1, place2 = (word(ADDRESS_BITS) for _ in range(3))
    counts0, counts1, counts2 = bit(), bit(), bit()
    amount0, amount1, amount2, amount3 = word(4), word(4), word(4), word(4)
    same1, same2, same2_late, same3, same3_late, same3_last = (bit() for _ in range(6))
    more, most, over_0, over_1 = word(5), word(5), bit(), bit()
    place, written = word(9), word(9)
    got_0, got_1 = word(COUNT_BITS), word(COUNT_BITS)
    take_0, take_1, mine_0, mine_1 = bit(), bit(), bit(), bit()
    taken1, taken2, taken3, taken_bank, own = bit(), bit(), bit(), bit(), word(COUNT_BITS + 1)
    full_0, full_1, ends = bit(), bit(), bit()

    banks = [
        count_memory(clk, place, take_0, after.address, got_0, mine_0, written, most, same3_last, over_0),
        count_memory(clk, place, take_1, after.address, got_1, mine_1, written, most, same3_last, over_1),
    ]

    @always_comb
    def wires():
        place.next = near[9:]
        written.next = place2[9:]
        take_0.next = after.valid and not after.bank
        take_1.next = after.valid and after.bank
        mine_0.next = counts2 and not place2[9]
        mine_1.next = counts2 and place2[9]

    @always(clk.posedge)
    def gather():
        near_counts.next = unit.valid
        near.next = concat(unit_bank, unit.address)
        near_step.next = unit.step
        if rst:
            near_counts.next = False

    # A count is read before the two entries ahead are written, and while the third is: it adds what
    # the two add too, and takes the third's sum instead of what it read.
    @always(clk.posedge)
    def follow():
        place0.next = near
        place1.next = place0
        place2.next = place1
        counts0.next = near_counts
        counts1.next = counts0
        counts2.next = counts1
        same1.next = counts0 and near == place0
        same2.next = counts1 and near == place1
        same2_late.next = same2
        same3.next = counts2 and near == place2
        same3_late.next = same3
        same3_last.next = same3_late
        amount0.next[0] = near_step == 0
        amount0.next[1] = near_step == 1
        amount0.next[2] = near_step == 2
        amount0.next[3] = near_step == 3
        amount1.next = amount0
        amount2.next = amount1
        amount3.next = amount2
        if rst:
            counts0.next = False
            counts1.next = False
            counts2.next = False

    @always(clk.posedge)
    def sums():
        ahead = modbv(0)[4:]
        if same1:
            ahead[:] = amount1
        more.next = amount0 + ahead
        ahead[:] = 0
        if same2_late:
            ahead[:] = amount3
        most.next = more + ahead

    @always(clk.posedge)
    def hand_on():
        after.valid.next = before.valid
        after.bank.next = before.bank
        after.address.next = before.address
        # A count that reached 2^18 was left as it had been, and is known by its highest bit.
        own.next = got_0
        if taken_bank:
            own.next = got_1
        if (full_0 and not taken_bank and got_0[COUNT_BITS - 1]) or (
            full_1 and taken_bank and got_1[COUNT_BITS - 1]
        ):
            own.next = MOST
        after.total.next = before.total + own
        if rst:
            after.valid.next = False

    @always(clk.posedge)
    def overflow():
        """Whether a count of a bank came to 2^18, until all of them are taken."""
        taken1.next = after.valid
        taken2.next = taken1
        taken3.next = taken2
        ends.next = taken3 and not taken2
        taken_bank.next = after.bank
        if over_0:
            full_0.next = True
        elif ends and not taken_bank:
            full_0.next = False
        if over_1:
            full_1.next = True
        elif ends and taken_bank:
            full_1.next = False
        if rst:
            taken1.next = False
            taken2.next = False
            taken3.next = False
            full_0.next = False
            full_1.next = False

    return banks, wires, gather, follow, sums, hand_on, overflow
