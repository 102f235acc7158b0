"""What the benches share; runs inside the simulator."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, Timer

from oscar_hdl.params import LaneParams
from oscar_sim.vectors import Frame, Table, frames

# What the blocks were converted for.
LANE = LaneParams(block_log2=int(os.environ["BLOCK_LOG2"]), width_max=int(os.environ["WIDTH_MAX"]))
PARAMS = LANE.asc


def link() -> Iterator[Frame]:
    """Yield the frames of a link, or as many of them as were asked for."""
    return islice(frames(PARAMS, width_max=LANE.width_max), int(os.environ["FRAMES"]) or None)


async def start(dut: Any, inputs: Iterable[str]) -> None:
    """Start the clock, set inputs to 0, and reset; returns behind a falling edge.

    The clock starts high, and VHDL takes no edge from U to 1: nothing may count on the first clocks. Benches
    read outputs and change inputs behind falling edges, so both languages agree on what a rising edge sees.
    """
    for name in inputs:
        getattr(dut, name).value = 0
    dut.rst.value = 1
    cocotb.start_soon(Clock(dut.clk, 10, "ns").start())
    for _ in range(6):
        await FallingEdge(dut.clk)
    dut.rst.value = 0
    await FallingEdge(dut.clk)


async def settled() -> None:
    """Wait until outputs that depend on inputs have followed them, long before the rising edge."""
    await Timer(1, "ns")


def high(handle: Any) -> bool:
    """Whether a control output is 1; fails when it is neither 0 nor 1."""
    value = handle.value
    if not value.is_resolvable:
        raise AssertionError(f"{handle._path} is {value}")
    return bool(int(value))


def number(handle: Any) -> int:
    """Return a value, 0 if it is not known: for operands that do not matter."""
    return int(handle.value) if handle.value.is_resolvable else 0


def rows(table: Table) -> list[tuple[int, int, int]]:
    """Return address, frequency and cumulative frequency of each row of a table bank."""
    return [(q << 4 | s, f, sum(row[:s])) for q, row in enumerate(table) for s, f in enumerate(row)]
