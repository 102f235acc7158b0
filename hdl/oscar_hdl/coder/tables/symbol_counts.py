"""What a unit counted: banks, a block RAM each, so that one is drained while another counts."""

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.coder.ports import BANK_BITS, BANKS, COUNT_BITS, CountChain, CountPort
from oscar_hdl.streams.bundles import Bundle, bit, word
from oscar_hdl.streams.copied import chain

KEPT_BITS = 18  # of a count in memory, the half of a word
PAIR_BITS = 2 * KEPT_BITS
PLACE_BITS = BANK_BITS + 9  # bank, context, symbol


@block
def count_bank(clk, takes, take_at, count_at, got, writes, write_at, total, *, bank: int):
    """Keep 256 pairs of counts, in one block RAM.

    got u36: what is at count_at u8 three clocks before, or with its bit of `takes` at take_at u8, which is
    cleared then.
    writes u2: which of the pair at write_at u8 becomes total u17, which comes a clock later. While counts are
    taken there are none to write.
    """
    memory = [word(PAIR_BITS) for _ in range(1 << 8)]
    read_at, at, taking, clears = word(8), word(8), bit(), bit()
    lanes, enables, fetched, data = word(2), word(2), word(PAIR_BITS), word(KEPT_BITS)

    @always_comb
    def choose():
        data.next = total
        enables.next = lanes
        if clears:
            data.next = 0
            enables.next = 0b11

    @always(clk.posedge)
    def prepare():
        read_at.next = count_at
        at.next = write_at
        lanes.next = writes
        if takes[bank]:
            read_at.next = take_at
        if taking:
            at.next = read_at
        taking.next = takes[bank]
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
def count_lane(clk, gots, bank, before, total, *, lane: int):
    """Add a lane of a bank's counts u36 to that of before u34: total u17, two clocks behind got.

    gots: of all banks; bank: which. before comes a clock behind got.
    """
    LOW, HIGH = lane * KEPT_BITS, lane * KEPT_BITS + COUNT_BITS
    BEFORE_LOW, BEFORE_HIGH = lane * COUNT_BITS, lane * COUNT_BITS + COUNT_BITS
    own = word(COUNT_BITS)

    @always(clk.posedge)
    def add():
        pair = modbv(0)[PAIR_BITS:]
        pair[:] = gots[bank]
        own.next = pair[HIGH:LOW]
        total.next = before[BEFORE_HIGH:BEFORE_LOW] + own

    return add


class Counted(Bundle):
    """A symbol on its way: what waits for its count, and how it is written. Numbers are its clock."""

    # 1: the place is read; 4: it is prepared for writing; 5: written, beside the sum.
    place1, place2, place3, place4, place5 = (word(PLACE_BITS) for _ in range(5))
    counts1, counts2, counts3, counts4, counts5 = (bit() for _ in range(5))
    near3 = word(2)  # 0: its count is the memory's; else the sum of so many symbols before, and one
    again4 = bit()  # the symbol before it is the same


@block
def count_places(clk, rst, unit: CountPort, unit_bank, way: Counted):
    """Follow the symbols of a unit, a clock after another, and see which are the same."""
    one2, two2, three2, four2, one3 = bit(), bit(), bit(), bit(), bit()

    @always(clk.posedge)
    def follow():
        way.place1.next = concat(unit_bank, unit.address)
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

    @always(clk.posedge)
    def compare():
        # Which of the four symbols before is the same: 2: found, 3: the choice of the nearest but one.
        one2.next = way.counts2 and way.place1 == way.place2
        two2.next = way.counts3 and way.place1 == way.place3
        three2.next = way.counts4 and way.place1 == way.place4
        four2.next = way.counts5 and way.place1 == way.place5
        one3.next = one2
        way.again4.next = one3
        way.near3.next = 0
        if two2:
            way.near3.next = 1
        elif three2:
            way.near3.next = 2
        elif four2:
            way.near3.next = 3

    delay = chain(clk, way.place1, way.place2, way.place3, way.place4, way.place5)
    return delay, follow, compare


@block
def count_sum(clk, gots, way: Counted, total):
    """Add one to the count of a symbol: total u17 in its clock 5.

    gots u36: what banks have at its place, read in clock 1. So of the four symbols before it, which
    are not written until then, or just then, the sum itself is taken if they are the same.
    """
    base4, sum6, sum7 = (word(COUNT_BITS) for _ in range(3))
    BITS = 9 + len(gots).bit_length() - 1
    bank3 = way.place3(BITS, 9)

    @always(clk.posedge)
    def choose():
        pair = modbv(0)[PAIR_BITS:]
        pair[:] = gots[bank3]
        if way.near3[1]:
            if way.near3[0]:
                base4.next = sum7
            else:
                base4.next = sum6
        elif way.near3[0]:
            base4.next = total
        elif way.place3[0]:
            base4.next = pair[KEPT_BITS + COUNT_BITS : KEPT_BITS]
        else:
            base4.next = pair[COUNT_BITS:]
        base = modbv(0)[COUNT_BITS:]
        base[:] = base4
        if way.again4:
            base[:] = total
        total.next = base + 1
        sum6.next = total
        sum7.next = sum6

    return choose


@block
def symbol_counts(
    clk, rst, unit: CountPort, unit_bank, before: CountChain, after: CountChain, *, banks: int = BANKS
):
    """Count a symbol a clock, whatever its address, and hand counts to the chain (docs/develop/engine.md).

    banks: 2 or 4; unit_bank: where the unit counts. With `valid` of the chain, in 256 clocks one after
    another, pairs are taken and cleared, of a bank whose last symbol came four clocks before or earlier. The
    chain is passed on a clock later; totals come five clocks behind their address. A count, and the sum of a
    symbol's in all of the chain, is at most 2^16. A reset leaves counts alone.
    """
    way, total, total_0, total_1 = Counted(), *(word(COUNT_BITS) for _ in range(3))
    count_at, write_at, halves = unit.address(9, 1), way.place4(9, 1), word(2)
    NUMBER, BITS = banks, banks.bit_length() - 1
    PLACE_END = 9 + BITS
    gots, writes = [word(PAIR_BITS) for _ in range(banks)], [word(2) for _ in range(banks)]
    takes, taken_bank, drained = word(banks), word(BITS), word(BITS)

    places = count_places(clk, rst, unit, unit_bank, way)
    adder = count_sum(clk, gots, way, total)
    memories = [
        count_bank(clk, takes, after.address, count_at, gots[b], writes[b], write_at, total, bank=b)
        for b in range(banks)
    ]
    lanes = [
        count_lane(clk, gots, drained, before.totals, one, lane=i) for i, one in enumerate((total_0, total_1))
    ]

    @always_comb
    def wires():
        halves.next[0] = way.counts4 and not way.place4[0]
        halves.next[1] = way.counts4 and way.place4[0]
        after.totals.next = concat(total_1, total_0)

    @always_comb
    def select():
        for b in range(NUMBER):
            takes.next[b] = after.valid and after.bank == b
            writes[b].next = 0
            if way.place4[PLACE_END:9] == b:
                writes[b].next = halves

    @always(clk.posedge)
    def pass_on():
        after.valid.next = before.valid
        after.bank.next = before.bank
        after.address.next = before.address
        taken_bank.next = after.bank[BITS:]
        drained.next = taken_bank
        if rst:
            after.valid.next = False

    return places, adder, memories, lanes, wires, select, pass_on
