"""The barrel encoder: eight lanes a clock, eight blocks that take turns.

A block is up to 2^17 values of 16 bits in rows of 32, and 32 rows are a group. The encoder makes the bytes of
blocks and their directory entries. Whoever uses it alone brings the tables, keeps rows and descriptors, and
puts blocks together to frames (docs/reference/asc.md, "Payload").

1. **Reset.** Hold `rst` for 64 clocks. `phase` counts up in every clock from then on.
2. **Tables.** Write the 128 quads of a bank to `tables`. A block reads its bank 40 clocks after its start at
   the earliest, so the last quads may come after it. Write no bank while a block uses it.
3. **Start.** Choose a thread whose bit of `job_idle` is 1 and whose last bytes were drained. Strobe
   `job_start` with `job_thread`, `job_bank`, `job_values`. Eight blocks may be under way; five fill the unit.
4. **Serve memory.** Keep each `source_take` with its thread, row, header and read. In clock 0 of a later turn
   strobe `source_given` for one of the threads that wait. Give data in clocks 2 to 5 after it.
5. **Drain.** While `drain_idle`, strobe `drain_start` with the thread whose block began first. Bytes leave
   on `m_axis_bytes`, `tlast` with the last word. A thread has a buffer of 2,048 bytes and waits without room
   for two turns, so drain a long block while it is coded. A block of zeros has no bytes and no word.
6. **End.** At `job_done` take the directory entry. The bytes stay until the thread's next start.

A turn takes four clocks; clock 0 is the first one of the answer's turn, where `phase` is a multiple of four:

```
clock          0      1      2      3      4      5     ..  16     ..  24
source_given   1      0                                      (of other threads)
row_class      valid
data                         0-7    8-15   16-23  24-31      lanes
source_take                                                 next of this thread, or later
m_axis_bytes                                                            the turn's bytes, or later
```

docs/develop/engine.md defines class, size, distance and P of a row ("What a NIC keeps and what it is given"),
which `oscar_hdl.coder.rows.frame_rows` computes, and the turns of a block ("Barrel units").
"""

from itertools import pairwise

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.encode import ports
from oscar_hdl.coder.encode.block_facts import block_facts
from oscar_hdl.coder.encode.byte_store import byte_store
from oscar_hdl.coder.encode.group_rows import group_rows
from oscar_hdl.coder.encode.lanes import lanes
from oscar_hdl.coder.encode.ports import END, HEADER, HIGH, REST, Context, Decision
from oscar_hdl.coder.encode.thread_memory import thread_memory, thread_rows
from oscar_hdl.coder.encode.turn_order import turn_order
from oscar_hdl.coder.encode.turn_reading import lane_presence, turn_reading
from oscar_hdl.coder.encode.turn_request import turn_request
from oscar_hdl.coder.unit.ports import ALL_THREADS, THREAD_BITS, THREADS, WIDTH
from oscar_hdl.coder.unit.thread_choice import thread_choice
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.copied import copied, copied_fields


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
def results(clk, rst, phase, job, wrong11, entry, facts, ended):
    """Give what is said of a block when it ends.

    job: EncoderJob. wrong11 u8: of lanes. entry: Entry and facts: Facts, of the thread whose turn is in
    its clocks 12 to 15, where `entry.turn` says which. ended: Ended.
    """
    wrong12, bad, idle = bit(), word(THREADS), word(THREADS, ALL_THREADS)

    @always(clk.posedge)
    def tell():
        wrong12.next = wrong11 != 0
        for i in range(THREADS):
            if wrong12 and entry.turn == i:
                bad.next[i] = True
            if job.start and job.thread == i:
                bad.next[i] = False
                idle.next[i] = False
            if ended.strobe16 and ended.thread16 == i:
                idle.next[i] = True
        if rst:
            idle.next = ALL_THREADS
        job.done.next = ended.strobe16 and not rst
        job.done_thread.next = ended.thread16
        job.bytes.next = ended.bytes16
        job.bad.next = bad[ended.thread16]
        job.constant.next = not entry.last[17] or facts.last[20]
        job.value.next = facts.last[16:]
        job.bits.next = facts.last[20:16]
        job.seeds.next = entry.last[17:14]
        job.first.next = entry.last[14:7]
        job.last.next = entry.last[7:]
        # What was asked for in clock 12 is there in 15.
        if phase[2:] == 3:
            entry.last.next = entry.said
            facts.last.next = facts.said

    return tell, copied(None, idle, job.idle)


