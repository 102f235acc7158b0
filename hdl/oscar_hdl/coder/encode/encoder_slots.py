"""The encoder's order of work: what it does in each slot (docs/engine.md, "Slots")."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.streams.bundles import bit, word

OPEN_PHASE, JUDGE_PHASE, PLAN_PHASE, TRY_PHASE = 17, 18, 22, 30
DONE_PHASE = 20  # of the slot of FLUSH_LOW: all bytes before the flush are counted


class Slot:
    """What a slot does: levels from its phase 0 to 31."""

    def __init__(self) -> None:
        self.header, self.classes, self.values = bit(), bit(), bit()  # what is read, or kept classes
        self.symbols, self.raw, self.seed = bit(), bit(), bit()  # which step is done with values
        self.opening, self.start = bit(), word(2)  # states are to begin
        self.width, self.upper = word(3), bit()  # of a raw step or a seed; bits 6 and up, not 0 and up
        self.counts, self.end, self.low, self.high = bit(), bit(), bit(), bit()
        self.counted, self.step = bit(), word(2)  # from phase 8 on


class RowList:
    """What row_list says of a group, and asks of it."""

    def __init__(self) -> None:
        self.live, self.above_8, self.above_16, self.complete = word(6), bit(), bit(), bit()
        self.below = word(5)  # bit i: there are not more than i rows
        self.at, self.row, self.seeds, self.clear = word(6), word(5), word(3), bit()


@block
def encoder_slots(
    clk: Any, rst: Any, phase: Any, job: Any, source: Any, room: Any, rows: Any, row_class: Any, equal: Any,
    holes: Any, slot: Any, silent: Any, coding: Any, fresh: Any, limit: Any,
) -> Any:  # fmt: skip
    """Plan a slot by phase 23, and begin it after phase 31 if memory and bytes allow it.

    phase, job, source: as of encoder. room: the bytes of a slot, or of a flush, can be kept. rows:
    RowList. row_class u4: of the row at source.row, from phase 3 on. equal: all values read so far are
    equal; holes: some rows have class 0. slot: Slot. silent: no bytes are to be kept; coding: a job is under
    way; fresh: it has not seen a value. limit u5: the last lane that counts in this slot, from phase 5 on.
    """
    busy, waits, codes, closes, flushes = bit(), bit(), bit(), bit(), bit()  # busy: one of the others
    opens, judges, plans, tries, acts, loads, ends = (bit() for _ in range(7))
    # Plans. find: the next group's header; back: that of the first dead group that turned out to be followed
    # by a live one; again: that of the first group, after all values seemed equal; classes: and the next
    # group's header.
    find, back, again, classes, row_step, seed, raw, end = (bit() for _ in range(8))
    nothing, reads, emits, leads, marks = bit(), bit(), bit(), bit(), bit()
    goes, begins, heads = bit(), bit(), bit()
    final, last_group, last_row, left, can_open = word(18), bit(), bit(), bit(), bit()
    before, apart, few_left = word(7), bit(), bit()
    searches, barren, raws, stops, returns, ready, listed = (bit() for _ in range(7))
    group, next_group, row, step, few = word(7), word(7), word(5), word(6), word(8)
    opened, seeding, opening, judge, checking, checked = bit(), bit(), bit(), bit(), bit(), bit()
    ahead, refill, raw_1, raw_2, differs = bit(), bit(), bit(), bit(), bit()
    two, four, eight, five = bit(), bit(), bit(), bit()

    @always(clk.posedge)
    def tick() -> None:
        opens.next = phase == OPEN_PHASE - 1
        judges.next = phase == JUDGE_PHASE - 1
        plans.next = phase == PLAN_PHASE - 1
        tries.next = phase == TRY_PHASE - 1
        acts.next = tries
        loads.next = phase == 3
        ends.next = phase == DONE_PHASE - 1

    @always(clk.posedge)
    def watch() -> None:
        final.next = job.values - 1
        last_group.next = group == final[17:10]
        last_row.next = row == final[10:5]
        # Seed rows may be more than there are rows.
        apart.next = rows.at != rows.live
        few_left.next = few[rows.at[3:]] and rows.at[6:3] == 0
        left.next = apart and not few_left
        differs.next = not equal or holes
        two.next = job.thinning != 0 and rows.above_8
        four.next = job.thinning != 0 and rows.above_16
        eight.next = job.thinning[1] and rows.above_16
        silent.next = checked and equal and not holes
        coding.next = codes or closes
        fresh.next = (waits or codes) and not opened and not checked
        if rst:
            coding.next = False

    # What plans follow from stands for some clocks before; so it is looked at in two steps.
    @always(clk.posedge)
    def weigh() -> None:
        searches.next = codes and not opened
        barren.next = rows.complete and rows.below[0]
        raws.next = raw_1 or raw_2
        stops.next = checking and rows.complete and (differs or (last_group and not left))
        returns.next = ahead and not rows.below[0]
        ready.next = codes and opened and not seeding and not raw_1 and not raw_2
        listed.next = rows.complete

    @always(clk.posedge)
    def plan() -> None:
        if plans:
            find.next = False
            back.next = False
            again.next = False
            classes.next = False
            row_step.next = False
            end.next = closes or (searches and barren and last_group)
            seed.next = codes and seeding
            raw.next = codes and opened and not seeding and raws
            if searches:
                find.next = barren and not last_group
            elif ready:
                if stops:
                    again.next = True
                elif returns:
                    back.next = listed
                elif left:
                    row_step.next = True
                elif barren and not refill:
                    find.next = not last_group
                    end.next = last_group
                else:
                    find.next = listed and checking
                    classes.next = listed and not checking
        if rst:
            find.next = False
            back.next = False
            again.next = False
            classes.next = False
            row_step.next = False
            seed.next = False
            raw.next = False
            end.next = False

    # Which rows count is known when the group is listed, so a slot's counting is decided within it.
    @always(clk.posedge)
    def count() -> None:
        slot.counted.next = slot.counts and (
            slot.classes or not ((two and row[0]) or (four and row[1]) or (eight and row[2]))
        )
        slot.step.next = 0
        if not slot.classes:
            slot.step.next[1] = four
            slot.step.next[0] = (two and not four) or eight

    @always(clk.posedge)
    def decide() -> None:
        leads.next = find or back or again or (classes and not last_group)
        reads.next = (
            find or back or again or (classes and not last_group) or row_step or raw or (seed and left)
        )
        emits.next = classes or row_step or raw or end
        marks.next = (
            (classes and not rows.below[0]) or (row_step and not checking) or (seed and left and not checked)
        )
        nothing.next = not (find or back or again or classes or row_step or seed or raw or end)
        goes.next = tries and not nothing and (source.ok or not reads) and (room or not emits)
        begins.next = tries and waits and source.ok
        heads.next = tries and source.ok and (waits or (leads and (room or not emits)))
        if rst:
            goes.next = False
            begins.next = False
            heads.next = False

    @always_comb
    def wires() -> None:
        job.idle.next = not busy
        rows.clear.next = heads
        before.next = group
        if back:
            before.next = job.last
        few.next = rows.below
        few.next[8:5] = 0
        if rows.below[4]:
            few.next[8:5] = 7
        source.row.next = concat(group, row)

    @always(clk.posedge)
    def go_on() -> None:
        job.done.next = ends and flushes
        if job.start:
            busy.next = True
            waits.next = True
        if begins:
            waits.next = False
            codes.next = True
        if goes and classes and last_group:
            codes.next = False
            closes.next = True
        if goes and end:
            codes.next = False
            closes.next = False
            flushes.next = True
            job.constant.next = not opened or silent
        if ends and flushes:
            flushes.next = False
            busy.next = False
        if rst:
            job.done.next = False
            busy.next = False
            waits.next = False
            codes.next = False
            closes.next = False
            flushes.next = False

    @always(clk.posedge)
    def read() -> None:
        source.take.next = begins or (goes and reads)
        source.header.next = heads
        if heads:
            row.next = 0
        elif goes and (row_step or seed):
            row.next = rows.row
        if rst:
            source.take.next = False

    @always(clk.posedge)
    def begin() -> None:
        if acts:
            slot.header.next = heads
            slot.classes.next = goes and classes
            slot.values.next = goes and (row_step or (seed and left))
            slot.symbols.next = goes and row_step and not checking
            slot.raw.next = goes and raw
            slot.seed.next = goes and seed
            slot.opening.next = goes and seed and opening
            slot.counts.next = goes and marks
            slot.end.next = goes and end
            slot.low.next = goes and end and opened and not silent
            slot.high.next = slot.low
        if rst:
            slot.header.next = False
            slot.classes.next = False
            slot.values.next = False
            slot.symbols.next = False
            slot.raw.next = False
            slot.seed.next = False
            slot.low.next = False
            slot.high.next = False

    # Seeds of n rows have 8 - n bits; 6 and 7 stand for 8 and 16.
    @always(clk.posedge)
    def size() -> None:
        slot.start.next = 1
        if job.seeds[0] and job.seeds != 1:
            slot.start.next = 2
        if acts:
            slot.upper.next = raw and not raw_1
            if seed:
                slot.width.next = 0 - job.seeds
            elif not raw_1:
                slot.width.next = 2
            elif row_class[2:] == 3:
                slot.width.next = 6
            else:
                slot.width.next = row_class[2:] + row_class[1]

    @always(clk.posedge)
    def find_groups() -> None:
        next_group.next = before + 1
        if goes and (find or back or (classes and not last_group)):
            group.next = next_group
        if goes and back:
            job.last.next = group
            ahead.next = False
            refill.next = True
        elif goes and find:
            ahead.next = opened and not checking
        elif goes and classes and not rows.below[0]:
            job.last.next = group
            refill.next = False
        if job.start or (goes and again):
            group.next = 0
        if job.start:
            job.last.next = 0
            ahead.next = False
            refill.next = False

    # At first the list is empty; then seed rows are taken from the last to the first, others behind them.
    @always(clk.posedge)
    def stride() -> None:
        # Their step is a clock behind `rows.seeds`, which the fifth row still changes.
        five.next = not rows.below[4]
        can_open.next = codes and not opened and not rows.below[0] and (rows.complete or five)
        if not opened:
            step.next = rows.seeds - 1
        elif not seeding:
            step.next = 1
        elif rows.at[3:] == 0:
            step.next = job.seeds
        else:
            step.next = 63

    @always(clk.posedge)
    def walk() -> None:
        if (opens and can_open) or (goes and (seed or row_step)):
            rows.at.next = rows.at + step
        if heads:
            rows.at.next = 0
        if opens and can_open:
            job.seeds.next = rows.seeds
            job.first.next = group
            opened.next = True
            opening.next = True
            seeding.next = True
        if goes and seed:
            opening.next = False
            if rows.at[3:] == 0:
                seeding.next = False
                judge.next = True
        if judges:
            judge.next = False
            checking.next = checking or (judge and not differs and not checked)
        if job.start or (goes and again):
            opened.next = False
            seeding.next = False
            judge.next = False
            checking.next = False
            checked.next = not job.start
        if job.start:
            job.seeds.next = 0
            job.first.next = 0

    # A wide row is followed by raw steps: one, or two for eight bits.
    @always(clk.posedge)
    def follow() -> None:
        if loads:
            raw_1.next = raw_1 or (slot.symbols and row_class[4:2] == 3 and row_class[2:] != 0)
            raw_2.next = raw_2 or (slot.symbols and row_class == 15)
            limit.next = 31
            if last_group:
                if slot.header or slot.classes:
                    limit.next = final[10:5]
                elif last_row:
                    limit.next = final[5:]
        elif goes and raw:
            raw_1.next = False
            raw_2.next = raw_1 and raw_2
        if job.start:
            raw_1.next = False
            raw_2.next = False

    return (
        tick, watch, weigh, plan, count, decide, wires, go_on, read, begin, size, find_groups, stride, walk,
        follow,
    )  # fmt: skip
