"""Eight lanes, their states, and what is kept for them from turn to turn."""

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.decode.decode_lane import decode_lane, sample_count
from oscar_hdl.coder.decode.decoder_search import LevelWrites, level_writes
from oscar_hdl.coder.decode.ports import CLASSES, REST, SEED, STATES_BITS, TALLY, LaneFound, LaneInputs
from oscar_hdl.coder.unit.ports import SAMPLED, THREAD_BITS, WIDTH
from oscar_hdl.coder.unit.row_contexts import row_contexts
from oscar_hdl.streams.block_ram import block_ram
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.joined import joined

AT_BITS = THREAD_BITS + 2


@block
def turn_memory(clk, phase, FIRST: int, READ: int, writer, reader, data, found):
    """Keep a word of each clock of a thread's turn, until its next turn.

    data: of the turn's clock FIRST and the three behind it, kept if the operation is not REST; writer: the
    DecodePlan of clock FIRST - 2. found: the same, given from clock READ on; reader: the DecodePlan of clock
    READ - 4.
    """
    WRITER, READER = (FIRST - 2) % 4, (READ - 4) % 4
    WRITE_BEAT, READ_BEAT = (1 - FIRST) % 4, (3 - READ) % 4
    thread, keeps, write, write_at = word(THREAD_BITS), bit(), bit(), word(AT_BITS)
    reading, read_at, beat, read_beat = word(THREAD_BITS), word(AT_BITS), word(2), word(2)
    memory = block_ram(clk, write, write_at, data, read_at, found)

    @always_comb
    def count():
        beat.next = phase[2:] + WRITE_BEAT
        read_beat.next = phase[2:] + READ_BEAT

    @always(clk.posedge)
    def point():
        if phase[2:] == WRITER:
            thread.next = writer.thread
            keeps.next = writer.op != REST
        write.next = keeps
        write_at.next = concat(thread, beat)
        if phase[2:] == READER:
            reading.next = reader.thread
        read_at.next = concat(reading, read_beat)

    return memory, count, point


@block
def decode_lanes(clk, rst, phase, tables, position, plans, levels, taken, classes35, found, *, banks: int):
    """Decode the steps of eight lanes a clock.

    tables: TableWrites. position: CodedPosition. plans: DecodePlan of clocks 1, 5, .. 33. levels:
    LaneLevels, of which contexts6 are given here. taken: LaneBytes of each lane. classes35: u4 of each lane
    that is counted, of raw_classes. found: Found.
    """
    plan, plan5, _, _, plan17, plan21, plan25, plan29, _ = plans
    writes, inputs, classes2, looks2, mean1 = LevelWrites(banks), LaneInputs(), bit(), bit(), word(4)
    x34, low26, local3 = word(STATES_BITS), word(8 * WIDTH), word(16 * WIDTH)
    each, addresses = [LaneFound() for _ in range(WIDTH)], [word(9) for _ in range(SAMPLED)]
    levels_of = level_writes(clk, tables, writes)
    contexts = row_contexts(clk, phase, classes2, plan.row_class, mean1, levels.contexts6)
    lanes = [
        decode_lane(clk, rst, phase, n, writes, levels, inputs, taken[n], each[n], banks=banks)
        for n in range(WIDTH)
    ]
    memories = [
        turn_memory(clk, phase, 34, 9, plan29, plan5, x34, inputs.x9),
        turn_memory(clk, phase, 26, 24, plan21, plan17, low26, inputs.old24),
        turn_memory(clk, phase, 3, 29, plan, plan25, local3, inputs.local29),
    ]
    counts = [
        sample_count(clk, phase, *each[4 * n : 4 * n + 4], levels, classes35[n], addresses[n])
        for n in range(SAMPLED)
    ]
    joins = [
        joined([lane.x34 for lane in each], x34),
        joined([lane.low26 for lane in each], low26),
        joined([lane.wrong10 for lane in each], found.wrong10),
        joined([lane.symbol15 for lane in each], found.symbols15),
        joined([lane.odd30 for lane in each], found.odd30),
        joined([lane.total30 for lane in each], found.totals30),
        joined(addresses, found.addresses36),
    ]

    @always(clk.posedge)
    def take():
        inputs.data3.next = position.data
        local3.next = position.local
        if looks2:  # at a row's values, not at its sums
            local3.next = 0
        if phase[2:] == 0:
            mean1.next = position.mean
        if phase[2:] == 1:
            classes2.next = plan.op == CLASSES or plan.op == TALLY
            looks2.next = plan.op == SEED and plan.raw and not plan.real
        if phase[2:] == 3:
            inputs.classes4.next = classes2

    return levels_of, contexts, lanes, memories, counts, joins, take
