"""Where the bytes of eight lanes belong in a block."""

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.coder.unit.ports import WIDTH
from oscar_hdl.streams.bundles import word
from oscar_hdl.streams.copied import chain
from oscar_hdl.streams.joined import joined


@block
def four_sums(clk, HALF: int, over11, two11, within12, sum12):
    """Count bytes of four lanes: before each lane u4 (three bits are enough), and of all u4.

    over11, two11: u8, of lanes 4 HALF to 4 HALF + 3.
    """
    A, B, C, D = 4 * HALF, 4 * HALF + 1, 4 * HALF + 2, 4 * HALF + 3
    one_a, one_b, one_c, one_d, pair_ab, pair_cd = word(2), word(2), word(2), word(2), word(3), word(3)
    before_b, before_c, before_d = word(4), word(4), word(4)

    @always_comb
    def count():
        one_a.next[0] = over11[A] and not two11[A]
        one_a.next[1] = two11[A]
        one_b.next[0] = over11[B] and not two11[B]
        one_b.next[1] = two11[B]
        one_c.next[0] = over11[C] and not two11[C]
        one_c.next[1] = two11[C]
        one_d.next[0] = over11[D] and not two11[D]
        one_d.next[1] = two11[D]

    @always_comb
    def add():
        pair_ab.next = one_a + one_b
        pair_cd.next = one_c + one_d

    @always(clk.posedge)
    def give():
        before_b.next = one_a
        before_c.next = pair_ab
        before_d.next = pair_ab + one_c
        sum12.next = pair_ab + pair_cd

    @always_comb
    def join():
        within12.next = concat(before_d, before_c, before_b, modbv(0)[4:])

    return count, add, give, join


@block
def byte_places(clk, over11, two11, offset12, total12, places13, one13, two13):
    """Give for each lane the place of its first byte, u4 of u32, and whether it has one and a second.

    over11, two11: u8, one and two bytes leave. offset12 u4: the place of the clock's first byte, modulo 16.
    total12 u5: bytes of the clock.
    """
    low12, high12, low_sum12, high_sum12 = word(16), word(16), word(4), word(4)
    one12, two12, middle12 = word(WIDTH), word(WIDTH), word(4)
    places = [word(4) for _ in range(WIDTH)]
    place_a, place_b, place_c, place_d, place_e, place_f, place_g, place_h = places
    join = joined(places, places13)
    lower = four_sums(clk, 0, over11, two11, low12, low_sum12)
    upper = four_sums(clk, 1, over11, two11, high12, high_sum12)

    @always_comb
    def sums():
        total12.next = low_sum12 + high_sum12
        middle12.next = offset12 + low_sum12

    @always(clk.posedge)
    def place():
        place_a.next = offset12 + low12[4:]
        place_b.next = offset12 + low12[8:4]
        place_c.next = offset12 + low12[12:8]
        place_d.next = offset12 + low12[16:12]
        place_e.next = middle12 + high12[4:]
        place_f.next = middle12 + high12[8:4]
        place_g.next = middle12 + high12[12:8]
        place_h.next = middle12 + high12[16:12]

    delays = [chain(clk, over11, one12, one13), chain(clk, two11, two12, two13)]
    return lower, upper, delays, sums, place, join
