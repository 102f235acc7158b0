"""Rows of sums on their way to memory: whose they are, and what they are."""

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.coder.decode.ports import REST, ROW, SEED, Looked
from oscar_hdl.coder.decode.row_class import row_verdict, value_size
from oscar_hdl.coder.decode.row_top import top_symbol
from oscar_hdl.coder.ports import ROW_BITS
from oscar_hdl.coder.unit.ports import THREAD_BITS, THREADS, WIDTH
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.copied import chain
from oscar_hdl.streams.joined import joined
from oscar_hdl.streams.lane_delay import lane_delay
from oscar_hdl.streams.largest import largest

MARK_BITS = ROW_BITS + THREAD_BITS + 3


@block
def lane_size(clk, LANE: int, totals30, low32, negative32, over32, wider32, symbol34):
    """Give how large a lane's sum is: value_size and top_symbol; totals30 u128: of eight lanes."""
    AT = 16 * LANE
    value30, negative31, flipped31 = word(16), bit(), word(15)
    size = value_size(clk, value30, negative31, flipped31, negative32, low32, over32, wider32)
    top = top_symbol(clk, flipped31, negative31, symbol34)

    @always_comb
    def cut():
        value30.next = totals30[AT + 16 : AT]

    return size, top, cut


@block
def lane_sums(clk, lows32, negatives32, sum35):
    """Add the magnitudes of eight lanes: lows32 u64, and 1 more where negatives32 u8; sum35 u12."""
    a33, b33, c33, d33, ones33, more33 = word(9), word(9), word(9), word(9), word(3), word(3)
    ab34, cd34, more34 = word(10), word(10), word(4)

    @always(clk.posedge)
    def pairs():
        a33.next = concat(False, lows32[8:]) + lows32[16:8]
        b33.next = concat(False, lows32[24:16]) + lows32[32:24]
        c33.next = concat(False, lows32[40:32]) + lows32[48:40]
        d33.next = concat(False, lows32[56:48]) + lows32[64:56]
        ones33.next = concat(False, negatives32[0]) + negatives32[1] + negatives32[2] + negatives32[3]
        more33.next = concat(False, negatives32[4]) + negatives32[5] + negatives32[6] + negatives32[7]
        ab34.next = concat(False, a33) + b33
        cd34.next = concat(False, c33) + d33
        more34.next = concat(False, ones33) + more33
        sum35.next = concat(False, ab34) + cd34 + more34

    return pairs


@block
def sum_sizes(clk, phase, totals30, found_class, found_size, found_top):
    """Classify rows: u4, u3, u4 in clock 42; totals30 u128: eight sums in each of clocks 30 to 33."""
    negatives = [bit() for _ in range(WIDTH)]
    lows, overs, widers, symbols = ([word(n) for _ in range(WIDTH)] for n in (8, 3, 4, 4))
    lows32, negatives32, overs32, widers32 = word(64), word(WIDTH), word(24), word(32)
    over33, wider33, over34, wider34, over35, wider35 = word(3), word(4), word(3), word(4), word(3), word(4)
    sum35, total36, over36 = word(12), word(14), word(3)
    wider36, verdict_sum, much = word(4), word(11), bit()
    top37, so_far38, largest37 = word(4), word(4), word(4)
    lanes = [
        lane_size(clk, n, totals30, lows[n], negatives[n], overs[n], widers[n], symbols[n])
        for n in range(WIDTH)
    ]
    joins = [
        joined(lows, lows32), joined(negatives, negatives32), joined(overs, overs32), joined(widers, widers32)
    ]  # fmt: skip
    delays = [chain(clk, over33, over34, over35), chain(clk, wider33, wider34, wider35)]
    sums = lane_sums(clk, lows32, negatives32, sum35)
    top = largest(clk, symbols, top37)
    verdict = row_verdict(clk, verdict_sum, much, over36, wider36, found_class, found_size)

    @always(clk.posedge)
    def gather():
        ors = modbv(0)[3:]
        more = modbv(0)[4:]
        for i in range(WIDTH):
            for j in range(3):
                if overs32[3 * i + j]:
                    ors[j] = True
            for j in range(4):
                if widers32[4 * i + j]:
                    more[j] = True
        over33.next = ors
        wider33.next = more
        total36.next = total36 + sum35
        over36.next = over36 | over35
        wider36.next = wider36 | wider35
        if phase[2:] == 3:
            total36.next = sum35
            over36.next = over35
            wider36.next = wider35

    @always_comb
    def compare():
        verdict_sum.next = total36[11:]
        much.next = total36[14:11] != 0
        largest37.next = so_far38
        if phase[2:] == 1 or top37 > so_far38:
            largest37.next = top37

    @always(clk.posedge)
    def keep():
        so_far38.next = largest37
        found_top.next = so_far38

    return lanes, joins, delays, sums, top, verdict, gather, compare, keep


@block
def sum_rows(clk, rst, phase, plan29, totals30, sums, looked: Looked, ended):
    """Give sums with their row, and its descriptor.

    plan29: DecodePlan. totals30 u128. sums: CodedSums. looked: of a raw block's row, whose sums are its
    values. ended u8: strobes, threads that have given all.
    """
    final30, looks30, marks30, marks41 = bit(), bit(), word(MARK_BITS), word(MARK_BITS)  # sums: of clock 30
    late = lane_delay(clk, phase, marks30, marks41, 11)
    sizes = sum_sizes(clk, phase, totals30, sums.row_class, sums.row_size, sums.row_top)

    @always(clk.posedge)
    def begin():
        if phase[2:] == 1:
            sums.thread.next = plan29.thread
            sums.row.next = plan29.row
            sums.valid.next = plan29.op == ROW or (plan29.op == SEED and plan29.real)
            final30.next = plan29.op != REST and plan29.final
            looks30.next = plan29.op == SEED and plan29.raw and not plan29.real
        if rst:
            sums.valid.next = False
            final30.next = False
            looks30.next = False

    @always_comb
    def give():
        sums.total.next = totals30
        looked.thread.next = sums.described_thread
        looked.row.next = sums.described_row
        looked.row_class.next = sums.row_class
        marks30.next = concat(looks30, final30, sums.valid, sums.thread, sums.row)

    @always(clk.posedge)
    def tell():
        sums.described.next = phase[2:] == 1 and marks41[15] and not rst
        sums.described_row.next = marks41[12:]
        sums.described_thread.next = marks41[15:12]
        looked.strobe.next = phase[2:] == 1 and marks41[17] and not rst
        for i in range(THREADS):
            ended.next[i] = phase[2:] == 1 and marks41[16] and marks41[15:12] == i and not rst

    return late, sizes, begin, give, tell
