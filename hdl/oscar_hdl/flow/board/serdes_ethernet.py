"""1000BASE-X on a SERDES channel of an ECP5: LiteEth's PCS behind LiteICLink's transceiver."""

from __future__ import annotations

from typing import Any

from liteeth.phy.pcs_1000basex import PCS
from liteiclink.serdes.serdes_ecp5 import SerDesECP5, SerDesECP5PLL
from litex.gen import LiteXModule
from litex.soc.cores.clock import ECP5PLL
from litex.soc.interconnect import stream
from litex.soc.interconnect.csr import AutoCSR
from migen import Cat, ClockDomain, ClockDomainsRenamer, ClockSignal, If, Signal
from migen.genlib.cdc import MultiReg

LINE_RATE, WORD_HZ, SYMBOL_HZ = 1.25e9, 62.5e6, 125e6  # bits; words of 20; symbols of 10 bits


class SerdesEthernet(LiteXModule, AutoCSR):
    """A PHY for LiteEthMAC: `sink` and `source` of bytes in the domains eth_tx and eth_rx.

    refclk: signal of the transceiver's reference clock of `refclk_hz`. tx_pads, rx_pads: pairs p, n.

    The transceiver moves words of 20 bits, the PCS symbols of 10. Both clocks of a direction come from one
    source, so the FIFO between them, once half full, never runs over or dry.
    """

    dw = 8
    tx_clk_freq = rx_clk_freq = SYMBOL_HZ
    with_preamble_crc = True

    def __init__(self, refclk: Any, refclk_hz: float, tx_pads: Any, rx_pads: Any) -> None:
        self.cd_eth_tx = ClockDomain()
        self.cd_eth_rx = ClockDomain()
        self.serdes = serdes = SerDesECP5(SerDesECP5PLL(refclk, refclk_hz, LINE_RATE), tx_pads, rx_pads)
        self.pcs = pcs = PCS(lsb_first=True)
        self.source, self.link_up = pcs.source, pcs.link_up
        # The MAC's blocks pass `ready` on without a register, and the PCS asks by its state: too long a way
        # for 125 MHz.
        buffer = stream.Buffer(pcs.sink.description, pipe_ready=True)
        self.tx_buffer = buffer = ClockDomainsRenamer("eth_tx")(buffer)
        self.sink = buffer.sink
        self.comb += buffer.source.connect(pcs.sink)
        for name, clock, domain in (
            ("tx_pll", serdes.txoutclk, self.cd_eth_tx),
            ("rx_pll", serdes.rxoutclk, self.cd_eth_rx),
        ):
            pll = ECP5PLL()
            setattr(self, name, pll)
            pll.register_clkin(clock, WORD_HZ)
            pll.create_clkout(domain, SYMBOL_HZ)

        # Out: two symbols make a word. The transceiver sends what it is given as a pattern, uncoded.
        pair, parity = Signal(20), Signal()
        self.sync.eth_tx += [pair.eq(Cat(pair[10:], pcs.tbi_tx)), parity.eq(~parity)]
        self.tx_fifo = tx_fifo = ClockDomainsRenamer({"write": "eth_tx", "read": "tx"})(
            stream.AsyncFIFO([("data", 20)], 16)
        )
        self.comb += [
            tx_fifo.sink.valid.eq(parity),
            tx_fifo.sink.data.eq(pair),
            tx_fifo.source.ready.eq(1),
            serdes.tx_produce_pattern.eq(1),
            serdes.tx_pattern.eq(tx_fifo.source.data),
        ]

        # In: raw symbols, before the transceiver's own decoder; the comma detector aligns while the PCS asks.
        self.rx_fifo = rx_fifo = ClockDomainsRenamer({"write": "rx", "read": "eth_rx"})(
            stream.AsyncFIFO([("data", 20)], 16)
        )
        second, symbol = Signal(), Signal(10)
        self.comb += [
            rx_fifo.sink.valid.eq(1),
            rx_fifo.sink.data.eq(Cat(*(decoder.input for decoder in serdes.decoders))),
            rx_fifo.source.ready.eq(second),
            pcs.tbi_rx.eq(symbol),
        ]
        self.sync.eth_rx += [
            If(rx_fifo.source.valid, second.eq(~second)),
            symbol.eq(rx_fifo.source.data[:10]),
            If(second, symbol.eq(rx_fifo.source.data[10:])),
        ]
        self.specials += MultiReg(pcs.align, serdes.rx_align)
        self.clock_tx, self.clock_rx = ClockSignal("eth_tx"), ClockSignal("eth_rx")
