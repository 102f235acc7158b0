"""What lanes do in a turn, from its plan."""

from myhdl import always, always_comb, block

from oscar_hdl.coder.decode.ports import CLASSES, HIGH, RAW, REST, ROW, SEED, TALLY
from oscar_hdl.coder.unit.ports import WIDTH
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.lane_delay import lane_delay

LOWER_BITS = 12  # the code of a raw step of 6 bits


@block
def lane_presence(clk, phase, plan9, levels):
    """Give the lanes up to the plan's limit, eight a clock, the last ones first, in clocks 13, 29 and 35."""
    limit12, beat, below13, at13, up_to13 = word(5), word(2), bit(), bit(), word(WIDTH)
    first = lane_delay(clk, phase, levels.present13, levels.present29, 16)
    second = lane_delay(clk, phase, levels.present29, levels.present35, 6)

    @always_comb
    def count():
        beat.next = ~phase[2:]

    @always(clk.posedge)
    def compare():
        if phase[2:] == 3:
            limit12.next = plan9.limit
        below13.next = beat < limit12[5:3]
        at13.next = beat == limit12[5:3]
        for i in range(WIDTH):
            up_to13.next[i] = i <= limit12[3:]

    @always_comb
    def join():
        for i in range(WIDTH):
            levels.present13.next[i] = below13 or (at13 and up_to13[i])

    return first, second, count, compare, join


@block
def lane_levels(clk, phase, plan5, plan9, plan13, plan17, plan21, plan25, plan33, alive33, levels):
    """Give LaneLevels but for contexts6.

    plan5 to plan33: DecodePlan, of these clocks. alive33: the classes that were decoded in this turn are not
    all 0.
    """
    coded13, row14, raw14, every14, present14 = bit(), bit(), bit(), bit(), word(WIDTH)
    present = lane_presence(clk, phase, plan9, levels)

    @always(clk.posedge)
    def code():
        if phase[2:] == 2:
            levels.bank7.next = plan5.bank
            levels.pick7.next = plan5.pick
            levels.code15.next = plan13.code
        if phase[2:] == 0:
            levels.odd9.next = plan5.seeds == 3 or plan5.seeds == 5
            coded13.next = plan9.op == CLASSES or plan9.op == ROW
        if phase[2:] == 1:
            row14.next = plan13.op == ROW
            raw14.next = plan13.op == RAW
            every14.next = plan13.op == SEED
        present14.next = levels.present13
        levels.active14.next = 0
        if coded13:
            levels.active14.next = levels.present13
        levels.from_symbol15.next = 0
        if row14:
            levels.from_symbol15.next = present14
        levels.raw15.next = 0
        if raw14:
            levels.raw15.next = present14
        if every14:
            levels.raw15.next = 255
        if phase[2:] == 0:
            levels.clear21.next = plan17.op == HIGH
            levels.pick21.next = plan17.pick
        if phase[2:] == 2:
            levels.refill23.next = plan21.op != REST and plan21.op != SEED and plan21.op != TALLY

    # Which bits a seed has: of the state the lower or the upper eight, of the raw bits five, four or three.
    @always(clk.posedge)
    def rebuild():
        if phase[2:] == 2:
            levels.seed_not23.next[0] = plan21.seeds != 2 or not plan21.opens
            levels.seed_not23.next[1] = plan21.seeds > 2 or (plan21.seeds == 2 and plan21.opens)
            levels.seed_not23.next[2] = plan21.seeds != 3
            levels.seed_not23.next[3] = plan21.seeds != 4
            levels.seed_not23.next[4] = plan21.seeds != 5
        if phase[2:] == 3:
            levels.seed24.next = plan21.op == SEED
            levels.upper24.next = plan21.op == RAW and plan21.code != LOWER_BITS
            levels.lower24.next = plan21.op == RAW and plan21.code == LOWER_BITS
        if phase[2:] == 2:
            levels.low_bits27.next = 0
            if plan25.op == SEED:
                if plan25.seeds < 2:
                    levels.low_bits27.next = 3
            elif plan25.row_class[4:2] == 3:
                levels.low_bits27.next = plan25.row_class[2:]

    @always(clk.posedge)
    def count():
        if phase[2:] == 0:
            levels.pick29.next = plan25.pick
            levels.count_bits29.next = 0
            if plan25.row_class[4:2] == 3:
                levels.count_bits29.next = plan25.row_class[2:]
        if phase[2:] == 2:
            levels.seed35.next = plan33.op == SEED
            levels.tally35.next = plan33.op == TALLY
            levels.counted35.next = (plan33.op == CLASSES and alive33) or (
                plan33.op == ROW or ((plan33.op == SEED or plan33.op == TALLY) and plan33.real)
            )
            levels.pick35.next = plan33.pick

    return present, code, rebuild, count
