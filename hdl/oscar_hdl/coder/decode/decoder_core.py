"""The decoder's 32 states: a step of a lane each clock, in a loop of 32 clocks (docs/asc.md, "The coder")."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.decode.decoder_search import decoder_search
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.lane_delay import lane_delay


@block
def decoder_core(
    clk: Any, rst: Any, phase: Any, tables: Any, bank: Any, context: Any, active: Any, from_symbol: Any,
    code: Any, clear: Any, refill: Any, half: Any, pair: Any, held: Any, take_one: Any, take_two: Any,
    symbol: Any, state0: Any, step13: Any, step14: Any, step15: Any,
) -> Any:  # fmt: skip
    """Decode a lane's step each clock; a port's time is the clocks after the lane's state comes by.

    context u5, time -2. active, time 5: the lane decodes a symbol, otherwise its state passes unchanged (f
    = 1024). The number of raw bits is that of the symbol where from_symbol is set, otherwise that of symbol
    `code` u4, which is 0 then; time 6. clear, time 12: the state becomes 0. refill, time 14: it may take
    bytes. take_one, take_two, half, time 15, and pair u16, held u8, time 17: of byte_source. symbol u4,
    time 6; state0 u24, time 0; step13, step14, step15 u30: the new state without bytes, above 6 places for
    raw bits, which lie at their top. Names of signals end in their time.

    Where a state takes bytes its upper byte, or two, are 0. So its new bytes are the or of what each may be,
    from registers that are 0 where it is not.

    Shifts by the number of raw bits are multiplications by 2^(6 - bits) of the two factors before.
    """
    state19, part0, part10 = word(24), word(14), word(14)
    freq7, rest7, kind7, shift8 = word(10), word(10), word(4), word(7)
    idle6, idle7 = bit(), bit()
    freq8, rest8, freq9, freq10 = word(11), word(10), word(17), word(17)
    rest9, rest10, rest11, rest12 = (word(16) for _ in range(4))
    product11, product12 = word(31), word(31)
    top14, middle14, one16, two16, half16 = (bit() for _ in range(5))
    state_low16, state_low17, state17 = word(8), word(8), word(24)
    step_high13, state_high17 = word(16), word(16)
    # What a byte is not: the one below, two below, itself; of the bytes read.
    not_one17, not_two17, one17, any17 = bit(), bit(), bit(), bit()
    low_not_held17, low_not_lower17, not_held17, not_pair17 = bit(), bit(), bit(), bit()
    high18, high_one18, high_two18 = word(8), word(8), word(8)
    middle18, middle_one18, middle_held18, middle_pair18 = word(8), word(8), word(8), word(8)
    low18, low_held18, low_lower18, low_upper18 = word(8), word(8), word(8), word(8)

    low0 = word(10)
    search = decoder_search(clk, tables, bank, context, low0, active, symbol, freq7, rest7)
    back = lane_delay(clk, phase, state19, state0, 13)
    upper = lane_delay(clk, phase, part0, part10, 10)
    high = lane_delay(clk, phase, step_high13, state_high17, 4)

    @always_comb
    def parts() -> None:
        low0.next = state0[10:]
        part0.next = state0[24:10]
        step_high13.next = step13[30:14]
        state17.next = concat(state_high17, state_low17)

    @always(clk.posedge)
    def multiply() -> None:
        idle6.next = not active
        idle7.next = idle6
        kind7.next = code
        if from_symbol:
            kind7.next = symbol
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
        rest10.next = rest9
        rest11.next = rest10
        rest12.next = rest11
        product11.next = part10 * freq10
        product12.next = product11

    @always(clk.posedge)
    def renormalise() -> None:
        step13.next = product12[30:] + rest12
        if clear:
            step13.next = 0
        step14.next = step13
        step15.next = step14
        top14.next = step13[30:22] == 0
        middle14.next = step13[22:14] == 0
        take_one.next = refill and top14 and not middle14
        take_two.next = refill and top14 and middle14
        if rst:
            take_one.next = False
            take_two.next = False
        state_low16.next = step15[14:6]
        state_low17.next = state_low16

    @always(clk.posedge)
    def choose_bytes() -> None:
        one16.next = take_one
        two16.next = take_two
        half16.next = half
        one17.next = one16
        not_one17.next = not one16
        not_two17.next = not two16
        any17.next = one16 or two16
        low_not_held17.next = not (one16 and half16)
        low_not_lower17.next = not ((one16 and not half16) or (two16 and half16))
        not_held17.next = not (two16 and half16)
        not_pair17.next = not (two16 and not half16)

    @always(clk.posedge)
    def take_bytes() -> None:
        high18.next = state17[24:16]
        high_one18.next = state17[16:8]
        if not_one17:
            high_one18.next = 0
        high_two18.next = state17[8:]
        if not_two17:
            high_two18.next = 0
        middle18.next = state17[16:8]
        if one17:
            middle18.next = 0
        middle_one18.next = state17[8:]
        if not_one17:
            middle_one18.next = 0
        middle_held18.next = held
        low_held18.next = held
        low_lower18.next = pair[8:]
        middle_pair18.next = pair[8:]
        low_upper18.next = pair[16:8]
        if not_held17:
            middle_held18.next = 0
        if low_not_held17:
            low_held18.next = 0
        if low_not_lower17:
            low_lower18.next = 0
        if not_pair17:
            middle_pair18.next = 0
            low_upper18.next = 0
        low18.next = state17[8:]
        if any17:
            low18.next = 0
        state19.next[24:16] = high18 | high_one18 | high_two18
        state19.next[16:8] = middle18 | middle_one18 | middle_held18 | middle_pair18
        state19.next[8:] = low18 | low_held18 | low_lower18 | low_upper18

    return search, back, upper, high, parts, multiply, renormalise, choose_bytes, take_bytes
