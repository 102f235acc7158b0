"""What a unit counted: two banks, a block RAM each, so that one is drained while the other counts."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.coder.ports import COUNT_BITS, CountChain, CountPort
from oscar_hdl.streams.bundles import bit, word

KEPT_BITS = 18
PAIR_BITS = 2 * KEPT_BITS
PLACE_BITS = 10  # bank, context, symbol
MOST = 1 << KEPT_BITS


@block
def count_bank(
    clk: Any, take: Any, take_at: Any, count_at: Any, got: Any, writes: Any, write_at: Any, total: Any
) -> Any:
    """Keep 256 pairs of counts, in one block RAM.

    got u36: what is at count_at u8 three clocks before, or with `take` at take_at u8, which is cleared then.
    writes u2: which of the pair at write_at u8 becomes total u19, which comes a clock later; one of 2^18 and
    more does not. While counts are taken there are none to write.
    """
    memory = [word(PAIR_BITS) for _ in range(1 << 8)]
    read_at, at, taking, clears = word(8), word(8), bit(), bit()
    lanes, enables, fetched, data = word(2), word(2), word(PAIR_BITS), word(KEPT_BITS)

    @always_comb
    def choose():
        data.next = total[KEPT_BITS:]
        enables.next = 0
        if not total[KEPT_BITS]:
            enables.next = lanes
        if clears:
            data.next = 0
            enables.next = 0b11

    @always(clk.posedge)
    def prepare():
        read_at.next = count_at
        at.next = write_at
        lanes.next = writes
        if take:
            read_at.next = take_at
        if taking:
            at.next = read_at
        taking.next = take
        clears.next = taking

    @always(clk.posedge)
    def access():
        if enables[0]:
            memory[at].next[KEPT_BITS:] = data
        if enables[1]:
            memory[at].next[PAIR_BITS:KEPT_BITS] = data
        fetched.next = memory[read_at]
        got.next = fetched

    return choose, prepare, access


@block
def count_lane(
    clk: Any, got_0: Any, got_1: Any, second: Any, full: Any, before: Any, total: Any, *, lane: int
) -> Any:
    """Add a lane of the bank's counts u36 to that of before u38: total u19, two clocks behind got.

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


class Counted:
    """A symbol on its way: what waits for its count, and how it is written. Numbers are its clock."""

    def __init__(self) -> None:
        # 1: the place is read; 4: it is prepared for writing; 5: written, beside the sum.
        self.place1, self.place2, self.place3, self.place4, self.place5 = (word(PLACE_BITS) for _ in range(5))
        self.counts1, self.counts2, self.counts3, self.counts4, self.counts5 = (bit() for _ in range(5))
        self.amount4 = word(4)
        self.choice3 = word(3)  # which of seven is its count: see `count_sum`
        self.again4 = bit()  # the symbol before it is the same


@block
def count_places(clk: Any, rst: Any, unit: CountPort, unit_bank: Any, way: Counted) -> Any:
    """Follow the symbols of a unit, a clock after another, and see which are the same."""
    step1, step2, step3 = word(2), word(2), word(2)
    one2, two2, three2, four2, one3 = bit(), bit(), bit(), bit(), bit()

    @always(clk.posedge)
    def follow():
        way.place1.next = concat(unit_bank, unit.address)
        way.place2.next = way.place1
        way.place3.next = way.place2
        way.place4.next = way.place3
        way.place5.next = way.place4
        way.counts1.next = unit.valid
        way.counts2.next = way.counts1
        way.counts3.next = way.counts2
        way.counts4.next = way.counts3
        way.counts5.next = way.counts4
        if rst:
            way.counts1.next = False
            way.counts2.next = False
            way.counts3.next = False
            way.counts4.next = False
            way.counts5.next = False

    # Which of the four symbols before is the same: 2: found, 3: the choice of the nearest but one.
    @always(clk.posedge)
    def compare():
        one2.next = way.counts2 and way.place1 == way.place2
        two2.next = way.counts3 and way.place1 == way.place3
        three2.next = way.counts4 and way.place1 == way.place4
        four2.next = way.counts5 and way.place1 == way.place5
        one3.next = one2
        way.again4.next = one3
        way.choice3.next = concat(modbv(0)[1:], way.place2[9], way.place2[0])
        if two2:
            way.choice3.next = 4
        elif three2:
            way.choice3.next = 5
        elif four2:
            way.choice3.next = 6

    @always(clk.posedge)
    def weigh():
        step1.next = unit.step
        step2.next = step1
        step3.next = step2
        way.amount4.next[0] = step3 == 0
        way.amount4.next[1] = step3 == 1
        way.amount4.next[2] = step3 == 2
        way.amount4.next[3] = step3 == 3

    return follow, compare, weigh


