"""The order of work of a block: what a thread does in its next turn."""

from myhdl import always, always_comb, block

from oscar_hdl.coder.encode import ports
from oscar_hdl.streams.bundles import bit, word


@block
def turn_order(clk, phase, context, decision):
    """Decide in phases 1 and 2 what a thread does, for phase 3; context: Context, decision: Decision.

    A block is: headers up to the first group with a live row; its seed rows, the last one first, each looked
    up and counted, then shifted into the states in one, two or four parts; rows, each with its raw steps;
    classes. Classes of dead groups behind a live one are held back until another live group comes.
    """
    row, other_row, takes = word(5), word(5), bit()
    none, ends, same, shut, seed_row = bit(), bit(), bit(), bit(), word(5)
    left, part, part_ends, some_left, seeds = word(3), word(3), bit(), bit(), word(3)
    raw_1, raw_2, next_group, next_scan = bit(), bit(), word(7), word(7)
    examines, nexts, lows, highs = bit(), bit(), bit(), bit()
    some, places, sought = word(8), word(16), bit()
    heads, finishes, works, plain = bit(), bit(), bit(), bit()
    now_left, now_part, now_seeds = word(3), word(3), word(3)

    # The first row left: where in each four rows it would be, then in which four it is.
    @always(clk.posedge)
    def seek():
        for i in range(8):
            some.next[i] = (
                context.mask[4 * i]
                or context.mask[4 * i + 1]
                or context.mask[4 * i + 2]
                or context.mask[4 * i + 3]
            )
            places.next[2 * i] = not context.mask[4 * i] and (
                context.mask[4 * i + 1] or not context.mask[4 * i + 2]
            )
            places.next[2 * i + 1] = not (context.mask[4 * i] or context.mask[4 * i + 1])
        row.next = 0
        for i in range(8):
            if some[7 - i]:
                row.next[5:2] = 7 - i
                row.next[0] = places[14 - 2 * i]
                row.next[1] = places[15 - 2 * i]

    # What is begun if the first live group was just found.
    @always_comb
    def open_group():
        sought.next = context.state == ports.EXAMINE and not context.opened
        now_left.next = context.left
        now_part.next = context.part
        now_seeds.next = context.seeds
        if context.state == ports.EXAMINE and not context.opened:
            now_left.next = context.found[28:25]
            now_part.next = 0
            now_seeds.next = context.found[31:28]

    @always(clk.posedge)
    def look():
        if phase[2:] == 1:
            none.next = context.mask == 0
            ends.next = context.scan == context.last_group
            shut.next = sought
            same.next = sought or context.group == context.scan
            left.next = now_left
            part.next = now_part
            seeds.next = now_seeds
            some_left.next = now_left != 0
            part_ends.next = (
                now_part == 4
                or (now_seeds == 2 and now_part == 2)
                or (now_seeds != 1 and now_seeds != 2 and now_part == 1)
            )
            raw_1.next = context.raws == 1 and context.wide != 0
            raw_2.next = context.raws == 2 and context.wide == 3
            next_group.next = context.group + 1
            next_scan.next = context.scan + 1
            examines.next = context.state == ports.EXAMINE
            nexts.next = context.state == ports.NEXT
            lows.next = context.state == ports.LOWS
            highs.next = context.state == ports.HIGHS
            if now_left == 1:
                seed_row.next = context.found[5:]
            elif now_left == 2:
                seed_row.next = context.found[10:5]
            elif now_left == 3:
                seed_row.next = context.found[15:10]
            elif now_left == 4:
                seed_row.next = context.found[20:15]
            else:
                seed_row.next = context.found[25:20]

    @always_comb
    def choose():
        heads.next = nexts or (examines and none and not ends)
        finishes.next = lows or highs or (examines and none and ends)
        works.next = not (nexts or lows or highs or (examines and none))
        plain.next = same and not some_left and not raw_1 and not raw_2
        decision.row.next = other_row
        decision.next_row.next = context.row
        if takes:
            decision.row.next = row
            decision.next_row.next = row

    @always_comb
    def clear():
        for i in range(32):
            decision.mask.next[i] = context.mask[i] and decision.row != i

    @always(clk.posedge)
    def decide():
        if phase[2:] == 2:
            decision.group.next = context.scan
            other_row.next = 0
            takes.next = False
            decision.part.next = part[2:] - 1
            decision.clears.next = False
            decision.op.next = ports.CLASSES
            if heads:
                decision.op.next = ports.HEADER
                decision.group.next = next_scan
            elif finishes:
                decision.op.next = ports.LOW
                if highs:
                    decision.op.next = ports.HIGH
                elif not context.opened:
                    decision.op.next = ports.END
            elif not same or (plain and none):
                decision.group.next = context.group
            elif some_left:
                decision.op.next = ports.COUNT
                if part != 0:
                    decision.op.next = ports.SEED
                other_row.next = seed_row
                decision.clears.next = part_ends
            elif raw_1 or raw_2:
                decision.op.next = ports.RAW
                other_row.next = context.row
                decision.part.next = 0
                if raw_2:
                    decision.part.next = 1
            else:
                decision.op.next = ports.ROW
                takes.next = True
                decision.clears.next = True

    @always(clk.posedge)
    def go_on():
        if phase[2:] == 2:
            decision.opened.next = context.opened or (shut and works)
            decision.opens.next = shut and works
            decision.live.next = plain
            decision.seeds.next = seeds
            decision.state.next = ports.ROWS
            if heads:
                decision.state.next = ports.EXAMINE
            elif finishes:
                decision.state.next = ports.HIGHS
            elif plain and none:
                decision.state.next = ports.NEXT
                if ends:
                    decision.state.next = ports.LOWS
            decision.at.next = context.group
            decision.scan.next = context.scan
            decision.first.next = context.first
            decision.left.next = left
            decision.next_part.next = part
            decision.raws.next = 0
            if heads:
                decision.scan.next = next_scan
            elif works:
                if shut:
                    decision.at.next = context.scan
                    decision.first.next = context.scan
                elif not same or (plain and none):
                    decision.at.next = next_group
                if same and some_left:
                    decision.next_part.next = part + 1
                    if part_ends:
                        decision.next_part.next = 0
                        decision.left.next = left - 1
                if raw_1:
                    decision.raws.next = 2
                elif plain and not none:
                    decision.raws.next = 1

    return seek, open_group, look, choose, clear, decide, go_on
