"""The largest symbol of the rows of a frame that is to be sent: asc.md's last symbol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import Signal, always, always_comb, block, enum

from oscar_hdl.nic.memory.bank_ports import SYMBOL_BITS
from oscar_hdl.nic.memory.row_walk import row_walk
from oscar_hdl.nic.ports import COUNT_BITS, TopPort
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.hot_tree import hot_tree

States = enum("IDLE", "FIRST", "LOOK", "DRAIN")
GROUPS_BITS = COUNT_BITS - 10


@block
def frame_top(
    clk: Any, rst: Any, phase: Any, port: TopPort, behind: Any, row: Any, tops: Sequence[Any], *,
    block_bits: int, skip_bits: int,
) -> Any:  # fmt: skip
    """Look at a group of 32 rows in four clocks, and keep the largest symbol.

    port: of a frame that begins a block. behind: level, descriptors behind a frame's rows are not yet 0; the
    search waits. row: in a bank, of a group; holds from a phase 2 modulo 4 to a phase 1, and eight clocks
    later each of tops u4 is the group's largest symbol in that bank.
    """
    BANKS = len(tops)
    state = Signal(States.IDLE)
    restart, tick, issue = bit(), bit(), bit()
    bank, left = word(BANKS), word(GROUPS_BITS)
    # Every four clocks a group goes on: its descriptors are read, compared; its bank's symbol is there.
    asked, compared, there = bit(), bit(), bit()
    asked_bank, compared_bank = word(BANKS), word(BANKS)
    here, symbol = word(SYMBOL_BITS), word(SYMBOL_BITS)

    walk = row_walk(
        clk, restart, port.row, issue, True, bank, row, block_bits=block_bits, skip_bits=skip_bits
    )
    choose = hot_tree(None, tops, compared_bank, here)

    @always_comb
    def look() -> None:
        issue.next = state == States.LOOK and tick

    @always(clk.posedge)
    def compare() -> None:
        tick.next = phase[2:] == 0
        if tick:
            asked.next = issue
            asked_bank.next = bank
            compared.next = asked
            compared_bank.next = asked_bank
            there.next = compared
            symbol.next = here
        if state == States.IDLE:
            if port.ask:
                port.symbol.next = 0
        elif tick and there and symbol > port.symbol:
            port.symbol.next = symbol
        if rst:
            asked.next = False
            compared.next = False
            there.next = False

    @always(clk.posedge)
    def control() -> None:
        restart.next = False
        port.known.next = False
        if state == States.IDLE:
            left.next = (port.count + 1023) >> 10
            if port.ask:
                restart.next = True
                state.next = States.FIRST
        elif state == States.FIRST:
            if tick and not restart and not behind:
                state.next = States.LOOK
        elif state == States.LOOK:
            if tick:
                left.next = left - 1
                if left == 1:
                    state.next = States.DRAIN
        elif tick and not asked and not compared and there:
            state.next = States.IDLE
            port.known.next = True
        if rst:
            state.next = States.IDLE
            restart.next = False
            port.known.next = False

    return walk, choose, look, compare, control
