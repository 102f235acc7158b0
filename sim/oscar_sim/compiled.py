"""Simulates MyHDL blocks with one clock, their processes compiled to Python on plain integers.

Several times faster than MyHDL's signals, and the same in every clock: tests hold it to CycleSimulator. A
signal is an item of a list. Processes run when something that they read has changed, as there. A block is
translated once, however many of it there are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

from myhdl import SignalType, intbv
from myhdl._Signal import _siglist

from oscar_sim.cycles import elaborated, processes, show_value
from oscar_sim.translate import Store, Translated, translate

Process = Callable[[], None]


class CompiledModel:
    """An elaborated block, translated: what its copies share.

    Raises TypeError on processes that are neither @always(clk.posedge) nor @always_comb, and on what is not
    translated.
    """

    def __init__(self, top: Any, clk: Any) -> None:
        self.store = Store()
        self.clocked: list[Translated] = []
        self.comb: list[Translated] = []
        for instance, comb in processes(top, clk):
            (self.comb if comb else self.clocked).append(translate(instance.func, self.store))
        del _siglist[:]


class Copy:
    """One of a model, with values of its own.

    ports: the test bench's signals by those of the model that they stand for. Only they show what they are.
    """

    def __init__(self, model: CompiledModel, ports: dict[int, Any]) -> None:
        self.store = store = model.store.copy()
        self.clocked, clocked_readers = self._bound(model.clocked)
        self.comb, comb_readers = self._bound(model.comb)
        for i, signal in enumerate(store.signals):  # ports begin as the test bench has them
            if (port := ports.get(id(signal))) is not None:
                store.now[i] = store.next[i] = _plain(port._val)
        # By number: what to run in the next clock, what to run at once, which signal shows it.
        numbers = range(len(store.now))
        self._clocked = [tuple(clocked_readers.get(i, ())) for i in numbers]
        self._comb = [tuple(comb_readers.get(i, ())) for i in numbers]
        self._shown = {i: ports[id(signal)] for i, signal in enumerate(store.signals) if id(signal) in ports}
        self.inputs = {
            id(ports[id(signal)]): i for i, signal in enumerate(store.signals) if id(signal) in ports
        }
        self.due, self.pending = set(self.clocked), set(self.comb)
        self.settle()

    def _bound(self, processes: list[Translated]) -> tuple[list[Process], dict[int, list[Process]]]:
        """Return processes on this copy's values, and by signal those that read it."""
        result, readers = [], {}
        for process in processes:
            run = process.bind(self.store)
            result.append(run)
            for i in process.inputs:
                readers.setdefault(i, []).append(run)
        return result, readers

    def clock(self) -> int:
        """Run what is due at a rising edge; return how many processes ran."""
        due, self.due = self.due, set()
        for run in due:
            run()
        return len(due)

    def take(self, signal: Any) -> None:
        """Take what the test bench has written."""
        i, value = self.inputs[id(signal)], _plain(signal._next)
        self.store.next[i] = value
        if self.store.now[i] != value:
            self.store.changed.append(i)

    def settle(self) -> None:
        """Let signals take their next values, until no combinational process changes anything."""
        store, shown = self.store, self._shown
        now, following, changed = store.now, store.next, store.changed
        due, pending = self.due, self.pending
        clocked, comb = self._clocked.__getitem__, self._comb.__getitem__
        while True:
            for run in pending:
                run()
            pending.clear()
            if not changed:
                return
            for i in changed:
                now[i] = following[i]
            due.update(*map(clocked, changed))  # no loop of Python: thousands of signals change in a clock
            pending.update(*map(comb, changed))
            for i in shown.keys() & changed:
                show_value(shown[i], now[i])
            changed.clear()


class CompiledSimulator:
    """Simulates copies of models, side by side.

    each: called at every rising edge with the processes, before signals take their next values: what a test
    bench does; it reads and writes MyHDL's signals, those that are ports of a copy.
    """

    def __init__(self, copies: Iterable[Copy], each: Callable[[], None]) -> None:
        self.copies, self.each, self.clocks = list(copies), each, 0
        self._takers: dict[int, list[Copy]] = {}
        for copy in self.copies:
            for key in copy.inputs:
                self._takers.setdefault(key, []).append(copy)
        del _siglist[:]

    def run(self, clocks: int) -> int:
        """Simulate that many clocks; return how many processes ran in them."""
        ran, takers = 0, self._takers
        for _ in range(clocks):
            for copy in self.copies:
                ran += copy.clock()
            self.each()
            self.clocks += 1
            for signal in _siglist:
                result = takers.get(id(signal))
                if result is None:
                    show_value(signal, signal._next)
                else:
                    for copy in result:
                        copy.take(signal)
            del _siglist[:]
            for copy in self.copies:
                copy.settle()
        return ran


_MADE: dict[Hashable, tuple[CompiledModel, list[Any]]] = {}  # models and their ports, by key


def copies_of(top: Any, clk: Any, each: Callable[[], None], ports: Sequence[Any]) -> CompiledSimulator:
    """Return a simulator of several of a block.

    ports: for each, the signals that the test bench reads or writes (signals_of); `top` has the first's.
    """
    model, own = CompiledModel(top, clk), list(signals_of(ports[0]))
    return CompiledSimulator([_copy(model, own, bundles) for bundles in ports], each)


def copy_of(
    key: Hashable, make: Callable[[], Any], clk: Any, each: Callable[[], None], ports: Any
) -> CompiledSimulator:
    """Return a simulator of a block that this process makes and translates once for each key.

    key: names the block and its parameters. make: returns it, with all of `ports`, which are as of copies_of.
    """
    if key not in _MADE:
        _MADE[key] = CompiledModel(elaborated(make), clk), list(signals_of(ports))
    return CompiledSimulator([_copy(*_MADE[key], ports)], each)


def _copy(model: CompiledModel, own: Sequence[Any], ports: Any) -> Copy:
    return Copy(model, {id(a): b for a, b in zip(own, signals_of(ports), strict=True)})


def _plain(value: Any) -> Any:
    """Return the value of a MyHDL signal as a plain one."""
    return value._val if isinstance(value, intbv) else value


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
