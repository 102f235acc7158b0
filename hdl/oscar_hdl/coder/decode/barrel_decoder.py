"""The barrel decoder: eight lanes a clock, eight blocks that take turns.

A block is up to 2^17 values of 16 bits in rows of 32, and 32 rows are a group. The decoder takes the bytes
of blocks, adds what they code to local values, and gives the sums. Whoever uses it alone brings the tables,
takes frames apart (docs/reference/asc.md, "Payload"), and keeps rows.

1. **Reset.** Hold `rst` for 64 clocks. `phase` counts up in every clock from then on.
2. **Tables.** Write the 128 quads of a bank to `tables` before its first block starts. Write no bank while a
   block uses it.
3. **Start.** Choose a thread whose bit of `job_idle` is 1, four clocks or more after the last start. Strobe
   `job_start` with thread, bank, values and the directory entry. Seven threads with bytes keep the unit busy.
4. **Feed.** A format-4 block is decoded from its end. From six clocks after the start on give its words of
   sixteen bytes, the last one first, and in each word the last byte in bits 0 to 7. Words are those of a
   memory that has the block at any byte: `job_offset` says how many bytes of the last word that comes, the
   upper ones, lie before the block, and lower bytes of the first word may lie after it. Words do not wait: a
   thread with `feed_room` takes eight more than had come 13 clocks ago.
5. **Serve memory.** Keep each `position_take` with its thread, row, header and read. In clock 0 of a later
   turn strobe `position_given` for one of the threads that wait. Give data and local values in clocks 2 to 5
   after it, lanes 24 to 31 first. To replace instead of add, give 0 as local values.
6. **Write the sums.** They do not wait. They come 30 clocks after the answer, a row's descriptor 12 clocks
   after its first sums. Do not give a row to another thread before its sums are written.
7. **End.** `job_done` says with `job_bad` whether the block was whole. All its words are taken then.

A turn takes four clocks; clock 0 is the first one of the answer's turn, where `phase` is a multiple of four:

```
clock            0      2      3      4      5     ..  24   ..  30     31     32     33   ..  42
position_given   1
mean             valid
data, local             24-31  16-23  8-15   0-7       lanes
position_take                                           next of this thread, or later
sums_valid                                                      24-31  16-23  8-15   0-7
sums_described                                                                                1
```

docs/develop/engine.md defines distance and P of a row ("What a NIC keeps and what it is given"), and the
turns of a block ("Barrel units").
"""

from itertools import pairwise

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.coder.decode import ports
from oscar_hdl.coder.decode.block_ends import block_ends, block_faults
from oscar_hdl.coder.decode.byte_rings import byte_rings
from oscar_hdl.coder.decode.decode_lanes import decode_lanes
from oscar_hdl.coder.decode.decode_order import decode_choice, decode_order
from oscar_hdl.coder.decode.decode_request import decode_request
from oscar_hdl.coder.decode.lane_levels import lane_levels
from oscar_hdl.coder.decode.ports import CLASSES, PLACE_BITS, REST, SEED, WORDS_BITS
from oscar_hdl.coder.decode.raw_classes import raw_classes
from oscar_hdl.coder.decode.ring_fill import block_begin, feed_words, ring_levels
from oscar_hdl.coder.decode.sum_rows import sum_rows
from oscar_hdl.coder.decode.thread_records import thread_records, thread_rows
from oscar_hdl.coder.ports import BANKS
from oscar_hdl.coder.unit.ports import SAMPLED, THREAD_BITS, THREADS, WIDTH
from oscar_hdl.coder.unit.thread_choice import thread_choice
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.copied import copied, copied_fields
from oscar_hdl.streams.joined import joined


