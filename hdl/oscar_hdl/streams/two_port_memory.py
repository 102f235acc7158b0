"""A block RAM with two ports, one of which writes, too."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, block, modbv


@block
def two_port_memory(
    clk: Any, write: Any, at: Any, data: Any, found: Any, second_at: Any, second_found: Any
) -> Any:
    """Hold a word for each address.

    write: strobe, the word at `at` becomes `data`. found, second_found: the words at `at` and `second_at` two
    clocks later; nothing sensible of a word that is written in that clock. The addresses are registers.
    """
    if not len(data) == len(found) == len(second_found) or len(at) != len(second_at):
        raise ValueError("data and addresses of both ports have the same widths")
    memory = [Signal(modbv(0)[len(data) :]) for _ in range(1 << len(at))]
    fetched, second_fetched = Signal(modbv(0)[len(data) :]), Signal(modbv(0)[len(data) :])

    @always(clk.posedge)
    def access() -> None:
        if write:
            memory[at].next = data
        fetched.next = memory[at]
        second_fetched.next = memory[second_at]
        found.next = fetched
        second_found.next = second_fetched

    return access
