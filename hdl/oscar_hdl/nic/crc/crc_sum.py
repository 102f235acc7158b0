"""The CRC-32 of a frame from the CRCs of its blocks."""

from myhdl import Signal, always, always_comb, block, enum, modbv

from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.copied import copied
from oscar_hdl.streams.linear_map import linear_map, step, unstep

DIGIT_BITS = 3  # of a distance, of which two have a step each; what is above has one, too
FAR = 2 * DIGIT_BITS


@block
def crc_step(clk, crc, way, columns):
    """Give a linear map of crc a clock later."""
    moved = word(32)
    return linear_map(crc, moved, columns), copied(clk, moved, way)


@block
def crc_steps(clk, crc, hot, moved, *, word_bytes: int):
    """Give the crc of a clock ago moved on by a word, 8 or 64 words, or back by a byte or 8, as one bit of
    hot u5 says; combinational, and crc itself if none is."""
    BITS = 8 * word_bytes
    ways = [word(32) for _ in range(5)]
    maps = [[step(1 << i, 0, BITS << DIGIT_BITS * n) for i in range(32)] for n in range(3)]
    maps += [[unstep(1 << i, 8 << DIGIT_BITS * n) for i in range(32)] for n in range(2)]
    parts = [crc_step(clk, crc, way, columns) for way, columns in zip(ways, maps, strict=True)]

    @always_comb
    def choose():
        one = modbv(0)[32:]
        if hot == 0:
            one[:] = crc
        for n in range(5):
            if hot[n]:
                one[:] = one | ways[n]
        moved.next = one

    return parts, choose


@block
def crc_sum(clk, rst, clear, ended, state, offset, absorb, finish, pad, idle, crc, *, word_bytes: int):
    """Add blocks' CRCs, each multiplied by what comes behind its last word.

    clear (strobe): a new frame. ended, state u32, offset: a block's CRC, not inverted, and where it ended, in
    words; absorb (strobe, one clock later): it was taken. Order does not matter. finish (strobe, while
    idle): `pad` bytes of 0, which stand behind the last block, are to be taken back. idle: all this is
    done, from the second clock on. crc u32: the sum, not inverted. engine.md ("Sender") has the clocks.
    """
    bits = len(offset)
    LEFT = max(bits, FAR + 1)
    states = enum("IDLE", "COMPARE", "PICK", "STEP", "ADD")
    mode = Signal(states.IDLE)
    empty, exchange, equal, back, second = bit(), bit(), bit(), bit(), bit()
    # crc: of the blocks so far, as it is at word `reach`; other: what is to be added to it
    other, moved, reach, far = word(32), word(32), word(bits), word(bits)
    ahead, left, hot = word(bits + 1), word(LEFT), word(5)
    steps = crc_steps(clk, crc, hot, moved, word_bytes=word_bytes)

    @always_comb
    def look():
        idle.next = mode == states.IDLE
        equal.next = ahead == 0

    @always(clk.posedge)
    def plan():
        """Keep how far the sum is to be moved, and by which step it is next."""
        ahead.next = far - reach
        hot.next = 0
        second.next = mode == states.STEP and not second
        if mode == states.IDLE:
            left.next = pad
            back.next = finish
            far.next = offset
        elif mode == states.PICK:
            left.next = ahead[bits:]
            if ahead[bits]:
                left.next = reach - far
            else:
                reach.next = far
            empty.next = False
        elif second and mode == states.STEP:
            if left[LEFT:FAR] != 0:
                hot.next[2] = True
                left.next[LEFT:FAR] = left[LEFT:FAR] - 1
            elif left[FAR:DIGIT_BITS] != 0:
                hot.next[1] = not back
                hot.next[4] = back
                left.next[FAR:DIGIT_BITS] = left[FAR:DIGIT_BITS] - 1
            elif left[DIGIT_BITS:] != 0:
                hot.next[0] = not back
                hot.next[3] = back
                left.next[DIGIT_BITS:] = left[DIGIT_BITS:] - 1
        if clear or rst:
            empty.next = True
            reach.next = 0

    @always(clk.posedge)
    def add():
        absorb.next = ended and mode == states.IDLE and not finish and not rst
        exchange.next = mode == states.PICK and (ahead[bits] or empty)
        if mode == states.IDLE:
            other.next = state
            if finish:
                other.next = 0
        elif exchange:
            other.next = crc
        if exchange:
            crc.next = other
        elif (mode == states.PICK and equal and not empty) or mode == states.ADD:
            crc.next = crc ^ other
        else:
            crc.next = moved

    @always(clk.posedge)
    def sequence():
        if mode == states.IDLE:
            if finish:
                if pad != 0:
                    mode.next = states.STEP
            elif ended:
                mode.next = states.COMPARE
        elif mode == states.COMPARE:
            mode.next = states.PICK
        elif mode == states.PICK:
            mode.next = states.STEP
            if empty or equal:
                mode.next = states.IDLE
        elif mode == states.STEP:
            if left == 0:
                mode.next = states.ADD
        else:
            mode.next = states.IDLE
        if rst:
            mode.next = states.IDLE

    return steps, look, plan, add, sequence
