"""A lane's step out of its state, up to the bytes that it takes (docs/reference/asc.md, "The coder")."""

from myhdl import always, block, concat

from oscar_hdl.coder.decode.decoder_search import decoder_search
from oscar_hdl.streams.bundles import Bundle, bit, word
from oscar_hdl.streams.copied import chain
from oscar_hdl.streams.lane_delay import lane_delay


class StepControl(Bundle):
    """What a lane's step does, each from the time in which it is looked at."""

    active = bit()  # 5: the lane decodes a symbol, otherwise its state passes unchanged (f = 1024)
    # 6: as many raw bits as the symbol has, or else as symbol `code` has, which is 0 then.
    from_symbol, code = bit(), word(4)
    clear, refill = bit(), bit()  # 12: the state becomes 0; 14: it may take bytes


class StepFound(Bundle):
    """What becomes of it, from these times on."""

    symbol = word(4)  # 6
    # The new state without bytes, above 6 places for raw bits, which lie at their top; and again.
    step13, step14, step15 = word(30), word(30), word(30)
    take_one, take_two = bit(), bit()  # 15: bytes that it takes


@block
def lane_step(clk, rst, phase, levels, context, control, state0, found):
    """Decode a step each clock; a port's time is the clocks after state0 u24.

    phase: of lane_delay. levels: LevelWrites. context, time -2: of decoder_search. control: StepControl.
    found: StepFound. Names of signals end in their time.

    Shifts by the number of raw bits are multiplications by 2^(6 - bits) of the two factors before.
    """
    part10 = word(14)
    freq7, rest7, kind7, shift8 = word(10), word(10), word(4), word(7)
    idle6, idle7 = bit(), bit()
    freq8, rest8, freq9, freq10 = word(11), word(10), word(17), word(17)
    rest9, rest10, rest11, rest12 = (word(16) for _ in range(4))
    product11, product12 = word(31), word(31)
    top14, middle14 = bit(), bit()

    search = decoder_search(clk, levels, context, state0(10, 0), control.active, found.symbol, freq7, rest7)
    upper = lane_delay(clk, phase, state0(24, 10), part10, 10)

    @always(clk.posedge)
    def multiply():
        idle6.next = not control.active
        idle7.next = idle6
        kind7.next = control.code
        if control.from_symbol:
            kind7.next = found.symbol
        freq8.next = concat(idle7, freq7)
        rest8.next = rest7
        # 2^6 for symbol 0, 2^5 for 1 to 3, .., 1 for 12 to 15; a bit each, so that these are plain registers.
        shift8.next[6] = kind7 == 0
        shift8.next[5] = kind7[4:2] == 0 and kind7 != 0
        shift8.next[4] = kind7[4:1] == 2
        shift8.next[3] = kind7[4:1] == 3
        shift8.next[2] = kind7[4:1] == 4
        shift8.next[1] = kind7[4:1] == 5
        shift8.next[0] = kind7[4:2] == 3
        freq9.next = freq8 * shift8
        freq10.next = freq9
        rest9.next = rest8 * shift8
        product11.next = part10 * freq10
        product12.next = product11

    @always(clk.posedge)
    def renormalise():
        found.step13.next = product12[30:] + rest12
        if control.clear:
            found.step13.next = 0
        top14.next = found.step13[30:22] == 0
        middle14.next = found.step13[22:14] == 0
        found.take_one.next = control.refill and top14 and not middle14
        found.take_two.next = control.refill and top14 and middle14
        found.step14.next = found.step13
        found.step15.next = found.step14
        if rst:
            found.take_one.next = False
            found.take_two.next = False

    return search, upper, chain(clk, rest9, rest10, rest11, rest12), multiply, renormalise
