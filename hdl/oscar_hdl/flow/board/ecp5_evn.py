"""The NIC on Lattice's ECP5-5G evaluation board: 1000BASE-X over a SERDES, a UART for registers and rows.

    python -m oscar_hdl.flow.board.ecp5_evn --nic build/hdl/verilog/oscar_nic/oscar_nic.v --out build/board

builds a bitstream (`make board` does it all): LiteX makes the sources, then come yosys, nextpnr and Trellis'
packer. It has not run on a board. The SERDES is on its SMA connectors. A frame travels as one Ethernet
frame of type 0x88B5 (local experiments), not in segments: both ends take frames as long as the NIC's store.
It says for whom it is and who made it; a host tells the board its number (`network_wrapped_number`). A host
at the UART (LiteX's bridge) sees the registers of registers.md at 0x3000_0000 and a memory for rows
at 0x4000_0000, from and to which DMA moves packets of rows.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from litex.build.generic_platform import Pins, Subsignal
from litex.gen import LiteXModule
from litex.soc.cores.clock import ECP5PLL
from litex.soc.cores.dma import WishboneDMAReader, WishboneDMAWriter
from litex.soc.integration.builder import Builder
from litex.soc.integration.soc import SoCRegion
from litex.soc.integration.soc_core import SoCMini
from litex.soc.interconnect import axi, stream, wishbone
from litex_boards.platforms.lattice_ecp5_evn import Platform
from migen import ClockDomain, ClockSignal, Instance, ResetSignal, Signal

from oscar_hdl.flow.board.bitstream import build, modules
from oscar_hdl.flow.board.network import EthernetMac, endpoint
from oscar_hdl.flow.board.serdes_ethernet import SYMBOL_HZ, WORD_HZ, SerdesEthernet
from oscar_hdl.flow.proofs.formal import ports_of, streams_of
from oscar_hdl.flow.tools import FlowError

NAME = "oscar_ecp5_evn"
CLOCK_HZ, REFERENCE_HZ = 60e6, 100e6
REGISTERS, ROWS, ROWS_BYTES = 0x30000000, 0x40000000, 0x4000
NEEDS = {  # MHz, by a part of the clock's name in the netlist
    "crg_clkout0": CLOCK_HZ / 1e6,
    "eth_tx_clk": SYMBOL_HZ / 1e6,
    "eth_rx_clk": SYMBOL_HZ / 1e6,
    "pll0_clkin": WORD_HZ / 1e6,
    "rx_clk": WORD_HZ / 1e6,
}
SERDES = [
    ("serdes_tx", 0, Subsignal("p", Pins("W4")), Subsignal("n", Pins("W5"))),
    ("serdes_rx", 0, Subsignal("p", Pins("Y5")), Subsignal("n", Pins("Y6"))),
]


class Clocks(LiteXModule):
    """The system's clock, and the transceiver's reference, from the board's 12 MHz."""

    def __init__(self, platform: Any) -> None:
        self.cd_sys = ClockDomain()
        self.cd_reference = ClockDomain(reset_less=True)
        self.pll = pll = ECP5PLL()
        self.comb += pll.reset.eq(~platform.request("rst_n"))
        pll.register_clkin(platform.request("clk12"), 12e6)
        pll.create_clkout(self.cd_sys, CLOCK_HZ)
        pll.create_clkout(self.cd_reference, REFERENCE_HZ)


