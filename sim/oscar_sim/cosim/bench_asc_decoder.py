"""asc_decoder: the frames of a link, damaged payloads between them, with gaps and back-pressure."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.triggers import FallingEdge

from oscar_sim.cosim.agents import PayloadMemory, TableService, sink, source, words
from oscar_sim.cosim.common import PARAMS, high, link, start
from oscar_sim.seeds import dice
from oscar_sim.tables_model import Tables
from oscar_sim.vectors import Frame, damaged

INPUTS = (
    "start fresh count width shift words rd_ready rd_data rd_data_valid s_axis_class_tdata "
    "s_axis_class_tvalid s_axis_class_tlast m_axis_tready dec_ack tw_en tw_addr tw_f tw_c"
)


class Bench:
    """Payload memory, streams and tables around the decoder."""

    def __init__(self, dut: Any, share: float) -> None:
        self.dut = dut
        self.classes = source(dut, "s_axis_class", share, 1)
        self.values = sink(dut, "m_axis", share, 2)
        self.memory = PayloadMemory(dut, share, 3)
        self.tables = Tables()
        TableService(dut, "dec", self.tables)

    async def begin(self, frame: Frame, payload: list[int], fresh: bool) -> None:
        """Start a frame and queue its classes."""
        dut = self.dut
        self.memory.words = payload
        self.tables.stored = frame.before.hist.tolist()
        dut.count.value, dut.width.value, dut.fresh.value = frame.values.size, frame.width, fresh
        dut.words.value, dut.shift.value, dut.start.value = len(payload), int(frame.before.shift[0]), 1
        await FallingEdge(dut.clk)
        dut.start.value = 0
        self.classes.send_nowait(words(frame.in_lane_order(PARAMS)[1]))

    async def decode(self, frame: Frame, payload: list[int], fresh: bool) -> tuple[int, int, list[int]]:
        """Decode a payload; return error, new shift and values. Waits until all values are out."""
        dut, said = self.dut, None
        await self.begin(frame, payload, fresh)
        for _ in range(60 * frame.values.size + 20_000):
            await FallingEdge(dut.clk)
            if high(dut.done):
                said = int(dut.error.value), int(dut.new_shift.value)
            if said is not None and not self.values.empty():
                break
        else:
            raise AssertionError(f"{frame.name}: not done ({said}), or values are missing")
        values = list(self.values.recv_nowait().tdata)
        while not high(dut.idle):
            await FallingEdge(dut.clk)
        assert self.classes.idle()
        assert self.values.empty()
        return *said, values


async def check(bench: Bench, frame: Frame, fresh: bool) -> None:
    """Values, shift and tables are the reference's."""
    error, shift, values = await bench.decode(frame, frame.words, fresh)
    assert error == 0, f"{frame.name}: error {error}"
    assert values == frame.in_lane_order(PARAMS)[0], f"{frame.name}: values differ"
    assert shift == int(frame.after.shift[0]), f"{frame.name}: shift differs"
    assert bench.tables.stored == frame.after.hist.tolist(), f"{frame.name}: tables differ"


@cocotb.test()
@cocotb.parametrize(share=[0.0, 0.3])
async def frames_of_a_link(dut: Any, share: float) -> None:
    """Values, shift and tables of every frame are the reference's."""
    await start(dut, INPUTS.split())
    bench = Bench(dut, share)
    for n, frame in enumerate(link()):
        await check(bench, frame, fresh=n == 0)


@cocotb.test()
async def damaged_frames(dut: Any) -> None:
    """What the reference refuses is refused, with as many values as announced; no table is saved."""
    await start(dut, INPUTS.split())
    bench = Bench(dut, 0.0)
    for n, frame in enumerate(link()):
        if frame.values.size > 1500:
            continue
        for name, payload in damaged(frame, PARAMS):
            if len(payload) % 2:
                continue
            found = [int.from_bytes(payload[i : i + 2], "little") for i in range(0, len(payload), 2)]
            error, _, values = await bench.decode(frame, found, fresh=n == 0)
            assert error, f"{frame.name}, {name}: accepted"
            assert len(values) == frame.values.size, f"{frame.name}, {name}: {len(values)} values"
            assert bench.tables.stored == frame.before.hist.tolist(), f"{frame.name}, {name}: tables saved"
        await check(bench, frame, fresh=n == 0)


@cocotb.test()
async def resets(dut: Any) -> None:
    """After a reset anywhere in a frame the same frame is decoded as if nothing had been."""
    await start(dut, INPUTS.split())
    bench, rng = Bench(dut, 0.1), dice(3)
    frame = next(link())
    for _ in range(6):
        await bench.begin(frame, frame.words, fresh=True)
        for _ in range(rng.randrange(50, 5000)):
            await FallingEdge(dut.clk)
        dut.rst.value = 1
        for _ in range(3):
            await FallingEdge(dut.clk)
        bench.classes.clear()
        bench.values.clear()
        dut.rst.value = 0
        await FallingEdge(dut.clk)
        await check(bench, frame, fresh=True)
