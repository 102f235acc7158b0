"""The bench of a NIC's buses, in the simulator: masters and sinks of cocotbext-axi, written apart from ours.

Our own benches were written beside the RTL: both could have misread AXI in the same way. Here somebody
else's bus models drive AXI4-Lite and every stream of the converted NIC, with random pauses in each.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.task import bridge, resume
from cocotb.triggers import ClockCycles
from cocotbext.axi import (
    AxiLiteBus,
    AxiLiteMaster,
    AxiResp,
    AxiStreamBus,
    AxiStreamFrame,
    AxiStreamSink,
    AxiStreamSource,
)

from oscar_hdl.nic.control.registers import BY_NAME, SPACE
from oscar_sim.cosim.nic_bench import CLEARING, INTO, OTHER, OUT, NicBench, exchange, exchange_list
from oscar_sim.errors import RtlError

PERIOD = 10  # ns
PAUSE = 0.15  # of clocks, in every stream and channel


class NicBuses(NicBench):
    """A NIC in an event simulator. Its methods are called in a thread that cocotb stops while clocks pass."""

    def __init__(self, dut: Any, rng: np.random.Generator, clk: Any, rst: Any) -> None:
        self.rng, self.dut, self.rst = rng, dut, rst
        self.registers = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), clk, rst)
        self.sources = {name: self._stream(AxiStreamSource, name, clk) for name in self.into()}
        self.sinks = {name: self._stream(AxiStreamSink, name, clk) for name in self.out()}
        write, read = self.registers.write_if, self.registers.read_if
        channels = (write.aw_channel, write.w_channel, write.b_channel, read.ar_channel, read.r_channel)
        for bus in (*self.sources.values(), *self.sinks.values(), *channels):
            bus.set_pause_generator(self._pauses())
        self.clocks = resume(lambda clocks: _pass(clk, clocks))

    def _pauses(self) -> Iterator[bool]:
        rng = np.random.default_rng(self.rng.integers(1 << 32))  # apart: clocks do not move what is sent
        while True:
            yield bool(rng.random() < PAUSE)

    def into(self) -> tuple[str, ...]:
        """Return the streams into the NIC that are ports."""
        return INTO

    def out(self) -> tuple[str, ...]:
        """Return the streams out of the NIC that are ports."""
        return OUT

    def _stream(self, kind: Any, name: str, clk: Any) -> Any:
        """Return a source or sink of a stream. Without tkeep a word is one piece, whatever its width."""
        bus = AxiStreamBus.from_prefix(self.dut, name)
        whole = {} if hasattr(bus, "tkeep") else {"byte_lanes": 1}
        return kind(bus, clk, self.rst, **whole)

    def reset(self) -> None:
        """Reset the NIC; its links begin anew."""
        self.rst.value = 1
        self.step(4)
        self.rst.value = 0
        self.step(CLEARING)
        self.begin()

    def step(self, clocks: int = 1) -> None:
        """See NicBench.step."""
        self.clocks(clocks)

    def write(self, name: str, **fields: int) -> None:
        """See NicBench.write."""
        register = BY_NAME[name]
        data = register.pack(**fields).to_bytes(4, "little")
        response = resume(self.registers.write)(register.offset, data).resp
        if response != AxiResp.OKAY:
            raise RtlError(f"a write to {name} is answered with {response}, not OKAY")

    def read(self, name: str) -> dict[str, int]:
        """See NicBench.read."""
        answer = resume(self.registers.read)(BY_NAME[name].offset, 4)
        if answer.resp != AxiResp.OKAY:
            raise RtlError(f"a read of {name} is answered with {answer.resp}, not OKAY")
        return BY_NAME[name].unpack(int.from_bytes(answer.data, "little"))

    def packet(self, name: str, words: list[int]) -> None:
        """See NicBench.packet."""
        self.sources[name].send_nowait(AxiStreamFrame(words))

    def arrive(self, frame: bytes) -> None:
        """See NicBench.arrive."""
        self.sources["s_axis_rx"].send_nowait(AxiStreamFrame(frame, tid=OTHER))

    def taken_in(self, name: str) -> bool:
        """See NicBench.taken_in."""
        return bool(self.sources[name].idle())

    def packet_out(self, name: str) -> list[int] | None:
        """See NicBench.packet_out."""
        return None if self.sinks[name].empty() else list(self.sinks[name].recv_nowait().tdata)

    def frame_out(self) -> bytes | None:
        """See NicBench.frame_out."""
        if self.sinks["m_axis_tx"].empty():
            return None
        frame = self.sinks["m_axis_tx"].recv_nowait()
        if set(np.atleast_1d(frame.tdest).tolist()) != {self.peer}:
            raise RtlError(f"a frame goes to {frame.tdest}, not to {self.peer}")
        return bytes(frame.tdata)


async def _pass(clk: Any, clocks: int) -> None:
    await ClockCycles(clk, clocks)


@cocotb.test()
async def buses(dut: Any) -> None:
    """Frames both ways, sums read and sent on, a plan cut, a reset, a register that is not there."""
    light = os.environ["LIGHT"] == "1"
    dut.rst.value = 1
    Clock(dut.clk, PERIOD, unit="ns").start()
    nic = NicBuses(dut, np.random.default_rng(int(os.environ["SEED"])), dut.clk, dut.rst)
    used = {register.offset for register in BY_NAME.values()}
    nowhere = next(at for at in range(0, SPACE, 4) if at not in used)

    def session() -> None:
        nic.reset()
        exchange(nic, 300 if light else 2300, adopt=False)
        answer = resume(nic.registers.read)(nowhere, 4)
        if answer.resp == AxiResp.OKAY:
            raise RtlError(f"a read of {nowhere:#x}, where no register is, is answered with OKAY")
        nic.reset()
        exchange(nic, 40, adopt=True)
        exchange_list(nic, 40 if light else 700)

    await bridge(session)()
