"""What is asked of memory for a turn, and the turn's plan, which waits for the answer."""

from myhdl import always, block, concat, modbv

from oscar_hdl.coder.decode.ports import CLASSES, OP_BITS, REST, ROW, SEED, TALLY
from oscar_hdl.coder.unit.ports import THREAD_BITS, THREADS
from oscar_hdl.streams.bundles import word

PLAN_BITS = 39


@block
def decode_request(clk, rst, phase, choice, decision, position, plan):
    """Ask for what a turn reads, and give its plan with the answer.

    choice: DecodeChoice, decision: DecodeDecision, looked at in phase 3. position: CodedPosition; a turn
    that reads nothing asks, too, so that turns of a thread keep their order. plan: DecodePlan, from the clock
    behind the answer on; the operation is REST where there is none.
    """
    plans = [word(PLAN_BITS) for _ in range(THREADS)]
    asking, waits = word(THREAD_BITS), word(PLAN_BITS)

    @always(clk.posedge)
    def ask():
        position.take.next = phase[2:] == 3 and choice.some
        if phase[2:] == 3:
            asking.next = choice.thread
            position.thread.next = choice.thread
            position.row.next = concat(choice.group, choice.row)
            position.header.next = decision.op == CLASSES or decision.op == TALLY
            position.read.next = (
                decision.op == CLASSES
                or decision.op == TALLY
                or decision.op == ROW
                or (decision.op == SEED and decision.real)
            )
            waits.next = concat(
                choice.raw, decision.pick, decision.real, decision.final, decision.opens, choice.seeds,
                decision.code, choice.limit, decision.row_class, choice.group, choice.row, choice.bank,
                decision.op,
            )  # fmt: skip
        if rst:
            position.take.next = False

    @always(clk.posedge)
    def keep():
        if position.take:
            plans[asking].next = waits

    @always(clk.posedge)
    def begin_turn():
        line = modbv(0)[PLAN_BITS:]
        if phase[2:] == 0:
            line[:] = plans[position.given_thread]
            plan.thread.next = position.given_thread
            plan.op.next = line[OP_BITS:]
            plan.bank.next = line[5:3]
            plan.row.next = line[17:5]
            plan.row_class.next = line[21:17]
            plan.limit.next = line[26:21]
            plan.code.next = line[30:26]
            plan.seeds.next = line[33:30]
            plan.opens.next = line[33]
            plan.final.next = line[34]
            plan.real.next = line[35]
            plan.pick.next = line[38:36]
            plan.raw.next = line[38]
            if not position.given:
                plan.op.next = REST

    return ask, keep, begin_turn
