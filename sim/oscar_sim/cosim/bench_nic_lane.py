"""nic_lane: frames of one link are decoded, local values added, the sums encoded for another link."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge

from oscar_hdl.format2.reference import ReferenceCoder
from oscar_hdl.format2.state import TableState
from oscar_sim.cosim.agents import PayloadMemory, sink, source, words
from oscar_sim.cosim.bench_asc_tables import States
from oscar_sim.cosim.common import LANE, PARAMS, high, link, start
from oscar_sim.lane_order import lane_order
from oscar_sim.seeds import dice, numbers
from oscar_sim.vectors import Frame, damaged, width_of

INPUTS = (
    "start op_decode op_add op_encode op_keep count dec_fresh dec_width dec_shift dec_words enc_fresh "
    "enc_width enc_shift rd_ready rd_data rd_data_valid redo_ready m_axis_sum_tready m_axis_payload_tready "
    "m_axis_state_tready s_axis_class_tdata s_axis_class_tvalid s_axis_class_tlast s_axis_local_tdata "
    "s_axis_local_tvalid s_axis_local_tlast s_axis_redo_tdata s_axis_redo_tvalid s_axis_redo_tlast "
    "s_axis_state_tdata s_axis_state_tvalid s_axis_state_tlast"
)
OPS = {  # decode, add, encode, keep
    "encode": (0, 0, 1, 0),
    "hop": (1, 1, 1, 1),
    "hop without sums": (1, 1, 1, 0),
    "last hop": (1, 1, 0, 1),
    "adopt": (1, 0, 0, 1),
    "recode": (1, 0, 1, 1),
}


class Bench:
    """All interfaces of a lane."""

    def __init__(self, dut: Any, share: float) -> None:
        self.dut, self.share, self.rng = dut, share, dice(1)
        self.classes = source(dut, "s_axis_class", share, 1)
        self.local = source(dut, "s_axis_local", share, 2)
        self.again = source(dut, "s_axis_redo", share, 3)
        self.sums = sink(dut, "m_axis_sum", share, 4)
        self.payload = sink(dut, "m_axis_payload", share, 5)
        self.memory = PayloadMemory(dut, share, 6)
        self.states = States(dut, share)
        self.to_code: list[int] = []  # class << 16 | value, for redos
        self.said: dict[str, tuple[int, int]] = {}
        cocotb.start_soon(self._watch())

    async def _watch(self) -> None:
        dut = self.dut
        asked: slice | None = None
        while True:
            await FallingEdge(dut.clk)
            if asked is not None and not int(dut.rst.value):
                self.again.send_nowait(words(self.to_code[asked]))
            ready = self.rng.random() >= self.share
            dut.redo_ready.value = ready
            asked = None
            if ready and high(dut.redo_valid):
                first = int(dut.redo_first.value)
                asked = slice(first, first + int(dut.redo_count.value))
            if high(dut.dec_done):
                self.said["dec"] = int(dut.dec_error.value), int(dut.dec_new_shift.value)
            if high(dut.enc_done):
                self.said["enc"] = 0, int(dut.enc_new_shift.value)

    async def run(
        self, op: str, frame: Frame, payload: list[int], local: np.ndarray, state: TableState
    ) -> None:
        """Start a command and wait for its ends; `state` is the encoder's before the frame."""
        dut = self.dut
        decode, add, encode, keep = OPS[op]
        places = lane_order(frame.values.size, PARAMS.block)
        classes = frame.classes[places].tolist()
        values = (frame.values if decode else 0) + (local if add or not decode else 0)
        self.to_code = [c << 16 | int(v) & 0xFFFF for c, v in zip(classes, values[places], strict=True)]
        self.memory.words, self.said = payload, {}
        self.states.give["dec"] = frame.before.hist.ravel().tolist() if decode else []
        self.states.give["enc"] = state.hist.ravel().tolist() if encode else []
        settings = {"op_decode": decode, "op_add": add, "op_encode": encode, "op_keep": keep}
        settings |= {"count": frame.values.size, "dec_words": len(payload), "dec_width": frame.width}
        settings |= {"dec_shift": int(frame.before.shift[0]), "enc_shift": int(state.shift[0])}
        settings |= {"enc_width": width_of(values), "dec_fresh": 0, "enc_fresh": 0, "start": 1}
        while not high(dut.idle):
            await FallingEdge(dut.clk)
        for name, value in settings.items():
            getattr(dut, name).value = value
        await FallingEdge(dut.clk)
        dut.start.value = 0
        self.classes.send_nowait(words(classes))
        if add or not decode:
            self.local.send_nowait(words((local[places] & 0xFFFF).tolist()))
        ends = {name for name, part in (("dec", decode), ("enc", encode)) if part}
        for _ in range(80 * frame.values.size + 30_000):
            await FallingEdge(dut.clk)
            if ends <= self.said.keys() and (not keep or not self.sums.empty()):
                break
        else:
            raise AssertionError(f"{op}, {frame.name}: only {self.said} is done")

    async def check(self, op: str, frame: Frame, local: np.ndarray, state: TableState) -> None:
        """Run a command on an intact frame; everything is the reference's, and `state` moves on."""
        decode, add, encode, keep = OPS[op]
        values = (frame.values if decode else 0) + (local if add or not decode else 0)
        before = state.copy()
        await self.run(op, frame, frame.words, local, before)
        if keep:
            places = lane_order(frame.values.size, PARAMS.block)
            assert list(self.sums.recv_nowait().tdata) == (values[places] & 0xFFFF).tolist(), f"{op}: sums"
        if decode:
            assert self.said["dec"] == (0, int(frame.after.shift[0])), f"{op}, {frame.name}: {self.said}"
            self._saved("dec", frame.after)
        if encode:
            coder = ReferenceCoder(PARAMS)
            payload = coder.encode(values, frame.classes << 4, width_of(values), state)
            found = self.payload.recv_nowait().tdata
            assert list(found) == np.frombuffer(payload, "<u2").tolist(), f"{op}, {frame.name}: payload"
            assert self.said["enc"] == (0, int(state.shift[0])), f"{op}, {frame.name}: shift"
            self._saved("enc", state)
        assert self.sums.empty()
        assert self.payload.empty()

    def _saved(self, who: str, state: TableState) -> None:
        assert self.states.taken[who] == state.hist.ravel().tolist(), f"{who}: saved tables differ"
        self.states.taken[who].clear()


