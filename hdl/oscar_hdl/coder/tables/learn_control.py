"""Has counts drained from the chain: when a frame is learnt, and both banks after a reset."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, block, enum

from oscar_hdl.coder.ports import CountChain, TablesPort
from oscar_hdl.streams.bundles import bit, word


@block
def learn_control(
    clk: Any, rst: Any, port: TablesPort, request: CountChain, answer: CountChain, mute: Any, away: Any,
    hold: Any, clear: Any, ended: Any, counted: Any, counts: Any, learn_at: Any,
) -> Any:  # fmt: skip
    """Ask for counts, and say when they come.

    counts u38 come while `counted`; learn_at u8 is their place three clocks before. clear: level, while
    nothing goes through; ended: strobe, when all has gone through. mute: counts are only taken, as after a
    reset; away: what is learnt is not to be kept. hold: a build of port.bank would overwrite what learning
    has not read yet.
    """
    states = enum("IDLE", "ASK", "FOLLOW")
    state = Signal(states.IDLE)
    wanted, begun, second_bank, at, arrived = bit(), bit(), bit(), word(8), word(5)

    @always(clk.posedge)
    def command():
        port.learnt.next = False
        if port.learn:
            wanted.next = True
        if state == states.IDLE:
            if mute or wanted:
                state.next = states.ASK
        elif state == states.ASK:
            if at == 255:
                state.next = states.FOLLOW
        elif ended:
            state.next = states.IDLE
            second_bank.next = True
            if second_bank:
                mute.next = False
            if not mute:
                port.learnt.next = True
                wanted.next = False
        if rst:
            state.next = states.IDLE
            wanted.next = False
            mute.next = True
            second_bank.next = False
            port.learnt.next = False

    @always(clk.posedge)
    def ask():
        request.valid.next = False
        request.totals.next = 0
        request.address.next = at
        if state == states.ASK:
            at.next = at + 1
            request.valid.next = True
        request.bank.next = port.count_bank
        if mute:
            request.bank.next = second_bank
        if rst:
            at.next = 0
            request.valid.next = False

    @always(clk.posedge)
    def receive():
        away.next = mute or port.forget
        clear.next = rst or state == states.IDLE
        arrived.next[5:1] = arrived[4:]
        arrived.next[0] = answer.valid
        counts.next = answer.totals
        counted.next = arrived[4]
        hold.next = mute or (wanted and not begun and port.bank == port.count_bank)
        if arrived[2]:
            learn_at.next = learn_at + 1
            if learn_at[7]:  # a build reads two pairs a clock, so it does not overtake the other half
                begun.next = True
        if clear:
            arrived.next = 0
            counted.next = False
            learn_at.next = 0
            begun.next = False

    return command, ask, receive
