"""Whether all values of a block are equal, and how many bits they need."""

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.coder.encode.ports import COUNT, HEADER, ROW
from oscar_hdl.coder.unit.ports import THREADS
from oscar_hdl.streams.bundles import bit, word

FACT_BITS = 33


@block
def pair_facts(clk, PAIR: int, data3, present3, some4, all4):
    """Give which bits of v xor (v >> 15) are in one of two lanes, and which in both; bit 15: signs.

    data3: of eight lanes. A lane that is not there, which holds 0, does not count; only the second of a pair
    may be missing alone.
    """
    A, B, LANE_A, LANE_B = 38 * PAIR, 38 * PAIR + 19, 2 * PAIR, 2 * PAIR + 1
    bits_a, bits_b = word(16), word(16)

    @always_comb
    def fold():
        bits_a.next = data3[A + 16 : A]
        bits_b.next = data3[B + 16 : B]
        for i in range(15):
            bits_a.next[i] = data3[A + i] ^ data3[A + 15]
            bits_b.next[i] = data3[B + i] ^ data3[B + 15]

    @always(clk.posedge)
    def join():
        some4.next = bits_a | bits_b
        for i in range(16):
            all4.next[i] = (bits_a[i] or not present3[LANE_A]) and (bits_b[i] or not present3[LANE_B])

    return fold, join


@block
def block_facts(clk, phase, data3, present3, dead4, plan, plan5, plan9, asked, said):
    """Gather what is said of a block beside its bytes.

    data3, present3: lanes of clock 3 of a turn and the next three. dead4: a row has class 0. plan, plan5,
    plan9: Plan. said u21: of thread `asked` u3, two clocks later: whether all values are equal, the bit
    length u4 of the or of all v xor (v >> 15), the value u16.
    """
    kept = [word(FACT_BITS) for _ in range(THREADS)]
    some4, all4 = [word(16) for _ in range(4)], [word(16) for _ in range(4)]
    some5, all5, dead5 = word(16), word(16), bit()
    some, every, holes, stored5, found = word(16), word(16), bit(), word(FACT_BITS), word(FACT_BITS)
    values_5, rows_5 = bit(), bit()
    pairs = [pair_facts(clk, n, data3, present3, some4[n], all4[n]) for n in range(4)]
    some_a, some_b, some_c, some_d = some4
    all_a, all_b, all_c, all_d = all4

    @always(clk.posedge)
    def join():
        some5.next = some_a | some_b | some_c | some_d
        all5.next = all_a & all_b & all_c & all_d
        dead5.next = dead4
        # Before the first value none has a bit, and all have it.
        if phase[2:] == 0:
            stored5.next = kept[plan.thread]
            if plan.fresh:
                stored5.next = concat(False, modbv(0xFFFF)[16:], modbv(0)[16:])

    @always_comb
    def sort():
        values_5.next = plan5.op == ROW or plan5.op == COUNT
        rows_5.next = plan5.op == HEADER

    # In the turn's first clock what is kept is taken, in the others what came of it.
    @always(clk.posedge)
    def gather():
        line = modbv(0)[FACT_BITS:]
        line[:] = concat(holes, every, some)
        if phase[2:] == 1:
            line[:] = stored5
        some.next = line[16:]
        every.next = line[32:16]
        holes.next = line[32] or (rows_5 and dead5)
        if values_5:
            some.next = line[16:] | some5
            every.next = line[32:16] & all5

    @always(clk.posedge)
    def keep():
        if phase[2:] == 1 and (plan9.op == ROW or plan9.op == COUNT or plan9.op == HEADER):
            kept[plan9.thread].next = concat(holes, every, some)

    @always(clk.posedge)
    def tell():
        found.next = kept[asked]
        for i in range(15):
            said.next[i] = found[i] ^ found[15]
        said.next[15] = found[15]
        said.next[20:16] = 0
        for i in range(15):
            if found[i]:
                said.next[20:16] = i + 1
        said.next[20] = not found[32] and found[16:] == found[32:16]

    return pairs, join, sort, gather, keep, tell
