"""What is asked of memory for a turn, and the turn's plan, which waits for the answer."""

from __future__ import annotations

from typing import Any

from myhdl import always, block, concat, modbv

from oscar_hdl.coder.barrel.ports import THREAD_BITS, THREADS
from oscar_hdl.coder.barrel_encode.ports import (
    CLASSES,
    COUNT,
    END,
    HEADER,
    HIGH,
    LOW,
    OP_BITS,
    RAW,
    REST,
    ROW,
)  # fmt: skip
from oscar_hdl.streams.bundles import bit, word

PLAN_BITS = 24


@block
def seed_begin(clk: Any, found: Any, begin: Any) -> Any:
    """Give the exponent of the start states before k of n seed rows are shifted in, 16 - k floor(16 / n).

    found u31: of seed_rows, n above k above rows. begin u4, a clock later.
    """

    @always(clk.posedge)
    def look_up() -> None:
        begin.next = 0
        for k in range(1, 6):
            if found[28:25] == k:
                if found[31:28] == 5:
                    begin.next = 16 - 3 * k
                elif found[31:28] == 4 and k != 5:
                    begin.next = 16 - 4 * k
                elif found[31:28] == 3 and k < 4:
                    begin.next = 16 - 5 * k
                elif found[31:28] == 2 and k == 1:
                    begin.next = 8

    return look_up


@block
def turn_request(
    clk: Any, rst: Any, phase: Any, thread: Any, some: Any, context: Any, decision: Any, source: Any,
    plan: Any,
) -> Any:  # fmt: skip
    """Ask for what a turn reads, and give its plan with the answer.

    thread u3, some: of thread_choice; context: Context; decision: Decision, looked at in phase 3. source:
    BarrelSource; a turn that reads nothing asks, too, so that turns of a thread keep their order. plan: Plan,
    from the clock behind the answer on; the operation is REST where there is none.
    """
    plans = [word(PLAN_BITS) for _ in range(THREADS)]
    asking, begin = word(THREAD_BITS), word(4)
    op, part, bank, counts, step, opening, fresh = word(OP_BITS), word(2), bit(), bit(), word(2), bit(), bit()
    limit, seeds, two, four, eight = word(5), word(3), bit(), bit(), bit()
    begins = seed_begin(clk, context.found, begin)

    # Rows that are counted, and as how many: asc.md, "Counts".
    @always(clk.posedge)
    def weigh() -> None:
        two.next = context.thinning != 0 and context.crowd[0]
        four.next = context.thinning != 0 and context.crowd[1]
        eight.next = context.thinning[1] and context.crowd[1]

    @always(clk.posedge)
    def ask() -> None:
        source.take.next = phase[2:] == 3 and some
        if phase[2:] == 3:
            asking.next = thread
            source.thread.next = thread
            source.row.next = concat(decision.group, decision.row)
            source.header.next = decision.op == HEADER or decision.op == CLASSES
            source.read.next = decision.op != LOW and decision.op != HIGH and decision.op != END
        if rst:
            source.take.next = False

    @always(clk.posedge)
    def decide() -> None:
        if phase[2:] == 3:
            op.next = decision.op
            part.next = decision.part
            seeds.next = decision.seeds
            bank.next = context.bank
            opening.next = decision.opens
            fresh.next = decision.op == HEADER and decision.group == 0  # once a block
            step.next = 0
            counts.next = decision.live
            if decision.op == COUNT or decision.op == ROW:
                counts.next = not (
                    (two and decision.row[0]) or (four and decision.row[1]) or (eight and decision.row[2])
                )
                step.next[1] = four
                step.next[0] = (two and not four) or eight
            elif decision.op != CLASSES:
                counts.next = False
            limit.next = 31
            if decision.group == context.last_group:
                if decision.op == HEADER or decision.op == CLASSES:
                    limit.next = context.last_row
                elif decision.row == context.last_row and (
                    decision.op == ROW or decision.op == COUNT or decision.op == RAW
                ):
                    limit.next = context.last_lane

    @always(clk.posedge)
    def keep() -> None:
        if source.take:
            plans[asking].next = concat(begin, fresh, opening, step, counts, limit, bank, seeds, part, op)

    @always(clk.posedge)
    def begin_turn() -> None:
        line = modbv(0)[PLAN_BITS:]
        if phase[2:] == 0:
            line[:] = plans[source.given_thread]
            plan.thread.next = source.given_thread
            plan.op.next = line[OP_BITS:]
            plan.part.next = line[6:4]
            plan.seeds.next = line[9:6]
            plan.bank.next = line[9]
            plan.limit.next = line[15:10]
            plan.counted.next = line[15]
            plan.step.next = line[18:16]
            plan.opening.next = line[18]
            plan.fresh.next = line[19]
            plan.begin.next = line[24:20]
            if not source.given:
                plan.op.next = REST

    return begins, weigh, ask, decide, keep, begin_turn
