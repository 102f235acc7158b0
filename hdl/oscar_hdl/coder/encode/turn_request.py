"""What is asked of memory for a turn, and the turn's plan, which waits for the answer."""

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.coder.encode import ports
from oscar_hdl.coder.ports import BANK_BITS
from oscar_hdl.coder.unit.ports import THREAD_BITS, THREADS
from oscar_hdl.streams.bundles import bit, word

PLAN_BITS = 25


@block
def seed_begin(clk, found, begin):
    """Give the exponent of the start states before k of n seed rows are shifted in, 16 - k floor(16 / n).

    found u31: of seed_rows, n above k above rows. begin u4, a clock later.
    """

    @always(clk.posedge)
    def look_up():
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
def turn_request(clk, rst, phase, thread, some, context, decision, source, plan):
    """Ask for what a turn reads, and give its plan with the answer.

    thread u3, some: of thread_choice; context: Context; decision: Decision, looked at in phase 3. source:
    CodedSource; a turn that reads nothing asks, too, so that turns of a thread keep their order. plan: Plan,
    from the clock behind the answer on; the operation is REST where there is none.
    """
    plans = [word(PLAN_BITS) for _ in range(THREADS)]
    asking, begin = word(THREAD_BITS), word(4)
    op, part, bank, counts = word(ports.OP_BITS), word(2), word(BANK_BITS), bit()
    pick, opening, fresh = word(2), bit(), bit()
    limit, seeds = word(5), word(3)
    begins = seed_begin(clk, context.found, begin)

    @always(clk.posedge)
    def ask():
        source.take.next = phase[2:] == 3 and some
        if phase[2:] == 3:
            asking.next = thread
            source.thread.next = thread
            source.row.next = concat(decision.group, decision.row)
            source.header.next = decision.op == ports.HEADER or decision.op == ports.CLASSES
            source.read.next = (
                decision.op != ports.LOW and decision.op != ports.HIGH and decision.op != ports.END
            )
            op.next = decision.op
            part.next = decision.part
            seeds.next = decision.seeds
            bank.next = context.bank
            opening.next = decision.opens
            fresh.next = decision.op == ports.HEADER and decision.group == 0  # once a block
            counts.next = (
                decision.op == ports.COUNT
                or decision.op == ports.ROW
                or (decision.op == ports.CLASSES and decision.live)
            )
            limit.next = 31
            if decision.group == context.last_group:
                if decision.op == ports.HEADER or decision.op == ports.CLASSES:
                    limit.next = context.last_row
                elif decision.row == context.last_row and (
                    decision.op == ports.ROW or decision.op == ports.COUNT or decision.op == ports.RAW
                ):
                    limit.next = context.last_lane
        if rst:
            source.take.next = False

    @always_comb
    def choose():  # of classes the row is 0
        pick.next = source.row[2:] + source.row[4:2] + source.row[4] + source.row[7:5]

    @always(clk.posedge)
    def keep():
        if source.take:
            plans[asking].next = concat(begin, fresh, opening, pick, counts, limit, bank, seeds, part, op)

    @always(clk.posedge)
    def begin_turn():
        line = modbv(0)[PLAN_BITS:]
        if phase[2:] == 0:
            line[:] = plans[source.given_thread]
            plan.thread.next = source.given_thread
            plan.op.next = line[ports.OP_BITS :]
            plan.part.next = line[6:4]
            plan.seeds.next = line[9:6]
            plan.bank.next = line[11:9]
            plan.limit.next = line[16:11]
            plan.counted.next = line[16]
            plan.pick.next = line[19:17]
            plan.opening.next = line[19]
            plan.fresh.next = line[20]
            plan.begin.next = line[25:21]
            if not source.given:
                plan.op.next = ports.REST

    return begins, ask, choose, keep, begin_turn
