"""state_store against the host's TableState: what is saved is loaded, with the host's checksum."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from myhdl import block, instance

from oscar_hdl.format2.state import TableState
from oscar_hdl.params import LaneParams
from oscar_hdl.state_store import fresh_checksum, state_store
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_sim.bench import clock, simulate
from oscar_sim.seeds import numbers

SETS = 4


def random_state(params: LaneParams, rng: np.random.Generator) -> TableState:
    """Return a state with any histograms and shift."""
    state = TableState.initial()
    state.hist[:] = rng.integers(0, 1024, (16, 16))
    state.shift[0] = rng.integers(0, 16)
    return state


class Bench:
    """A state store and what asc_tables does to it, as generators to be run by `drive`."""

    def __init__(self, params: LaneParams, pause: float = 0.0, seed: int = 0) -> None:
        self.params = params
        self.clk, self.rst, self.restart, self.client, self.commit, self.busy = (bit() for _ in range(6))
        self.numbers = {name: word(2) for name in ("dec_load", "dec_save", "enc_load", "enc_save")}
        self.load, self.save = Stream(10), Stream(10)
        self.commit_shift, self.q_set, self.q_shift, self.q_checksum = word(4), word(2), word(4), word(16)
        self.rng, self.pause = numbers(seed), pause

    @block
    def top(self, steps: Any) -> Any:
        """Return the bench that runs the generator `steps`."""
        driver = instance(steps)
        dut = state_store(
            self.clk, self.rst, self.restart, *self.numbers.values(), self.client, self.load, self.save,
            self.commit, self.commit_shift, self.busy, self.q_set, self.q_shift, self.q_checksum,
            params=self.params, sets=SETS,
        )  # fmt: skip
        return clock(self.clk), driver, dut

    def run(self, steps: Any) -> None:
        """Run the generator function `steps` to its end."""
        finished = []

        def all_of():
            yield from steps()
            finished.append(True)

        simulate(partial(self.top, all_of), self.clk, until=lambda: bool(finished), limit=30_000)

    def idle(self):
        """Let some clocks pass, now and then."""
        while self.rng.random() < self.pause:
            yield self.clk.posedge

    def begin(self, **numbers: int):
        """Choose sets."""
        for name, number in numbers.items():
            self.numbers[name].next = number
        self.restart.next = True
        yield self.clk.posedge
        self.restart.next = False

    def put(self, client: int, state: TableState, words: int = 256, early: bool = False):
        """Save a set (or the first words of one) and commit it."""
        self.client.next = client
        for i, value in enumerate(state.hist.flatten()[:words]):
            self.save.tvalid.next = False
            yield from self.idle()
            self.save.tdata.next, self.save.tlast.next, self.save.tvalid.next = int(value), i == 255, True
            yield self.clk.posedge
            while not self.save.tready:
                yield self.clk.posedge
        self.save.tvalid.next = False
        if words < 256:
            return
        for _ in range(0 if early else 200):
            yield self.clk.posedge
        self.commit_shift.next, self.commit.next = int(state.shift[0]), True
        yield self.clk.posedge
        self.commit.next = False
        self.commit_shift.next = 0
        yield self.clk.posedge

    def get(self, client: int, state: TableState):
        """Load a set and compare."""
        self.client.next = client
        taken: list[int] = []
        while len(taken) < 256:
            self.load.tready.next = False
            yield from self.idle()
            self.load.tready.next = True
            yield self.clk.posedge
            while not self.load.tvalid:
                yield self.clk.posedge
            taken.append(int(self.load.tdata))
            assert bool(self.load.tlast) == (len(taken) == 256)
        self.load.tready.next = False
        assert taken == state.hist.flatten().tolist()

    def check(self, number: int, state: TableState):
        """Compare shift and checksum of a set."""
        while self.busy:
            yield self.clk.posedge
        self.q_set.next = number
        yield self.clk.posedge
        yield self.clk.posedge
        yield self.clk.posedge
        assert (int(self.q_shift), int(self.q_checksum)) == (
            int(state.shift[0]),
            state.checksum(self.params.asc),
        )


@pytest.mark.parametrize("block_log2", [10, 12])
@pytest.mark.parametrize("pause", [0.0, 0.4])
def test_sets_keep_what_was_saved_with_the_hosts_checksum(block_log2: int, pause: float):
    bench = Bench(LaneParams(block_log2=block_log2), pause)
    states = [random_state(bench.params, bench.rng) for _ in range(5)]

    def steps():
        yield from bench.begin(dec_save=1, enc_save=3)
        yield from bench.put(0, states[0], early=True)
        yield from bench.put(1, states[1])  # waits for the checksum of the first
        yield from bench.check(1, states[0])
        yield from bench.check(3, states[1])
        yield from bench.begin(dec_load=1, enc_load=3, dec_save=0, enc_save=1)
        yield from bench.get(0, states[0])
        yield from bench.get(1, states[1])
        yield from bench.put(0, states[2])
        yield from bench.put(1, states[3], early=True)  # into the set it was loaded from
        yield from bench.begin(dec_load=1, enc_load=0)
        yield from bench.get(0, states[3])
        yield from bench.get(1, states[2])
        for number, state in ((0, states[2]), (1, states[3]), (3, states[1])):
            yield from bench.check(number, state)

    bench.run(steps)


def test_an_interrupted_save_leaves_no_trace_in_the_next():
    bench = Bench(LaneParams(block_log2=10))
    states = [random_state(bench.params, bench.rng) for _ in range(2)]

    def steps():
        yield from bench.begin(dec_load=2, dec_save=2)
        yield from bench.put(0, states[0], words=100)
        bench.rst.next = True
        yield bench.clk.posedge
        bench.rst.next = False
        yield from bench.put(0, states[1])
        yield from bench.check(2, states[1])
        yield from bench.begin()
        yield from bench.get(0, states[1])

    bench.run(steps)


def test_the_first_checksum_is_the_hosts():
    params = LaneParams(block_log2=11)
    assert fresh_checksum(params) == TableState.initial().checksum(params.asc)


def test_parameters_are_checked():
    bench = Bench(LaneParams())
    with pytest.raises(ValueError, match="power of two"):
        state_store(
            *[bench.clk] * 3, *bench.numbers.values(), bench.client, bench.load, bench.save, bench.commit,
            bench.commit_shift, bench.busy, bench.q_set, bench.q_shift, bench.q_checksum,
            params=bench.params, sets=3,
        )  # fmt: skip
