"""Simulates MyHDL blocks clock by clock, and only what changes: for designs with one clock.

MyHDL's own simulator wakes every process at every edge. A process of synthesisable MyHDL is a function of
the signals it reads, so one whose inputs have not changed since it ran last would do the same again: it is
left out. What is simulated, block by block, is the same; tests hold the two to equal results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from myhdl import SignalType, intbv
from myhdl._always import _Always
from myhdl._always_comb import _AlwaysComb
from myhdl._block import _Block
from myhdl._ShadowSignal import _ShadowSignal, _SliceSignal
from myhdl._Signal import _Signal
from myhdl._simulator import _siglist


class _Process:
    """A process and whether an input changed since it ran."""

    __slots__ = ("dirty", "run")

    def __init__(self, run: Callable[[], None]) -> None:
        self.run = run
        self.dirty = True


def instances(item: Any) -> list[Any]:
    """Return all processes of a block."""
    if isinstance(item, _Block):
        return instances(item.subs)
    if isinstance(item, (list, tuple, set)):
        return [inner for part in item for inner in instances(part)]
    return [item]


def processes(top: Any, clk: Any) -> Iterator[tuple[Any, bool]]:
    """Yield the processes of a block, and whether each is combinational; TypeError on other kinds."""
    for instance in instances(top):
        if not isinstance(instance, _Always):
            raise TypeError(f"{instance.name} is no always process: simulate it with MyHDL")
        comb = isinstance(instance, _AlwaysComb)
        if not comb and instance.senslist != (clk.posedge,):
            raise TypeError(f"{instance.name} waits for something else than the clock")
        yield instance, comb


def _signals(value: Any) -> list[Any]:
    if isinstance(value, SignalType):
        return [value]
    if isinstance(value, list) and value and isinstance(value[0], SignalType):
        return value
    return []


def _follow(shadow: Any) -> Callable[[], None]:
    """Return what keeps a slice of a signal, made by calling the signal, equal to it."""
    if not isinstance(shadow, _SliceSignal):
        raise TypeError(f"a {type(shadow).__name__} is not simulated here: simulate it with MyHDL")
    signal, left, right = shadow._sig, shadow._left, shadow._right
    assign = _Signal.next.fset

    def follow() -> None:
        assign(shadow, signal[left] if right is None else signal[left:right])

    return follow


def elaborated(make: Callable[[], Any]) -> Any:
    """Return what `make` returns, a block, from a thread of its own.

    MyHDL reads the source of all functions on the stack for every block: it takes half the time where the
    stack is short.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(make).result()


class CycleSimulator:
    """Simulates an elaborated block whose processes are @always(clk.posedge) and @always_comb.

    each: called at every rising edge with the processes, before signals take their next values: what a test
    bench does in a process of its own. every: leave nothing out.
    Raises TypeError on a block with other processes.
    """

    def __init__(self, top: Any, clk: Any, each: Callable[[], None], *, every: bool = False) -> None:
        self.each, self.every = each, every
        self.clocks = 0
        self._clocked: list[_Process] = []
        self._comb: list[_Process] = []
        self._clocked_readers: dict[int, list[_Process]] = {}
        self._comb_readers: dict[int, list[_Process]] = {}
        shadows: set[int] = set()
        for instance, comb in processes(top, clk):
            process = _Process(instance.func)
            (self._comb if comb else self._clocked).append(process)
            readers = self._comb_readers if comb else self._clocked_readers
            for name in instance.inputs | instance.inouts:
                for signal in _signals(instance.symdict[name]):
                    readers.setdefault(id(signal), []).append(process)
                    self._shadow(signal, shadows)
        del _siglist[:]
        self._settle(list(self._comb))

    def _shadow(self, signal: Any, known: set[int]) -> None:
        """Let a slice follow its signal: a combinational process of its own."""
        while isinstance(signal, _ShadowSignal) and id(signal) not in known:
            known.add(id(signal))
            process = _Process(_follow(signal))
            self._comb.append(process)
            signal = signal._sig
            self._comb_readers.setdefault(id(signal), []).append(process)

    def run(self, clocks: int) -> int:
        """Simulate that many clocks; return how many processes ran in them."""
        ran, clocked = 0, self._clocked
        for _ in range(clocks):
            for process in clocked:
                if process.dirty or self.every:
                    process.dirty = False
                    process.run()
                    ran += 1
            self.each()
            self.clocks += 1
            self._settle(self._update())
        return ran

    def _update(self) -> list[_Process]:
        """Let signals take their next values; return the combinational processes to run."""
        pending: list[_Process] = []
        clocked, comb = self._clocked_readers, self._comb_readers
        for signal in _siglist:
            value, following = signal._val, signal._next
            if value == following:
                continue
            if isinstance(value, intbv):
                value._val = following._val
            else:
                signal._val = following
            key = id(signal)
            for process in clocked.get(key, ()):
                process.dirty = True
            for process in comb.get(key, ()):
                if not process.dirty:
                    process.dirty = True
                    pending.append(process)
        del _siglist[:]
        return pending

    def _settle(self, pending: list[_Process]) -> None:
        """Run combinational processes until nothing changes."""
        while pending:
            for process in pending:
                process.dirty = False
                process.run()
            pending = self._update()


def show_value(signal: Any, value: Any) -> None:
    """Let MyHDL's signal have a value."""
    if isinstance(signal._val, intbv):
        signal._val._val = signal._next._val = int(value)
    elif isinstance(signal._val, bool):
        signal._val = signal._next = bool(value)
    else:
        signal._val = signal._next = value