@block
def sampled_lanes(pick, addresses, address):
    """Give the addresses u18 of lanes `pick` u2 and `pick` + 4 of eight lanes; combinational."""

    @always_comb
    def choose():
        address.next = concat(addresses[45:36], addresses[9:])
        if pick == 1:
            address.next = concat(addresses[54:45], addresses[18:9])
        elif pick == 2:
            address.next = concat(addresses[63:54], addresses[27:18])
        elif pick == 3:
            address.next = concat(addresses[72:63], addresses[36:27])

    return choose


@block
def barrel_encoder(clk, rst, phase, job, tables, source, counts, drain, m_axis_bytes):
    """Encode blocks, eight lanes a clock, of eight threads in turns of four clocks.

    docs/reference/asc.md has the format: 4. A number in a name is the clock in which a signal belongs to a
    turn's first lanes, 0 that of its answer.

    Args:
        phase: Counts up by one a clock, for ever. A turn begins where its two lower bits are 0.
        job: Blocks to encode, and their directory entries.
        tables: Writes of the tables.
        source: Rows and descriptors, from memory.
        counts: Symbols to count, for those who make the next frame's tables.
        drain: The thread whose bytes leave.
        m_axis_bytes: Bytes of blocks, sixteen a word, the first one in bits 0 to 7.

    Clocks:
        8 to 11: From `job_start` to the block's first request, if no other thread is before it.
        20: Between two turns of a thread, where memory answers in the next turn; 24 after a header.
        17: From the start of a block's last turn to `job_done`.
        24: From an answer to the turn's bytes on `m_axis_bytes`, if the thread is drained.
    """
    plan, plan5, plan9, plan13, plan17 = plans = [ports.FirstPlan(), *(ports.Plan() for _ in range(4))]
    group, reading, ended = ports.Group(), ports.Reading(), ports.Ended()
    entry, facts = ports.Entry(), ports.Facts()
    room, wide, write_wide, row_class1, mean1 = word(THREADS), word(2), bit(), word(4), word(4)
    data3, present3, present6, dead4 = word(19 * WIDTH), word(WIDTH), word(WIDTH), bit()
    addresses7, wrong11, counted6, begins = word(9 * WIDTH), word(WIDTH), bit(), bit()
    pick6, pick7, upper6 = word(2), word(2), word(3)
    leaving = [ports.Leaving() for _ in range(WIDTH)]

    order = turns(clk, rst, phase, job, room, group, source, plan, plan5, wide, write_wide, entry)
    stages = [copied_fields(clk, *two, load=begins) for two in pairwise(plans)]  # a turn later each
    read = turn_reading(clk, phase, plan, row_class1, mean1, plan5, plan9, reading, wide, write_wide)
    there = lane_presence(clk, phase, plan, present3, present6)
    rows = group_rows(clk, phase, data3, present3, plan5, plan13, group, dead4)
    gather = block_facts(clk, phase, data3, present3, dead4, plan, plan5, plan9, entry.turn, facts.said)
    code = lanes(clk, phase, plan, plan17, data3, reading, present6, tables, leaving, addresses7, wrong11)
    store = byte_store(clk, rst, phase, job, plan9, leaving, drain, room, ended, m_axis_bytes)
    end = results(clk, rst, phase, job, wrong11, entry, facts, ended)

    @always_comb
    def turn():
        begins.next = phase[2:] == 0
        upper6.next = concat(True, pick6)

    @always(clk.posedge)
    def count():
        data3.next = source.data
        if phase[2:] == 0:
            row_class1.next = source.row_class
            mean1.next = source.mean
        if phase[2:] == 3:
            entry.turn.next = plan9.thread
        counts.valid.next[0] = counted6 and present6[pick6]
        counts.valid.next[1] = counted6 and present6[upper6]
        if phase[2:] == 1:
            counted6.next = plan5.counted and plan5.op != REST
            pick6.next = plan5.pick
        if phase[2:] == 2:
            pick7.next = pick6
            counts.bank.next = reading.bank6

    point = copied(None, entry.turn, entry.thread)
    show = sampled_lanes(pick7, addresses7, counts.address)

    return order, stages, read, there, rows, gather, code, store, end, turn, point, count, show
