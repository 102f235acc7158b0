"""The bytes of a decoder's blocks, the next two at hand."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar_hdl.streams.bundles import bit, word

STORE = 1024  # pairs; half of them is room for what comes late
HEADS = 16

t_filling = enum("OPEN", "CLOSED", "AHEAD", "FULL")


@block
def byte_source(
    clk: Any, rst: Any, s_axis: Any, drain: Any, turn: Any, odd: Any, prime: Any, take_one: Any,
    take_two: Any, first: Any, second: Any, enough: Any, whole: Any, exact: Any,
) -> Any:  # fmt: skip
    """Hold pairs of bytes; give the next two bytes, of which one or two are taken in any clock.

    s_axis u16: a block's pairs, tlast with its last. prime: make its first bytes ready, before the first is
    taken; odd: the first pair has only the upper one. first, second u8: the next bytes. enough: what a slot
    takes at most is there, or all of the block (whole). exact: just the block's bytes have been taken.
    turn: the block is over, what is left of it is forgotten; only while `whole`. drain: take the rest of
    the block, whatever becomes of it. The next block's bytes may come before the turn.
    """
    store = [Signal(modbv(0)[17:]) for _ in range(STORE)]
    heads0 = [Signal(modbv(0)[8:]) for _ in range(HEADS)]
    heads1 = [Signal(modbv(0)[8:]) for _ in range(HEADS)]
    filling = Signal(t_filling.OPEN)
    put, put1, data1, last1 = bit(), bit(), word(16), bit()
    write_at, read_at, boundary, level = word(10), word(10), word(10), word(10)
    room, supply, turn1, forget, over, over1 = (bit() for _ in range(6))
    issue, read1, read2, push = (bit() for _ in range(4))
    out1, out2 = word(17), word(17)
    push_at, at0, at1 = word(4), word(4), word(4)
    change = word(5)
    held = word(5)  # pairs in the heads' memory, modulo 32: -1 when the last byte was taken
    head0, head1, parity, short = word(8), word(8), bit(), bit()
    prime1, prime2, pop0, pop1, popped = (bit() for _ in range(5))

    @always_comb
    def wires() -> None:
        put.next = s_axis.tvalid and s_axis.tready
        issue.next = supply and (held[4] or not held[3]) and not over
        push.next = read2 and not over
        pop0.next = take_two or (take_one and not parity) or prime1 or prime2
        pop1.next = take_two or (take_one and parity) or prime1
        change.next = 0
        if push and not popped:
            change.next = 1
        elif popped and not push:
            change.next = 31
        first.next = head1 if parity else head0
        second.next = head0 if parity else head1

    @always(clk.posedge)
    def fill() -> None:
        put1.next = put
        data1.next = s_axis.tdata
        last1.next = s_axis.tlast
        if put1:
            store[write_at].next = concat(last1, data1)
            write_at.next = write_at + 1
            if last1:
                boundary.next = write_at + 1
        room.next = not level[9] or (drain and filling == t_filling.OPEN)
        s_axis.tready.next = (
            room and (filling == t_filling.OPEN or filling == t_filling.AHEAD) and not (put and s_axis.tlast)
        )
        whole.next = filling != t_filling.OPEN and not turn
        if put and s_axis.tlast:
            filling.next = t_filling.CLOSED
            if filling == t_filling.AHEAD and not turn:
                filling.next = t_filling.FULL
        elif turn:
            filling.next = t_filling.OPEN
            if filling == t_filling.FULL:
                filling.next = t_filling.CLOSED
        elif filling == t_filling.CLOSED and over1:
            filling.next = t_filling.AHEAD
        if rst:
            put1.next = False
            write_at.next = 0
            boundary.next = 0
            s_axis.tready.next = False
            whole.next = False
            filling.next = t_filling.OPEN

    @always(clk.posedge)
    def read() -> None:
        level.next = write_at - read_at
        turn1.next = turn
        supply.next = (filling != t_filling.OPEN or level[10:3] != 0) and not turn and not turn1
        enough.next = (filling != t_filling.OPEN or level[10:6] != 0) and not turn and not turn1
        out1.next = store[read_at]
        out2.next = out1
        read1.next = issue
        read2.next = read1
        forget.next = push and out2[16]
        over1.next = over
        if push and out2[16]:
            over.next = True
        if forget or (turn and not over):
            read_at.next = boundary
        elif issue:
            read_at.next = read_at + 1
        if turn or rst:
            over.next = False
            over1.next = False
            read1.next = False
            read2.next = False
        if rst:
            forget.next = False
            supply.next = False
            enough.next = False
            read_at.next = 0
            level.next = 0

    @always(clk.posedge)
    def give() -> None:
        if push:
            heads0[push_at].next = out2[8:]
            heads1[push_at].next = out2[16:8]
            push_at.next = push_at + 1
        prime1.next = prime
        prime2.next = prime1 and odd
        if pop0:
            head0.next = heads0[at0]
            at0.next = at0 + 1
        if pop1:
            head1.next = heads1[at1]
            at1.next = at1 + 1
        parity.next = parity ^ (take_one or prime2)
        popped.next = pop1
        held.next = held + change
        if held == 30:
            short.next = True
        exact.next = held == 31 and not parity and not short
        if turn or rst:
            push_at.next = 0
            at0.next = 0
            at1.next = 0
            parity.next = False
            popped.next = False
            held.next = 0
            short.next = False
            prime1.next = False
            prime2.next = False

    return wires, fill, read, give
