"""What a header says of its group: which rows are live, and which are seeds."""

from itertools import pairwise

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.coder.encode.ports import HEADER
from oscar_hdl.coder.unit.ports import WIDTH
from oscar_hdl.streams.bundles import Bundle, word

FEW_BITS = 5  # bit k - 1: fewer than k live rows came so far


class Scan(Bundle):
    """Eight rows on their way through seed_pair, and what was found among them."""

    few, rows = word(FEW_BITS), word(4 * WIDTH)  # of a row: size, and live << 3
    hit, places, over = word(5), word(15), word(4)


@block
def seed_pair(clk, PAIR: int, before, after):
    """See whether two of eight rows, 2 PAIR and the next, are among a group's first five live ones.

    before, after: Scan, a clock later. Of each of the five: hit, and its place among the eight rows, three
    bits. over: one of the first 2, 3, 4, 5 is too large to be a seed beside so many.
    """
    LIVE_A, LIVE_B, ODD, UPPER = 8 * PAIR + 3, 8 * PAIR + 7, bool(PAIR & 1), bool(PAIR & 2)
    SIZE_A, SIZE_B = 8 * PAIR, 8 * PAIR + 4
    few_b, here_a, here_b = word(FEW_BITS), word(5), word(5)
    size_a, size_b = word(3), word(3)

    @always_comb
    def rank():
        few_b.next = before.few
        if before.rows[LIVE_A]:
            few_b.next = concat(before.few[4:], False)
        size_a.next = before.rows[SIZE_A + 3 : SIZE_A]
        size_b.next = before.rows[SIZE_B + 3 : SIZE_B]

    @always_comb
    def place():
        here_a.next[0] = before.rows[LIVE_A] and before.few[0]
        here_b.next[0] = before.rows[LIVE_B] and few_b[0]
        for k in range(1, 5):
            here_a.next[k] = before.rows[LIVE_A] and before.few[k] and not before.few[k - 1]
            here_b.next[k] = before.rows[LIVE_B] and few_b[k] and not few_b[k - 1]

    @always(clk.posedge)
    def pass_on():
        after.rows.next = before.rows
        after.few.next = few_b
        if before.rows[LIVE_B]:
            after.few.next = concat(few_b[4:], False)
        after.hit.next = before.hit | here_a | here_b
        for k in range(5):
            after.places.next[3 * k] = before.places[3 * k]
            after.places.next[3 * k + 1] = before.places[3 * k + 1]
            after.places.next[3 * k + 2] = before.places[3 * k + 2]
            if here_a[k] or here_b[k]:
                after.places.next[3 * k] = here_b[k]
                after.places.next[3 * k + 1] = ODD
                after.places.next[3 * k + 2] = UPPER
        for n in range(4):
            # Sizes 1 to 4 fit beside 5, 4, 3, 2 rows.
            after.over.next[n] = (
                before.over[n]
                or (before.rows[LIVE_A] and before.few[n + 1] and size_a > 4 - n)
                or (before.rows[LIVE_B] and few_b[n + 1] and size_b > 4 - n)
            )

    return rank, place, pass_on


@block
def seed_rows(clk, phase, rows4, count5, plan13, group):
    """List a group's first live rows, up to five, and find how many of them are seeds.

    rows4 u32: eight rows a clock from clock 4 of a turn on; count5 u4: how many of them are live, a clock
    later. group: Group, of which the seeds are given in clock 14: n, how many there are, the rows.
    """
    first, *_, end = scans = [Scan() for _ in range(5)]
    few, after, few9, few13 = (word(FEW_BITS) for _ in range(4))
    rows5, over, sought = word(4 * WIDTH), word(4), word(3)
    there, places, beat = word(3), word(25), word(2)
    pairs = [seed_pair(clk, n, *two) for n, two in enumerate(pairwise(scans))]

    @always_comb
    def begin():
        first.rows.next = rows5
        first.few.next = few
        first.hit.next = 0
        first.places.next = 0
        first.over.next = 0
        after.next = 0
        if count5 == 0:
            after.next = few
        elif count5 == 1:
            after.next = concat(few[4:], modbv(0)[1:])
        elif count5 == 2:
            after.next = concat(few[3:], modbv(0)[2:])
        elif count5 == 3:
            after.next = concat(few[2:], modbv(0)[3:])
        elif count5 == 4:
            after.next = concat(few[0], modbv(0)[4:])

    @always(clk.posedge)
    def gather():
        rows5.next = rows4
        few.next = after
        if phase[2:] == 0:
            few.next = 31
            few9.next = after
            few13.next = few9
        over.next = over | end.over
        if phase[2:] == 1:
            over.next = end.over
        for k in range(5):
            if end.hit[k]:
                places.next[5 * k] = end.places[3 * k]
                places.next[5 * k + 1] = end.places[3 * k + 1]
                places.next[5 * k + 2] = end.places[3 * k + 2]
                places.next[5 * k + 3] = beat[0]
                places.next[5 * k + 4] = beat[1]

    @always_comb
    def choose():
        beat.next = phase[2:] - 1
        sought.next = 1
        for n in range(4):
            if not over[n]:
                sought.next = n + 2
        there.next = 5
        for k in range(5):
            if few13[4 - k]:
                there.next = 4 - k

    @always(clk.posedge)
    def give():
        group.write_seeds.next = phase[2:] == 1 and plan13.op == HEADER
        group.seeds_thread.next = plan13.thread
        if there < sought:
            group.seeds.next = concat(sought, there, places)
        else:
            group.seeds.next = concat(sought, sought, places)

    return pairs, begin, gather, choose, give


@block
def group_rows(clk, phase, data3, present3, plan5, plan13, group, dead4):
    """Look at the rows of a group, eight a clock from clock 3 of a turn on.

    data3: of the eight lanes. present3 u8: rows of the block; what is behind them does not count. plan5,
    plan13: the turn's Plan. group: Group. dead4: one of the rows has class 0.
    """
    live4, sizes4, lives, count4 = word(WIDTH), word(3 * WIDTH), word(32), word(4)
    count5, dead_rows4, rows4 = word(4), word(WIDTH), word(4 * WIDTH)
    seeds = seed_rows(clk, phase, rows4, count5, plan13, group)

    @always(clk.posedge)
    def see():
        for i in range(WIDTH):
            live4.next[i] = present3[i] and (
                data3[19 * i] or data3[19 * i + 1] or data3[19 * i + 2] or data3[19 * i + 3]
            )
            dead_rows4.next[i] = present3[i] and not (
                data3[19 * i] or data3[19 * i + 1] or data3[19 * i + 2] or data3[19 * i + 3]
            )
            for j in range(3):
                sizes4.next[3 * i + j] = data3[19 * i + 4 + j]

    @always_comb
    def join():
        ones = modbv(0)[4:]
        for i in range(WIDTH):
            rows4.next[4 * i + 3] = live4[i]
            for j in range(3):
                rows4.next[4 * i + j] = sizes4[3 * i + j]
            if live4[i]:
                ones[:] = ones + 1
        count4.next = ones
        dead4.next = dead_rows4 != 0

    @always(clk.posedge)
    def collect():
        lives.next = concat(live4, lives[32:8])
        count5.next = count4

    @always_comb
    def give():
        group.write_mask.next = phase[2:] == 0 and plan5.op == HEADER
        group.mask_thread.next = plan5.thread
        group.mask.next = lives

    return seeds, see, join, collect, give
