"""How a turn's lanes read their values: which bits, as what, in which contexts."""

from myhdl import always, always_comb, block

from oscar_hdl.coder.encode.ports import CLASSES, COUNT, END, HEADER, HIGH, LOW, RAW, REST, ROW, SEED
from oscar_hdl.coder.unit.ports import WIDTH
from oscar_hdl.coder.unit.row_contexts import row_contexts
from oscar_hdl.streams.bundles import bit, word


@block
def turn_reading(clk, phase, plan, row_class, mean, plan5, plan9, reading, wide, write_wide):
    """Say how a turn reads, from its plan.

    plan, row_class u4, mean u4: from clock 1 of the turn on; plan5, plan9: the plan again at 5, 9. reading:
    Reading. wide u2, write_wide: strobe at 1 of a row, which is told for the thread's next turn: how many low
    bits go round the tables, 0, 1, 2, 3 for 0, 1, 3, 8.
    """
    wide2, pair2, top2, signed2, classes2, idle2 = word(2), bit(), bit(), bit(), bit(), word(3)
    contexts = row_contexts(clk, phase, classes2, row_class, mean, reading.contexts6)

    @always_comb
    def tell():
        wide.next = 0
        if row_class[4:2] == 3:
            wide.next = row_class[2:]
        write_wide.next = phase[2:] == 1 and plan.op == ROW

    # idle: 6 less the number of raw bits. A pair of bits is read where what is left does not make six.
    @always(clk.posedge)
    def choose():
        if phase[2:] == 1:
            signed2.next = plan.op == ROW or plan.op == COUNT
            classes2.next = plan.op == CLASSES
            wide2.next = 0
            pair2.next = False
            top2.next = False
            idle2.next = 0
            if plan.op == ROW or plan.op == COUNT:
                wide2.next = wide
            elif plan.op == RAW:
                if plan.part[0]:
                    pair2.next = True
                    idle2.next = 4
                elif wide == 1:
                    idle2.next = 5
                elif wide == 2:
                    idle2.next = 3
            elif plan.op == SEED and plan.seeds[3:1] == 0:
                pair2.next = not plan.part[0]
                top2.next = plan.part == 0
                if plan.part == 1:
                    wide2.next = 3
                if not plan.part[0]:
                    idle2.next = 4
            elif plan.op == SEED and plan.seeds == 2:
                pair2.next = not plan.part[0]
                if not plan.part[0]:
                    idle2.next = 4
            elif plan.op == SEED:
                idle2.next = plan.seeds - 2

    @always(clk.posedge)
    def load():
        if phase[2:] == 2:
            reading.wide3.next = wide2
            reading.pair3.next = pair2
            reading.top3.next = top2
            reading.signed3.next = signed2
            reading.classes3.next = classes2
        if phase[2:] == 0:
            reading.raw5.next = not reading.signed3
            reading.idle5.next = idle2
        if phase[2:] == 1:
            reading.signed6.next = plan5.op == ROW or plan5.op == COUNT
            reading.classes6.next = plan5.op == CLASSES
            reading.coded6.next = plan5.op == ROW or plan5.op == COUNT or plan5.op == CLASSES
            reading.must6.next = plan5.op == ROW or plan5.op == CLASSES
            reading.bank6.next = plan5.bank
            reading.low10.next = plan9.op == LOW
            reading.high10.next = plan9.op == HIGH
            reading.quiet10.next = (
                plan9.op == REST or plan9.op == HEADER or plan9.op == COUNT or plan9.op == END
            )

    return contexts, tell, choose, load


@block
def lane_presence(clk, phase, plan, present3, present6):
    """Give the lanes up to the plan's limit.

    plan: Plan, from clock 1 of a turn on. present3, u8 from clock 3 on, eight lanes a clock: those that are
    there; present6: of them those that take a step, three clocks later.
    """
    limit2, steps2, steps3, beat2 = word(5), bit(), bit(), word(2)
    below3, at3, up_to3, present4, present5 = bit(), bit(), word(WIDTH), word(WIDTH), word(WIDTH)

    @always_comb
    def count():
        beat2.next = phase[2:] + 2

    @always(clk.posedge)
    def compare():
        if phase[2:] == 1:
            limit2.next = plan.limit
            steps2.next = (
                plan.op == ROW or plan.op == COUNT or plan.op == SEED or plan.op == RAW or plan.op == CLASSES
            )
        steps3.next = steps2
        below3.next = beat2 < limit2[5:3]
        at3.next = beat2 == limit2[5:3]
        for i in range(WIDTH):
            up_to3.next[i] = i <= limit2[3:]

    @always_comb
    def join():
        for i in range(WIDTH):
            present3.next[i] = below3 or (at3 and up_to3[i])

    @always(clk.posedge)
    def delay():
        present4.next = 0
        if steps3:
            present4.next = present3
        present5.next = present4
        present6.next = present5

    return count, compare, join, delay
