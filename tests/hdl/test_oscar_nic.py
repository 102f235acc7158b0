"""oscar_nic: rows go in and out through its streams, frames are the host's."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from oscar.coding.asc import AscParams, Encoder
from oscar.numerics.plans import block_costs, make_plan
from oscar_hdl.coder.rows import descriptors, frame_rows
from oscar_hdl.nic.control.registers import BY_NAME, ERROR_ABORTED
from oscar_hdl.nic.ports import BFLOAT16, COUNT_AT, STREAM_BITS
from oscar_sim.driver.nic_driver import Script
from oscar_sim.driver.row_packets import Quantised, packet_start
from support.bench import run_until
from support.nic_bench import (
    ASC,
    KINDS,
    ROWS_LOG2,
    Bench,
    gradient,
    header_fields,
)

pytestmark = pytest.mark.usefixtures("seed")

BLOCK = 1 << (ASC.block_log2 - 5)  # rows: frames begin at multiples


@pytest.mark.parametrize(("pause", "units"), [(0.3, 1), (0.0, 2)])
def test_rows_come_back(pause: float, units: int) -> None:
    bench = Bench(f"rows {pause} {units}", pause=pause, units=units)
    for count in (1, 31, 700, 2500):
        rows = frame_rows(*gradient(bench.rng, count, bench.rng.choice(KINDS)))
        row = BLOCK * bench.rng.randrange(8)
        bench.run(bench.load(row, rows))
        values, described = bench.run(bench.fetch(row, count))
        np.testing.assert_array_equal(values, rows.values.reshape(-1)[:count])
        np.testing.assert_array_equal(described, descriptors(rows.values))


def test_floats_are_refused_where_nothing_quantises() -> None:
    bench, how = Bench("no floats"), Quantised(BFLOAT16, 3, 12)
    rows = frame_rows(np.arange(64, dtype=np.int16), np.zeros(64, np.uint8))
    bench.run(bench.load(0, rows))
    start = packet_start(0, 64, floats=how)
    bench.packet("s_axis_values", [start, *bench.lines.float_words(0, np.ones(64, np.float32), how)])
    bench.run(bench.raised("bad_packet"))
    np.testing.assert_array_equal(bench.run(bench.fetch(0, 64))[0], np.arange(64))


def test_what_is_read_makes_the_next_plan() -> None:
    """Chunks in any order, one read twice of which only one counts; the plan is the host's."""
    bench = Bench("plan", pause=0.2)
    rng, nodes, costs = bench.rng, 3, np.zeros(0, np.int64)
    count = rng.randrange(2100, 3000)
    bounds = [0, rng.randrange(1, 1000), rng.randrange(1000, 1024), count]
    for iteration in range(2):
        values, positions = gradient(rng, count, "normal")
        values[: 700 * iteration] = 0
        order = [(n, low, high) for n, (low, high) in enumerate(pairwise(bounds))]
        rng.shuffle(order)
        for n, low, high in order:
            bench.run(bench.load(BLOCK * n, frame_rows(values[low:high], positions[low:high])))
        for n, low, high in order:
            for counts in (0, 1):
                bench.run(bench.write("PLAN_SEGMENT", first=low, count=counts))
                read, _ = bench.run(bench.fetch(BLOCK * n, high - low))
                np.testing.assert_array_equal(read, values[low:high])
        fresh = block_costs(values, 256) << 8
        costs = costs + ((fresh - costs) >> 1) if iteration else fresh
        bench.run(bench.write("PLAN_COMMAND", nodes=nodes, blocks=costs.size, cut=1))
        bench.run(bench.raised("planned"))
        bench.run(bench.write("IRQ_STATUS", planned=1))
        assert bench.run(bench.read("PLAN_RESULT")) == {"cuts": iteration + 1, "equal": 0, "running": 0}
        cut = [bench.run(bench.read(f"PLAN_EDGE_{n}"))["block"] for n in range(1, nodes)]
        wanted = make_plan("splitter", count, nodes, granule=256, costs=costs).bounds[1:-1]
        assert tuple(256 * edge for edge in cut) == wanted


