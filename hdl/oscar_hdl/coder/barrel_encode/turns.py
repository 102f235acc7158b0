"""Turns: whose they are, what they do, and their way down the pipeline."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block

from oscar_hdl.coder.barrel.ports import THREAD_BITS, THREADS
from oscar_hdl.coder.barrel.thread_choice import thread_choice
from oscar_hdl.coder.barrel_encode.ports import END, HEADER, HIGH, REST, Context, Decision
from oscar_hdl.coder.barrel_encode.thread_memory import thread_memory, thread_rows
from oscar_hdl.coder.barrel_encode.turn_order import turn_order
from oscar_hdl.coder.barrel_encode.turn_request import turn_request
from oscar_hdl.streams.bundles import bit, word


@block
def turns(
    clk: Any, rst: Any, phase: Any, job: Any, room: Any, group: Any, source: Any, plan: Any, plan5: Any,
    wide: Any, write_wide: Any, entry: Any,
) -> Any:  # fmt: skip
    """Order the turns of all threads, ask for their rows, and give each turn's plan with the answer.

    job: BarrelEncoderJob. room u8: of byte_store. group: Group. source: BarrelSource. plan, plan5: Plan, of
    clock 1 and again of 5. wide u2, write_wide: of turn_reading. entry: Entry.
    """
    thread, some, back, late_now = word(THREAD_BITS), bit(), word(THREADS), word(THREADS)
    context, decision = Context(), Decision()
    choice = thread_choice(clk, rst, phase, job.start, job.thread, back, room, thread, some)
    memory = thread_memory(clk, phase, job, thread, some, context, decision, entry.thread, entry.said)
    rows = thread_rows(clk, phase, thread, some, group, wide, plan.thread, write_wide, context, decision)
    order = turn_order(clk, phase, context, decision)
    request = turn_request(clk, rst, phase, thread, some, context, decision, source, plan)

    # A thread's next turn is decided 12 clocks behind the begin of one, or 16 behind that of a header, whose
    # rows are listed then.
    @always_comb
    def free() -> None:
        for i in range(THREADS):
            back.next[i] = phase[2:] == 0 and (
                late_now[i]
                or (
                    plan5.thread == i
                    and plan5.op != REST
                    and plan5.op != HEADER
                    and plan5.op != HIGH
                    and plan5.op != END
                )
            )

    @always(clk.posedge)
    def hold() -> None:
        if phase[2:] == 0:
            for i in range(THREADS):
                late_now.next[i] = plan5.thread == i and plan5.op == HEADER
        if rst:
            late_now.next = 0

    return choice, memory, rows, order, request, free, hold


@block
def plan_stage(clk: Any, phase: Any, before: Any, after: Any) -> Any:
    """Give a Plan again, a turn later: it changes where phase becomes 1."""

    @always(clk.posedge)
    def pass_on() -> None:
        if phase[2:] == 0:
            after.thread.next = before.thread
            after.op.next = before.op
            after.bank.next = before.bank
            after.counted.next = before.counted
            after.step.next = before.step
            after.opening.next = before.opening
            after.begin.next = before.begin
            after.fresh.next = before.fresh

    return pass_on
