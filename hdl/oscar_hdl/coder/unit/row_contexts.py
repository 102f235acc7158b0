"""The table rows of a row's values, for all distances at once (docs/reference/asc.md, "Contexts")."""

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.unit.ports import WIDTH
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.joined import joined

NEAREST = 12  # class that stands for a wide row of unknown position


@block
def distance_context(clk, load, classes, row_class, DISTANCE: int, context):
    """Give the table row of values at a distance d = DISTANCE - 3, or with `classes` of means P of DISTANCE.

    row_class u4: e of asc.md, "Contexts". context u5 changes behind `load`.
    """
    LEAST, MOST, ADD, MEAN = (8 - DISTANCE) // 2, (27 - DISTANCE) // 2, (DISTANCE - 7) % 32, 24 + DISTANCE

    if DISTANCE == 0:

        @always(clk.posedge)
        def look_up():
            if load:
                context.next = 21
                if row_class[4:2] == 2 or row_class == 5 or row_class == 6 or row_class == 7:
                    context.next = 22
                if row_class[3] and (row_class[2] or row_class[2:] != 0):
                    context.next = 23
                if classes:
                    context.next = MEAN

    else:

        @always(clk.posedge)
        def look_up():
            if load:
                context.next = concat(row_class, False) + ADD
                if row_class < LEAST:
                    context.next = 0
                elif row_class > MOST:
                    context.next = 20
                if classes:
                    context.next = MEAN

    return look_up


@block
def context_at(distance, contexts, context):
    """Give the context u5 of a distance u3, of those of all distances (u40); combinational."""

    @always_comb
    def choose():
        context.next = contexts[5:]
        if distance == 1:
            context.next = contexts[10:5]
        elif distance == 2:
            context.next = contexts[15:10]
        elif distance == 3:
            context.next = contexts[20:15]
        elif distance == 4:
            context.next = contexts[25:20]
        elif distance == 5:
            context.next = contexts[30:25]
        elif distance == 6:
            context.next = contexts[35:30]
        elif distance == 7:
            context.next = contexts[40:35]

    return choose


@block
def row_contexts(clk, phase, classes, row_class, mean, contexts):
    """Give the contexts of all distances, u40, from clock 6 on, of a row whose class and mean are there at 1.

    classes, from 2 on: those of means instead.
    """
    wide2, unknown2, up2, same2, e3 = bit(), bit(), word(6), word(4), word(4)
    load5 = bit()
    each = [word(5) for _ in range(WIDTH)]
    maps = [distance_context(clk, load5, classes, e3, n, each[n]) for n in range(WIDTH)]
    join = joined(each, contexts)

    # A wide row has clamp(P + 2 - K, 8, 12) instead of its class.
    @always(clk.posedge)
    def scale():
        load5.next = phase[2:] == 0
        if phase[2:] == 1:
            same2.next = row_class
            wide2.next = row_class[4:2] == 3 and row_class[2:] != 0
            unknown2.next = mean == 0
            up2.next = mean + 1
            if row_class[2:] == 2:
                up2.next = mean - 1
            elif row_class[2:] == 3:
                up2.next = mean - 6
        if phase[2:] == 2:
            e3.next = same2
            if wide2:
                e3.next = up2[4:]
                if unknown2 or (not up2[5] and (up2[4] or up2[4:2] == 3)):
                    e3.next = NEAREST
                elif up2[5] or not up2[3]:
                    e3.next = 8

    return maps, join, scale
