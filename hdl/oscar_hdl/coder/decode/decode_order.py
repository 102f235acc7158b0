"""The order of work of a block: what a thread does in its next turn."""

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.decode import ports
from oscar_hdl.streams.bundles import bit, word


@block
def row_ends(clk, mask, high, low):
    """Give the highest and the lowest row u5 of those in mask u32, two clocks later."""
    eight_high, eight_low, at_high, at_low = word(8), word(8), word(2), word(2)

    @always(clk.posedge)
    def seek():
        if mask[32:24] != 0:
            eight_high.next = mask[32:24]
            at_high.next = 3
        elif mask[24:16] != 0:
            eight_high.next = mask[24:16]
            at_high.next = 2
        elif mask[16:8] != 0:
            eight_high.next = mask[16:8]
            at_high.next = 1
        else:
            eight_high.next = mask[8:]
            at_high.next = 0
        if mask[8:] != 0:
            eight_low.next = mask[8:]
            at_low.next = 0
        elif mask[16:8] != 0:
            eight_low.next = mask[16:8]
            at_low.next = 1
        elif mask[24:16] != 0:
            eight_low.next = mask[24:16]
            at_low.next = 2
        else:
            eight_low.next = mask[32:24]
            at_low.next = 3
        high.next = concat(at_high, False, False, False)
        low.next = concat(at_low, True, True, True)
        for i in range(8):
            if eight_high[i]:
                high.next[3:] = i
            if eight_low[7 - i]:
                low.next[3:] = 7 - i

    return seek


@block
def decode_choice(clk, phase, thread, some, context, choice):
    """Decide from phase 1 to 3 what a thread does; thread u3, some: of thread_choice, context: DecodeContext.

    choice: DecodeChoice. A block is: the final states; from the last group to the first its classes and its
    rows, the last one first; at last the seed rows, the first one first, or one turn if there are none. A raw
    block is its rows, the first one first: loaded, looked at, taken; behind those of a group its classes.
    """
    high, low, row, seeding = word(5), word(5), word(5), bit()
    first2, end2, last2, more3, rows2 = bit(), bit(), bit(), bit(), bit()
    goes_on, next_group = bit(), word(7)
    held2, ends = word(3), row_ends(clk, context.mask, high, low)
    loads, raw_row, next_row, raw_limit = bit(), word(5), word(5), word(5)

    # In phase 2 what belongs to the context, in 3 what is found of its rows.
    @always(clk.posedge)
    def look():
        first2.next = context.group == context.first
        end2.next = context.group == context.last_group
        next_group.next = context.group - 1
        if context.raw:
            next_group.next = context.group + 1
        rows2.next = context.state == ports.ROWS
        held2.next = 0
        if context.group == context.first:
            held2.next = context.seeds
        more3.next = rows2 and context.left > held2

    @always_comb
    def sort():
        seeding.next = context.state == ports.SEEDS or (rows2 and first2 and not more3)
        goes_on.next = rows2 and not first2 and not more3
        row.next = high
        if context.state == ports.SEEDS or (rows2 and first2 and not more3):
            row.next = low
        last2.next = end2 and not (rows2 and not first2 and not more3)

    @always(clk.posedge)
    def go_up():
        loads.next = (
            context.state == ports.FIRST or context.state == ports.NEXT or context.state == ports.AGAIN
        )
        raw_row.next = context.left[5:]
        if context.state == ports.FIRST or context.state == ports.AGAIN or context.state == ports.TALLIES:
            raw_row.next = 0

    @always_comb
    def bound():
        next_row.next = raw_row + 1
        raw_limit.next = 31
        if end2:
            if context.state == ports.TALLIES:
                raw_limit.next = context.last_row
            elif raw_row == context.last_row:
                raw_limit.next = context.last_lane

    @always(clk.posedge)
    def decide():
        if phase[2:] == 3:
            choice.op.next = ports.CLASSES
            if context.state == ports.HIGHS:
                choice.op.next = ports.HIGH
            elif context.state == ports.LOWS:
                choice.op.next = ports.LOW
            elif seeding:
                choice.op.next = ports.SEED
            elif more3:
                choice.op.next = ports.ROW
            choice.group.next = context.group
            if goes_on:
                choice.group.next = next_group
            choice.row.next = 0
            if seeding or more3:
                choice.row.next = row
            choice.real.next = more3 or (seeding and context.left != 0)
            choice.limit.next = 31
            if last2:
                if not more3 and not seeding:
                    choice.limit.next = context.last_row
                elif row == context.last_row:
                    choice.limit.next = context.last_lane
            choice.thread.next = thread
            choice.some.next = some
            choice.bank.next = context.bank
            choice.seeds.next = context.seeds
            choice.wide.next = context.wide
            choice.index.next = context.index
            choice.left.next = context.left - 1
            for i in range(32):
                choice.mask.next[i] = context.mask[i] and row != i
            if context.raw:
                choice.op.next = ports.SEED
                if loads:
                    choice.op.next = ports.HIGH
                elif context.state == ports.TALLIES:
                    choice.op.next = ports.TALLY
                choice.group.next = context.group
                if context.state == ports.AGAIN:
                    choice.group.next = next_group
                choice.row.next = raw_row
                choice.left.next = raw_row
                if context.state == ports.ADD:
                    choice.left.next = next_row
                choice.limit.next = raw_limit
                if context.state == ports.FIRST or context.state == ports.AGAIN:
                    choice.index.next = 0

    @always(clk.posedge)
    def follow_raw():
        if phase[2:] == 3:
            choice.raw.next = context.raw
            choice.adds.next = context.state == ports.ADD
            choice.ends.next = raw_row == 31 or (end2 and raw_row == context.last_row)
            if context.state == ports.TALLIES:
                choice.ends.next = end2

    return ends, look, sort, go_up, bound, decide, follow_raw