@block
def count_sum(clk: Any, got_0: Any, got_1: Any, way: Counted, total: Any) -> Any:
    """Add the amount of a symbol to its count: total u19 in its clock 5.

    got_0, got_1 u36: what banks have at its place, read in clock 1. So of the four symbols before it, which
    are not written until then, or just then, the sum itself is taken if they are the same.
    """
    base4, sum6, sum7 = (word(KEPT_BITS) for _ in range(3))

    @always(clk.posedge)
    def choose():
        if way.choice3[2]:
            if way.choice3[1]:
                base4.next = sum7
            elif way.choice3[0]:
                base4.next = sum6
            else:
                base4.next = total[KEPT_BITS:]
        elif way.choice3[1]:
            base4.next = got_1[KEPT_BITS:]
            if way.choice3[0]:
                base4.next = got_1[PAIR_BITS:KEPT_BITS]
        else:
            base4.next = got_0[KEPT_BITS:]
            if way.choice3[0]:
                base4.next = got_0[PAIR_BITS:KEPT_BITS]

    @always(clk.posedge)
    def add():
        base = modbv(0)[KEPT_BITS:]
        base[:] = base4
        if way.again4:
            base[:] = total[KEPT_BITS:]
        total.next = base + way.amount4
        sum6.next = total[KEPT_BITS:]
        sum7.next = sum6

    return choose, add


@block
def symbol_counts(
    clk: Any, rst: Any, unit: CountPort, unit_bank: Any, before: CountChain, after: CountChain
) -> Any:
    """Count a symbol a clock, whatever its address, and hand counts to the chain (docs/engine.md).

    unit_bank: where the unit counts. With `valid` of the chain, in 256 clocks one after another, pairs are
    taken and cleared, of a bank in which nobody counts: the last symbol came four clocks before or earlier.
    Address, bank and valid are passed on one clock later, totals too, which come five clocks behind their
    address.
    A count is at most 2^18; 2^18 itself only where nothing else of its bank counts values.
    A reset leaves counts alone: link_tables takes them all after it.
    """
    way, total, total_0, total_1 = Counted(), *(word(COUNT_BITS) for _ in range(3))
    count_at, write_at, writes_0, writes_1 = word(8), word(8), word(2), word(2)
    got_0, got_1, take_0, take_1 = word(PAIR_BITS), word(PAIR_BITS), bit(), bit()
    taken1, taken2, taken3, taken_bank = bit(), bit(), bit(), bit()
    full_0, full_1, full, second, ends = bit(), bit(), bit(), bit(), bit()

    places = count_places(clk, rst, unit, unit_bank, way)
    adder = count_sum(clk, got_0, got_1, way, total)
    banks = [
        count_bank(clk, take_0, after.address, count_at, got_0, writes_0, write_at, total),
        count_bank(clk, take_1, after.address, count_at, got_1, writes_1, write_at, total),
    ]
    lanes = [
        count_lane(clk, got_0, got_1, second, full, before.totals, one, lane=i)
        for i, one in enumerate((total_0, total_1))
    ]

    @always_comb
    def wires():
        count_at.next = unit.address[9:1]
        take_0.next = after.valid and not after.bank
        take_1.next = after.valid and after.bank
        write_at.next = way.place4[9:1]
        after.totals.next = concat(total_1, total_0)

    @always_comb
    def select():
        writes_0.next = 0
        writes_1.next = 0
        if way.counts4 and way.place4[9]:
            writes_1.next[0] = not way.place4[0]
            writes_1.next[1] = way.place4[0]
        elif way.counts4:
            writes_0.next[0] = not way.place4[0]
            writes_0.next[1] = way.place4[0]

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
        if way.counts5 and total[KEPT_BITS] and not way.place5[9]:
            full_0.next = True
        elif ends and not taken_bank:
            full_0.next = False
        if way.counts5 and total[KEPT_BITS] and way.place5[9]:
            full_1.next = True
        elif ends and taken_bank:
            full_1.next = False
        if rst:
            taken1.next = False
            taken2.next = False
            taken3.next = False
            full_0.next = False
            full_1.next = False

    return places, adder, banks, lanes, wires, select, pass_on, overflow
