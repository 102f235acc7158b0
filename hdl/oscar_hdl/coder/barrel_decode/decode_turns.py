"""Turns: whose they are, what they do, and their way down the pipeline."""

from __future__ import annotations

from typing import Any

from myhdl import always_comb, block

from oscar_hdl.coder.barrel.ports import THREAD_BITS, THREADS
from oscar_hdl.coder.barrel.thread_choice import thread_choice
from oscar_hdl.coder.barrel_decode.decode_order import decode_choice, decode_order
from oscar_hdl.coder.barrel_decode.decode_request import decode_request
from oscar_hdl.coder.barrel_decode.ports import CLASSES, REST, DecodeChoice, DecodeContext, DecodeDecision
from oscar_hdl.coder.barrel_decode.thread_records import thread_records, thread_rows
from oscar_hdl.streams.bundles import bit, word


@block
def decode_turns(
    clk: Any, rst: Any, phase: Any, job: Any, enough: Any, group: Any, position: Any, plan: Any, plan9: Any,
    plan17: Any,
) -> Any:  # fmt: skip
    """Order the turns of all threads, ask for their rows, and give each turn's plan with the answer.

    job: BarrelDecoderJob. enough u8: threads whose next turn has its bytes. group: GroupClasses. position:
    BarrelPosition. plan, plan9, plan17: DecodePlan, of clock 1 and again of 9 and 17.
    """
    thread, some, back, word1 = word(THREAD_BITS), bit(), word(THREADS), word(32)
    context, chosen, decision = DecodeContext(), DecodeChoice(), DecodeDecision()
    choice = thread_choice(clk, rst, phase, job.start, job.thread, back, enough, thread, some)
    records = thread_records(clk, phase, job, thread, chosen, decision, context)
    rows = thread_rows(clk, phase, thread, chosen, decision, group, context, word1)
    first = decode_choice(clk, phase, thread, some, context, chosen)
    second = decode_order(clk, phase, chosen, word1, decision)
    request = decode_request(clk, rst, phase, chosen, decision, position, plan)

    # A thread's next turn is decided 16 clocks behind the begin of one, or 24 behind that of classes, whose
    # rows are known then; its state is there 28 clocks behind.
    @always_comb
    def free() -> None:
        for i in range(THREADS):
            back.next[i] = phase[2:] == 0 and (
                (plan17.thread == i and plan17.op == CLASSES)
                or (plan9.thread == i and plan9.op != REST and plan9.op != CLASSES and not plan9.final)
            )

    return choice, records, rows, first, second, request, free
