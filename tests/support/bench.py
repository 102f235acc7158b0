"""Clocked drivers and monitors for MyHDL test benches: idle gaps, back-pressure, reset."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from myhdl import StopSimulation, always, block, delay, instance

from oscar_hdl.streams.bundles import Stream
from oscar_sim.seeds import dice

Pause = Callable[[], bool]  # True: do nothing in this clock


def never() -> bool:
    """Never pause."""
    return False


def chance(probability: float, rng: random.Random) -> Pause:
    """Pause in a share of the clocks, as `rng` has it."""
    return lambda: rng.random() < probability


def randomly(probability: float, stream: int = 1) -> Pause:
    """Pause in a share of the clocks, others in each run; see oscar_sim.seeds."""
    return chance(probability, dice(stream))


@block
def clock(clk: Any, half_period: int = 5) -> Any:
    """Drive a clock for ever."""

    @always(delay(half_period))
    def tick():
        clk.next = not clk

    return tick


@block
def source(clk: Any, rst: Any, stream: Stream, items: Iterable[Any], pause: Pause = never) -> Any:
    """Send `items`: integers, or (data, last) or (data, last, keep); a generator may be endless.

    A reset drops the item in flight and goes on with the next.
    """
    feed: Iterator[Any] = iter(items)
    keep = getattr(stream, "tkeep", None)
    full = 0 if keep is None else (1 << len(keep)) - 1

    @instance
    def drive():
        while True:
            yield clk.posedge
            if rst:
                stream.tvalid.next = False
                continue
            if stream.tvalid and not stream.tready:
                continue
            if pause():
                stream.tvalid.next = False
                continue
            item = next(feed, None)
            if item is None:
                stream.tvalid.next = False
                continue
            data, last, *rest = item if isinstance(item, tuple) else (item, False)
            stream.tdata.next = data
            stream.tlast.next = bool(last)
            if keep is not None:
                keep.next = rest[0] if rest else full
            stream.tvalid.next = True

    return drive


@block
def sink(clk: Any, rst: Any, stream: Stream, taken: list[Any], pause: Pause = never) -> Any:
    """Append (data, last) of every transfer to `taken`; check that data hold still while they wait."""
    keep = getattr(stream, "tkeep", None)

    @instance
    def drive():
        waiting = None
        while True:
            yield clk.posedge
            if rst:
                stream.tready.next = False
                waiting = None
                continue
            now = (int(stream.tdata), bool(stream.tlast), *(() if keep is None else (int(keep),)))
            if waiting is not None and (not stream.tvalid or now != waiting):
                raise AssertionError(f"stream changed from {waiting} to {now} while it waited for tready")
            waiting = now if stream.tvalid and not stream.tready else None
            if stream.tvalid and stream.tready:
                taken.append(now)
            stream.tready.next = not pause()

    return drive


def run_until(simulator: Any, condition: Callable[[], Any], *, limit: int = 60_000) -> int:
    """Run a CycleSimulator or CompiledSimulator until the condition holds; return the clocks it took.

    Raises TimeoutError after `limit` clocks, so that a block that waits for ever fails its test.
    """
    for clocks in range(limit):
        if condition():
            return clocks
        simulator.run(1)
    raise TimeoutError(f"what the test waits for did not come within {limit} clocks")


def simulate(top: Callable[[], Any], clk: Any, *, until: Callable[[], bool], limit: int) -> int:
    """Run `top` (a block without arguments) until the condition holds; return the clocks it took.

    Raises TimeoutError after `limit` clocks.
    """
    clocks = 0

    @block
    def bench() -> Any:
        @instance
        def watch():
            nonlocal clocks
            while not until():
                yield clk.posedge
                clocks += 1
                if clocks > limit:
                    raise TimeoutError(f"bench did not finish within {limit} clocks")
            raise StopSimulation

        dut = top()
        return dut, watch

    inst = bench()
    try:
        inst.run_sim(quiet=1)
    finally:
        inst.quit_sim()
    return clocks
