"""The encoder of a lane against the reference coder: payload, table sets and shift, frame after frame."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from myhdl import block, instance

from oscar.asc.reference import ReferenceCoder
from oscar.asc.state import TableState
from oscar_hdl.asc_encoder import asc_encoder
from oscar_hdl.params import LaneParams
from oscar_hdl.streams import Stream, bit, word
from oscar_sim.bench import clock, simulate
from oscar_sim.lane_order import lane_order
from oscar_sim.tables_model import Tables, tables_model


@dataclass
class Frame:
    """Values and classes in natural order."""

    values: np.ndarray
    classes: np.ndarray
    width: int
    fresh: bool = False

    def items(self, size: int) -> list[int]:
        """What s_axis carries."""
        order = lane_order(self.values.size, size)
        return [
            int(c) << 16 | (int(v) & 0xFFFF)
            for v, c in zip(self.values[order], self.classes[order], strict=True)
        ]


def laplace(rng: np.random.Generator, n: int, scale: float, width: int, still: float = 0.0) -> Frame:
    """Values whose spread depends on their class, like gradients; a share of them 0."""
    classes = np.repeat(rng.integers(0, 8, n // 32 + 1), 32)[:n]
    values = np.round(rng.laplace(0, 1, n) * scale * 2.0 ** (classes - 4))
    values[rng.random(n) < still] = 0
    limit = 1 << (width - 1)
    return Frame(np.clip(values, -limit, limit - 1).astype(np.int64), classes, width)


class Bench:
    """An encoder with its tables; frames go through one after another."""

    def __init__(self, params: LaneParams, frames: list[Frame], *, gaps: float = 0.0, pressure: float = 0.0,
                 resets: int = 0) -> None:  # fmt: skip
        self.params, self.frames, self.gaps, self.pressure, self.resets = (
            params,
            frames,
            gaps,
            pressure,
            resets,
        )
        self.tables = Tables()
        self.clk = bit()
        self.items: list[int] = []
        self.taken: list[tuple[int, bool]] = []
        self.results: list[tuple[bytes, int, list[list[int]]]] = []
        self.redos: list[tuple[int, int]] = []
        self.clocks: list[int] = []  # of each frame, from its first value to done

    @block
    def dut(self) -> Any:
        clk = self.clk
        rst, start, fresh, redo_valid, redo_ready = (bit() for _ in range(5))
        count, width, shift, redo_first, redo_count = word(19), word(5), word(4), word(19), word(19)
        s_axis, s_axis_redo, m_axis = Stream(20), Stream(20), Stream(16)
        cnt_valid, cnt_addr, cnt_bank, req, op, bank, tbank, ack = (
            bit(), word(8), bit(), bit(), word(3), bit(), bit(), bit()
        )  # fmt: skip
        tw_en, tw_addr, tw_f, tw_c, tw_rcp = bit(), word(9), word(12), word(12), word(18)
        done, new_shift, stall_input, stall_output, stall_tables = bit(), word(4), bit(), bit(), bit()
        encoder = asc_encoder(
            clk, rst, start, fresh, count, width, shift, s_axis, redo_valid, redo_ready, redo_first,
            redo_count, s_axis_redo, m_axis, cnt_valid, cnt_addr, cnt_bank, req, op, bank, tbank, ack, tw_en,
            tw_addr, tw_f, tw_c, tw_rcp, done, new_shift, stall_input, stall_output, stall_tables,
            params=self.params,
        )  # fmt: skip
        model = tables_model(
            clk, rst, self.tables, cnt_valid, cnt_addr, cnt_bank, req, op, bank, tbank, ack, tw_en, tw_addr,
            tw_f, tw_c, tw_rcp,
        )  # fmt: skip
        fresh_values: deque[int] = deque()
        again: deque[int] = deque()
        rng = random.Random(11)

        def send(stream: Stream, queue: deque[int]) -> None:
            """Do a source's part of one clock."""
            if rst:
                stream.tvalid.next = False
            elif not stream.tvalid or stream.tready:
                stream.tvalid.next = bool(queue) and rng.random() >= self.gaps
                if queue and stream.tvalid.next:
                    stream.tdata.next = queue.popleft()

        @instance
        def surroundings():
            while True:
                yield clk.posedge
                send(s_axis, fresh_values)
                send(s_axis_redo, again)
                if m_axis.tvalid and m_axis.tready and not rst:
                    self.taken.append((int(m_axis.tdata), bool(m_axis.tlast)))
                m_axis.tready.next = rng.random() >= self.pressure
                redo_ready.next = rng.random() < 0.1
                if redo_valid and redo_ready and not rst:
                    first, size = int(redo_first), int(redo_count)
                    assert not again
                    again.extend(self.items[first : first + size])
                    self.redos.append((first, size))

        @instance
        def drive():
            k, resets = 0, self.resets
            yield clk.posedge
            for frame in self.frames:
                self.items = frame.items(self.params.block)
                finished = False
                while not finished:
                    self.taken.clear()
                    fresh_values.extend(self.items)
                    count.next, width.next, shift.next = (
                        frame.values.size,
                        frame.width,
                        0 if frame.fresh else k,
                    )
                    fresh.next, start.next = frame.fresh, True
                    yield clk.posedge
                    start.next = False
                    limit = rng.randrange(3 * frame.values.size + 400) if resets else 1 << 30
                    clocks = first = 0
                    while not done and clocks < limit:
                        yield clk.posedge
                        clocks += 1
                        if not first and s_axis.tready and s_axis.tvalid:
                            first = clocks
                    finished = bool(done)
                    if not finished:
                        resets -= 1
                        rst.next = True
                        fresh_values.clear()
                        again.clear()
                        yield clk.posedge
                        rst.next = False
                        for _ in range(rng.randrange(4)):
                            yield clk.posedge
                k = int(new_shift)
                self.clocks.append(clocks - first)
                payload = b"".join(w.to_bytes(2, "little") for w, _ in self.taken)
                assert [last for _, last in self.taken] == [False] * (len(self.taken) - 1) + [True] * bool(
                    self.taken
                )
                self.results.append((payload, k, [row[:] for row in self.tables.stored]))
                assert not fresh_values
                assert not again
                yield clk.posedge

        return clock(clk), encoder, model, surroundings, drive

    def run(self, limit: int = 200_000) -> None:
        """Run all frames and compare with the reference."""
        simulate(self.dut, self.clk, until=lambda: len(self.results) == len(self.frames), limit=limit)
        coder, state = ReferenceCoder(self.params.asc), TableState.initial(self.params.asc)
        for number, (frame, result) in enumerate(zip(self.frames, self.results, strict=True)):
            if frame.fresh:
                state = TableState.initial(self.params.asc)
            payload = b""
            if frame.values.size:
                payload = coder.encode(frame.values, frame.classes * 16, frame.width, state)
            same = sum(a == b for a, b in zip(payload, result[0], strict=False))
            assert result[0] == payload, f"frame {number}: {same} of {len(payload)} bytes"
            assert result[1] == int(state.shift[0]), f"frame {number}: shift"
            assert result[2] == state.hist.tolist(), f"frame {number}: tables"