class Board(SoCMini):
    """The NIC in `nic`, converted Verilog, with its bus, network and memory."""

    def __init__(self, nic: Path) -> None:
        platform = Platform(toolchain="trellis")
        platform.add_extension(SERDES)
        self.crg = Clocks(platform)
        super().__init__(platform, int(CLOCK_HZ), ident="OSCAR", ident_version=False)
        self.add_uartbone(baudrate=1_000_000)
        tx, rx = platform.request("serdes_tx"), platform.request("serdes_rx")
        self.phy = SerdesEthernet(self.crg.cd_reference.clk, REFERENCE_HZ, tx, rx)
        self.bus.add_slave(
            "rows", wishbone.Interface(), SoCRegion(origin=ROWS, size=ROWS_BYTES, cached=False)
        )
        self.rows = wishbone.SRAM(ROWS_BYTES, bus=self.bus.slaves["rows"])
        self._add_nic(nic)

    def _add_nic(self, nic: Path) -> None:
        ports = ports_of(nic.read_text(encoding="utf-8"))
        if "s_axil_awaddr" not in ports or "m_axis_tx_tdata" not in ports:
            raise FlowError(f"expected Verilog of oscar_nic, as `make vhdl` writes it, got {nic}")
        axil = axi.AXILiteInterface(data_width=32, address_width=32)
        self.bus.add_slave("oscar", axil, SoCRegion(origin=REGISTERS, size=0x100, cached=False))
        wires: dict[str, Any] = {"i_clk": ClockSignal(), "i_rst": ResetSignal(), "o_irq": Signal()}
        for channel in ("aw", "w", "b", "ar", "r"):
            for part in ("addr", "data", "strb", "resp", "valid", "ready"):
                if (name := f"s_axil_{channel}{part}") in ports:
                    way = "i" if ports[name][0] else "o"
                    signal = getattr(getattr(axil, channel), part)
                    wires[f"{way}_{name}"] = signal[: ports[name][1]] if len(signal) > 1 else signal
        ends = {}
        for name in streams_of(ports):
            ends[name], its = endpoint(name, ports)
            wires |= its
        self.specials += Instance("oscar_nic", **wires)
        for file in modules(nic):
            self.platform.add_source(str(file), copy=True)
        self.network = EthernetMac(self.phy, ends.pop("m_axis_tx"), ends.pop("s_axis_rx"))
        for name, end in ends.items():
            self._add_dma(name, end, streams_of(ports)[name])

    def _add_dma(self, name: str, end: Any, comes: bool) -> None:
        """Move packets of rows between the memory and a stream of the NIC."""
        bus = wishbone.Interface()
        dma = (WishboneDMAReader if comes else WishboneDMAWriter)(bus, with_csr=True)
        bits = max(64, len(end.data))
        wide = stream.Converter(32, bits) if comes else stream.Converter(bits, 32)
        setattr(self, f"dma_{name}", dma)
        setattr(self, f"wide_{name}", wide)
        self.bus.add_master(f"dma_{name}", bus)
        if comes:
            self.comb += [dma.source.connect(wide.sink), wide.source.connect(end, omit={"keep"})]
        else:
            self.comb += [end.connect(wide.sink, omit={"keep"}), wide.source.connect(dma.sink)]


def main(argv: Sequence[str] | None = None) -> int:
    """Build the bitstream; return 2 where something is missing."""
    parser = argparse.ArgumentParser(
        prog="python -m oscar_hdl.flow.board.ecp5_evn",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument(
        "--nic",
        type=Path,
        default=Path("build/hdl/verilog/oscar_nic/oscar_nic.v"),
        help="its Verilog, from `make vhdl`, with the modules in it beside it",
    )
    parser.add_argument("--out", type=Path, default=Path("build/board"))
    parser.add_argument("--seed", type=int, default=1, help="of the placer (%(default)s)")
    parser.add_argument("--no-build", action="store_true", help="write the sources, run no tool")
    args = parser.parse_args(argv)
    if not args.nic.exists():
        print(f"error: {args.nic} is not there; run `make vhdl` first", file=sys.stderr)
        return 2
    try:
        builder = Builder(Board(args.nic), output_dir=str(args.out), compile_software=False)
        builder.build(run=False, build_name=NAME)
        if args.no_build:
            return 0
        built = build(args.nic, args.out / "gateware", NAME, needs=NEEDS, seed=args.seed)
    except (FlowError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join(built.lines()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
