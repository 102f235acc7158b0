"""Turns: whose they are, what they do, and their way down the pipeline."""

from myhdl import always, always_comb, block

from oscar_hdl.coder.encode.ports import END, HEADER, HIGH, REST, Context, Decision
from oscar_hdl.coder.encode.thread_memory import thread_memory, thread_rows
from oscar_hdl.coder.encode.turn_order import turn_order
from oscar_hdl.coder.encode.turn_request import turn_request
from oscar_hdl.coder.unit.ports import THREAD_BITS, THREADS
from oscar_hdl.coder.unit.thread_choice import thread_choice
from oscar_hdl.streams.bundles import bit, word


@block
def turns(clk, rst, phase, job, room, group, source, plan, plan5, wide, write_wide, entry):
    """Order the turns of all threads, ask for their rows, and give each turn's plan with the answer.

    job: EncoderJob. room u8: of byte_store. group: Group. source: CodedSource. plan, plan5: Plan, of
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
    def free():
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
    def hold():
        if phase[2:] == 0:
            for i in range(THREADS):
                late_now.next[i] = plan5.thread == i and plan5.op == HEADER
        if rst:
            late_now.next = 0

    return choice, memory, rows, order, request, free, hold


@block
def plan_stage(clk, phase, before, after):
    """Give a Plan again, a turn later: it changes where phase becomes 1."""

    @always(clk.posedge)
    def pass_on():
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
