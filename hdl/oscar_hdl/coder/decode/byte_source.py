"""The bytes of a decoder's blocks, one or two a clock."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar_hdl.streams.bundles import bit, word

STORE = 1024  # pairs; half of them is room for what comes late

t_filling = enum("COMING", "CLOSED", "AHEAD", "FULL")


@block
def byte_source(
    clk: Any, rst: Any, s_axis: Any, drain: Any, turn: Any, odd: Any, prime: Any, take_one: Any,
    take_two: Any, half: Any, pair: Any, held: Any, enough: Any, whole: Any, exact: Any,
) -> Any:  # fmt: skip
    """Hold pairs of bytes; give the next bytes, of which one or two are taken in any clock.

    s_axis u16: a block's pairs, tlast with its last. prime: a block begins, before its first byte is taken;
    odd: its first pair has only the upper byte. half: the next byte is the second of a pair; pair u16 and
    held u8 come 2 clocks later: the next bytes are `held` and the lower of `pair` where half is set,
    otherwise the lower and upper of `pair`. enough: what a slot takes at most is there, or all of the block
    (whole). exact: just the block's bytes have been taken, 4 clocks later. turn: the block is over, what is
    left of it is forgotten; only while `whole`. drain: take the rest of the block, whatever becomes of it.
    The next block's bytes may come before the turn.

    Addresses count as shift registers do, which costs no adder.
    """
    store = [Signal(modbv(0)[17:]) for _ in range(STORE)]
    filling = Signal(t_filling.COMING)
    put, put1, data1, last1 = bit(), bit(), word(16), bit()
    write_at, write_next, read_at, boundary, level = word(10), word(10), word(10), word(10), word(10)
    room, turn1, over, over1, over2, forget = (bit() for _ in range(6))
    primed, wish, wish1, wish2, popped = (bit() for _ in range(5))
    out1, out2, last2, short = word(17), word(17), bit(), bit()
    feedback, back_write, change = bit(), bit(), word(10)

    @always_comb
    def wires() -> None:
        put.next = s_axis.tvalid and s_axis.tready
        wish.next = take_two or primed or (take_one and not half)
        forget.next = (over and not over1) or (turn and not over)
        back_write.next = write_at[9] == write_at[6]
        feedback.next = read_at[9] == read_at[6]
        write_next.next = concat(write_at[9:], back_write)
        pair.next = out2[16:]
        last2.next = out2[16]
        change.next = 0
        if popped and not put1:
            change.next = 1023
        elif put1 and not popped:
            change.next = 1

    @always(clk.posedge)
    def fill() -> None:
        put1.next = put
        data1.next = s_axis.tdata
        last1.next = s_axis.tlast
        if put1:
            store[write_at].next = concat(last1, data1)
            write_at.next = write_next
            if last1:
                boundary.next = write_next
        room.next = not level[9] or (drain and filling == t_filling.COMING)
        s_axis.tready.next = (
            room
            and (filling == t_filling.COMING or filling == t_filling.AHEAD)
            and not (put and s_axis.tlast)
        )
        whole.next = filling != t_filling.COMING and not turn
        if put and s_axis.tlast:
            filling.next = t_filling.CLOSED
            if filling == t_filling.AHEAD and not turn:
                filling.next = t_filling.FULL
        elif turn:
            filling.next = t_filling.COMING
            if filling == t_filling.FULL:
                filling.next = t_filling.CLOSED
        elif filling == t_filling.CLOSED and over2:
            filling.next = t_filling.AHEAD
        if rst:
            put1.next = False
            write_at.next = 0
            boundary.next = 0
            s_axis.tready.next = False
            whole.next = False
            filling.next = t_filling.COMING

    @always(clk.posedge)
    def read() -> None:
        turn1.next = turn
        enough.next = (filling != t_filling.COMING or level[10:6] != 0) and not turn and not turn1
        out1.next = store[read_at]
        out2.next = out1
        primed.next = prime and odd
        half.next = half ^ (take_one or primed)
        wish1.next = wish
        wish2.next = wish1
        popped.next = wish and not over
        if forget:
            read_at.next = boundary
        elif wish and not over:
            read_at.next = concat(read_at[9:], feedback)
        level.next = level + change
        if forget:
            level.next = 0
        if wish2:
            held.next = out2[16:8]
        # Of pairs that were asked for behind the last one only the first two were read.
        if wish2 and last2:
            over.next = True
        if wish2 and over:
            short.next = True
        over1.next = over
        over2.next = over1
        exact.next = over and not half and not short
        if turn or rst:
            half.next = False
            over.next = False
            over1.next = False
            over2.next = False
            short.next = False
            primed.next = False
            wish1.next = False
            wish2.next = False
            popped.next = False
        if rst:
            enough.next = False
            read_at.next = 0
            level.next = 0

    return wires, fill, read
