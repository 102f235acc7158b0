"""The rANS encoder: twelve interleaved states on one loop of twelve registers, one symbol a clock."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.streams.bundles import bit, word


@block
def rans_encoder(
    clk: Any, rst: Any, tw_en: Any, tw_addr: Any, tw_f: Any, tw_c: Any, tw_rcp: Any, slot: Any,
    in_valid: Any, in_bank: Any, in_ctx: Any, in_sym: Any, in_first: Any, in_final: Any,
    word_valid: Any, word_out: Any, word_end: Any, state_valid: Any, state_lane: Any, state: Any,
) -> Any:  # fmt: skip
    """Code one symbol a clock with the tables of two banks (docs/format2.md, "The coder"; in reverse order).

    tw_en, tw_addr u9, tw_f u12, tw_c u12, tw_rcp u18: table writes, as asc_tables makes them. slot u4: the
    lane whose symbol is taken in this clock; counts 11, 10, .. 0, 11. in_valid low: a bubble, the lane's
    state stays. in_bank, in_ctx u4, in_sym u4: table row. in_first: the lane starts at 4,096. in_final: its
    last symbol. word_valid, word_out u12: the word this symbol pushed out, 5 clocks after its slot; word_end
    5 clocks after in_final of lane 0. state_valid, state_lane u4, state u24: 15 clocks after in_final.

    A number in a name is the clock, counted from the slot, in which the signal belongs to that symbol. The
    state x = {q, lo} is back at its start after twelve: q16, lo16 of a symbol stand beside f4 of the lane's
    next one. With y < f << 12 (docs/format2.md, "What is proven") the new state is {y / f, y mod f + c}, and
    the test for a word, x >= f << 12, is q >= f. A bubble is a symbol with f = 4096, c = 0, which changes no
    x and pushes nothing; 2^15 is its exact reciprocal.
    """
    # 36 + 6 bits a row, so that the tables are two block RAMs: f, c and the upper bits of the reciprocal.
    table = [word(36) for _ in range(512)]
    table_low = [word(6) for _ in range(512)]
    count = word(4, 11)
    addr1, row2, row3, low2, low3 = word(9), word(36), word(36), word(6), word(6)
    valid1, valid2, bubble3, valid4 = bit(), bit(), bit(1), bit()
    first1, first2, first3 = bit(), bit(), bit()
    end1, end2, end3, end4 = bit(), bit(), bit(), bit()
    finals = word(14)  # bit i is clock i + 1

    f4, f5, f6, f7, f8, f9, f10, f11 = (word(13) for _ in range(8))
    c_line = word(120)  # clock 4 in the lowest 12 bits, 13 in the highest
    rcp4, rcp5, rcp6, rcp7 = (word(18) for _ in range(4))
    q5, lo5 = word(12), word(12)
    push5 = bit()
    high6, y6 = word(12), word(12)
    small6, small7, small8, middle6 = bit(), bit(), bit(), bit()
    y7, y8, y9, y10 = (word(13) for _ in range(4))  # what the remainder needs of y
    part7 = word(18)  # the 18 bits of y that the estimate needs
    estimate8 = word(36)
    q9, q10, q11, q12, q13, q14, q15, q16 = (word(12) for _ in range(8))
    product10 = word(25)
    r11, r12, r13 = word(13), word(12), word(12)
    over12 = word(13)
    lo14, lo15, lo16 = word(12), word(12), word(12)

    @always(clk.posedge)
    def write_tables():
        if tw_en:
            table[tw_addr].next = concat(tw_rcp[18:6], tw_c, tw_f)
            table_low[tw_addr].next = tw_rcp[6:0]

    @always(clk.posedge)
    def read_tables():
        addr1.next = concat(in_bank, in_ctx, in_sym)
        row2.next = table[addr1]
        low2.next = table_low[addr1]
        row3.next = row2  # becomes the output register of the block RAM
        low3.next = low2

    @always(clk.posedge)
    def control():
        if count == 0:
            count.next = 11
        else:
            count.next = count - 1
        valid1.next = in_valid
        valid2.next = valid1
        bubble3.next = not valid2
        valid4.next = not bubble3
        first1.next = in_first and in_valid
        first2.next = first1
        first3.next = first2
        end1.next = in_final and in_valid and count == 0
        end2.next = end1
        end3.next = end2
        end4.next = end3
        word_end.next = end4
        finals.next[0] = in_final and in_valid
        finals.next[14:1] = finals[13:0]
        state_valid.next = finals[13]
        # Fourteen clocks on, the count is two lower.
        if count < 10:
            state_lane.next = count + 2
        else:
            state_lane.next = count - 10
        if rst:
            count.next = 11
            valid1.next = False
            valid2.next = False
            bubble3.next = True
            valid4.next = False
            end1.next = False
            end2.next = False
            end3.next = False
            end4.next = False
            word_end.next = False
            finals.next = 0
            state_valid.next = False

    # Only plain registers (no enable, no reset) next to multipliers: they move into them.
    @always(clk.posedge)
    def delays():
        f5.next = f4
        f6.next = f5
        f7.next = f6
        f8.next = f7
        f9.next = f8
        f10.next = f9
        f11.next = f10
        rcp5.next = rcp4
        rcp6.next = rcp5
        rcp7.next = rcp6
        y8.next = y7
        y9.next = y8
        y10.next = y9
        q10.next = q9
        q11.next = q10
        q12.next = q11
        small7.next = small6
        small8.next = small7

    @always(clk.posedge)
    def take_symbol():
        c_line.next = concat(c_line[108:], row3[24:12])
        f4.next = row3[12:]
        rcp4.next = concat(row3[36:24], low3)
        if bubble3:
            f4.next = 4096
            c_line.next[12:] = 0
            rcp4.next = 32768
        q16.next = q15
        lo16.next = lo15
        if first3:  # x = 4096
            q16.next = 1
            lo16.next = 0

    @always(clk.posedge)
    def renormalise():
        push5.next = valid4 and q16 >= f4 and not rst
        q5.next = q16
        lo5.next = lo16
        y6.next = lo5
        high6.next = q5
        if push5:
            y6.next = q5
            high6.next = 0

    # The estimate is the quotient or one less: docs/hardware.md, "Reciprocal".
    @always(clk.posedge)
    def estimate():
        small6.next = f5 <= 64
        middle6.next = f5 <= 512
        if small6:
            part7.next = concat(high6[6:], y6)
        elif middle6:
            part7.next = concat(high6[9:], y6[12:3])
        else:
            part7.next = concat(high6, y6[12:6])
        y7.next = concat(high6[0], y6)
        estimate8.next = part7 * rcp7
        if small8:
            q9.next = estimate8[30:18]
        else:
            q9.next = estimate8[33:21]

    # 13 bits are enough: the remainder by the estimate is below 2 f <= 2^13.
    @always(clk.posedge)
    def divide():
        product10.next = q9 * f9
        r11.next = y10 - product10[13:]
        r12.next = r11[12:]
        over12.next = r11 - f11
        if over12[12]:
            r13.next = r12
        else:
            r13.next = over12[12:]
        if over12[12]:
            q13.next = q12
        else:
            q13.next = q12 + 1
        lo14.next = r13 + c_line[120:108]
        q14.next = q13
        q15.next = q14
        lo15.next = lo14

    @always_comb
    def outputs():
        slot.next = count
        word_valid.next = push5
        word_out.next = lo5
        state.next = concat(q15, lo15)

    return write_tables, read_tables, control, delays, take_symbol, renormalise, estimate, divide, outputs
