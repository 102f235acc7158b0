"""Whose turn is next: the threads in a ring, those that are ready."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block

from oscar_hdl.coder.barrel.ports import THREAD_BITS, THREADS
from oscar_hdl.streams.bundles import bit, word


@block
def thread_choice(
    clk: Any, rst: Any, phase: Any, start: Any, start_thread: Any, back: Any, room: Any, thread: Any,
    some: Any,
) -> Any:  # fmt: skip
    """Choose the thread for which the next turn is decided.

    phase: of all barrel units. start: thread start_thread u3 has a new block. back u8: these threads may go
    on (in phase 0). room u8: bytes do not keep these from it. thread u3, some: the choice, from phase 0 to
    3. Who was chosen is ready again when `back` says so.
    """
    ready, can, above = word(THREADS), word(THREADS), word(THREADS)
    pick, picked, picks, current = word(THREAD_BITS), word(THREAD_BITS), bit(), word(THREAD_BITS)

    @always_comb
    def seek() -> None:
        pick.next = 0
        for i in range(THREADS):
            if can[THREADS - 1 - i]:
                pick.next = THREADS - 1 - i
        if (can & above) != 0:
            for i in range(THREADS):
                if can[THREADS - 1 - i] and above[THREADS - 1 - i]:
                    pick.next = THREADS - 1 - i

    @always(clk.posedge)
    def choose() -> None:
        if phase[2:] == 1:
            can.next = ready & room
            for i in range(THREADS):
                above.next[i] = current < i
        if phase[2:] == 2:
            picked.next = pick
            picks.next = can != 0
        if phase[2:] == 3:
            thread.next = picked
            some.next = picks
            if picks:
                current.next = picked
        if rst:
            can.next = 0
            picks.next = False
            some.next = False

    @always(clk.posedge)
    def keep() -> None:
        for i in range(THREADS):
            if phase[2:] == 3 and picks and picked == i:
                ready.next[i] = False
            if back[i] or (start and start_thread == i):
                ready.next[i] = True
        if rst:
            ready.next = 0

    return seek, choose, keep
