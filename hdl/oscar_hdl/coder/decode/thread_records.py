"""What is known of each thread's block, and how far it is."""

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.coder.decode.ports import HIGHS
from oscar_hdl.coder.unit.ports import THREAD_BITS, THREADS
from oscar_hdl.streams.bundles import bit, word

JOB_BITS, RECORD_BITS, LEFT_BITS = 37, 15, 38


@block
def thread_rows(clk, phase, thread, choice, decision, group, context, word1):
    """Keep classes of a group's rows, and which of them are left.

    thread u3: its context (DecodeContext) is read in phase 0. choice: DecodeChoice; decision: DecodeDecision,
    which is written in phase 3. group: GroupClasses, which end in phase 0. word1 u32: the classes of the
    eight rows around choice.row, from phase 1 on.
    """
    lefts = [word(LEFT_BITS) for _ in range(THREADS)]
    classes = [word(32) for _ in range(4 * THREADS)]
    eight = word(THREAD_BITS + 2)

    @always_comb
    def place():
        eight.next = concat(choice.thread, choice.row[5:3])

    @always(clk.posedge)
    def read():
        line = modbv(0)[LEFT_BITS:]
        if phase[2:] == 0:
            line[:] = lefts[thread]
            context.mask.next = line[32:]
            context.left.next = line[38:32]
            word1.next = classes[eight]

    @always(clk.posedge)
    def write():
        if phase[2:] == 3:
            if choice.some and decision.clears:
                lefts[choice.thread].next = concat(choice.left, choice.mask)
        elif group.ends:
            lefts[group.thread].next = concat(group.left, group.mask)
        if group.write:
            classes[group.at].next = group.classes

    return place, read, write


@block
def thread_records(clk, phase, job, thread, choice, decision, context, fresh):
    """Keep jobs, and how far they are.

    job: DecoderJob. thread u3: its context (DecodeContext) is read in phase 0. choice: DecodeChoice;
    decision: DecodeDecision, which is written in phase 3. fresh u8: threads whose block had no turn yet.
    """
    jobs, records = [word(JOB_BITS) for _ in range(THREADS)], [word(RECORD_BITS) for _ in range(THREADS)]
    starts, start_thread, said, final = bit(), word(THREAD_BITS), word(20), word(18)

    @always(clk.posedge)
    def take():
        starts.next = job.start
        start_thread.next = job.thread
        said.next = concat(job.raw, job.last, job.first, job.seeds, job.bank)
        final.next = job.values - 1
        if starts:
            jobs[start_thread].next = concat(said, final[17:])
        for i in range(THREADS):
            if phase[2:] == 3 and choice.some and choice.thread == i:
                fresh.next[i] = False
            if job.start and job.thread == i:
                fresh.next[i] = True

    @always(clk.posedge)
    def read():
        line = modbv(0)[JOB_BITS:]
        record = modbv(0)[RECORD_BITS:]
        if phase[2:] == 0:
            line[:] = jobs[thread]
            context.last_lane.next = line[5:]
            context.last_row.next = line[10:5]
            context.last_group.next = line[17:10]
            context.bank.next = line[19:17]
            context.raw.next = line[36]
            context.seeds.next = line[22:19]
            if line[36]:
                context.seeds.next = 1
            context.first.next = line[29:22]
            context.last.next = line[36:29]
            record[:] = records[thread]
            context.state.next = record[3:]
            context.wide.next = record[5:3]
            context.index.next = record[8:5]
            context.group.next = record[15:8]
            if fresh[thread]:
                context.state.next = HIGHS
                context.wide.next = 0
                context.index.next = 0
                context.group.next = line[36:29]
                if line[36]:
                    context.group.next = 0

    @always(clk.posedge)
    def write():
        if phase[2:] == 3 and choice.some:
            records[choice.thread].next = concat(choice.group, decision.index, decision.wide, decision.state)

    return take, read, write
