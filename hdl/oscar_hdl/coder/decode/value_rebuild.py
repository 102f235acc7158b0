"""Values from symbols, raw bits, the low bits of wide rows, and start states (asc.md, "Symbols")."""

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.streams.bundles import bit, word


@block
def value_rebuild(clk, symbol12, step, seed, seed_not, raw_upper, raw_lower, low_bits, old15, low17, value):
    """Give a value of 16 bits each clock; names end in clocks of lane_step's step, 9 less than decode_lane's.

    symbol12 u4, time 12; step: StepFound. seed, time 15: the value is in the state.
    seed_not u5, time 14, all but one set: it is not in the state's bits 0..7, in 8..15, in the raw bits, all
    but the lowest 1, 2 or 3 of 6. raw_upper, raw_lower, time 15: the
    step's raw bits are a wide row's 1, 3, or upper 2 of 8 low bits, or the lower 6 of 8. low_bits u2, time
    18: 0, 1, 3, 8 of them are behind the symbol's value or the seed's (0, 1, 2, 3); a seed's are the
    state's bits 0..7. old15 u8, low17 u8: low bits of before, and those of now, which the block's next step
    has as old ones. value u16, time 20.
    """
    odd13, top13, halve13, signed13, odd14, sign14, sign15 = (bit() for _ in range(7))
    not_small13, not_down2_13, not_down4_13, moves13 = bit(), bit(), bit(), bit()
    not_small14, not_down2_14, not_down4_14, moves14 = bit(), bit(), bit(), bit()
    shifted14, down0_15, down2_15, down4_15, small15 = word(8), word(8), word(8), word(8), bit()
    size16, sign16, is_seed16, seed16 = word(8), bit(), bit(), word(8)
    state_low15, state_high15, raw_sign15 = word(8), word(8), bit()
    five15, four15, three15 = word(4), word(4), word(4)
    bits17, below17, carry17, high18 = word(8), bit(), bit(), word(9)
    low18 = word(8)
    old_top16, old_middle16, old_low16, raw_top16 = word(2), bit(), word(5), word(2)
    raw_middle16, raw_low16, seed_low16 = bit(), word(5), word(8)
    extended18 = word(16)
    shift0_19, shift1_19, shift3_19, shift8_19 = word(16), word(16), word(16), word(16)

    @always(clk.posedge)
    def magnitude():
        # A magnitude is a 1, the symbol's low bit and the raw bits, moved down; from 128 on a 0 behind the 1.
        odd13.next = symbol12[0]
        top13.next = symbol12[4:1] == 7
        halve13.next = symbol12[1] and symbol12[4:1] != 7
        signed13.next = symbol12 != 0
        shifted14.next = concat(odd13, step.step13[5:])
        shifted14.next[7] = top13
        shifted14.next[6] = not top13
        if halve13:
            shifted14.next = concat(True, odd13, step.step13[5:1])
        sign14.next = step.step13[5] and signed13
        sign15.next = sign14
        sign16.next = sign15
        odd14.next = odd13

    @always(clk.posedge)
    def move_down():
        # By 0, 2, 4 places, or symbols 0 and 1; three of these are 0.
        not_small13.next = symbol12[4:1] != 0
        not_down4_13.next = symbol12[4:1] != 1 and symbol12[4:1] != 2
        not_down2_13.next = symbol12[4:1] != 3 and symbol12[4:1] != 4
        moves13.next = symbol12 < 10
        not_small14.next = not_small13
        not_down4_14.next = not_down4_13
        not_down2_14.next = not_down2_13
        moves14.next = moves13
        down0_15.next = shifted14
        if moves14:
            down0_15.next = 0
        down2_15.next = shifted14[8:2]
        if not_down2_14:
            down2_15.next = 0
        down4_15.next = shifted14[8:4]
        if not_down4_14:
            down4_15.next = 0
        small15.next = odd14
        if not_small14:
            small15.next = False
        size16.next = down0_15 | down2_15 | down4_15 | small15

    @always(clk.posedge)
    def seeds():
        state_low15.next = step.step14[14:6]
        if seed_not[0]:
            state_low15.next = 0
        state_high15.next = step.step14[22:14]
        if seed_not[1]:
            state_high15.next = 0
        five15.next = step.step14[5:1]
        if seed_not[2]:
            five15.next = 0
        four15.next = step.step14[6:2]
        if seed_not[3]:
            four15.next = 0
        three15.next = concat(step.step14[5], step.step14[6:3])
        if seed_not[4]:
            three15.next = 0
        raw_sign15.next = step.step14[5]
        if not (seed_not[0] and seed_not[1]):
            raw_sign15.next = False
        seed16.next[4:] = state_low15[4:] | state_high15[4:] | five15 | four15 | three15
        seed16.next[4] = state_low15[4] or state_high15[4] or raw_sign15
        seed16.next[5] = state_low15[5] or state_high15[5] or raw_sign15
        seed16.next[6] = state_low15[6] or state_high15[6] or raw_sign15
        seed16.next[7] = state_low15[7] or state_high15[7] or raw_sign15

    @always(clk.posedge)
    def low_parts():
        # Low bits of before, of the raw bits, of a seed: 0 where they are not taken.
        old_top16.next = old15[8:6]
        if raw_upper or seed:
            old_top16.next = 0
        old_middle16.next = old15[5]
        if raw_upper or raw_lower or seed:
            old_middle16.next = False
        old_low16.next = old15[5:]
        if raw_lower or seed:
            old_low16.next = 0
        raw_top16.next = step.step15[6:4]
        raw_middle16.next = step.step15[3]
        if not raw_upper:
            raw_top16.next = 0
            raw_middle16.next = raw_lower and step.step15[5]
        raw_low16.next = step.step15[5:]
        if not raw_lower:
            raw_low16.next = 0
        seed_low16.next = step.step15[14:6]
        if not seed:
            seed_low16.next = 0

    @always(clk.posedge)
    def combine():
        bits17.next = size16
        if sign16:
            bits17.next = ~size16
        is_seed16.next = seed
        below17.next = sign16
        carry17.next = sign16
        if is_seed16:
            bits17.next = seed16
            below17.next = seed16[7]
            carry17.next = False
        high18.next = concat(below17, bits17) + carry17
        low17.next[8:6] = old_top16 | raw_top16 | seed_low16[8:6]
        low17.next[5] = old_middle16 or raw_middle16 or seed_low16[5]
        low17.next[5:] = old_low16 | raw_low16 | seed_low16[5:]
        low18.next = low17

    @always_comb
    def extend():
        extended18.next = high18
        if high18[8]:
            extended18.next = concat(modbv(127)[7:], high18)

    @always(clk.posedge)
    def scale():
        # One of these is not 0.
        shift0_19.next = extended18
        if low_bits != 0:
            shift0_19.next = 0
        shift1_19.next = concat(extended18[15:], low18[7])
        if low_bits != 1:
            shift1_19.next = 0
        shift3_19.next = concat(extended18[13:], low18[8:5])
        if low_bits != 2:
            shift3_19.next = 0
        shift8_19.next = concat(extended18[8:], low18)
        if low_bits != 3:
            shift8_19.next = 0
        value.next = shift0_19 | shift1_19 | shift3_19 | shift8_19

    return magnitude, move_down, seeds, low_parts, combine, extend, scale
