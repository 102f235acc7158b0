"""The bench of all blocks, in the simulator: give noted inputs, compare every output in every clock."""

from __future__ import annotations

import os
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import Timer

HALF = 5  # ns
MOST = 10  # differences that are shown
# Clocks, a reset among them; outputs of a bit are right then, wider ones from their first right value on:
# they do not matter before, and Verilog does not look at combinational logic before an input changes.
SETTLED = 40


def _numbers(values: np.ndarray) -> list[int]:
    """Return a port's values as integers, whatever its width."""
    if values.ndim == 1:
        return values.tolist()
    return [int.from_bytes(row.tobytes(), "little") for row in values]


@cocotb.test()
async def replay(dut: Any) -> None:
    """Every output is what it was under Verilator."""
    with np.load(os.environ["RECORDING"]) as file:
        noted = {name: _numbers(file[name]) for name in file.files}
    inputs = {n[3:]: v for n, v in noted.items() if n.startswith("in_")}
    outputs = {n[4:]: v for n, v in noted.items() if n.startswith("out_")}
    givers = [(getattr(dut, name), values) for name, values in inputs.items()]
    takers = [(getattr(dut, name), values) for name, values in outputs.items()]
    last: list[int | None] = [None] * len(givers)
    wrong: list[str] = []
    known: set[Any] = set()
    clk, half = dut.clk, Timer(HALF, "ns")
    for t in range(len(next(iter(noted.values())))):
        clk.value = 0
        for n, (handle, values) in enumerate(givers):
            if values[t] != last[n]:
                handle.value = last[n] = values[t]
        await half
        for handle, values in takers:
            value = handle.value
            same = value.is_resolvable and int(value) == values[t]
            if t >= SETTLED and (same or len(value) == 1):
                known.add(handle)
            if not same and handle in known:
                wrong.append(f"clock {t}: {handle._name} is {value}, was {values[t]:b}")
        if len(wrong) >= MOST:
            break
        clk.value = 1
        await half
    assert not wrong, "\n".join(wrong[:MOST])
