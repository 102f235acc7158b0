"""Neighbour states of twelve lanes, and the context of a symbol (docs/format2.md, "Contexts"; fixed map)."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, block, concat, modbv

from oscar_hdl.format2.params import WEIGHT
from oscar_hdl.streams.bundles import bit, word

DEPTH = 16  # of a distributed RAM: 12 lanes and 4 rows that nobody uses

# What a symbol adds to the decayed state: WEIGHT >> 3, and in the lowest bit a carry. Only the escape has
# one, as its weight alone is not a multiple of 8.
STEP = tuple((w >> 3) << 1 | (w & 7 != 0) for w in WEIGHT)


@block
def asc_context(
    clk: Any, u_valid: Any, u_lane: Any, u_sym: Any, u_zero: Any, q_lane: Any, q_class: Any, q_zero: Any,
    q_ctx: Any,
) -> Any:  # fmt: skip
    """Hold 12 neighbour states e, move them on with symbols, and say the context of a lane's next value.

    u_valid (strobe, any clock): lane `u_lane` u4 coded symbol `u_sym` u4; u_zero: its state was 0 before.
    q_lane, q_class u4, q_zero: lane and position class of a value; q_zero: take e as 0. q_ctx u4, 0..11, is
    its context 2 clocks later. An update is seen by queries and by updates of its lane that are given 4 or
    more clocks later. Nothing needs a reset: a lane starts with u_zero and q_zero.

    WEIGHT is 8 w, and 8 w + 7 for the escape. So e + ((WEIGHT - e) >> 3) is (e - ceil(e / 8)) + w, plus 1 for
    the escape if e is not a multiple of 8. The memory keeps e - ceil(e / 8) = (7 e) >> 3 and that flag in 13
    bits, which leaves one addition between a symbol and the new state.
    """
    decayed_mem = [Signal(modbv(0)[13:]) for _ in range(DEPTH)]
    length_mem = [Signal(modbv(0)[4:]) for _ in range(DEPTH)]

    valid1, valid2, valid3 = bit(), bit(), bit()
    lane1, lane2, lane3 = word(4), word(4), word(4)
    step1, decayed1, decayed3 = word(10), word(13), word(13)
    e2 = word(12)
    group3, bits2, bits1, bits0 = word(2), word(2), word(2), word(2)
    odd, carry = bit(), bit()
    high = word(3)

    # 1: weight and decayed state; 2: e; 3: decayed again, and the bit length of e in parts; then both are
    # written. bl(e) is 4 * group + bits: group 1 has 4..7, if the highest bit set is one of 3..6.
    @always(clk.posedge)
    def update():
        valid1.next = u_valid
        lane1.next = u_lane
        step1.next = STEP[int(u_sym)]
        if u_zero:
            decayed1.next = 0
        else:
            decayed1.next = decayed_mem[u_lane]

        valid2.next = valid1
        lane2.next = lane1
        total = modbv(0)[13:]
        total[:] = decayed1 + step1
        e2.next = total[13:1]

        valid3.next = valid2
        lane3.next = lane2
        seven = modbv(0)[15:]
        seven[:] = concat(e2, modbv(0)[3:]) - e2
        decayed3.next[13:1] = seven[15:3]
        decayed3.next[0] = e2[3:] != 0
        group3.next[1] = e2[12:7] != 0
        group3.next[0] = e2[11] or (e2[11:7] == 0 and e2[7:3] != 0)
        bits2.next[1] = e2[10] or e2[9]
        bits2.next[0] = e2[10] or (e2[8] and not e2[9])
        bits1.next[1] = e2[6] or e2[5]
        bits1.next[0] = e2[6] or (e2[4] and not e2[5])
        bits0.next[1] = e2[2] or e2[1]
        bits0.next[0] = e2[2] or (e2[0] and not e2[1])

        bits = modbv(0)[2:]
        if group3 == 2:
            bits[:] = bits2
        elif group3 == 1:
            bits[:] = bits1
        elif group3 == 0:
            bits[:] = bits0
        if valid3:
            decayed_mem[lane3].next = decayed3
            length_mem[lane3].next = concat(group3, bits)

    # p + bl(e) - 4 in halves of two bits, the upper one less 1 (-1 is 7 in 3 bits); then the carry, and the
    # clamp at 0. The largest sum is 15 + 12 - 4.
    @always(clk.posedge)
    def query():
        length = modbv(0)[4:]
        length[:] = length_mem[q_lane]
        if q_zero:
            length[:] = 0
        low = modbv(0)[3:]
        low[:] = length[2:] + q_class[2:]
        odd.next = low[1]
        carry.next = low[2]
        high.next = concat(False, length[4:2]) + q_class[4:2] + 7
        if high == 7 and not carry:
            q_ctx.next = 0
        else:
            up = modbv(0)[3:]
            up[:] = high + carry
            q_ctx.next = concat(up, odd)

    return update, query
