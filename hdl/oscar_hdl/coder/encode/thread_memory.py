"""What is kept of each thread between its turns, in distributed RAM."""

from myhdl import always, block, concat, modbv

from oscar_hdl.coder.encode.ports import NEXT
from oscar_hdl.coder.ports import BANK_BITS
from oscar_hdl.coder.unit.ports import THREAD_BITS, THREADS
from oscar_hdl.streams.bundles import bit, word

JOB_BITS, STATE_BITS = 19, 41


@block
def thread_rows(clk, phase, thread, some, group, wide, wide_thread, write_wide, context, decision):
    """Keep which rows of a group are left, and which are seeds.

    thread, some, context, decision: as of thread_memory. group: Group. wide u2 of wide_thread u3, with
    write_wide: how many low bits of its last row go round the tables (0, 1, 2, 3 for 0, 1, 3, 8).
    """
    masks = [word(32) for _ in range(THREADS)]
    wides, founds = [word(2) for _ in range(THREADS)], [word(31) for _ in range(THREADS)]

    @always(clk.posedge)
    def read():
        if phase[2:] == 0:
            context.mask.next = masks[thread]
            context.wide.next = wides[thread]
            context.found.next = founds[thread]

    # Headers write in phase 0, rows that are done in phase 3.
    @always(clk.posedge)
    def write():
        if phase[2:] == 3:
            if some and decision.clears:
                masks[thread].next = decision.mask
        elif group.write_mask:
            masks[group.mask_thread].next = group.mask

    @always(clk.posedge)
    def write_others():
        if group.write_seeds:
            founds[group.seeds_thread].next = group.seeds
        if write_wide:
            wides[wide_thread].next = wide

    return read, write, write_others


@block
def thread_memory(clk, phase, job, thread, some, context, decision, entry_thread, entry):
    """Keep jobs, and how far they are.

    job: EncoderJob. thread u3, some: of thread_choice, whose context (Context) is read in phase 0 and
    replaced by decision (Decision) in phase 3. entry u18: opened, seeds, first, last of the thread
    entry_thread u3, a clock later.
    """
    jobs, states = [word(JOB_BITS) for _ in range(THREADS)], [word(STATE_BITS) for _ in range(THREADS)]
    entries, fresh = [word(18) for _ in range(THREADS)], word(THREADS)
    starts, start_thread, final = bit(), word(THREAD_BITS), word(18)
    bank = word(BANK_BITS)
    writes, written, said = bit(), word(THREAD_BITS), word(11)
    before = word(7)

    @always(clk.posedge)
    def take():
        starts.next = job.start
        start_thread.next = job.thread
        bank.next = job.bank
        final.next = job.values - 1
        if starts:
            jobs[start_thread].next = concat(bank, final[17:])
        for i in range(THREADS):
            if phase[2:] == 3 and some and thread == i:
                fresh.next[i] = False
            if job.start and job.thread == i:
                fresh.next[i] = True

    @always(clk.posedge)
    def read():
        line = modbv(0)[JOB_BITS:]
        state = modbv(0)[STATE_BITS:]
        if phase[2:] == 0:
            line[:] = jobs[thread]
            context.last_lane.next = line[5:]
            context.last_row.next = line[10:5]
            context.last_group.next = line[17:10]
            context.bank.next = line[19:17]
            state[:] = states[thread]
            context.state.next = state[3:]
            context.opened.next = state[3]
            context.seeds.next = state[7:4]
            context.first.next = state[14:7]
            context.group.next = state[21:14]
            context.scan.next = state[28:21]
            context.left.next = state[31:28]
            context.part.next = state[34:31]
            context.raws.next = state[36:34]
            context.row.next = state[41:36]
            if fresh[thread]:
                context.state.next = NEXT
                context.opened.next = False
                context.group.next = 0
                context.scan.next = 127
                context.left.next = 0
                context.raws.next = 0

    @always(clk.posedge)
    def write():
        if phase[2:] == 3 and some:
            states[thread].next = concat(
                decision.next_row, decision.raws, decision.next_part, decision.left,
                decision.scan, decision.at, decision.first, decision.seeds, decision.opened, decision.state
            )  # fmt: skip

    # The last live group is the one before that whose classes would be next.
    @always(clk.posedge)
    def tell():
        writes.next = phase[2:] == 3 and some
        if phase[2:] == 3:
            written.next = thread
            said.next = concat(decision.opened, decision.seeds, decision.first)
            before.next = decision.at - 1
        if writes:
            entries[written].next = concat(said, before)
        entry.next = entries[entry_thread]

    return take, read, write, tell
