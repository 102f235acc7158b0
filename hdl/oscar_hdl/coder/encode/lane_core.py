"""A lane's step: raw bits and a symbol into its state, bytes out (docs/reference/asc.md, "The coder")."""

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.encode.divide import divide
from oscar_hdl.coder.ports import BANK_BITS
from oscar_hdl.coder.unit.ports import STATE_BITS
from oscar_hdl.streams.block_ram import block_ram
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.copied import chain
from oscar_hdl.streams.lane_delay import lane_delay


@block
def lane_tables(clk, tables, step, f10, none10, c10, impossible11):
    """Keep the banks of tables, as quads.

    tables: TableWrites, a write in any clock. f10 u10 and c10 u10 are of the symbol of step (Step) three
    clocks before, and 0 if there is none (none10).
    """
    quad_at, quad9, low9, high9 = word(7 + BANK_BITS), word(50), word(10), word(10)
    symbol8, symbol9, none8, none9, must8, must9, must10 = word(2), word(2), bit(), bit(), bit(), bit(), bit()
    quads = block_ram(clk, tables.enable, tables.address, tables.data, quad_at, quad9)
    delays = [chain(clk, step.none7, none8, none9), chain(clk, step.must7, must8, must9, must10)]

    @always_comb
    def choose():
        quad_at.next = step.address7[9 + BANK_BITS : 2]
        if symbol9 == 0:
            low9.next = quad9[10:]
            high9.next = quad9[20:10]
        elif symbol9 == 1:
            low9.next = quad9[20:10]
            high9.next = quad9[30:20]
        elif symbol9 == 2:
            low9.next = quad9[30:20]
            high9.next = quad9[40:30]
        else:
            low9.next = quad9[40:30]
            high9.next = quad9[50:40]

    @always(clk.posedge)
    def take():
        f10.next = high9 - low9
        c10.next = low9
        none10.next = none9
        if none9:
            f10.next = 0
            c10.next = 0
        symbol8.next = step.address7[2:]
        symbol9.next = symbol8
        impossible11.next = must10 and f10 == 0

    return quads, delays, choose, take


@block
def lane_shift(clk, x7, idle7, raw7, f10, reading, over11, two11, y12):
    """Shift raw bits into a state, and as many bytes out that y12 u24 is below f10 u11 << 14.

    x7 u24, idle7 u3, raw7 u6: of the lane. reading: Reading, of the final states' turns.
    over11: a byte leaves, the lowest of x7; two11: the next, too.
    """
    v8, v9, v10, v11, far8, joined7 = word(30), word(30), word(30), word(30), bit(), word(30)
    idle8, idle9, idle10, below11 = word(3), word(3), word(3), word(6)
    delays = [chain(clk, idle7, idle8, idle9, idle10), chain(clk, v9, v10, v11)]

    @always_comb
    def join():
        joined7.next = concat(x7, raw7)

    @always(clk.posedge)
    def shift():
        if idle7[1]:
            if idle7[0]:
                v8.next = joined7[30:3]
            else:
                v8.next = joined7[30:2]
        else:
            if idle7[0]:
                v8.next = joined7[30:1]
            else:
                v8.next = joined7
        far8.next = idle7[2]
        v9.next = v8
        if far8:
            v9.next = v8[30:4]
        over11.next = not reading.quiet10 and (reading.low10 or reading.high10 or v10[30:14] >= f10)
        two11.next = not reading.quiet10 and (reading.high10 or v10[30:22] >= f10)
        # Raw bits stay when bytes leave.
        for i in range(6):
            below11.next[i] = idle10 < 6 - i
        y12.next = v11[24:]
        if two11:
            y12.next[24:14] = 0
            y12.next[14:6] = v11[30:22]
            y12.next[6:] = (v11[22:16] & ~below11) | (v11[6:] & below11)
        elif over11:
            y12.next[24:22] = 0
            y12.next[22:6] = v11[30:14]
            y12.next[6:] = (v11[14:8] & ~below11) | (v11[6:] & below11)

    return delays, join, shift


@block
def lane_core(clk, phase, tables, step, reading, begins21, begin21, leaving, f10, ratio12, x22):
    """Code a step a clock; a number in a name is the clock of the turn's first lanes.

    phase u4: of lane_delay. tables: TableWrites. step: Step, what is coded. begins21: the state begins with
    begin21 u17 instead. leaving: Leaving, the bytes. f10 u10: whose reciprocal is to come as ratio12 u16.
    x22 u24: the new state.
    """
    none10, whole10, c10, c20 = bit(), word(11), word(10), word(10)
    y12, x21 = word(STATE_BITS), word(STATE_BITS)

    entries = lane_tables(clk, tables, step, f10, none10, c10, leaving.impossible11)
    shift = lane_shift(
        clk, step.x7, step.idle7, step.raw7, whole10, reading, leaving.over11, leaving.two11, y12
    )
    quotient = divide(clk, phase, whole10, y12, ratio12, c20, x21)
    late_c = lane_delay(clk, phase, c10, c20, 10)
    late_bytes = lane_delay(clk, phase, step.x7(16, 0), leaving.bytes13, 6)

    @always_comb
    def join():
        whole10.next = concat(none10, f10)

    @always(clk.posedge)
    def keep():
        x22.next = x21
        if begins21:
            x22.next = begin21

    return entries, shift, quotient, late_c, late_bytes, join, keep
