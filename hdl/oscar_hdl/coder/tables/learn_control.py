"""Has counts drained from the chain: when a frame is learnt, and all banks after a reset."""

from myhdl import Signal, always, block, enum

from oscar_hdl.coder.ports import BANK_BITS, BANKS, CountChain, CountedPairs, TablesPort
from oscar_hdl.streams.bundles import bit, word


@block
def learn_control(
    clk, rst, port: TablesPort, request: CountChain, answer: CountChain, mute, away, hold, clear, ended,
    counts: CountedPairs,
):  # fmt: skip
    """Ask for counts, and say when they come.

    clear: level, while nothing goes through; ended: strobe, when all has gone through. mute: counts are only
    taken, as after a reset; away: what is learnt is not to be kept. hold: a build of port.bank would
    overwrite what learning has not read yet.
    """
    states = enum("IDLE", "ASK", "FOLLOW")
    state = Signal(states.IDLE)
    wanted, begun, muted, at, arrived = bit(), bit(), word(BANK_BITS), word(8), word(5)

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
            muted.next = muted + 1
            if muted == BANKS - 1:
                mute.next = False
            if not mute:
                port.learnt.next = True
                wanted.next = False
        if rst:
            state.next = states.IDLE
            wanted.next = False
            mute.next = True
            muted.next = 0
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
            request.bank.next = muted
        if rst:
            at.next = 0
            request.valid.next = False

    @always(clk.posedge)
    def receive():
        away.next = mute or port.forget
        clear.next = rst or state == states.IDLE
        arrived.next[5:1] = arrived[4:]
        arrived.next[0] = answer.valid
        counts.pair.next = answer.totals
        counts.valid.next = arrived[4]
        hold.next = mute or (wanted and not begun and port.bank == port.count_bank)
        if arrived[2]:
            counts.at.next = counts.at + 1
            if counts.at[7]:  # a build reads two pairs a clock, so it does not overtake the other half
                begun.next = True
        if clear:
            arrived.next = 0
            counts.valid.next = False
            counts.at.next = 0
            begun.next = False

    return command, ask, receive
