"""The NIC behind LiteEth's MAC and GMII, without the board's SERDES: what `make cosim` drives as Ethernet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from liteeth.phy.gmii import LiteEthPHYGMIIRX, LiteEthPHYGMIITX
from litex.gen import LiteXContext, LiteXModule
from litex.gen.fhdl.verilog import convert
from migen import ClockDomain, ClockDomainsRenamer, ClockSignal, Instance, Record, ResetSignal, Signal

from oscar_hdl.flow.board.network import EthernetMac, endpoint
from oscar_hdl.flow.proofs.formal import ports_of
from oscar_hdl.flow.tools import write_text

TOP = "gmii_nic"
PINS = [("tx_data", 8), ("tx_en", 1), ("rx_data", 8), ("rx_dv", 1)]
DOMAINS = ("sys", "eth_tx", "eth_rx")
FRAMES = ("m_axis_tx", "s_axis_rx")
PROCESS = "always @(*) begin"
START = "reg at_start = 1'd0;\ninitial at_start <= 1'd1;\n\n"


class Gmii(LiteXModule):
    """A PHY for LiteEth with the pins of GMII, in the domains eth_tx and eth_rx."""

    dw = 8
    tx_clk_freq = rx_clk_freq = 125e6

    def __init__(self, pins: Any) -> None:
        self.tx = ClockDomainsRenamer("eth_tx")(LiteEthPHYGMIITX(pins))
        self.rx = ClockDomainsRenamer("eth_rx")(LiteEthPHYGMIIRX(pins))
        self.sink, self.source = self.tx.sink, self.rx.source


class GmiiNic(LiteXModule):
    """The NIC whose ports are `ports`, with GMII instead of its streams of frames.

    open: signals that are ports of this module, named as the NIC's; `number`, this NIC's among its peers;
    clocks and resets of DOMAINS.
    """

    def __init__(self, ports: dict[str, tuple[bool, int]]) -> None:
        self.open: set[Any] = set()
        for name in DOMAINS:
            domain = ClockDomain(name)
            setattr(self, f"cd_{name}", domain)
            self.open |= {domain.clk, domain.rst}
        pins = Record(PINS)
        for name, _ in PINS:
            getattr(pins, name).backtrace = [(name, None)]
            self.open.add(getattr(pins, name))
        wires: dict[str, Any] = {"i_clk": ClockSignal(), "i_rst": ResetSignal()}
        ends = {}
        for name in FRAMES:
            ends[name], its = endpoint(name, ports)
            wires |= its
        for name, (comes, width) in ports.items():
            if name not in ("clk", "rst") and not name.startswith(FRAMES):
                wires[f"{'i' if comes else 'o'}_{name}"] = signal = Signal(width, name_override=name)
                self.open.add(signal)
        self.specials += Instance("oscar_nic", **wires)
        self.phy = Gmii(pins)
        self.network = EthernetMac(self.phy, *(ends[name] for name in FRAMES))
        self.number = self.network.wrapped.number.storage
        self.number.name_override = "number"
        self.open.add(self.number)


def write(nic: Path, out: Path) -> None:
    """Write the Verilog around a converted `oscar_nic`, as simulators need it.

    A process for each signal: where one makes several, it first gives them their defaults, and two processes
    that read each other's signals wake each other for ever. `at_start` wakes each once at the begin.
    """
    module = GmiiNic(ports_of(nic.read_text(encoding="utf-8")))
    LiteXContext.top = module
    verilog = convert(module, module.open, name=TOP, regular_comb=False).main_source
    head, process, rest = verilog.partition(PROCESS)
    parts = (process + rest).split(PROCESS)[1:]
    woken = (f"{PROCESS} : p{n}\n    reg seen;\n    seen = at_start;{part}" for n, part in enumerate(parts))
    write_text(out, "".join((head, START, *woken)))