@pytest.mark.parametrize(("pause", "units"), [(0.3, 1), (0.0, 2)])
def test_frames_both_ways(pause: float, units: int) -> None:
    """Frames of local rows; frames added to them, and adopted; their sums sent on."""
    bench = Bench(f"both {pause} {units}", pause=pause, units=units)
    rng, ours, theirs, onward = bench.rng, Encoder(ASC), Encoder(ASC), Encoder(ASC)
    sent = 0
    for n, kind in enumerate(("normal", "sparse", rng.choice(("wide", "noise", "constant")))):
        count, row = rng.choice([40, 1024, 2300]), BLOCK * (3 * n + rng.randrange(2))
        values, positions = gradient(rng, count, kind)
        local, _ = gradient(rng, count, rng.choice(("normal", "sparse")))
        bench.run(bench.load(row, frame_rows(local, positions)))

        def send(numbers: np.ndarray, step: int, n: int = n, row: int = row) -> Script:
            nonlocal sent
            yield from bench.give(
                "SEND", count=numbers.size, row=row, step=step, chunk=n, width=16, sequence=n, load=step,
                save=step, fresh=int(n == 0),
            )  # fmt: skip
            sent += 1
            yield from bench.ended("SEND", sent)
            while len(bench.frames) < sent:
                yield

        bench.run(send(local, 0))
        how = {"context": positions, "width": 16, "chunk": n}
        assert bench.frames[-1] == ours.encode(local, step=0, **how)
        frame = theirs.encode(values, step=1, **how)
        adopt = n == 2
        bench.put(frame)
        order = {"load": 1, "save": 1, "fresh": int(n == 0), "row": row, "adopt" if adopt else "add": 1}
        bench.run(bench.give("RECEIVE", **header_fields(frame), **order))
        assert bench.run(bench.ended("RECEIVE", n + 1))["error"] == 0
        sums = ((values + (0 if adopt else local)) + 32768) % 65536 - 32768
        found, described = bench.run(bench.fetch(row, count))
        np.testing.assert_array_equal(found, sums)
        np.testing.assert_array_equal(described & 15, frame_rows(sums, positions).classes)
        bench.run(send(sums, 2))
        assert bench.frames[-1] == onward.encode(sums, step=2, **how)


def test_a_packet_leaves_nothing_of_a_longer_one_in_its_last_group() -> None:
    """A SEND reads the descriptors of the whole group: values left there would make a wrong frame."""
    bench = Bench("shorter packets")
    values, positions = gradient(bench.rng, 2000, "normal")
    bench.run(bench.load(0, frame_rows(values, positions)))
    for n, count in enumerate((200, 31)):
        part, places = values[-count:], positions[-count:]
        fields = {"step": n, "chunk": 0, "width": 16, "load": n, "save": n, "fresh": 1}
        bench.run(bench.send(part, places, row=0, **fields))
        assert bench.run(bench.ended("SEND", n + 1))["error"] == 0
        run_until(bench.simulator, lambda n=n: len(bench.frames) > n)
        assert bench.frames[-1] == Encoder(ASC).encode(part, step=n, context=places, width=16, chunk=0)


