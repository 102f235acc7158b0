"""The NIC on Lattice's ECP5-5G evaluation board: 1000BASE-X over a SERDES, a UART for registers and rows.

    python -m oscar_hdl.shell.ecp5_evn --nic build/hdl/verilog/oscar_nic.v --out build/board

builds a bitstream with yosys, nextpnr and Trellis' packer (it has been built, not run). The SERDES is on the
board's SMA connectors. A frame travels as one Ethernet frame of type 0x88B5 (local experiments), without
segments: both ends take frames as long as the NIC's store.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from litex.gen import LiteXModule
from litex.soc.cores.clock import ECP5PLL
from litex.soc.cores.dma import WishboneDMAReader, WishboneDMAWriter
from litex.soc.integration.builder import Builder
from litex.soc.integration.soc import SoCRegion
from litex.soc.integration.soc_core import SoCMini
from litex.soc.interconnect import axi, stream, wishbone
from litex_boards.platforms.lattice_ecp5_evn import Platform
from liteeth.mac.core import LiteEthMACCore
from migen import Case, ClockDomain, ClockSignal, FSM, If, Instance, NextState, NextValue, ResetSignal, Signal
from litex.build.generic_platform import Pins, Subsignal

from oscar_hdl.shell.serdes_ethernet import SerdesEthernet

CLOCK_HZ, REFERENCE_HZ = 75e6, 200e6
REGISTERS, ROWS = 0x30000000, 0x40000000  # where the bus finds the NIC's registers, and memory for rows
ETHER_TYPE = 0x88B5
_SERDES = [
    ("serdes_tx", 0, Subsignal("p", Pins("W4")), Subsignal("n", Pins("W5"))),
    ("serdes_rx", 0, Subsignal("p", Pins("Y5")), Subsignal("n", Pins("Y6"))),
]
