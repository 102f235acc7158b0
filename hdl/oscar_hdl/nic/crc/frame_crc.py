"""CRC-32 of a message, a word of 8 to 64 bytes a clock."""

from collections.abc import Sequence

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.linear_map import ONES, linear_map, step, unstep

GROUP = 32  # bits whose sum has a register


@block
def crc_rest(clk, enable, data, rest, columns: Sequence[int], *, at: int):
    """Give the xor of columns[i] for each bit at + i of data that is 1.

    enable (strobe): take data. rest u32: their sum behind registers of 32 bits of data each, so from the
    next clock on, until the next enable.
    """
    if len(columns) <= GROUP:
        total = word(32)
        total_map = linear_map(data, total, columns, at=at)

        @always(clk.posedge)
        def hold():
            if enable:
                rest.next = total

        return total_map, hold
    half = (len(columns) + 2 * GROUP - 1) // (2 * GROUP) * GROUP
    low, high = word(32), word(32)
    low_rest = crc_rest(clk, enable, data, low, columns[:half], at=at)
    high_rest = crc_rest(clk, enable, data, high, columns[half:], at=at + half)

    @always_comb
    def add():
        rest.next = low ^ high

    return low_rest, high_rest, add


@block
def frame_crc(clk, rst, valid, data, last, missing, done, result, *, lead: int = 0):
    """Give the CRC-32 of a message, as zlib.crc32 does.

    Args:
        valid: Strobe: a word of the message. Words come at any distance; the next message begins after
            `done`.
        data: The word, 8 to 64 bytes, a multiple of 4; the first byte in bits 0 to 7.
        last: With `valid`: the last word.
        missing: With `last`: number of bytes at the end of the word that are not of the message. They must
            be 0.
        done: Strobe: the result is there.
        result: The CRC; holds from `done` to the next one.
        size: Bytes of a word.
        lead: Number of bytes at the start of the first word that are not of the message. They must be 0.

    Clocks:
        6: From `last` to `done`, and one for each four bytes that are missing and each byte beyond.
    """
    size = len(data) // 8
    if len(data) % 32 or not 8 <= size <= 64:
        raise ValueError(f"expected data of 8, 12, .. 64 bytes, got {len(data)} bits")
    if not 0 <= lead < size:
        raise ValueError(f"expected a lead of 0 to {size - 1} bytes, got {lead}")
    # The state holds the low 32 bits of its word. So what follows from the other bits has two clocks, and
    # one map is all that is in the loop.
    START = unstep(ONES, 8 * (lead + size))  # what leads to ONES and so many zeros
    MOVE = [step(1 << i, 0, 8 * size) for i in range(32)]
    REST = [step(0, 1 << i, 8 * size) for i in range(32, 8 * size)]
    FAR, NEAR = [unstep(1 << i, 32) for i in range(32)], [unstep(1 << i, 8) for i in range(24, 32)]

    state, moved, low = word(32, START), word(32), word(32)
    rest, rest_next = word(32), word(32)
    valid_1, last_1, last_2, last_3 = bit(), bit(), bit(), bit()
    final, far, near, back, settling = word(32), word(32), word(32), word(len(missing)), bit()

    rests = crc_rest(clk, valid, data, rest_next, REST, at=32)
    move = linear_map(state, moved, MOVE)
    steps_back = [linear_map(final, far, FAR), linear_map(final, near, NEAR, at=24)]

    @always_comb
    def give():
        result.next = ~final

    @always(clk.posedge)
    def run():
        valid_1.next = valid
        last_1.next = valid and last
        last_2.next = last_1
        last_3.next = last_2
        if valid:
            low.next = data[32:]
        if valid_1 or last_2:
            state.next = moved ^ rest ^ low
            rest.next = rest_next
        if last_1:  # one step more, of nothing: then `rest` is in
            low.next = 0
        if last_3 or rst:
            state.next = START
            rest.next = 0
        if rst:
            valid_1.next = False
            last_1.next = False
            last_2.next = False
            last_3.next = False

    @always(clk.posedge)
    def finish():
        """Take the zeros at the end back, four bytes a clock, then one."""
        done.next = settling and back == 0
        if valid and last:
            back.next = missing
        if last_3:
            final.next = state
            settling.next = True
        elif settling:
            settling.next = back != 0
            if back[:2] != 0:
                back.next = back - 4
                final.next = far
            elif back != 0:
                back.next = back - 1
                final.next = concat(final[24:], modbv(0)[8:]) ^ near
        if rst:
            settling.next = False
            done.next = False

    return rests, move, steps_back, give, run, finish