def test_commands_of_the_same_rows_take_effect_in_their_order() -> None:
    """Added, adopted with most rows 0, added to that; given as soon as they are taken, frames come before."""
    bench = Bench("order", units=2)
    rng, theirs = bench.rng, Encoder(ASC)
    kinds, adopts = ("normal", "normal", rng.choice(("sparse", "constant")), "sparse"), (0, 1, 1, 0)
    values, positions = gradient(rng, rng.choice((1000, 1100, 2100)), "normal")
    count, sums, row = values.size, values, rng.randrange(1, 4) * BLOCK
    behind = row - (-count // 1024) * BLOCK
    bench.run(bench.load(row, frame_rows(values, positions)))
    others, _ = gradient(rng, 1000, "normal")
    for at in (row - BLOCK, behind):
        bench.run(bench.load(at, frame_rows(others, positions[:1000])))
    frames = []
    for kind, adopt in zip(kinds, adopts, strict=True):
        values, _ = gradient(rng, count, kind)
        sums = ((values + (0 if adopt else sums)) + 32768) % 65536 - 32768
        frames.append(theirs.encode(values, step=1, context=positions, width=16))
        bench.put(frames[-1])

    def commands() -> Script:
        for n, adopt in enumerate(adopts):
            while (yield from bench.read("STATUS"))["receive_pending"]:
                yield
            order = {"load": 1, "save": 1, "fresh": int(n == 0), "row": row, "adopt" if adopt else "add": 1}
            yield from bench.give("RECEIVE", **header_fields(frames[n]), **order)
        yield from bench.ended("RECEIVE", len(adopts))

    bench.run(commands())
    for at, expected in ((row, sums), (row - BLOCK, others), (behind, others)):
        found, described = bench.run(bench.fetch(at, expected.size))
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(described & 15, frame_rows(expected).classes)


def test_rows_to_adopt_stay_until_their_frame_is_decoded() -> None:
    """A frame that is dropped, a wait that is aborted and a frame that is refused leave them as they were."""
    bench = Bench("adopt")
    values, positions = gradient(bench.rng, 1100, "normal")
    local, _ = gradient(bench.rng, 1100, "normal")
    bench.run(bench.load(0, frame_rows(local, positions)))
    frame = Encoder(ASC).encode(values, step=1, context=positions, width=16)
    damaged = bytearray(frame)
    damaged[bench.rng.randrange(24, len(frame))] ^= 1 << bench.rng.randrange(8)
    other = Encoder(AscParams(sent_rows=False, block_log2=ASC.block_log2 + 1))
    refused = other.encode(values, step=1, context=positions, width=16)
    order = {"load": 1, "save": 1, "fresh": 1, "row": 0, "adopt": 1}

    def kept(expected: np.ndarray) -> None:
        found, described = bench.run(bench.fetch(0, 1100))
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(described & 15, frame_rows(expected, positions).classes)

    bench.put(bytes(damaged))
    bench.run(bench.give("RECEIVE", **header_fields(frame), **order))
    bench.run(bench.raised("bad_frame"))
    kept(local)
    bench.run(bench.bus.write(BY_NAME["ABORT"].offset, 1))
    assert bench.run(bench.ended("RECEIVE", 1))["error"] == ERROR_ABORTED
    kept(local)
    for n, (sent, error) in enumerate(((refused, 1), (frame, 0))):
        bench.put(sent)
        bench.run(bench.give("RECEIVE", **header_fields(sent), **order))
        assert bench.run(bench.ended("RECEIVE", n + 2))["error"] == error
        kept(local if error else values)


def test_blocks_of_another_size_are_refused_before_memory_changes() -> None:
    bench = Bench("other blocks")
    values, positions = gradient(bench.rng, 1100, "normal")
    local, _ = gradient(bench.rng, 1100, "normal")
    bench.run(bench.load(0, frame_rows(local, positions)))
    assert bench.run(bench.read("STATUS"))["block_log2"] == ASC.block_log2
    own = {"load": 1, "save": 1, "fresh": 1, "row": 0}
    for n, log2 in enumerate((bench.rng.randrange(11, 18), ASC.block_log2)):
        right = log2 == ASC.block_log2
        frame = Encoder(AscParams(sent_rows=False, block_log2=log2)).encode(
            values, step=1, context=positions, width=16
        )
        bench.put(frame)
        bench.run(bench.give("RECEIVE", **header_fields(frame), **own, add=1))
        assert bench.run(bench.ended("RECEIVE", n + 1))["error"] == (0 if right else 1)
        found, _ = bench.run(bench.fetch(0, 1100))
        sums = (local + right * values + 32768) % 65536 - 32768
        np.testing.assert_array_equal(found, sums)
    assert bench.run(bench.read("FRAMES_BAD")) == {"value": 1}
    assert bench.run(bench.read("FRAMES_IN")) == {"value": 1}


def test_streams_wait_until_a_reset_is_over() -> None:
    """Rows, frames and writes to registers that are offered any clocks behind it are taken whole."""
    bench = Bench("reset")
    values, positions = gradient(bench.rng, 700, "normal")
    frame = Encoder(ASC).encode(values, step=1, context=positions, width=16)
    for clocks, gap in ((1, bench.rng.randrange(8)), (bench.rng.randrange(2, 90), bench.rng.randrange(80))):
        bench.rst.next = True
        bench.simulator.run(clocks)
        bench.rst.next = False
        bench.simulator.run(gap)
        bench.put(frame)
        bench.run(bench.write("COMMAND_FRAME", step=clocks))
        assert bench.run(bench.read("COMMAND_FRAME"))["step"] == clocks
        bench.run(bench.load(BLOCK, frame_rows(values, positions)))
        found, described = bench.run(bench.fetch(BLOCK, 700))
        np.testing.assert_array_equal(found, values)
        np.testing.assert_array_equal(described & 15, frame_rows(values, positions).classes)
        assert bench.run(bench.read("FRAMES_BAD")) == {"value": 0}
        assert bench.run(bench.read("OLDEST_NAME"))["there"]


def test_a_row_inside_a_block_is_refused() -> None:
    bench = Bench("rows")
    row, own = bench.rng.randrange(1, BLOCK), {"load": 1, "save": 1, "fresh": 1}
    bench.run(bench.give("SEND", count=40, width=16, row=row, **own))
    bench.run(bench.give("RECEIVE", count=40, width=16, row=BLOCK + row, add=1, **own))
    bench.simulator.run(40)
    assert bench.run(bench.read("REFUSED")) == {"value": 2}
    status = bench.run(bench.read("STATUS"))
    assert not status["send_pending"]
    assert not status["receive_pending"]


def test_wrong_packets_are_counted_and_the_next_one_is_taken() -> None:
    """Packets too short, too long, of no values, and of rows that there are not; rows of others stay."""
    bench = Bench("packets")
    rng, memory, own = bench.rng, 1 << ROWS_LOG2, 4 * BLOCK
    rows, others = (frame_rows(*gradient(rng, 70, "normal")) for _ in range(2))
    bench.run(bench.load(0, others))
    bench.run(bench.load(memory - BLOCK, others))
    wrong = 0

    def counted() -> Script:
        for _ in range(200):  # zeros to the end of a group, and what counters lag
            yield
        assert (yield from bench.read("PACKETS_BAD")) == {"value": wrong}

    for row, count in ((memory - 2, 65), (memory, 1), (memory + own, 70), (own | 1 << 31, 70), (own, 0),
                       (own, 70 | 1 << 19), (0, 1 << 18)):  # fmt: skip
        start, words = row | count << COUNT_AT, [rng.getrandbits(64) for _ in range(rng.randrange(9))]
        bench.packet("s_axis_values", [start, *words])
        bench.packet("s_axis_side", [start, *words])
        bench.packet("s_axis_read", [start])
        wrong += 3
        bench.run(counted())
    bench.packet("s_axis_side", [own + 1 | 40 << COUNT_AT, *words])  # begins within 32 rows
    wrong += 1
    bench.run(counted())
    start, words = own | 70 << COUNT_AT, [rng.getrandbits(STREAM_BITS) for _ in range(40)]
    for name, cuts in (
        ("s_axis_values", (0, 1, 8, 10)), ("s_axis_side", (0, 2, 4, 40)), ("s_axis_read", (1,))
    ):  # fmt: skip
        for cut in cuts:
            bench.packet(name, [start, *words[:cut]])
            wrong += 1
            bench.run(counted())
    assert [len(taken) for taken in bench.read_out.values()] == [9, 3]  # of the long read
    assert bench.run(bench.read("IRQ_STATUS"))["bad_packet"]
    bench.run(bench.load(own, rows))
    bench.run(counted())
    for row, loaded in ((own, rows), (0, others), (memory - BLOCK, others)):
        found, described = bench.run(bench.fetch(row, 70))
        np.testing.assert_array_equal(found, loaded.values.reshape(-1)[:70])
        np.testing.assert_array_equal(described & 15, loaded.classes)
