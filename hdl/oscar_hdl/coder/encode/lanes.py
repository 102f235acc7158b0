"""Eight lanes and their states."""

from myhdl import Signal, always, always_comb, block, concat, modbv

from oscar_hdl.coder.encode.lane_core import lane_core
from oscar_hdl.coder.encode.lane_front import lane_front
from oscar_hdl.coder.encode.ports import CLASSES, COUNT, LOW, RAW, ROW, SEED, Step
from oscar_hdl.coder.encode.reciprocal import RECIPROCAL_BITS, reciprocal
from oscar_hdl.coder.unit.ports import STATE_BITS, THREAD_BITS, WIDTH
from oscar_hdl.streams.block_ram import block_ram
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.copied import chain
from oscar_hdl.streams.joined import joined
from oscar_hdl.streams.zero import zero


@block
def reciprocals(clk, f_a, f_b, ratio_a, ratio_b):
    """Give the reciprocals u16 of two lanes' f u10, two clocks later.

    A block RAM that is never written: a table in code would be one for each port.
    """
    memory = [Signal(modbv(reciprocal(f))[RECIPROCAL_BITS:]) for f in range(1 << 10)]
    never, found_a, found_b = bit(), word(RECIPROCAL_BITS), word(RECIPROCAL_BITS)

    @always(clk.posedge)
    def look_up():
        if never:
            memory[f_a].next = 0
        found_a.next = memory[f_a]
        found_b.next = memory[f_b]
        ratio_a.next = found_a
        ratio_b.next = found_b

    return zero(clk, never), look_up


@block
def state_memory(clk, phase, plan, plan17, x7, x22, begins21, begin21):
    """Give states at clocks 7 to 10 of a turn, and take them from 22 on: turns of a thread are 20 apart.

    plan, plan17: Plan of clock 1, and again of 17. x7, x22: eight states. begins21: they begin with begin21
    u17 instead, a power of 2. A turn that codes nothing changes none.
    """
    thread4, thread21, read_at = word(THREAD_BITS), word(THREAD_BITS), word(THREAD_BITS + 2)
    write_at, writes21, write = word(THREAD_BITS + 2), bit(), bit()
    beat = word(2)
    states = block_ram(clk, write, write_at, x22, read_at, x7)

    @always(clk.posedge)
    def place():
        beat.next = phase[2:]
        if phase[2:] == 3:
            thread4.next = plan.thread
        read_at.next = concat(thread4, phase[2:])
        if phase[2:] == 0:
            thread21.next = plan17.thread
            begins21.next = plan17.opening and plan17.op == COUNT
            for i in range(17):
                begin21.next[i] = plan17.begin == i
            writes21.next = (
                plan17.op == ROW
                or plan17.op == SEED
                or plan17.op == RAW
                or plan17.op == CLASSES
                or plan17.op == LOW
                or (plan17.opening and plan17.op == COUNT)
            )
        write_at.next = concat(thread21, beat)
        write.next = writes21

    return states, place


@block
def lanes(clk, phase, plan, plan17, data3, reading, present6, tables, leaving, addresses7, wrong11):
    """Code the steps of eight lanes a clock.

    plan, plan17: Plan of clock 1, and again of 17. data3: the lanes' values. reading: Reading. present6 u8:
    lanes that take part. tables: TableWrites. leaving: Leaving of each lane. addresses7: nine bits of each,
    context and symbol. wrong11 u8: a value without a symbol, or a symbol that is not possible.
    """
    steps = [Step() for _ in range(WIDTH)]
    new = [word(STATE_BITS) for _ in range(WIDTH)]
    x7, x22, begins21, begin21 = word(STATE_BITS * WIDTH), word(STATE_BITS * WIDTH), bit(), word(17)
    wrong7 = [bit() for _ in range(WIDTH)]
    symbols7 = [word(9) for _ in range(WIDTH)]
    wrong = [bit() for _ in range(WIDTH)]
    f10, ratio12 = [word(10) for _ in range(WIDTH)], [word(16) for _ in range(WIDTH)]
    fronts = [lane_front(clk, n, data3, reading, present6, steps[n], wrong7[n]) for n in range(WIDTH)]
    cores = [
        lane_core(
            clk, phase, tables, steps[n], reading, begins21, begin21, leaving[n], f10[n], ratio12[n], new[n]
        )
        for n in range(WIDTH)
    ]
    ratios = [reciprocals(clk, f10[n], f10[n + 1], ratio12[n], ratio12[n + 1]) for n in range(0, WIDTH, 2)]
    states = state_memory(clk, phase, plan, plan17, x7, x22, begins21, begin21)
    ends = [
        lane_ends(clk, n, x7, steps[n], wrong7[n], leaving[n], symbols7[n], wrong[n]) for n in range(WIDTH)
    ]
    new_states, symbols, wrongs = joined(new, x22), joined(symbols7, addresses7), joined(wrong, wrong11)
    return fronts, cores, ratios, states, ends, new_states, symbols, wrongs


@block
def lane_ends(clk, LANE: int, x7, step, wrong7, leaving, symbol7, wrong11):
    """Give a lane its state out of x7; take its symbol u9, and four clocks later whether it is wrong."""
    AT = STATE_BITS * LANE
    wrong8, wrong9, wrong10, late11 = bit(), bit(), bit(), bit()

    @always_comb
    def cut():
        step.x7.next = x7[AT + STATE_BITS : AT]
        symbol7.next = step.address7[9:]
        wrong11.next = late11 or leaving.impossible11

    return cut, chain(clk, wrong7, wrong8, wrong9, wrong10, late11)
