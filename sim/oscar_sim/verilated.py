"""Simulates copies of converted RTL under Verilator, where CompiledSimulator does it in Python."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from myhdl import SignalType
from myhdl._Signal import _siglist

from oscar_hdl.flow.tops import Value
from oscar_sim.cycles import show_value
from oscar_sim.verilator import Model


def installed() -> bool:
    """Whether Verilator and a compiler are there."""
    return all(map(shutil.which, ("verilator", "g++", "make")))


class _Copy:
    """A model whose ports show in MyHDL's signals: outputs after each clock, inputs when they are written."""

    def __init__(self, model: Model, signals: dict[str, SignalType]) -> None:
        self.model = model
        self.inputs: dict[int, Any] = {}
        self._outputs: list[tuple[Any, Any, bytes]] = []
        for number, port in enumerate(model.ports.values()):
            if port.name == "clk":
                continue
            size = port.words * port.dtype.itemsize
            at = model.library.port_address(model.handle, number)
            raw = (ctypes.c_char * size).from_address(at)
            if port.is_input:
                signal: Any = signals[port.name]  # inputs begin as the test bench has them
                self.inputs[id(signal)] = raw
                raw.raw = int(signal._val).to_bytes(size, "little")
            else:
                self._outputs.append((signals[port.name], raw, b""))
        model.settle()
        self.show()

    def show(self) -> None:
        """Let signals have the values of outputs that have changed."""
        for n, (signal, raw, before) in enumerate(self._outputs):
            if raw.raw != before:
                self._outputs[n] = signal, raw, raw.raw
                show_value(signal, int.from_bytes(raw.raw, "little"))


class VerilatedSimulator:
    """Simulates models side by side; `each` is called at every rising edge, as CompiledSimulator calls it."""

    def __init__(self, copies: Sequence[_Copy], each: Callable[[], None]) -> None:
        self.copies, self.each, self.clocks = copies, each, 0
        self._takers: dict[int, list[Any]] = {}
        for copy in copies:
            for key, raw in copy.inputs.items():
                self._takers.setdefault(key, []).append(raw)
        del _siglist[:]

    def waveform(self, file: Path, *, mhz: float) -> AbstractContextManager[None]:
        """Return a context in which the first model's signals go into an FST file; see Model.waveform."""
        return self.copies[0].model.waveform(file, mhz=mhz)

    def run(self, clocks: int) -> None:
        """Simulate that many clocks."""
        for _ in range(clocks):
            self.each()
            self.clocks += 1
            for copy in self.copies:
                copy.model.clock()
            for signal in _siglist:
                value = int(signal._next)
                for raw in self._takers.get(id(signal), ()):
                    raw.raw = value.to_bytes(len(raw), "little")
                show_value(signal, value)
            del _siglist[:]
            for copy in self.copies:
                copy.model.settle()
                copy.show()


def verilated(
    top: str, each: Callable[[], None], ports: Sequence[dict[str, Any]], *, wave: bool = False,
    **parameters: Value,
) -> VerilatedSimulator:  # fmt: skip
    """Return a simulator of several of a top; ports: of each, its signals and bundles by argument's name.

    wave: it can write a waveform.
    """
    copies = [_Copy(Model(top, wave=wave, **parameters), dict(_named(bundles))) for bundles in ports]
    return VerilatedSimulator(copies, each)


def _named(ports: dict[str, Any]) -> Iterator[tuple[str, SignalType]]:
    """Yield signals by their names as ports of converted RTL."""
    for name, part in ports.items():
        if isinstance(part, SignalType):
            yield name, part
        else:
            yield from _named({f"{name}_{key}": value for key, value in vars(part).items()})
