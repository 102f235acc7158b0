"""The bench of a switch's buses, in the simulator: two ports send a chunk, both get the sum.

Masters, sources and sinks are of cocotbext-axi, as in nic_buses.
"""

from __future__ import annotations

import os
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.task import bridge
from cocotbext.axi import AxiStreamFrame

from oscar.coding.asc import AscParams, Encoder
from oscar_hdl.coder.rows import frame_rows
from oscar_hdl.nic.control.list_ports import ARMED
from oscar_hdl.nic.control.registers import command_values
from oscar_hdl.nic.ports import TO_ALL
from oscar_hdl.nic.receive.deframer import DAMAGED
from oscar_sim.cosim.nic_bench import BLOCK_LOG2, INTO, OUT
from oscar_sim.cosim.nic_buses import PERIOD, NicBuses
from oscar_sim.driver.lists import entry_words, trigger
from oscar_sim.errors import RtlError

PORTS = 2
LATE = 20  # clocks until what a write asks for is shown


class SwitchBuses(NicBuses):
    """A slice in an event simulator: a NIC whose frames come and go by ports."""

    def into(self) -> tuple[str, ...]:
        """See NicBuses.into."""
        return tuple(name for name in INTO if name != "s_axis_rx") + names("s_axis_rx")

    def out(self) -> tuple[str, ...]:
        """See NicBuses.out."""
        return tuple(name for name in OUT if name != "m_axis_tx") + names("m_axis_tx")

    def shown(self, show: str, register: str, **of: int) -> dict[str, int]:
        """Return a register that is of what `show` was told."""
        self.write(show, **of)
        self.step(LATE)
        return self.read(register)


def names(stream: str) -> tuple[str, ...]:
    """Return a stream's name at each port."""
    return tuple(f"{stream}_{port}" for port in range(PORTS))


def add(nic: SwitchBuses, count: int) -> None:
    """A chunk of all ports, one of whose frames comes damaged first: all as the host has it."""
    rng, coder = nic.rng, AscParams(sent_rows=False, block_log2=BLOCK_LOG2)
    positions = rng.integers(2, 10, count).astype(np.uint8)
    terms = [np.rint(rng.laplace(0, 9, count)).astype(np.int32) for _ in range(PORTS)]
    shape = {"step": 1, "context": positions, "width": 16}
    frames = [Encoder(coder).encode(term, chunk=0, **shape) for term in terms]
    expected = Encoder(coder).encode(sum(terms), chunk=1, **shape)
    nic.load(0, frame_rows(np.zeros(count, np.int32), positions))
    fields = {"step": 1, "count": count, "width": 16, "row": 0, "fresh": 1}
    entries = [
        entry_words(command_values("RECEIVE", **fields, peer=port, save=port, add=1), trigger(gate=PORTS))
        for port in range(PORTS)
    ]
    send = command_values("SEND", **fields, chunk=1, peer=TO_ALL)
    entries.append(entry_words(send, trigger(kind=1, events=PORTS, next=PORTS)))
    nic.packet("s_axis_list", [word for entry in entries for word in entry])
    nic.wait(lambda: nic.taken_in("s_axis_list"), "a list is not taken")
    nic.write("LIST_COMMAND", entries=PORTS + 1, run=1)
    late = int(rng.integers(PORTS))
    damaged = bytearray(frames[late])
    damaged[int(rng.integers(len(damaged)))] ^= 1 << int(rng.integers(8))
    for port, frame in enumerate(frames):
        nic.sources[names("s_axis_rx")[port]].send_nowait(AxiStreamFrame(damaged if port == late else frame))
    nic.wait(lambda: nic.shown("LIST_SHOW", "ENTRY_STATE", entry=PORTS)["events"] == 1, "nothing is added")
    nic.wait(lambda: nic.read("FRAMES_BAD")["value"], "no frame is dropped")
    if nic.shown("LIST_SHOW", "ENTRY_STATE", entry=late)["state"] != ARMED:
        raise RtlError("the entry of a damaged frame does not wait")
    for port in range(PORTS):
        drops = nic.shown("PEER_SHOW", "PEER_DROPS", peer=port)
        if drops["frames"] != (port == late) or drops["reason"] > DAMAGED:
            raise RtlError(f"port {port}, where port {late} sent a damaged frame, is told with {drops}")
    nic.sources[names("s_axis_rx")[late]].send_nowait(AxiStreamFrame(frames[late]))
    nic.wait(lambda: nic.read("IRQ_STATUS")["list"], "a list does not end")
    if (result := nic.read("LIST_RESULT"))["error"]:
        raise RtlError(f"a list ended with {result}")
    for name in names("m_axis_tx"):
        sink = nic.sinks[name]
        nic.wait(lambda sink=sink: not sink.empty(), f"no frame leaves on {name}")  # type: ignore[misc]
        if bytes(sink.recv_nowait().tdata) != expected:
            raise RtlError(f"the frame of {name} differs from the host's")
    nic.check_rows(0, sum(terms), positions)


@cocotb.test()
async def switch(dut: Any) -> None:
    """What all ports send is added, coded once, and sent to all."""
    dut.rst.value = 1
    Clock(dut.clk, PERIOD, unit="ns").start()
    nic = SwitchBuses(dut, np.random.default_rng(int(os.environ["SEED"])), dut.clk, dut.rst)

    def session() -> None:
        nic.reset()
        add(nic, 70 if os.environ["LIGHT"] == "1" else 2300)

    await bridge(session)()