@block
def decode_turns(clk, rst, phase, job, enough, fresh, group, looked, position, plans, classes35):
    """Order the turns of all threads, ask for their rows, and give each turn's plan with the answer.

    job: DecoderJob. enough u8: threads whose next turn has its bytes; fresh u8: whose block had no turn
    yet. group: GroupClasses. looked: Looked. position: CodedPosition. plans: DecodePlan of clocks
    1, 5, .. 33, of which the first is given. classes35: of raw_classes.
    """
    thread, some, back, word1 = word(THREAD_BITS), bit(), word(THREADS), word(32)
    looked1, goes9 = word(4), bit()
    plan, _, plan9, _, plan17, _, _, _, plan33 = plans
    context, chosen, decision = ports.DecodeContext(), ports.DecodeChoice(), ports.DecodeDecision()
    choice = thread_choice(clk, rst, phase, job.start, job.thread, back, enough, thread, some)
    records = thread_records(clk, phase, job, thread, chosen, decision, context, fresh)
    rows = thread_rows(clk, phase, thread, chosen, decision, group, context, word1)
    first = decode_choice(clk, phase, thread, some, context, chosen)
    seen = raw_classes(clk, phase, looked, chosen, looked1, plan33, classes35)
    second = decode_order(clk, phase, chosen, word1, looked1, decision)
    request = decode_request(clk, rst, phase, chosen, decision, position, plan)

    # A thread's next turn is decided 16 clocks behind the begin of one, or 24 behind that of classes, whose
    # rows are known then; its state is there 28 clocks behind. A raw block's waits for its row's class.
    @always_comb
    def free():
        for i in range(THREADS):
            back.next[i] = (looked.strobe and looked.thread == i) or (
                phase[2:] == 0
                and ((plan17.thread == i and plan17.op == CLASSES) or (plan9.thread == i and goes9))
            )

    @always_comb
    def go_on():
        goes9.next = (
            plan9.op != REST
            and plan9.op != CLASSES
            and not plan9.final
            and not (plan9.op == SEED and plan9.raw and not plan9.real)
        )

    return choice, records, rows, first, seen, second, request, free, go_on


@block
def decode_bytes(clk, rst, phase, job, feed, plan25, plan29, taken, over, fresh, enough, settled):
    """Keep bytes of blocks and give them to lanes.

    job: DecoderJob. feed: FeedPort. plan25, plan29: DecodePlan. taken: LaneBytes of each lane. over,
    fresh, enough, settled: of ring_levels.
    """
    begin, put, looked, ends, room = ports.Begin(), ports.Put(), phase(3, 0), bit(), word(THREADS)
    place1, words1 = word(PLACE_BITS), word(WORDS_BITS)
    start = block_begin(clk, rst, phase, job, ends, begin)
    fill = feed_words(clk, rst, feed, begin, put, looked, words1, ends)
    rings = byte_rings(clk, phase, plan25, plan29, begin, put, taken, looked, place1)
    levels = ring_levels(clk, rst, phase, job, begin, words1, place1, over, fresh, enough, room, settled)

    @always_comb
    def share():
        feed.room.next = room | over

    return start, fill, rings, levels, share


@block
def group_classes(clk, phase, symbols15, active14, plan13, plan17, group, alive33):
    """Take symbols of eight rows a clock, the last eight first.

    symbols15 u32, active14 u8: of LaneLevels. plan13, plan17: DecodePlan. group: GroupClasses, of which
    classes are given from clock 16 on, the rest in clock 20. alive33: one of them is above 0.
    """
    active15, live16, count17 = word(WIDTH), word(WIDTH), word(4)
    total, sums = word(6), word(6)
    thread15, beat15, classes15 = word(THREAD_BITS), word(2), bit()
    alive21, alive25, alive29 = bit(), bit(), bit()

    @always(clk.posedge)
    def count():
        # Lane 8 n + i of a turn is row 8 n + i of its group.
        active15.next = active14
        group.classes.next = symbols15
        for i in range(WIDTH):
            live16.next[i] = active15[i] and (
                symbols15[4 * i] or symbols15[4 * i + 1] or symbols15[4 * i + 2] or symbols15[4 * i + 3]
            )
        if phase[2:] == 2:
            thread15.next = plan13.thread
            classes15.next = plan13.op == CLASSES
        group.at.next = concat(thread15, beat15)
        group.write.next = classes15
        ones = modbv(0)[4:]
        for i in range(WIDTH):
            if live16[i]:
                ones[:] = ones + 1
        count17.next = ones
        group.mask.next = concat(group.mask[24:], live16)
        total.next = sums
        if phase[2:] == 0:
            alive21.next = sums != 0
            alive25.next = alive21
            alive29.next = alive25
            alive33.next = alive29

    @always_comb
    def give():
        beat15.next = 2 - phase[2:]
        sums.next = total + count17
        if phase[2:] == 1:
            sums.next = count17
        group.ends.next = phase[2:] == 0 and plan17.op == CLASSES
        group.thread.next = plan17.thread
        group.left.next = sums

    return count, give


