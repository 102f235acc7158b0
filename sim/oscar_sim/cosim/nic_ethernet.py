"""The bench of a NIC on Ethernet, in the simulator: LiteEth's MAC, and cocotbext-eth's GMII at its pins.

The MAC and the header around a frame are those of the board's example (flow/board/network.py). Here somebody
else's model of a network makes preambles and checksums, and looks at what leaves.
"""

from __future__ import annotations

import os
from typing import Any

import cocotb
import numpy as np
from cocotb.clock import Clock
from cocotb.task import bridge
from cocotbext.eth import GmiiFrame, GmiiSink, GmiiSource

from oscar_hdl.flow.board.gmii_nic import DOMAINS, FRAMES
from oscar_hdl.flow.board.network import FROM, HEADER, PEERS_IN, TO
from oscar_hdl.nic.ports import TO_ALL
from oscar_sim.cosim.nic_bench import INTO, OTHER, OUT, exchange
from oscar_sim.cosim.nic_buses import NicBuses
from oscar_sim.errors import RtlError

PERIODS = {"sys": 16.0, "eth_tx": 8.0, "eth_rx": 8.0}  # ns: a system clock of 62.5 MHz, 1 Gb/s
OWN = 5  # the NIC's number among its peers


def header(to: int, made_by: int) -> bytes:
    """Return what stands before a frame on Ethernet."""
    at = 8 * PEERS_IN
    head = bytearray(HEADER)
    head[at + TO.start // 8], head[at + FROM.start // 8] = to, made_by
    return bytes(head)


class NicEthernet(NicBuses):
    """A NIC whose frames travel in Ethernet's; all else is as of NicBuses."""

    def __init__(self, dut: Any, rng: np.random.Generator) -> None:
        super().__init__(dut, rng, dut.sys_clk, dut.sys_rst)
        self.wire_in = GmiiSource(dut.rx_data, None, dut.rx_dv, dut.eth_rx_clk, dut.eth_rx_rst)
        self.wire_out = GmiiSink(dut.tx_data, None, dut.tx_en, dut.eth_tx_clk, dut.eth_tx_rst)

    def into(self) -> tuple[str, ...]:
        """See NicBuses.into."""
        return tuple(name for name in INTO if name not in FRAMES)

    def out(self) -> tuple[str, ...]:
        """See NicBuses.out."""
        return tuple(name for name in OUT if name not in FRAMES)

    def arrive(self, frame: bytes) -> None:
        """Let a frame come, behind others: for another NIC, too short, and cut off in its header."""
        to = (OWN, TO_ALL)[int(self.rng.integers(2))]
        noise = self.rng.bytes(int(self.rng.integers(200)))
        for data in (header(OWN + 1, OTHER) + noise, header(OWN, OTHER)[:20], header(to, OTHER) + frame):
            self.wire_in.send_nowait(GmiiFrame.from_payload(data))

    def frame_out(self) -> bytes | None:
        """See NicBench.frame_out; raise RtlError where Ethernet's part of it is wrong."""
        if self.wire_out.empty():
            return None
        came = self.wire_out.recv_nowait()
        if not came.check_fcs():
            raise RtlError("a frame leaves whose Ethernet checksum is wrong")
        payload = bytes(came.get_payload())
        if payload[: len(HEADER)] != header(self.peer, OWN):
            raise RtlError(f"a frame leaves behind the header {payload[: len(HEADER)].hex()}")
        return payload[len(HEADER) :]


@cocotb.test()
async def ethernet(dut: Any) -> None:
    """Frames both ways, sums read and sent on, behind frames for others."""
    for name in DOMAINS:
        Clock(getattr(dut, f"{name}_clk"), PERIODS[name], unit="ns").start()
        getattr(dut, f"{name}_rst").value = 1
    dut.number.value = OWN
    nic = NicEthernet(dut, np.random.default_rng(int(os.environ["SEED"])))

    def session() -> None:
        nic.step(8)
        dut.eth_tx_rst.value = dut.eth_rx_rst.value = 0
        nic.reset()
        exchange(nic, 300 if os.environ["LIGHT"] == "1" else 2300, adopt=False)

    await bridge(session)()
