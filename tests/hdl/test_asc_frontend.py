"""The forward pass against the reference's arithmetic: contexts, symbols, counts, raw words, the cut."""

from __future__ import annotations

import numpy as np
import pytest
from myhdl import block, instance

from oscar_hdl.asc_frontend import asc_frontend
from oscar_hdl.format2.params import BASE, EXTRA, LANES, WEIGHT, cut_row, is_counted
from oscar_hdl.format2.reference import symbol
from oscar_hdl.params import LaneParams
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_sim.bench import clock, never, randomly, simulate, source
from oscar_sim.seeds import dice, numbers

PARAMS = LaneParams(block_log2=10)


class Model:
    """What the blocks of a frame give, in decoding order."""

    def __init__(self) -> None:
        self.neighbour = [0] * LANES
        self.bank = 0

    def block(self, values: list[int], classes: list[int], shift: int, zero: bool) -> dict:
        """Code one block; returns symbols (ctx << 4 | s), counts (byte, bank), raw words."""
        full = len(values) // LANES
        cut = cut_row(full, PARAMS.asc) * LANES
        out: dict = {"symbols": [], "counts": [], "words": []}
        raw = used = 0
        if zero:
            self.neighbour = [0] * LANES
        for i, (v, p) in enumerate(zip(values, classes, strict=True)):
            lane = i % LANES
            if i == cut:
                self.bank ^= 1
            ctx = min(15, max(0, (p + self.neighbour[lane].bit_length() - 4) >> 1))
            m = abs(v)
            u = ((m - 1) >> shift) + 1 if m else 0
            s = symbol(u)
            if m:
                field = (v < 0) | ((m - 1) & ((1 << shift) - 1)) << 1 | (u - BASE[s]) << (1 + shift)
                raw |= field << used
                used += 1 + shift + EXTRA[s]
            self.neighbour[lane] += (WEIGHT[s] - self.neighbour[lane]) >> 3
            out["symbols"].append(ctx << 4 | s)
            if is_counted(i // LANES, lane):
                out["counts"].append((ctx << 4 | s, self.bank))
        count = (used + 15) // 16
        out["words"] = [(raw >> (16 * i) & 0xFFFF, i == count - 1) for i in range(count)]
        out["uniform"] = min(values) == max(values)
        out["value"] = values[0] & 0xFFFF
        row, lane = divmod(len(values) - 1, LANES)
        out["last"] = lane, bool(row & 1)
        return out


def blocks_of(kind: str, rng: np.random.Generator) -> list[tuple[list[int], int, bool]]:
    """(values, shift, zero) for each block."""
    if kind == "edges":
        edges = [0, 1, -1, 2, 3, 255, 256, 257, -256, 511, 4096, 32767, -32768, -32767, 16384]
        return [(rng.permutation(edges * 4).tolist(), k, k < 2) for k in range(16)]
    if kind == "short":
        sizes = (1, 2, 11, 12, 13, 24, 25, 263, 264, 265, 275, 276, 300)
        return [(rng.integers(-9, 10, n).tolist(), n % 3, n & 1 == 0) for n in sizes]
    if kind == "uniform":
        return [([v] * n, 0, True) for v, n in ((0, 40), (7, 30), (-1, 1), (-32768, 30))] + [
            ([5] * 29 + [4], 0, False), ([4] + [5] * 29, 0, False)
        ]  # fmt: skip
    scale = {"narrow": 2.0, "wide": 4000.0}[kind]
    values = [np.clip(np.round(rng.laplace(0, scale, n)), -32768, 32767) for n in (1024, 1024, 517)]
    return [(v.astype(int).tolist(), 0, i == 0) for i, v in enumerate(values)]


@pytest.mark.parametrize("flow", ["smooth", "rough"])
@pytest.mark.parametrize("kind", ["edges", "short", "uniform", "narrow", "wide"])
def test_equals_reference(kind, flow):
    rng = numbers(5)
    blocks = blocks_of(kind, rng)
    classes = [rng.integers(0, 16, len(v)).tolist() for v, _, _ in blocks]
    model = Model()
    expected = [model.block(v, c, k, z) for (v, k, z), c in zip(blocks, classes, strict=True)]
    items = [c << 16 | (v & 0xFFFF) for (b, _, _), cs in zip(blocks, classes, strict=True)
             for v, c in zip(b, cs, strict=True)]  # fmt: skip

    clk, rst, go, zero, copy, abort, room, full, cut_ok = (bit() for _ in range(9))
    sym_valid, cnt_valid, cnt_bank, raw_valid, raw_last, done, uniform = (bit() for _ in range(7))
    s_axis, count, left, shift, sym, raw = Stream(20), word(11), word(11), word(4), word(8), word(16)
    value, peak_shift, waits, last_lane, last_odd = word(16), word(4), bit(), word(4), bit()
    seen: list[dict] = []
    clocks: list[int] = []
    rough = flow == "rough"

    @block
    def top():
        dut = asc_frontend(
            clk, rst, s_axis, go, count, zero, copy, shift, abort, room, full, cut_ok, left, waits, sym_valid,
            sym, cnt_valid, cnt_bank, raw_valid, raw_last, raw, done, uniform, value, peak_shift,
            last_lane, last_odd,
            params=PARAMS,
        )  # fmt: skip
        feed = source(clk, rst, s_axis, items, randomly(0.2, 3) if rough else never)

        @instance
        def gates():
            rng = dice(8)
            while True:
                room.next = not rough or rng.random() < 0.8
                full.next = rough and rng.random() < 0.1
                cut_ok.next = not rough or rng.random() < 0.5
                yield clk.posedge

        @instance
        def drive():
            rst.next = True
            yield clk.posedge
            rst.next = False
            for values, k, z in blocks:
                go.next, count.next, shift.next, zero.next = True, len(values), k, z
                out: dict = {"symbols": [], "counts": [], "words": []}
                yield clk.posedge
                go.next = False
                clocks.append(0)
                while not done:
                    yield clk.posedge
                    clocks[-1] += 1
                    if sym_valid:
                        out["symbols"].append(int(sym))
                    if cnt_valid:
                        assert sym_valid
                        out["counts"].append((int(sym), int(cnt_bank)))
                    if raw_valid:
                        out["words"].append((int(raw), bool(raw_last)))
                out["uniform"], out["value"] = bool(uniform), int(value)
                out["last"] = int(last_lane), bool(last_odd)
                seen.append(out)

        return clock(clk), dut, feed, gates, drive

    simulate(top, clk, until=lambda: len(seen) == len(blocks), limit=20_000)
    assert seen == expected
    if kind == "narrow" and not rough:
        assert [c - len(v) for c, (v, _, _) in zip(clocks, blocks, strict=True)] == [16] * 3


def test_copy_finds_the_shift_and_abort_forgets():
    magnitudes = [[0, 3], [255, -255], [256], [-256], [-511, 90], [512], [-32767], [-32768, 1], [-1, 0]]
    clk, rst, go, zero, copy, abort, room, full, cut_ok = (bit() for _ in range(9))
    sym_valid, cnt_valid, cnt_bank, raw_valid, raw_last, done, uniform = (bit() for _ in range(7))
    s_axis, count, left, shift, sym, raw = Stream(20), word(11), word(11), word(4), word(8), word(16)
    value, peak_shift, waits, last_lane, last_odd = word(16), word(4), bit(), word(4), bit()
    seen: list[int] = []
    items = [v & 0xFFFF for values in magnitudes for v in [1000] * 20 + values]

    @block
    def top():
        dut = asc_frontend(
            clk, rst, s_axis, go, count, zero, copy, shift, abort, room, full, cut_ok, left, waits, sym_valid,
            sym, cnt_valid, cnt_bank, raw_valid, raw_last, raw, done, uniform, value, peak_shift,
            last_lane, last_odd,
            params=PARAMS,
        )  # fmt: skip

        @instance
        def drive():
            feed = iter(items)
            room.next = True
            for values in magnitudes:
                # 20 values of a block that is given up, then one that is copied.
                for number, copying in ((20, False), (len(values), True)):
                    go.next, count.next, copy.next, cut_ok.next = True, len(values), copying, True
                    if not copying:
                        count.next = 40
                    yield clk.posedge
                    go.next = False
                    for _ in range(number):
                        s_axis.tvalid.next, s_axis.tdata.next = True, next(feed)
                        yield clk.posedge
                        while not s_axis.tready:
                            yield clk.posedge
                    s_axis.tvalid.next = False
                    abort.next = not copying
                    yield clk.posedge
                    abort.next = False
                    while copying and not done:
                        yield clk.posedge
                        assert not any((sym_valid, cnt_valid, raw_valid))
                seen.append(int(peak_shift))

        return clock(clk), dut, drive

    simulate(top, clk, until=lambda: len(seen) == len(magnitudes), limit=2_000)
    assert seen == [max(0, max(abs(v) for v in values).bit_length() - 8) for values in magnitudes]