@block
def barrel_decoder(clk, rst, phase, job, tables, feed, position, sums, counts, *, banks: int = BANKS):
    """Decode blocks, eight lanes a clock, of eight threads in turns of four clocks.

    docs/reference/asc.md has the format: 4. A number in a name is the clock in which a signal belongs to a
    turn's first lanes, 0 that of its answer.

    Args:
        phase: Counts up by one a clock, for ever. A turn begins where its two lower bits are 0.
        job: Blocks to decode, and how they end.
        tables: Writes of the tables.
        feed: Bytes of blocks.
        position: Means, distances and local values, from memory.
        sums: Rows of sums, to memory.
        counts: Symbols to count, for those who make the next frame's tables; in clocks 36 to 39 of a turn.
        banks: Table banks, 2 or 4.

    Clocks:
        27 to 38: From `job_start` to the block's first request, if its words come one after another and no
            other thread is before it.
        28: Between two turns of a thread, where memory answers in the next turn; 36 after classes. A raw row
            takes 116.
        30: From an answer to the row's first sums.
        45 to 52: From the start of a block's last turn to `job_done`, if all its bytes came.
    """
    plans = [ports.DecodePlan() for _ in range(9)]
    _, plan5, plan9, plan13, plan17, plan21, plan25, plan29, plan33 = plans
    group, levels, found, settled = ports.GroupClasses(), ports.LaneLevels(), ports.Found(), ports.Settled()
    taken, alive33, begins = [ports.LaneBytes() for _ in range(WIDTH)], bit(), bit()
    two_of, twos24 = [lane.two24 for lane in taken], word(WIDTH)
    enough, fresh, over, ended, wrongs = (word(THREADS) for _ in range(5))
    upper35, looked, classes35 = word(3), ports.Looked(), [word(4) for _ in range(SAMPLED)]

    order = decode_turns(clk, rst, phase, job, enough, fresh, group, looked, position, plans, classes35)
    stages = [copied_fields(clk, *two, load=begins) for two in pairwise(plans)]  # a turn later each
    level = lane_levels(clk, phase, plan5, plan9, plan13, plan17, plan21, plan25, plan33, alive33, levels)
    lanes = decode_lanes(
        clk, rst, phase, tables, position, plans, levels, taken, classes35, found, banks=banks
    )
    classes = group_classes(clk, phase, found.symbols15, levels.active14, plan13, plan17, group, alive33)
    store = decode_bytes(clk, rst, phase, job, feed, plan25, plan29, taken, over, fresh, enough, settled)
    rows = sum_rows(clk, rst, phase, plan29, found.totals30, sums, looked, ended)
    twos = joined(two_of, twos24)
    faults = block_faults(clk, phase, plan9, plan21, plan25, plan29, found, twos24, levels.present29, wrongs)
    ends = block_ends(clk, rst, job, wrongs, ended, settled, over)

    @always_comb
    def turn():
        begins.next = phase[2:] == 0
        upper35.next = concat(True, levels.pick35)

    @always(clk.posedge)
    def count():
        counts.valid.next[0] = levels.counted35 and levels.present35[levels.pick35]
        counts.valid.next[1] = levels.counted35 and levels.present35[upper35]
        if phase[2:] == 3:
            counts.bank.next = plan33.bank
        if rst:
            counts.valid.next = 0

    show = copied(None, found.addresses36, counts.address)
    return order, stages, level, lanes, classes, store, rows, twos, faults, ends, turn, count, show
