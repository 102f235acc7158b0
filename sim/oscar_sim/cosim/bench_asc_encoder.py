"""asc_encoder: the frames of a link, raw and constant blocks among them, with gaps and back-pressure."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.triggers import FallingEdge

from oscar_sim.cosim.agents import TableService, sink, source, words
from oscar_sim.cosim.common import PARAMS, high, link, start
from oscar_sim.seeds import dice
from oscar_sim.tables_model import Tables
from oscar_sim.vectors import Frame

INPUTS = (
    "start fresh count width shift s_axis_tdata s_axis_tvalid s_axis_tlast redo_ready s_axis_redo_tdata "
    "s_axis_redo_tvalid s_axis_redo_tlast m_axis_tready enc_ack tw_en tw_addr tw_f tw_c tw_rcp"
)


class Bench:
    """Streams, tables and redo requests around the encoder."""

    def __init__(self, dut: Any, share: float) -> None:
        self.dut, self.share, self.rng = dut, share, dice(1)
        self.values = source(dut, "s_axis", share, 1)
        self.again = source(dut, "s_axis_redo", share, 2)
        self.payload = sink(dut, "m_axis", share, 3)
        self.tables = Tables()
        TableService(dut, "enc", self.tables)
        self.sent: list[int] = []
        self.redos = 0
        cocotb.start_soon(self._redo())

    async def _redo(self) -> None:
        dut = self.dut
        asked: slice | None = None
        while True:
            await FallingEdge(dut.clk)
            if asked is not None and not int(dut.rst.value):
                self.redos += 1
                self.again.send_nowait(words(self.sent[asked]))
            ready = self.rng.random() >= self.share
            dut.redo_ready.value = ready
            asked = None
            if ready and high(dut.redo_valid):
                first, count = int(dut.redo_first.value), int(dut.redo_count.value)
                asked = slice(first, first + count)

    async def begin(self, frame: Frame, fresh: bool) -> None:
        """Start a frame and queue its values."""
        dut = self.dut
        values, classes = frame.in_lane_order(PARAMS)
        self.sent = [c << 16 | v for c, v in zip(classes, values, strict=True)]
        self.tables.stored = frame.before.hist.tolist()
        dut.count.value, dut.width.value, dut.fresh.value = len(values), frame.width, fresh
        dut.shift.value, dut.start.value = int(frame.before.shift[0]), 1
        await FallingEdge(dut.clk)
        dut.start.value = 0
        self.values.send_nowait(words(self.sent))

    async def encode(self, frame: Frame, fresh: bool) -> None:
        """Code a frame; payload, shift and tables are the reference's."""
        dut = self.dut
        await self.begin(frame, fresh)
        for _ in range(60 * len(self.sent) + 20_000):
            await FallingEdge(dut.clk)
            if high(dut.done):
                break
        else:
            raise AssertionError(f"no done; {self.values.count()} frames still to send")
        shift = int(dut.new_shift.value)
        got = self.payload.recv_nowait().tdata
        assert list(got) == frame.words, f"{frame.name}: payload differs"
        assert shift == int(frame.after.shift[0]), f"{frame.name}: shift differs"
        assert self.tables.stored == frame.after.hist.tolist(), f"{frame.name}: tables differ"
        assert self.payload.empty()


@cocotb.test()
@cocotb.parametrize(share=[0.0, 0.3])
async def frames_of_a_link(dut: Any, share: float) -> None:
    """Payload, shift and tables of every frame are the reference's."""
    await start(dut, INPUTS.split())
    bench = Bench(dut, share)
    for n, frame in enumerate(link()):
        await bench.encode(frame, fresh=n == 0)
    dut._log.info("%d redos", bench.redos)


@cocotb.test()
async def resets(dut: Any) -> None:
    """After a reset anywhere in a frame the same frame is coded as if nothing had been."""
    await start(dut, INPUTS.split())
    bench, rng = Bench(dut, 0.1), dice(3)
    frame = next(link())
    for _ in range(6):
        await bench.begin(frame, fresh=True)
        for _ in range(rng.randrange(50, 6000)):
            await FallingEdge(dut.clk)
        dut.rst.value = 1
        for _ in range(3):
            await FallingEdge(dut.clk)
        for stream in (bench.values, bench.again, bench.payload):
            stream.clear()
        dut.rst.value = 0
        await FallingEdge(dut.clk)
        await bench.encode(frame, fresh=True)
