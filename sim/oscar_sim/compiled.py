"""Simulates MyHDL blocks with one clock, their processes compiled to Python on plain integers.

Several times faster than MyHDL's signals, and the same in every clock: tests hold it to CycleSimulator. A
signal is an item of a list. Processes run when something that they read has changed, as there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from myhdl import SignalType, intbv
from myhdl._always import _Always
from myhdl._always_comb import _AlwaysComb
from myhdl._Signal import _siglist

from oscar_sim.cycles import instances
from oscar_sim.translate import Store, translate


class _Process:
    """A compiled process, and whether it is to run."""

    __slots__ = ("dirty", "run")

    def __init__(self, run: Callable[[], None]) -> None:
        self.run = run
        self.dirty = True


class CompiledSimulator:
    """Simulates an elaborated block whose processes are @always(clk.posedge) and @always_comb.

    each: called at every rising edge with the processes, before signals take their next values: what a test
    bench does; it reads and writes MyHDL's signals. watched: the signals of the block that it reads; None:
    any. Raises TypeError on a block with other processes, and on what is not translated.
    """

    def __init__(
        self, top: Any, clk: Any, each: Callable[[], None], *, watched: Iterable[Any] | None = None
    ) -> None:
        self.each, self.clocks = each, 0
        self.store = Store()
        clocked: dict[int, list[_Process]] = {}
        at_once: dict[int, list[_Process]] = {}
        self._due: list[_Process] = []
        comb: list[_Process] = []
        for instance in instances(top):
            if not isinstance(instance, _Always):
                raise TypeError(f"{instance.name} is no always process: simulate it with MyHDL")
            is_comb = isinstance(instance, _AlwaysComb)
            if not is_comb and instance.senslist != (clk.posedge,):
                raise TypeError(f"{instance.name} waits for something else than the clock")
            made = translate(instance.func, self.store)
            process = _Process(made.run)
            (comb if is_comb else self._due).append(process)
            readers = at_once if is_comb else clocked
            for index in made.inputs:
                readers.setdefault(index, []).append(process)
        numbers = range(len(self.store.signals))
        self._clocked_readers = [tuple(clocked.get(i, ())) for i in numbers]
        self._comb_readers = [tuple(at_once.get(i, ())) for i in numbers]
        chosen = None if watched is None else {id(signal) for signal in watched}
        self._watched = [chosen is None or id(signal) in chosen for signal in self.store.signals]
        del _siglist[:]
        self._settle(comb)

    def run(self, clocks: int) -> int:
        """Simulate that many clocks; return how many processes ran in them."""
        ran = 0
        for _ in range(clocks):
            due, self._due = self._due, []
            for process in due:
                process.dirty = False
                process.run()
            ran += len(due)
            self.each()
            self.clocks += 1
            self._settle(self._apply())
        return ran

    def _apply(self) -> list[_Process]:
        """Let signals take their next values; return the combinational processes to run."""
        store = self.store
        now, following, changed = store.now, store.next, store.changed
        if _siglist:
            self._from_bench(changed)
        pending: list[_Process] = []
        clocked, comb, due, watched = self._clocked_readers, self._comb_readers, self._due, self._watched
        for i in changed:
            now[i] = following[i]
            if watched[i]:
                store.show(i)
            for process in clocked[i]:
                if not process.dirty:
                    process.dirty = True
                    due.append(process)
            for process in comb[i]:
                if not process.dirty:
                    process.dirty = True
                    pending.append(process)
        changed.clear()
        return pending

    def _from_bench(self, changed: list[int]) -> None:
        """Take what the test bench has written."""
        index, now, following = self.store.index, self.store.now, self.store.next
        for signal in _siglist:
            i = index.get(id(signal))
            value = signal._next
            if i is None:
                if isinstance(value, intbv):
                    signal._val._val = value._val
                else:
                    signal._val = value
                continue
            following[i] = value._val if isinstance(value, intbv) else value
            if now[i] != following[i]:
                changed.append(i)
        del _siglist[:]

    def _settle(self, pending: list[_Process]) -> None:
        """Run combinational processes until nothing changes."""
        while pending:
            for process in pending:
                process.dirty = False
                process.run()
            pending = self._apply()


def signals_of(ports: Any) -> Iterator[Any]:
    """Yield all signals in bundles, lists and dictionaries of them: what a test bench may watch."""
    if isinstance(ports, SignalType):
        yield ports
    elif isinstance(ports, dict):
        yield from signals_of(list(ports.values()))
    elif isinstance(ports, (list, tuple)):
        for item in ports:
            yield from signals_of(item)
    elif hasattr(ports, "__dict__"):
        yield from signals_of(vars(ports))