@block
def decode_order(clk, phase, choice, word1, looked1, decision):
    """Let wide rows have their raw steps, and say how a thread goes on.

    choice: DecodeChoice. word1 u32: of thread_rows; looked1 u4: of raw_classes. decision: DecodeDecision.
    Symbols 1, 4, 6, 8, 10 and 12 have 1 to 6 raw bits.
    """
    found, raw, last_seed = word(4), bit(), bit()

    @always_comb
    def cut():
        for j in range(4):
            found.next[j] = word1[j]
            for i in range(1, 8):
                if choice.row[3:] == i:
                    found.next[j] = word1[4 * i + j]
            if choice.raw:
                found.next[j] = looked1[j]

    @always_comb
    def sort():
        raw.next = choice.op == ports.ROW and found[4:2] == 3 and found[2:] != 0 and choice.wide != 2
        last_seed.next = choice.seeds == 0 or choice.index == choice.seeds - 1

    @always(clk.posedge)
    def decide():
        if phase[2:] == 1:
            decision.op.next = choice.op
            if raw:
                decision.op.next = ports.RAW
            decision.row_class.next = found
            # Of classes the row is 0.
            decision.pick.next = choice.row[2:] + choice.row[4:2] + choice.row[4] + choice.group[2:]
            decision.code.next = 0
            if choice.op == ports.SEED:
                if choice.seeds == 3:
                    decision.code.next = 10
                elif choice.seeds == 4:
                    decision.code.next = 8
                elif choice.seeds == 5:
                    decision.code.next = 6
            elif found[2:] == 1:
                decision.code.next = 1
            elif found[2:] == 2:
                decision.code.next = 6
            elif choice.wide == 0:
                decision.code.next = 4
            else:
                decision.code.next = 12
            decision.opens.next = choice.op == ports.SEED and choice.index == 0 and not choice.raw
            decision.final.next = choice.op == ports.SEED and last_seed
            decision.real.next = choice.real
            if choice.raw:
                decision.final.next = choice.op == ports.TALLY and choice.ends
                decision.real.next = (choice.adds and looked1 != 0) or (
                    choice.op == ports.TALLY and choice.index[0]
                )

    @always(clk.posedge)
    def go_on():
        if phase[2:] == 2:
            decision.state.next = ports.ROWS
            decision.wide.next = 0
            decision.index.next = 0
            decision.clears.next = (
                choice.raw or decision.op == ports.ROW or (decision.op == ports.SEED and decision.real)
            )
            if choice.raw:
                decision.index.next = choice.index
                if decision.real:
                    decision.index.next = 1
                if decision.op == ports.HIGH:
                    decision.state.next = ports.LOOK
                elif decision.op == ports.TALLY:
                    decision.state.next = ports.AGAIN
                elif not choice.adds:
                    decision.state.next = ports.ADD
                elif choice.ends:
                    decision.state.next = ports.TALLIES
                else:
                    decision.state.next = ports.NEXT
            elif decision.op == ports.HIGH:
                decision.state.next = ports.LOWS
            elif decision.op == ports.LOW:
                decision.state.next = ports.GROUPS
            elif decision.op == ports.SEED:
                decision.state.next = ports.SEEDS
                decision.index.next = choice.index + 1
            elif decision.op == ports.RAW:
                decision.wide.next = 2
                if decision.row_class[2:] == 3 and choice.wide == 0:
                    decision.wide.next = 1

    return cut, sort, decide, go_on