def local_values(frame: Frame, seed: int) -> np.ndarray:
    """Values to add, so small that sums keep to the lane's width."""
    rng = numbers(seed)
    top = (1 << (LANE.width_max - 1)) - 1
    return np.clip(
        np.rint(rng.laplace(0, 3, frame.values.size)), -top - frame.values, top - frame.values
    ).astype(int)


@cocotb.test()
@cocotb.parametrize(share=[0.0, 0.3])
async def commands(dut: Any, share: float) -> None:
    """Every command on the frames of a link: sums, payload, shifts and tables are the reference's."""
    await start(dut, INPUTS.split())
    bench, state = Bench(dut, share), TableState.initial()
    for n, frame in enumerate(link()):
        op = list(OPS)[n % len(OPS)] if n else "hop"
        await bench.check(op, frame, local_values(frame, n), state)


@cocotb.test()
async def damage_and_resets(dut: Any) -> None:
    """A damaged payload is refused; after it, or after a reset in mid-frame, the next command is right."""
    await start(dut, INPUTS.split())
    bench, rng = Bench(dut, 0.1), dice(5)
    frame = next(frame for frame in link() if frame.values.size > 12)
    local = local_values(frame, 1)
    for name, payload in list(damaged(frame, PARAMS))[:6]:
        found = np.frombuffer(payload[: len(payload) & ~1], "<u2").tolist()
        await bench.run("last hop", frame, found, local, TableState.initial())
        assert bench.said["dec"][0], f"{name}: accepted"
        assert len(bench.sums.recv_nowait().tdata) == frame.values.size
        await bench.check("hop", frame, local, TableState.initial())
    for _ in range(4):
        task = cocotb.start_soon(bench.run("hop", frame, frame.words, local, TableState.initial()))
        for _ in range(rng.randrange(100, 6000)):
            await FallingEdge(dut.clk)
        task.cancel()
        dut.rst.value, dut.start.value = 1, 0
        for _ in range(3):
            await FallingEdge(dut.clk)
        for stream in (bench.classes, bench.local, bench.again, bench.sums, bench.payload):
            stream.clear()
        for taken in bench.states.taken.values():
            taken.clear()
        dut.rst.value = 0
        await FallingEdge(dut.clk)
        await bench.check("hop", frame, local, TableState.initial())
