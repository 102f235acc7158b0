"""A lane's step out of its state, up to the bytes that it takes (docs/asc.md, "The coder")."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.decode.decoder_search import decoder_search
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.lane_delay import lane_delay


@block
def lane_step(
    clk: Any, rst: Any, phase: Any, levels: Any, context: Any, active: Any, from_symbol: Any, code: Any,
    clear: Any, refill: Any, state0: Any, symbol: Any, step13: Any, take_one: Any, take_two: Any,
) -> Any:  # fmt: skip
    """Decode a step each clock; a port's time is the clocks after state0 u24.

    phase: of lane_delay. levels: LevelWrites. context u6, time -2: of decoder_search. active, time 5: the
    lane decodes a symbol, otherwise its state passes unchanged (f = 1024). The number of raw bits is that of
    the symbol where from_symbol is set, otherwise that of symbol `code` u4, which is 0 then; time 6. clear,
    time 12: the state becomes 0. refill, time 14: it may take bytes. symbol u4, time 6. step13 u30: the new
    state without bytes, above 6 places for raw bits, which lie at their top. take_one, take_two, time 15:
    bytes that it takes. Names of signals end in their time.

    Shifts by the number of raw bits are multiplications by 2^(6 - bits) of the two factors before.
    """
    part0, part10 = word(14), word(14)
    freq7, rest7, kind7, shift8 = word(10), word(10), word(4), word(7)
    idle6, idle7 = bit(), bit()
    freq8, rest8, freq9, freq10 = word(11), word(10), word(17), word(17)
    rest9, rest10, rest11, rest12 = (word(16) for _ in range(4))
    product11, product12 = word(31), word(31)
    top14, middle14 = bit(), bit()

    low0 = word(10)
    search = decoder_search(clk, levels, context, low0, active, symbol, freq7, rest7)
    upper = lane_delay(clk, phase, part0, part10, 10)

    @always_comb
    def parts() -> None:
        low0.next = state0[10:]
        part0.next = state0[24:10]

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
        top14.next = step13[30:22] == 0
        middle14.next = step13[22:14] == 0
        take_one.next = refill and top14 and not middle14
        take_two.next = refill and top14 and middle14
        if rst:
            take_one.next = False
            take_two.next = False

    return search, upper, parts, multiply, renormalise
