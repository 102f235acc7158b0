"""The encoder of a lane against the reference coder: payload, table sets and shift, frame after frame."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from myhdl import block, instance

from oscar_hdl.asc_encoder import asc_encoder
from oscar_hdl.format2.reference import ReferenceCoder
from oscar_hdl.format2.state import TableState
from oscar_hdl.params import LaneParams
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_sim.bench import clock, simulate
from oscar_sim.lane_order import lane_order
from oscar_sim.seeds import dice, numbers
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
        self.tables = Tables(lambda: 1)
        self.clk = bit()
        self.items: list[int] = []
        self.taken: list[tuple[int, bool]] = []
        self.results: list[tuple[bytes, int, list[list[int]]]] = []
        self.redos: list[tuple[int, int]] = []
        self.marks: list[int] = []  # clocks in which the first values of blocks were taken

    @block
    def dut(self) -> Any:
        clk = self.clk
        rst, start, fresh, redo_valid, redo_ready = (bit() for _ in range(5))
        count, width, shift, redo_first, redo_count = word(19), word(5), word(4), word(19), word(19)
        s_axis, s_axis_redo, m_axis = Stream(20), Stream(20), Stream(16)
        cnt_valid, cnt_addr, cnt_bank, wipe, req, op, bank, tbank, ack = (
            bit(), word(8), bit(), bit(), bit(), word(3), bit(), bit(), bit()
        )  # fmt: skip
        tw_en, tw_addr, tw_f, tw_c, tw_rcp = bit(), word(9), word(12), word(12), word(18)
        done, new_shift, stall_input, stall_output, stall_tables = bit(), word(4), bit(), bit(), bit()
        encoder = asc_encoder(
            clk, rst, start, fresh, count, width, shift, s_axis, redo_valid, redo_ready, redo_first,
            redo_count, s_axis_redo, m_axis, cnt_valid, cnt_addr, cnt_bank, wipe, req, op, bank, tbank, ack,
            tw_en, tw_addr, tw_f, tw_c, tw_rcp, done, new_shift, stall_input, stall_output, stall_tables,
            params=self.params,
        )  # fmt: skip
        model = tables_model(
            clk, rst, self.tables, cnt_valid, cnt_addr, cnt_bank, req, op, bank, tbank, ack, tw_en, tw_addr,
            tw_f, tw_c, tw_rcp, wipe,
        )  # fmt: skip
        fresh_values: deque[int] = deque()
        again: deque[int] = deque()
        rng = dice(11)

        def send(stream: Stream, queue: deque[int]) -> None:
            """Do a source's part of one clock."""
            if rst:
                stream.tvalid.next = False
            elif not stream.tvalid or stream.tready:
                stream.tvalid.next = bool(queue) and rng.random() >= self.gaps
                if queue and stream.tvalid.next:
                    stream.tdata.next = queue.popleft()
                    stream.tlast.next = not queue

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
                finished, stored = False, self.tables.stored
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
                    clocks = number = 0
                    while not done and clocks < limit:
                        yield clk.posedge
                        clocks += 1
                        if s_axis.tready and s_axis.tvalid:
                            if number % self.params.block == 0:
                                self.marks.append(clocks)
                            number += 1
                    finished = bool(done)
                    if not finished:
                        resets -= 1
                        rst.next = True
                        self.tables.stored = stored  # a SAVE that was cut short does not count
                        fresh_values.clear()
                        again.clear()
                        yield clk.posedge
                        rst.next = False
                        for _ in range(rng.randrange(4)):
                            yield clk.posedge
                k = int(new_shift)
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
        coder, state = ReferenceCoder(self.params.asc), TableState.initial()
        for number, (frame, result) in enumerate(zip(self.frames, self.results, strict=True)):
            if frame.fresh:
                state = TableState.initial()
            payload = b""
            if frame.values.size:
                payload = coder.encode(frame.values, frame.classes * 16, frame.width, state)
            same = sum(a == b for a, b in zip(payload, result[0], strict=False))
            assert result[0] == payload, f"frame {number}: {same} of {len(payload)} bytes"
            assert result[1] == int(state.shift[0]), f"frame {number}: shift"
            assert result[2] == state.hist.tolist(), f"frame {number}: tables"


SMALL = LaneParams(block_log2=10, width_max=12)
WIDE = LaneParams(block_log2=10, width_max=16)


def noise(rng: np.random.Generator, n: int, width: int) -> np.ndarray:
    """Values that cannot be compressed."""
    return rng.integers(-(1 << (width - 1)), 1 << (width - 1), n)


def constant_blocks(params: LaneParams) -> Frame:
    """A constant block first and last."""
    frame = laplace(numbers(5), 2 * params.block + 7, 2.0, 9)
    frame.values[: params.block] = -3
    frame.values[2 * params.block :] = 5
    return frame


def raw_blocks(params: LaneParams) -> Frame:
    """Raw blocks first, where the shift is too small, and last."""
    rng = numbers(2)
    size, width = params.block, params.width_max
    frame = laplace(rng, 2 * size + 30, 3.0, width)
    frame.values[:size] = noise(rng, size, width)
    frame.values[2 * size :] = noise(rng, 30, 7)
    frame.fresh = True
    return frame


def test_short_frames():
    rng = numbers(1)
    bench = Bench(SMALL, [laplace(rng, n, 3.0, 10) for n in (1, 2, 13, 11, 0, 25, 300)])
    bench.run()


def test_constant_blocks():
    bench = Bench(SMALL, [constant_blocks(SMALL)])
    bench.run()
    names = [name for name, _, _ in bench.tables.log]
    assert names == ["LOAD", "DROP", "MERGE", "DROP", "SAVE"]


@pytest.mark.parametrize("flow", ["smooth", "rough"])
def test_raw_blocks(flow):
    rough = flow == "rough"
    params = WIDE if rough else SMALL
    bench = Bench(params, [raw_blocks(params)], gaps=0.1 * rough, pressure=0.2 * rough)
    bench.run()
    assert [first for first, _ in bench.redos] == [0, 2048]
    assert bench.redos[0][1] > params.block  # values of the next block were void too


def test_reset_at_any_time():
    rng = numbers(3)
    frames = [laplace(rng, n, 9.0, 12) for n in (120, 60, 40)]
    frames[1].values[:] = 3
    Bench(SMALL, frames, resets=5, pressure=0.05).run()


def test_rate():
    bench = Bench(SMALL, [laplace(numbers(4), 3072, 6.0, 10)])
    bench.run()
    lost = bench.marks[2] - bench.marks[1] - 1024
    assert lost < 48  # in each block, whatever its size


def test_constant_blocks_do_not_wait_for_the_tables():
    """What they counted is wiped in some 20 clocks more than any block costs; an operation takes 700."""
    frame = laplace(numbers(4), 5 * 1024, 3.0, 10)
    frame.values[2048:4096] = 7
    bench = Bench(SMALL, [frame])
    bench.run()
    assert all(mark - before - 1024 < 60 for before, mark in pairwise(bench.marks))
