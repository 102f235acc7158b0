"""What a unit counted: two banks, a block RAM each, so that one is drained while the other counts."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.coder.ports import COUNT_BITS, CountChain, CountPort
from oscar_hdl.streams.bundles import bit, word

KEPT_BITS = 18
WORD_BITS = 4 * KEPT_BITS


@block
def quad_memory(clk: Any, write: Any, write_at: Any, data: Any, read_at: Any, read: Any) -> Any:
    """Keep 128 quads of counts: write u4 says which of the quad at write_at u7 become data u18.

    read u72: the quad at read_at u7, two clocks later.
    """
    memory = [word(WORD_BITS) for _ in range(1 << 7)]
    fetched = word(WORD_BITS)

    @always(clk.posedge)
    def access():
        if write[0]:
            memory[write_at].next[18:] = data
        if write[1]:
            memory[write_at].next[36:18] = data
        if write[2]:
            memory[write_at].next[54:36] = data
        if write[3]:
            memory[write_at].next[72:54] = data
        fetched.next = memory[read_at]
        read.next = fetched

    return access


@block
def count_memory(
    clk: Any, place: Any, take: Any, take_quad: Any, got: Any, counts: Any, written_place: Any, amount: Any,
    again: Any, over: Any,
) -> Any:  # fmt: skip
    """Read the quad of place u9, or with `take` (level) take_quad u7 and clear it.

    got u72: it, three clocks later.
    counts (strobe, with got): the count of written_place u9 in got, or with `again` the sum of three clocks
    before, and amount u5 go there; a sum of 2^18 and more does not, but gives `over` (strobe, a clock later).
    While counts are taken there are none to write.
    """
    read_at, write_at, write, lanes = word(7), word(7), word(4), word(4)
    total, total3, total4, total5 = word(KEPT_BITS + 1), *(word(KEPT_BITS) for _ in range(3))
    taking, clears, mine, carry = bit(), bit(), bit(), bit()
    memory = quad_memory(clk, write, write_at, total3, read_at, got)

    @always_comb
    def add():
        base = modbv(0)[KEPT_BITS:]
        if written_place[2:] == 0:
            base[:] = got[18:]
        elif written_place[2:] == 1:
            base[:] = got[36:18]
        elif written_place[2:] == 2:
            base[:] = got[54:36]
        else:
            base[:] = got[72:54]
        if again:
            base[:] = total5
        total.next = base + amount

    @always_comb
    def choose():
        write.next = 0
        if mine and not carry:
            write.next = lanes
        if clears:
            write.next = 0b1111
        over.next = mine and carry

    @always(clk.posedge)
    def prepare():
        read_at.next = place[9:2]
        if take:
            read_at.next = take_quad
        taking.next = take
        clears.next = taking
        write_at.next = written_place[9:2]
        for i in range(4):
            lanes.next[i] = written_place[2:] == i
        total3.next = total[KEPT_BITS:]
        if taking:
            write_at.next = read_at
            total3.next = 0
        total4.next = total3
        total5.next = total4
        mine.next = counts
        carry.next = total[KEPT_BITS]

    return memory, add, choose, prepare


ADDRESS_BITS = 10  # bank, context, symbol
MOST = 1 << KEPT_BITS


@block
def count_lane(
    clk: Any, got_0: Any, got_1: Any, second: Any, full: Any, before: Any, total: Any, *, lane: int
) -> Any:
    """Add a lane of the bank's counts u72 to that of before u76: total u19, two clocks behind got.

    second: the bank; full: a count of it reached 2^18, was left as it had been, and is known by its highest
    bit. before comes a clock behind got.
    """
    LOW, HIGH = lane * KEPT_BITS, lane * KEPT_BITS + KEPT_BITS
    BEFORE_LOW, BEFORE_HIGH = lane * COUNT_BITS, lane * COUNT_BITS + COUNT_BITS
    own = word(COUNT_BITS)

    @always(clk.posedge)
    def add():
        kept = modbv(0)[KEPT_BITS:]
        kept[:] = got_0[HIGH:LOW]
        if second:
            kept[:] = got_1[HIGH:LOW]
        own.next = kept
        if full and kept[KEPT_BITS - 1]:
            own.next = MOST
        total.next = before[BEFORE_HIGH:BEFORE_LOW] + own

    return add


@block
def symbol_counts(
    clk: Any, rst: Any, unit: CountPort, unit_bank: Any, before: CountChain, after: CountChain
) -> Any:
    """Count a symbol a clock, whatever its address, and hand counts to the chain (docs/engine.md).

    unit_bank: where the unit counts. With `valid` of the chain, in 128 clocks one after another, quads are
    taken and cleared, of a bank in which nobody counts: the last symbol came four clocks before or earlier.
    Address, bank and valid are passed on one clock later, totals too, which come five clocks behind their
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
    got_0, got_1 = word(WORD_BITS), word(WORD_BITS)
    take_0, take_1, mine_0, mine_1 = bit(), bit(), bit(), bit()
    taken1, taken2, taken3, taken_bank = bit(), bit(), bit(), bit()
    full_0, full_1, full, second, ends = bit(), bit(), bit(), bit(), bit()

    totals = [word(COUNT_BITS) for _ in range(4)]
    total0, total1, total2, total3 = totals
    lanes = [
        count_lane(clk, got_0, got_1, second, full, before.totals, total, lane=i)
        for i, total in enumerate(totals)
    ]
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
        after.totals.next = concat(total3, total2, total1, total0)

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
    def pass_on():
        after.valid.next = before.valid
        after.bank.next = before.bank
        after.address.next = before.address
        second.next = taken_bank
        full.next = (full_0 and not taken_bank) or (full_1 and taken_bank)
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

    return lanes, banks, wires, gather, follow, sums, pass_on, overflow
