"""What a decoder does in each slot (docs/engine.md, "Slots")."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar_hdl.coder.ports import LANES
from oscar_hdl.streams.bundles import bit, word


@block
def row_finder(
    clk: Any, write: Any, at: Any, row_class: Any, fall: Any, rise: Any, pop: Any, found: Any, row: Any,
    found_class: Any,
) -> Any:  # fmt: skip
    """Keep the classes of a group's rows and look at one a clock until one is above 0.

    write, at u5, row_class u4: a row's class. fall, rise: begin at row 31 or at row 0. found: row u5 has
    found_class u4 above 0, until `pop`; then the search goes on.
    """
    classes = [Signal(modbv(0)[4:]) for _ in range(LANES)]
    at_row, over, falling, seen = word(5), bit(), bit(), bit()

    @always_comb
    def hit() -> None:
        found.next = seen and found_class != 0

    @always(clk.posedge)
    def look() -> None:
        if write:
            classes[at].next = row_class
        if not found:
            found_class.next = classes[at_row]
            row.next = at_row
            seen.next = not over
            if falling:
                at_row.next = at_row - 1
                over.next = over or at_row == 0
            else:
                at_row.next = at_row + 1
                over.next = over or at_row == LANES - 1
        if pop:
            seen.next = False
        if fall or rise:
            at_row.next = 0
            if fall:
                at_row.next = LANES - 1
            over.next = False
            falling.next = fall
            seen.next = False

    return hit, look


t_steps = enum("IDLE", "LOAD_HIGH", "LOAD_LOW", "CLASSES", "ROWS", "SEEDS", "TAIL")


class Slot:
    """What goes on in a slot, from its phase 0 to 31."""

    def __init__(self) -> None:
        self.load_high, self.load_low, self.classes = bit(), bit(), bit()
        self.row_step, self.raw_step, self.seed_step = bit(), bit(), bit()
        self.seed_first, self.real = bit(), bit()  # a block's first seed slot; a row is in it, of `row_class`
        self.whole = bit()  # all lanes take part
        self.row, self.row_class = word(12), word(4)
        self.raw_code = word(4)  # a symbol with as many raw bits as each lane gives
        self.seed_not, self.seed_whole = word(5), bit()  # see value_rebuild


@block
def decoder_slots(
    clk: Any, rst: Any, phase: Any, job: Any, position: Any, enough: Any, whole: Any, exact: Any, wrong: Any,
    slot: Any, write: Any, lane: Any, lane_class: Any, arrive: Any, classes_before: Any,
    alive: Any, thinned: Any, turn: Any, drain: Any,
) -> Any:  # fmt: skip
    """Lead a block through its slots.

    enough, whole, exact, turn, drain: of byte_source. wrong: the block is bad. write, lane u5, lane_class
    u4, arrive (above 0): classes of rows as they are decoded, phase 17 and on; classes_before, phase 18:
    the slot before was theirs. alive, thinned u2: the group has a row with a class above 0; log2 of the
    distance of its counted rows; from phase 19 of the slot behind CLASSES on.
    """
    steps = Signal(t_steps.IDLE)
    # `last` is the group with the block's last values; that group is still decoded.
    at_end, newest, alike = bit(), bit(), word(4)
    group, first_group, last_group, hold = word(7), bit(), bit(), word(3)
    wide_done, index, seeding = word(2), word(3), bit()
    pending, change, more, known = word(6), word(6), bit(), bit()
    row, row_class, found, fall, rise, pop = word(5), word(4), bit(), bit(), bit(), bit()
    found1, raw_first, short_row, some, ready = bit(), bit(), bit(), bit(), bit()
    plan_load_high, plan_load_low, plan_classes, plan_row = bit(), bit(), bit(), bit()
    plan_raw, plan_seed, plan_real, plan_whole = bit(), bit(), bit(), bit()
    go, thinning = bit(), word(2)
    tail = word(2)
    at18, at21, at23, at30, at31, rows_over, rows_end, leave = (bit() for _ in range(8))

    finder = row_finder(clk, write, lane, lane_class, fall, rise, pop, found, row, row_class)

    @always_comb
    def wires() -> None:
        ready.next = steps == t_steps.ROWS and more and found1
        pop.next = go and (plan_row or plan_seed)
        rows_end.next = at21 and rows_over
        change.next = 0
        if arrive:
            change.next = 1
        elif leave:
            change.next = 63

    @always(clk.posedge)
    def ticks() -> None:
        at18.next = phase == 17
        at21.next = phase == 20
        at23.next = phase == 22
        at30.next = phase == 29
        at31.next = phase == 30
        leave.next = phase == 17 and slot.real and (slot.row_step or slot.seed_step)
        fall.next = phase == 17 and slot.classes
        rise.next = rows_end and first_group

    @always(clk.posedge)
    def count_rows() -> None:
        if go and plan_classes:
            pending.next = 0
            known.next = False
        else:
            pending.next = pending + change
        more.next = (
            pending[6:3] != 0
            or (pending[2] and not hold[2])
            or (pending[2] == hold[2] and pending[1] and not hold[1])
            or (pending[2] == hold[2] and pending[1] == hold[1] and pending[0] and not hold[0])
        )
        some.next = pending != 0
        thinning.next = 0
        if job.thinning != 0:
            if pending > 16:
                thinning.next = 2
                if job.thinning[1]:
                    thinning.next = 3
            elif pending > 8:
                thinning.next = 1
        if at18 and classes_before:
            known.next = True
            thinned.next = thinning
            alive.next = some

    @always(clk.posedge)
    def plan() -> None:
        first_group.next = group == job.first
        # In two steps, because it is small so.
        alike.next[0] = job.last[2:] == job.values[12:10]
        alike.next[1] = job.last[4:2] == job.values[14:12]
        alike.next[2] = job.last[6:4] == job.values[16:14]
        alike.next[3] = job.last[6] == job.values[16] and not job.values[17]
        at_end.next = alike == 15
        last_group.next = at_end and newest
        found1.next = found
        raw_first.next = row_class[4:2] == 3 and row_class[2:] != 0 and wide_done != 2
        short_row.next = last_group and row == job.values[10:5]
        hold.next = 0
        if first_group:
            hold.next = job.seeds
        rows_over.next = steps == t_steps.ROWS and known and not more
        plan_load_high.next = steps == t_steps.LOAD_HIGH
        plan_load_low.next = steps == t_steps.LOAD_LOW
        plan_classes.next = steps == t_steps.CLASSES
        plan_row.next = ready and not raw_first
        plan_raw.next = ready and raw_first
        plan_seed.next = steps == t_steps.SEEDS and (not some or found1)
        plan_real.next = some
        plan_whole.next = not short_row
        if steps == t_steps.CLASSES:
            plan_whole.next = not last_group
        go.next = (
            at30
            and (plan_load_high or plan_load_low or plan_classes or plan_row or plan_raw or plan_seed)
            and (position.ok or not (plan_classes or plan_row or (plan_seed and plan_real)))
            and (enough or plan_seed)
        )
        if rst:
            go.next = False
            plan_load_high.next = False
            plan_load_low.next = False
            plan_classes.next = False
            plan_row.next = False
            plan_raw.next = False
            plan_seed.next = False
            rows_over.next = False

    @always(clk.posedge)
    def begin_slot() -> None:
        position.take.next = go and (plan_classes or plan_row or (plan_seed and plan_real))
        position.header.next = plan_classes
        position.row.next = concat(group, row)
        if plan_classes:
            position.row.next = concat(group, modbv(0)[5:])
        if at31:
            slot.load_high.next = go and plan_load_high
            slot.load_low.next = go and plan_load_low
            slot.classes.next = go and plan_classes
            slot.row_step.next = go and plan_row
            slot.raw_step.next = go and plan_raw
            slot.seed_step.next = go and plan_seed
            slot.seed_first.next = go and plan_seed and not seeding
            slot.real.next = plan_real
            slot.whole.next = plan_whole
            slot.row.next = concat(group, row)
            slot.row_class.next = row_class
            slot.seed_whole.next = job.seeds < 2
            slot.seed_not.next[0] = job.seeds >= 3 or index == 0
            slot.seed_not.next[1] = job.seeds >= 3 or index != 0
            slot.seed_not.next[2] = job.seeds != 3
            slot.seed_not.next[3] = job.seeds != 4
            slot.seed_not.next[4] = job.seeds < 5
        if rst:
            position.take.next = False
            slot.load_high.next = False
            slot.load_low.next = False
            slot.classes.next = False
            slot.row_step.next = False
            slot.raw_step.next = False
            slot.seed_step.next = False
            slot.seed_first.next = False

    @always(clk.posedge)
    def raw_bits() -> None:
        # Symbols 1, 4, 6, 8, 10 and 12 have 1 to 6 raw bits.
        if at31:
            slot.raw_code.next = 0
            if go and plan_raw:
                if row_class[2:] == 1:
                    slot.raw_code.next = 1
                elif row_class[2:] == 2:
                    slot.raw_code.next = 6
                elif wide_done == 0:
                    slot.raw_code.next = 4
                else:
                    slot.raw_code.next = 12
            elif go and plan_seed:
                if job.seeds == 3:
                    slot.raw_code.next = 10
                elif job.seeds == 4:
                    slot.raw_code.next = 8
                elif job.seeds == 5:
                    slot.raw_code.next = 6

    @always(clk.posedge)
    def lead() -> None:
        if go:
            if steps == t_steps.LOAD_HIGH:
                steps.next = t_steps.LOAD_LOW
            elif steps == t_steps.LOAD_LOW:
                steps.next = t_steps.CLASSES
            elif steps == t_steps.CLASSES:
                steps.next = t_steps.ROWS
                wide_done.next = 0
            elif steps == t_steps.ROWS:
                wide_done.next = 0
                if plan_raw:
                    wide_done.next = 2
                    if row_class[2:] == 3 and wide_done == 0:
                        wide_done.next = 1
            elif steps == t_steps.SEEDS:
                seeding.next = True
                index.next = index - 1
                if index == 0:
                    steps.next = t_steps.TAIL
        if rows_end:
            steps.next = t_steps.CLASSES
            group.next = group - 1
            newest.next = first_group and newest
            if first_group:
                steps.next = t_steps.SEEDS
                group.next = group
        if turn:
            steps.next = t_steps.IDLE
        if job.start:
            steps.next = t_steps.LOAD_HIGH
            group.next = job.last
            newest.next = True
            seeding.next = False
            index.next = 0
            if job.seeds != 0:
                index.next = job.seeds - 1
        if rst:
            steps.next = t_steps.IDLE

    @always(clk.posedge)
    def end() -> None:
        # What a block gave at last comes up to two slots later.
        if go:
            tail.next = 2
        elif at23 and tail != 0:
            tail.next = tail - 1
        drain.next = steps == t_steps.TAIL
        turn.next = at23 and steps == t_steps.TAIL and tail == 0 and whole
        job.done.next = turn
        if turn:
            job.bad.next = wrong or not exact
            job.idle.next = True
        if job.start:
            job.idle.next = False
            job.bad.next = False
        if rst:
            job.idle.next = True
            job.done.next = False
            turn.next = False

    return finder, wires, ticks, count_rows, plan, begin_slot, raw_bits, lead, end
