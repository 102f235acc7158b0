"""The encoder's order of work: what it does in each slot (docs/engine.md, "Slots")."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, concat, enum

from oscar_hdl.streams.bundles import bit, word

SEEDS_PHASE, JUDGE_PHASE, PLAN_PHASE, ASK_PHASE, GRANT_PHASE = 18, 21, 22, 23, 30
DONE_PHASE = 20  # of the slot of FLUSH_LOW: all bytes before the flush are counted

t_job = enum("IDLE", "WAIT", "CODE", "END", "FLUSH")
# FIND: the next group's header. BACK: that of the first dead group that turned out to be followed by a live
# one. AGAIN: that of the first group, after all values seemed equal. CLASSES: and the next group's header.
t_step = enum("NONE", "FIND", "BACK", "AGAIN", "CLASSES", "ROW", "SEED", "RAW", "END")


class Slot:
    """What a slot does: levels from its phase 0 to 31."""

    def __init__(self) -> None:
        self.header, self.classes, self.values = bit(), bit(), bit()  # what is read, or kept classes
        self.symbols, self.raw, self.seed = bit(), bit(), bit()  # which step is done with values
        self.opening, self.start = bit(), word(2)  # states are to begin
        self.width, self.upper = word(5), bit()  # of a raw step or a seed; bits 6 and up, not 0 and up
        self.counts, self.end, self.low, self.high = bit(), bit(), bit(), bit()
        self.counted, self.step = bit(), word(2)  # from phase 8 on


class RowList:
    """What row_list says of a group."""

    def __init__(self) -> None:
        self.live, self.at, self.row, self.seeds = word(6), word(6), word(5), word(3)
        self.above_8, self.above_16, self.complete, self.clear = bit(), bit(), bit(), bit()


@block
def encoder_slots(
    clk: Any, rst: Any, phase: Any, job: Any, source: Any, counter: Any, room: Any, rows: Any, row_class: Any,
    equal: Any, holes: Any, slot: Any, silent: Any, coding: Any, fresh: Any, limit: Any,
) -> Any:  # fmt: skip
    """Plan a slot by phase 23, and begin it after phase 31 if memory, counts and bytes allow it.

    phase, job, source, counter: as of encoder. room: the bytes of a slot, or of a flush, can be kept. rows:
    RowList. row_class u4: of the row at source.row, from phase 3 on. equal: all values read so far are
    equal; holes: some rows have class 0. slot: Slot. silent: no bytes are to be kept; coding: a job is under
    way; fresh: it has not seen a value. limit u5: the last lane that counts in this slot, from phase 5 on.
    """
    state, step = Signal(t_job.IDLE), Signal(t_step.NONE)
    sets, judges, plans, asks, acts, loads, ends = bit(), bit(), bit(), bit(), bit(), bit(), bit()
    end, last_group, last_row, left, none, some = word(18), bit(), bit(), bit(), bit(), bit()
    group, row = word(7), word(5)
    opened, seeding, opening, judge, checking, checked = bit(), bit(), bit(), bit(), bit(), bit()
    ahead, refill, raw_1, raw_2 = bit(), bit(), bit(), bit()
    two, four, eight, sparse = bit(), bit(), bit(), bit()
    reads, emits, ready, may, goes, heads, begins = bit(), bit(), bit(), bit(), bit(), bit(), bit()

    @always(clk.posedge)
    def watch() -> None:
        sets.next = phase == SEEDS_PHASE - 1
        judges.next = phase == JUDGE_PHASE - 1
        plans.next = phase == PLAN_PHASE - 1
        asks.next = phase == ASK_PHASE - 1
        acts.next = phase == GRANT_PHASE
        loads.next = phase == 3
        ends.next = phase == DONE_PHASE - 1 and state == t_job.FLUSH
        end.next = job.values - 1
        last_group.next = group == end[17:10]
        last_row.next = row == end[10:5]
        left.next = rows.at < rows.live
        none.next = rows.live == 0
        some.next = rows.live[6:3] != 0 or rows.live[3:] >= 5
        two.next = job.thinning != 0 and rows.above_8
        four.next = job.thinning != 0 and rows.above_16
        eight.next = job.thinning[1] and rows.above_16
        silent.next = checked and equal
        coding.next = state == t_job.CODE or state == t_job.END
        fresh.next = (state == t_job.WAIT or state == t_job.CODE) and not opened and not checked
        if rst:
            coding.next = False

    @always(clk.posedge)
    def plan() -> None:
        if plans:
            step.next = t_step.NONE
            if state == t_job.END:
                step.next = t_step.END
            elif state != t_job.CODE:
                step.next = t_step.NONE
            elif not opened:
                if rows.complete and none and last_group:
                    step.next = t_step.END
                elif rows.complete and none:
                    step.next = t_step.FIND
            elif seeding:
                step.next = t_step.SEED
            elif raw_1 or raw_2:
                step.next = t_step.RAW
            elif checking and rows.complete and (not equal or holes or (last_group and not left)):
                step.next = t_step.AGAIN
            elif ahead and not none:
                if rows.complete:
                    step.next = t_step.BACK
            elif left:
                step.next = t_step.ROW
            elif rows.complete:
                if none and not refill:
                    step.next = t_step.FIND
                    if last_group:
                        step.next = t_step.END
                elif checking:
                    step.next = t_step.FIND
                else:
                    step.next = t_step.CLASSES

    # The frequency of counted rows is final when the group is listed; until then it may be too high.
    @always(clk.posedge)
    def ask() -> None:
        sparse.next = (two and rows.row[0]) or (four and rows.row[1]) or (eight and rows.row[2])
        if asks:
            counter.ask.next = step == t_step.CLASSES and not none
            if step == t_step.ROW:
                counter.ask.next = not checking and not sparse
            elif step == t_step.SEED:
                counter.ask.next = left and not checked and not sparse
        slot.counted.next = slot.counts and (
            slot.classes or not ((two and row[0]) or (four and row[1]) or (eight and row[2]))
        )
        slot.step.next = 0
        if not slot.classes:
            slot.step.next[1] = four
            slot.step.next[0] = (two and not four) or eight
        emits.next = step == t_step.CLASSES or step == t_step.ROW or step == t_step.RAW or step == t_step.END
        if step == t_step.SEED:
            reads.next = left
        elif step == t_step.CLASSES:
            reads.next = not last_group
        else:
            reads.next = step != t_step.NONE and step != t_step.END
        ready.next = source.ok
        may.next = (source.ok or not reads) and (room or not emits) and (counter.grant or not counter.ask)

    @always_comb
    def decide() -> None:
        begins.next = acts and state == t_job.WAIT and ready
        goes.next = acts and may
        heads.next = (acts and state == t_job.WAIT and ready) or (
            acts
            and may
            and (
                step == t_step.FIND
                or step == t_step.BACK
                or step == t_step.AGAIN
                or (step == t_step.CLASSES and not last_group)
            )
        )
        rows.clear.next = heads
        source.row.next = concat(group, row)

    @always(clk.posedge)
    def go_on() -> None:
        job.done.next = False
        if job.start:
            state.next = t_job.WAIT
        elif begins:
            state.next = t_job.CODE
        elif goes and step == t_step.CLASSES and last_group:
            state.next = t_job.END
        elif goes and step == t_step.END:
            state.next = t_job.FLUSH
            job.constant.next = not opened or silent
        elif ends:
            state.next = t_job.IDLE
            job.done.next = True
        if rst:
            state.next = t_job.IDLE
            job.done.next = False

    @always(clk.posedge)
    def read() -> None:
        source.take.next = begins or (goes and reads)
        source.header.next = heads
        if heads:
            row.next = 0
        elif goes and (step == t_step.ROW or step == t_step.SEED):
            row.next = rows.row
        if rst:
            source.take.next = False

    @always(clk.posedge)
    def begin() -> None:
        if acts:
            slot.header.next = heads
            slot.classes.next = may and step == t_step.CLASSES
            slot.values.next = may and (step == t_step.ROW or (step == t_step.SEED and left))
            slot.symbols.next = may and step == t_step.ROW and not checking
            slot.raw.next = may and step == t_step.RAW
            slot.seed.next = may and step == t_step.SEED
            slot.opening.next = may and step == t_step.SEED and opening
            slot.counts.next = may and counter.ask
            slot.end.next = may and step == t_step.END
            slot.low.next = may and step == t_step.END and opened and not silent
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

    @always(clk.posedge)
    def size() -> None:
        slot.start.next = 1
        if job.seeds == 3 or job.seeds == 5:
            slot.start.next = 2
        if acts:
            slot.upper.next = step == t_step.RAW and not raw_1
            if step == t_step.RAW:
                slot.width.next = 2
                if raw_1:
                    slot.width.next = 6
                    if row_class[2:] == 1:
                        slot.width.next = 1
                    elif row_class[2:] == 2:
                        slot.width.next = 3
            elif job.seeds[2]:
                slot.width.next = 4
                if job.seeds[0]:
                    slot.width.next = 3
            elif job.seeds == 3:
                slot.width.next = 5
            elif job.seeds == 2:
                slot.width.next = 8
            else:
                slot.width.next = 16

    @always(clk.posedge)
    def find_groups() -> None:
        if goes and step == t_step.BACK:
            group.next = job.last + 1
            job.last.next = group
            ahead.next = False
            refill.next = True
        elif goes and step == t_step.AGAIN:
            group.next = 0
        elif goes and step == t_step.FIND:
            group.next = group + 1
            ahead.next = opened and not checking
        elif goes and step == t_step.CLASSES:
            if not none:
                job.last.next = group
                refill.next = False
            if not last_group:
                group.next = group + 1
        if job.start:
            group.next = 0
            job.last.next = 0
            ahead.next = False
            refill.next = False

    @always(clk.posedge)
    def walk() -> None:
        if heads:
            rows.at.next = 0
        elif sets and state == t_job.CODE and not opened and not none and (some or rows.complete):
            rows.at.next = rows.seeds - 1
            job.seeds.next = rows.seeds
            job.first.next = group
            opened.next = True
            opening.next = True
            seeding.next = True
        elif goes and step == t_step.SEED:
            opening.next = False
            rows.at.next = rows.at - 1
            if rows.at == 0:
                rows.at.next = job.seeds
                seeding.next = False
                judge.next = True
        elif goes and step == t_step.ROW:
            rows.at.next = rows.at + 1
        if judges:
            judge.next = False
            checking.next = checking or (judge and equal and not holes and not checked)
        if job.start or (goes and step == t_step.AGAIN):
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
            if (slot.header or slot.classes) and last_group:
                limit.next = end[10:5]
            elif last_group and last_row and not slot.header and not slot.classes:
                limit.next = end[5:]
        elif goes and step == t_step.RAW:
            raw_1.next = False
            raw_2.next = raw_1 and raw_2
        if job.start:
            raw_1.next = False
            raw_2.next = False

    @always_comb
    def idle() -> None:
        job.idle.next = state == t_job.IDLE

    return (
        watch, plan, ask, decide, go_on, read, begin, size, find_groups, walk, follow, idle,
    )  # fmt: skip
