"""The decoder's 32 states: a step of a lane each clock, in a loop of 32 clocks (docs/asc.md, "The coder")."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.decode.lane_step import lane_step
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.lane_delay import lane_delay


@block
def decoder_core(
    clk: Any, rst: Any, phase: Any, levels: Any, context: Any, control: Any, half: Any, pair: Any, held: Any,
    state0: Any, found: Any,
) -> Any:  # fmt: skip
    """Decode a lane's step each clock; a port's time is the clocks after the lane's state comes by.

    levels, context, control, state0, found: of lane_step. half, time 15, and pair u16, held u8, time 17: of
    byte_source.

    Where a state takes bytes its upper byte, or two, are 0. So its new bytes are the or of what each may be,
    from registers that are 0 where it is not.
    """
    state19 = word(24)
    one16, two16, half16 = bit(), bit(), bit()
    state_low16, state_low17, state17 = word(8), word(8), word(24)
    step_high13, state_high17 = word(16), word(16)
    # What a byte is not: the one below, two below, itself; of the bytes read.
    not_one17, not_two17, one17, any17 = bit(), bit(), bit(), bit()
    low_not_held17, low_not_lower17, not_held17, not_pair17 = bit(), bit(), bit(), bit()
    high18, high_one18, high_two18 = word(8), word(8), word(8)
    middle18, middle_one18, middle_held18, middle_pair18 = word(8), word(8), word(8), word(8)
    low18, low_held18, low_lower18, low_upper18 = word(8), word(8), word(8), word(8)

    step = lane_step(clk, rst, phase, levels, context, control, state0, found)
    back = lane_delay(clk, phase, state19, state0, 13)
    high = lane_delay(clk, phase, step_high13, state_high17, 4)

    @always_comb
    def parts() -> None:
        step_high13.next = found.step13[30:14]
        state17.next = concat(state_high17, state_low17)

    @always(clk.posedge)
    def follow() -> None:
        state_low16.next = found.step15[14:6]
        state_low17.next = state_low16

    @always(clk.posedge)
    def choose_bytes() -> None:
        one16.next = found.take_one
        two16.next = found.take_two
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

    return step, back, high, parts, follow, choose_bytes, take_bytes
