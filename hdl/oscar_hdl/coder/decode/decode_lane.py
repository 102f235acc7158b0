"""A lane: from a distance and a state to a value, a symbol, and a new state."""

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.decode.lane_step import StepControl, StepFound, lane_step
from oscar_hdl.coder.decode.seed_symbol import seed_symbol
from oscar_hdl.coder.decode.value_rebuild import value_rebuild
from oscar_hdl.coder.unit.ports import STATE_BITS
from oscar_hdl.coder.unit.row_contexts import context_at
from oscar_hdl.streams.bundles import lane, word
from oscar_hdl.streams.lane_delay import lane_delay


@block
def lane_context(clk, LANE: int, data3, classes4, levels, context7):
    """Give the table row of a lane's distance, or of a row's mean P.

    data3 u32: distances u4 of eight lanes. classes4: they are means. levels: LaneLevels. context7 u5.
    """
    AT = 4 * LANE
    distance4, distance5, distance6, context6 = word(4), word(3), word(3), word(5)

    @always(clk.posedge)
    def follow():
        distance4.next = data3[AT + 4 : AT]
        distance5.next = distance4[3:]
        if classes4 and distance4[3]:
            distance5.next = 7
        distance6.next = distance5
        context7.next = context6

    return follow, context_at(distance6, levels.contexts6, context6)


@block
def lane_bytes(clk, phase, step22, taken, x34):
    """Put the bytes that a lane takes into its state, x34 u24; step22: of lane_step; taken: LaneBytes.

    Where a state takes bytes its upper byte, or two, are 0.
    """
    x33 = word(STATE_BITS)
    late = lane_delay(clk, phase, step22(30, 6), x33, 11)

    @always(clk.posedge)
    def put():
        x34.next[24:16] = x33[24:16]
        x34.next[16:8] = x33[16:8] | taken.middle33
        x34.next[8:] = x33[8:]
        if taken.two33:
            x34.next[24:16] = x33[8:]
            x34.next[8:] = taken.low33
        elif taken.one33:
            x34.next[24:16] = x33[16:8]
            x34.next[16:8] = x33[8:]
            x34.next[8:] = taken.low33

    return late, put


@block
def sample_count(clk, phase, zero, one, two, three, levels, class35, address36):
    """Give what is counted of four lanes, context and symbol u9.

    zero to three: LaneFound. levels: LaneLevels, which pick one. class35 u4: of raw_classes. The symbol of a
    seed row is found from the value.
    """
    context7, context21, context35 = word(5), word(5), word(5)
    symbol21, symbol35, seed35, value29 = word(4), word(4), word(4), word(16)
    first = lane_delay(clk, phase, context7, context21, 14)
    second = lane_delay(clk, phase, context21, context35, 14)
    late = lane_delay(clk, phase, symbol21, symbol35, 14)
    seeds = seed_symbol(clk, value29, levels.count_bits29, seed35)

    @always_comb
    def choose():
        context7.next = zero.context7
        if levels.pick7 == 1:
            context7.next = one.context7
        elif levels.pick7 == 2:
            context7.next = two.context7
        elif levels.pick7 == 3:
            context7.next = three.context7
        symbol21.next = zero.symbol21
        if levels.pick21 == 1:
            symbol21.next = one.symbol21
        elif levels.pick21 == 2:
            symbol21.next = two.symbol21
        elif levels.pick21 == 3:
            symbol21.next = three.symbol21
        value29.next = zero.value29
        if levels.pick29 == 1:
            value29.next = one.value29
        elif levels.pick29 == 2:
            value29.next = two.value29
        elif levels.pick29 == 3:
            value29.next = three.value29

    @always(clk.posedge)
    def join():
        address36.next = concat(context35, symbol35)
        if levels.seed35:
            address36.next = concat(context35, seed35)
        elif levels.tally35:
            address36.next = concat(context35, class35)

    return first, second, late, seeds, choose, join


@block
def decode_lane(clk, rst, phase, LANE: int, writes, levels, inputs, taken, found, *, banks: int):
    """Decode a step a clock; a number in a name is the clock of the turn's first lanes.

    writes: LevelWrites. levels: LaneLevels. inputs: LaneInputs. taken: LaneBytes. found: LaneFound.
    """
    AT, LOW_AT = STATE_BITS * LANE, 8 * LANE
    BITS = banks.bit_length() - 1
    context7, value29 = found.context7, found.value29
    banked7, x9 = word(5 + BITS), word(STATE_BITS)
    control, step = StepControl(), StepFound()
    control.active, control.from_symbol = levels.active14(LANE), levels.from_symbol15(LANE)
    control.clear, control.refill = levels.clear21, levels.refill23
    step.symbol, step.take_one, step.take_two = found.symbol15, taken.one24, taken.two24
    old24, local29 = word(8), lane(inputs.local29, LANE, 16)
    contexts = lane_context(clk, LANE, inputs.data3, inputs.classes4, levels, context7)
    core = lane_step(clk, rst, phase, writes, banked7, control, x9, step)
    put = lane_bytes(clk, phase, step.step13, taken, found.x34)
    late = lane_delay(clk, phase, step.symbol, found.symbol21, 6)
    value = value_rebuild(
        clk, found.symbol21, step, levels.seed24, levels.seed_not23, levels.upper24, levels.lower24,
        levels.low_bits27, old24, found.low26, value29,
    )  # fmt: skip

    @always_comb
    def lead():
        banked7.next = concat(levels.bank7[BITS:], context7)
        x9.next = inputs.x9[AT + STATE_BITS : AT]
        old24.next = inputs.old24[LOW_AT + 8 : LOW_AT]
        control.code.next = 0
        if levels.raw15[LANE]:
            control.code.next = levels.code15

    @always(clk.posedge)
    def follow():
        found.wrong10.next = x9[24:16] != 1 or (levels.odd9 and x9[15])
        found.odd30.next = value29 != 0
        found.total30.next = value29 + local29
        if not levels.present29[LANE]:
            found.total30.next = 0

    return contexts, core, put, late, value, lead, follow