SMALL = LaneParams(block_log2=10, width_max=12)
WIDE = LaneParams(block_log2=10, width_max=16)


def mixed(params: LaneParams) -> list[Frame]:
    """Frames that meet everything: short, constant and raw blocks, a cold start, moving shifts."""
    rng = np.random.default_rng(2)
    width, size = params.width_max, params.block
    frames = [laplace(rng, n, 3.0, 10) for n in (1, 2, 13, 11, 12, 0, 25, 300, 1024, 2600)]
    constant = laplace(rng, 5 * size + 77, 2.0, 9)
    constant.values[lane_order(constant.values.size, size)[: 2 * size]] = -3
    constant.values[3 * size : 4 * size] = 0
    constant.values[5 * size :] = 7
    cold = laplace(rng, 3 * size + 5, 2.0 ** (width - 5), width)  # the first blocks are raw
    cold.fresh = True
    noise = Frame(
        rng.integers(-(1 << (width - 1)), 1 << (width - 1), 3 * size + 40),
        np.zeros(3 * size + 40, int),
        width,
    )
    half = laplace(rng, 4 * size, 1.0, width)
    half.values[size : 3 * size] = noise.values[: 2 * size]
    late = laplace(rng, 2 * size + 30, 1.0, 8)
    late.values[2 * size :] = rng.integers(-128, 128, 30)  # the last block is raw
    sparse = laplace(rng, 3 * size, 4.0, 9, still=0.97)
    return [*frames, constant, cold, cold, noise, sparse, half, late, sparse, constant]


def test_everything_smoothly():
    bench = Bench(SMALL, mixed(SMALL))
    bench.run()
    names = [name for name, _, _ in bench.tables.log]
    assert {"MERGE", "MERGE_ONLY", "DROP", "PRIOR", "LOAD", "SAVE"} == set(names)
    assert any(size > 2 * SMALL.block for _, size in bench.redos)  # three blocks were void
    assert any(first > 0 for first, _ in bench.redos)


@pytest.mark.parametrize("params", [SMALL, WIDE])
def test_everything_with_gaps_and_back_pressure(params):
    Bench(params, mixed(params)[6:], gaps=0.25, pressure=0.3).run()


def test_reset_at_any_time():
    Bench(WIDE, mixed(WIDE)[8:], resets=20, pressure=0.05).run()


def test_slow_output_stalls_but_harms_nothing():
    rng = np.random.default_rng(3)
    bench = Bench(SMALL, [laplace(rng, 4000, 30.0, 12)], pressure=0.9)
    bench.run()


def test_rate():
    rng = np.random.default_rng(4)
    params = LaneParams(block_log2=12, width_max=12)
    bench = Bench(params, [laplace(rng, 6 * 4096, 6.0, 10)])
    bench.run()
    # The last block has its backward pass and its payload still to come.
    assert (bench.clocks[0] - 4096 - 4000) / (6 * 4096) < 1.03
