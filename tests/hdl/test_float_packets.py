"""Packets of floats: memory holds the host's integers, and their descriptors; NaN and Inf end a list."""

from __future__ import annotations

import numpy as np
import pytest

from oscar.numerics.saturation import rounded
from oscar_hdl.coder.rows import descriptors, frame_rows, in_rows
from oscar_hdl.nic.control.list_ports import BAD_FLOATS
from oscar_hdl.nic.control.registers import command_values
from oscar_hdl.nic.ports import BFLOAT16, FLOAT32, FORMAT_AT
from oscar_sim.driver.float_packets import Floats
from oscar_sim.driver.lists import entry_words, trigger
from oscar_sim.driver.nic_driver import Script
from oscar_sim.driver.row_packets import Quantised, emptied, packet_start
from oscar_sim.seeds import dice
from support.nic_bench import Bench

pytestmark = pytest.mark.usefixtures("seed")

BLOCK = 32  # rows


def floats_of(bench: Bench, how: Quantised, count: int) -> np.ndarray:
    """Return float32, as many as bfloat16 can say, of which some saturate and some rows are zeros."""
    rng = np.random.default_rng(bench.rng.getrandbits(32))
    steps = rng.standard_normal(count) * np.exp2(rng.integers(-2, how.bits + 1, count))
    steps *= np.repeat(rng.random(-(-count // 32)) < 0.7, 32)[:count]
    exact = np.ldexp(steps.astype(np.float32), np.int32(how.exponent or 0))
    return exact if how.format == FLOAT32 else (exact.view(np.uint32) & 0xFFFF0000).view(np.float32)


def quantised(values: np.ndarray, how: Quantised) -> tuple[np.ndarray, int]:
    """Return the host's integers, and how many of them saturated."""
    if how.exponent is None:
        return np.zeros(values.size, np.int32), 0
    integers, whole = rounded(values, np.int32(how.exponent), (1 << how.bits - 1) - 1, None)
    return integers, int(np.count_nonzero(integers != whole))


def give(bench: Bench, row: int, values: np.ndarray, how: Quantised, *, entry: int | None = None,
         adds: bool = False, short: int = 0) -> Script:  # fmt: skip
    """Send a packet of floats, and wait until it is in memory; short: words that it lacks."""
    start = packet_start(row, values.size, entry, adds=adds, floats=how)
    words = bench.lines.float_words(row, values, how)
    bench.packet("s_axis_values", [start, *words[: len(words) - short]])
    yield from settled(bench)


def settled(bench: Bench) -> Script:
    """Wait until what was sent is in memory."""
    while any(bench.queues.values()) or any(bench.valid.values()):
        yield
    for _ in range(200):
        yield


def empty(bench: Bench, row: int, count: int) -> Script:
    """Load side rows of zeros."""
    rows = emptied(frame_rows(np.zeros(count, np.int16), np.zeros(count, np.uint8)))
    bench.packet("s_axis_side", [packet_start(row, count), *bench.lines.side_words(row, rows)])
    yield from settled(bench)


def check(bench: Bench, row: int, wanted: np.ndarray) -> None:
    """Compare rows and their descriptors with what they should be."""
    values, described = bench.run(bench.fetch(row, wanted.size))
    np.testing.assert_array_equal(values, wanted)
    np.testing.assert_array_equal(described, descriptors(in_rows(wanted.astype(np.int16), np.int16)))


@pytest.mark.parametrize("units", [1, 2])
def test_memory_holds_the_integers_of_the_host(units: int) -> None:
    """Replaced and added, of two tensors that share a row; what saturates is counted."""
    bench, saturated = Bench(f"floats {units}", pause=0.2, units=units, floats=True), 0
    rng = bench.rng
    for form in (FLOAT32, BFLOAT16):
        one = Quantised(form, rng.randrange(-126, 100), rng.randrange(8, 17), 7)
        other = Quantised(form, rng.randrange(-126, 100), rng.randrange(8, 17), 8)
        row, count, size = BLOCK * rng.randrange(4), rng.randrange(33, 700), rng.randrange(1, 1200)
        begin = count // 32 * 32 if units == 1 else 0  # of the second packet, whose first values are zeros
        first, second = floats_of(bench, one, count), floats_of(bench, other, size)
        bench.run(empty(bench, row, count + size))
        bench.run(give(bench, row, first, one))
        padded = np.concatenate([np.zeros(count - begin, np.float32), second])
        bench.run(give(bench, row + begin // 32, padded, other, adds=True))
        (integers, clipped), (more, more_clipped) = quantised(first, one), quantised(second, other)
        saturated += clipped + more_clipped
        check(bench, row, np.concatenate([integers, more]))
        bench.run(give(bench, row, first, Quantised(form, None, 8)))  # replaced by those without a step
        check(bench, row, 0 * integers)
    assert bench.run(bench.read("SATURATED"))["value"] == saturated
    assert bench.run(bench.read("PACKETS_BAD"))["value"] == 0
    assert bench.run(bench.read("STATUS"))["floats"] == 1


def test_what_lies_behind_the_last_value_is_not_looked_at() -> None:
    bench, how = Bench("floats tail", units=2, floats=True), Quantised(FLOAT32, 0, 8)
    count = bench.rng.randrange(1, 1500)
    values = np.full(-(-count // 32) * 32, np.nan, np.float32)
    values[:count] = bench.rng.randrange(1, 128)
    bench.run(empty(bench, 0, count))
    words = bench.lines.float_words(0, values, how)
    number = len(bench.lines.float_words(0, values[:count], how))
    nan = int.from_bytes(np.full(8, np.nan, np.float32).tobytes(), "little")
    bench.packet(
        "s_axis_values", [packet_start(0, count, floats=how), *(word or nan for word in words[:number])]
    )
    bench.run(settled(bench))
    check(bench, 0, values[:count].astype(np.int32))
    assert bench.run(bench.read("VALUES_BAD"))["packets"] == 0


def test_a_list_ends_and_names_the_tensor() -> None:
    """Before the list and in it; nothing is sent; a good list goes on after it."""
    bench = Bench("floats list", units=2, floats=True)
    rng = bench.rng
    how = Quantised(rng.choice([FLOAT32, BFLOAT16]), 0, 8, rng.randrange(1 << 16))
    count = rng.randrange(33, 1500)
    good = floats_of(bench, how, count)
    bad = good.copy()
    bad[rng.randrange(count)] = rng.choice([np.nan, np.inf, -np.inf])
    for n, (before, made) in enumerate([(bad, good), (good, bad), (good, good)]):
        bench.run(empty(bench, 0, count))
        bench.run(give(bench, 0, before, how))
        send = {
            "count": count,
            "width": 16,
            "step": 0,
            "chunk": 0,
            "save": n,
            "fresh": 1,
            "peer": 1,
            "row": 0,
        }
        words = entry_words(command_values("SEND", **send), trigger(kind=1, values=count))
        bench.lists.put(words)
        while not bench.lists.idle:
            bench.simulator.run(20)
        bench.run(bench.write("LIST_COMMAND", entries=1, run=1))
        if n:  # the first list ends before it takes packets
            bench.run(give(bench, 0, made, how, entry=0))
        bench.run(bench.raised("list"))
        bench.run(bench.write("IRQ_STATUS", list=1))
        result = bench.run(bench.read("LIST_RESULT"))
        assert result["error"] == (0 if n == 2 else BAD_FLOATS)
        assert result["ended"] == n + 1
        if n < 2:
            assert bench.run(bench.read("VALUES_BAD")) == {"tensor": how.tensor, "packets": n + 1}
            assert not bench.frames
            bench.run(bench.write("ABORT", receive=1))
            bench.run(settled(bench))
    bench.simulator.run(400)
    assert len(bench.frames) == 1


def test_packets_that_are_not_as_the_first_word_says_are_bad() -> None:
    bench, how = Bench("floats bad", units=2, floats=True), Quantised(FLOAT32, 3, 12)
    values = floats_of(bench, how, 64)
    bench.run(empty(bench, 0, 64))
    bench.run(give(bench, 0, values, how))
    wrong = [
        Quantised(3, 3, 12),
        Quantised(FLOAT32, -127, 12),
        Quantised(FLOAT32, 3, 7),
        Quantised(BFLOAT16, 3, 17),
    ]
    for each in wrong:
        bench.run(give(bench, 0, values, each))
    check(bench, 0, quantised(values, how)[0])
    start = packet_start(0, 64, floats=how) | 1 << FORMAT_AT + 2
    bench.packet("s_axis_values", [start, *bench.lines.float_words(0, values, how)])
    bench.run(settled(bench))
    bench.run(give(bench, 0, values, how, short=1))  # a value of zeros is there for each that is missing
    assert bench.run(bench.read("PACKETS_BAD"))["value"] == len(wrong) + 2
    check(bench, 0, quantised(np.concatenate([values[:60], np.zeros(4, np.float32)]), how)[0])


@pytest.mark.parametrize("rows", [1, BLOCK])
def test_packets_of_a_part_bring_each_value_once(rows: int) -> None:
    """As memory takes them: a packet replaces its rows, to the end of the last one, or adds to them."""
    rng = np.random.default_rng(dice(f"float parts {rows}").getrandbits(32))
    sizes = rng.choice([0, 1, 31, 32, 33, 500], 8)
    total = int(sizes.sum()) + 64
    offsets, exponents = np.cumsum([0, *sizes, 64]).tolist(), rng.integers(-9, 9, 9).tolist()
    values = np.ldexp(rng.integers(-90, 91, total).astype(np.float32), np.int32(-3))
    floats = Floats([values], offsets, exponents, [0], FLOAT32, 12)
    first = int(rng.integers(total - 64))
    count = int(rng.integers(1, total - first + 1))
    memory = np.zeros(-(-count // 32) * 32, np.int64)  # as rows of class 0 read
    for packet in floats.packets(0, first, count, rows=rows):
        assert packet.row % rows == 0
        low, size = 32 * packet.row, packet.values.size
        integers = quantised(packet.values, packet.how)[0]
        if packet.shared:
            memory[low : low + size] += integers
        else:
            memory[low : low - (-size // 32) * 32] = 0
            memory[low : low + size] = integers
    each = zip(exponents, offsets, offsets[1:], strict=False)
    wanted = [quantised(values[a:b], Quantised(FLOAT32, e, 12))[0] for e, a, b in each]
    np.testing.assert_array_equal(memory[:count], np.concatenate(wanted)[first : first + count])
