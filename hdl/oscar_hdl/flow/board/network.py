"""Ethernet around the NIC's frames, for any PHY of LiteEth: its MAC, and a header with the peers' numbers."""

from __future__ import annotations

from typing import Any

from liteeth.common import eth_phy_description
from liteeth.mac.core import LiteEthMACCore
from liteeth.mac.padding import LiteEthMACPaddingInserter
from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from litex.soc.interconnect.csr import CSRStorage
from migen import FSM, Array, ClockDomainsRenamer, If, NextState, NextValue, Signal

from oscar_hdl.flow.proofs.formal import streams_of
from oscar_hdl.nic.ports import PEER_BITS, TO_ALL

# To all, from a local one, type; bytes 14 and 15: the NIC that the frame is for (TO_ALL: all) and the one
# that made it; zeros: with the least frame of 30 bytes no padding is needed.
HEADER = bytes.fromhex("ffffffffffff02005e00000188b5").ljust(32, b"\0")
WORDS = len(HEADER) // 8
PEERS_IN, TO, FROM = 1, slice(48, 56), slice(56, 64)  # a word of the header, and its bits


def endpoint(name: str, ports: dict[str, tuple[bool, int]]) -> tuple[Any, dict[str, Any]]:
    """Return an endpoint for a stream of converted Verilog, and what an Instance connects to its ports."""
    layout = [("data", ports[f"{name}_tdata"][1]), ("keep", 8)]
    layout += [(part, PEER_BITS) for part in ("id", "dest") if f"{name}_t{part}" in ports]
    end, wires = stream.Endpoint(layout), {}
    for part in ("data", "keep", "id", "dest", "valid", "ready", "last"):
        if f"{name}_t{part}" in ports:
            way = "i" if streams_of(ports)[name] != (part == "ready") else "o"
            wires[f"{way}_{name}_t{part}"] = getattr(end, part)
    return end, wires


class EthernetMac(LiteXModule):
    """The MAC behind a PHY, with the NIC's streams of frames at its other end.

    nic_tx, nic_rx: endpoints with data, keep, and dest or id.
    """

    def __init__(self, phy: Any, nic_tx: Any, nic_rx: Any) -> None:
        self.mac = LiteEthMACCore(phy, dw=64)
        # From the CRC to the FIFO of words all pass `ready` on without a register: too slow for 125 MHz.
        out = self.mac.tx_datapath
        behind = next(n for n, part in enumerate(out.pipeline) if isinstance(part, LiteEthMACPaddingInserter))
        out.before_crc = ClockDomainsRenamer("eth_tx")(
            stream.Buffer(eth_phy_description(phy.dw), pipe_ready=True)
        )
        out.pipeline.insert(behind + 1, out.before_crc)
        self.wrapped = Wrapped(self.mac, nic_tx, nic_rx)


class Wrapped(LiteXModule):
    """Ethernet around frames: a header is put in front, and taken off; frames for others are dropped."""

    def __init__(self, mac: Any, nic_tx: Any, nic_rx: Any) -> None:
        words = Array(int.from_bytes(HEADER[8 * i : 8 * i + 8], "little") for i in range(WORDS))
        out, back, sent, came = FSM("HEAD"), FSM("HEAD"), Signal(max=WORDS), Signal(max=WORDS)
        self.submodules += out, back
        self.number = CSRStorage(PEER_BITS, description="this NIC's, among its peers")
        own, head, wanted = self.number.storage, Signal(64), Signal()
        self.comb += [
            head.eq(words[sent]),
            If(sent == PEERS_IN, head[TO].eq(nic_tx.dest), head[FROM].eq(own)),
        ]
        out.act(
            "HEAD",
            mac.sink.valid.eq(nic_tx.valid),
            mac.sink.data.eq(head),
            If(
                mac.sink.valid & mac.sink.ready,
                NextValue(sent, sent + 1),
                If(sent == WORDS - 1, NextState("FRAME")),
            ),
        )
        out.act(
            "FRAME",
            mac.sink.valid.eq(nic_tx.valid),
            mac.sink.data.eq(nic_tx.data),
            nic_tx.ready.eq(mac.sink.ready),
            mac.sink.last.eq(nic_tx.last),
            # The MAC ends a frame behind any byte that this marks.
            If(nic_tx.last, mac.sink.last_be.eq((nic_tx.keep ^ (nic_tx.keep >> 1)) & nic_tx.keep)),
            If(nic_tx.valid & nic_tx.ready & nic_tx.last, NextState("HEAD")),
        )
        to = mac.source.data[TO]
        ended = If(mac.source.last, NextValue(came, 0)).Elif(
            came == WORDS - 1, If(wanted, NextState("FRAME")).Else(NextState("OTHERS"))
        )
        peers = If(
            came == PEERS_IN,
            NextValue(wanted, (to == own) | (to == TO_ALL)),
            NextValue(nic_rx.id, mac.source.data[FROM]),
        )
        back.act(
            "HEAD", mac.source.ready.eq(1), If(mac.source.valid, NextValue(came, came + 1), peers, ended)
        )
        gone = mac.source.valid & mac.source.last
        back.act("OTHERS", mac.source.ready.eq(1), If(gone, NextState("HEAD")))
        keep = Signal(8)  # from the one bit that marks the last byte
        self.comb += keep.eq(mac.source.last_be | (mac.source.last_be - 1))
        back.act(
            "FRAME",
            nic_rx.valid.eq(mac.source.valid),
            nic_rx.data.eq(mac.source.data),
            nic_rx.keep.eq(0xFF),
            If(mac.source.last, nic_rx.last.eq(1), nic_rx.keep.eq(keep)),
            mac.source.ready.eq(nic_rx.ready),
            If(nic_rx.valid & nic_rx.ready & mac.source.last, NextState("HEAD")),
        )
