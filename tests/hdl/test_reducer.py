"""reducer: every command's values and classes go where they belong; event_counters lose nothing."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from myhdl import always_comb, block, instance

from oscar_hdl.event_counters import event_counters
from oscar_hdl.reducer import reducer
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_sim.bench import clock, never, randomly, simulate, sink, source
from oscar_sim.seeds import dice

MODES = ((0, 0, 1, 0), (1, 1, 1, 1), (1, 1, 1, 0), (1, 1, 0, 1), (1, 0, 0, 1), (1, 0, 1, 1))


@pytest.mark.parametrize(("idle", "busy"), [(0.0, 0.0), (0.4, 0.0), (0.0, 0.5), (0.3, 0.4)])
def test_commands_one_after_another(idle: float, busy: float):
    rng = dice(1)
    clk, rst, start = bit(), bit(), bit()
    ops, count = [bit() for _ in range(4)], word(19)
    classes, given, decoded, local = Stream(4), Stream(16), Stream(16), Stream(16)
    to_decoder, code, sums = Stream(4), Stream(20), Stream(16)
    strobes = [bit() for _ in range(3)]
    queues: list[Any] = [deque(), deque(), deque()]
    taken: list[Any] = [[], [], []]
    expected: list[Any] = [[], [], []]
    ends: list[int] = []  # words of each output after each command
    gaps = [randomly(idle, n) if idle else never for n in range(3)]
    waits = [randomly(busy, n + 3) if busy else never for n in range(3)]

    def drain(queue: deque[Any]):
        while True:
            yield queue.popleft() if queue else None

    def drive():
        for size in (1, 0, 90, 2, 150):
            for decode, add, encode, keep in MODES:
                for signal, value in zip(ops, (decode, add, encode, keep), strict=True):
                    signal.next = bool(value)
                count.next, start.next = size, True
                yield clk.posedge
                start.next = False
                for i in range(size):
                    kind, a, b = rng.getrandbits(4), rng.getrandbits(16), rng.getrandbits(16)
                    queues[0].append(kind)
                    value = 0
                    if decode:
                        queues[1].append(a)
                        expected[0].append(kind)
                        value += a
                    if add or not decode:
                        queues[2].append(b)
                        value += b
                    if encode:
                        expected[1].append((kind << 16 | value & 0xFFFF, i == size - 1))
                    if keep:
                        expected[2].append((value & 0xFFFF, i == size - 1))
                while any(len(t) < len(e) for t, e in zip(taken, expected, strict=True)):
                    yield clk.posedge
                yield clk.posedge
        ends.append(1)

    @block
    def top():
        @always_comb
        def zero_between():  # as the decoder does it
            decoded.tvalid.next = given.tvalid
            decoded.tlast.next = given.tlast
            decoded.tdata.next = given.tdata if given.tvalid else 0
            given.tready.next = decoded.tready

        return (
            clock(clk),
            instance(drive),
            zero_between,
            reducer(
                clk, rst, start, *ops, count, classes, decoded, local, to_decoder, code, sums, *strobes
            ),
            source(clk, rst, classes, drain(queues[0]), gaps[0]),
            source(clk, rst, given, drain(queues[1]), gaps[1]),
            source(clk, rst, local, drain(queues[2]), gaps[2]),
            sink(clk, rst, to_decoder, taken[0], waits[0]),
            sink(clk, rst, code, taken[1], waits[1]),
            sink(clk, rst, sums, taken[2], waits[2]),
        )  # fmt: skip

    simulate(top, clk, until=lambda: bool(ends), limit=40_000)
    assert [kind for kind, _ in taken[0]] == expected[0]
    assert taken[1:] == expected[1:]
    assert not any(queues)


def test_counters_count_every_event_and_start_at_zero():
    rng = dice(2)
    clk, rst = bit(), bit()
    events, rd_index, rd_count = word(16), word(4), word(32)
    counts = [0] * 16
    found: list[int] = []

    def drive():
        for phase in range(2):
            rst.next = True
            yield clk.posedge
            rst.next = False
            counts[:] = [0] * 16
            for n in range(300):
                bits = 0xFFFF if n < 100 else rng.getrandbits(16) & rng.getrandbits(16)
                events.next = bits
                counts[:] = [c + (bits >> i & 1) for i, c in enumerate(counts)]
                yield clk.posedge
            events.next = 0
            for _ in range(20):
                yield clk.posedge
            for i in range(16 if phase else 0):
                rd_index.next = i
                yield clk.posedge
                yield clk.posedge
                yield clk.posedge
                found.append(int(rd_count))

    @block
    def top():
        return clock(clk), instance(drive), event_counters(clk, rst, events, rd_index, rd_count)

    simulate(top, clk, until=lambda: len(found) == 16, limit=2_000)
    assert found == counts
