"""What a bench sees of a NIC's inside."""

from __future__ import annotations

from typing import Any

from myhdl import always, block

from oscar_hdl.nic.ports import FrameCommand, NicProbe


@block
def probe_strobes(
    clk: Any, receive: FrameCommand, send: FrameCommand, decode_takes: Any, encode_takes: Any, probe: NicProbe
) -> Any:  # fmt: skip
    """Give a NicProbe's strobes, a clock late. decode_takes, encode_takes: a bit for each unit (strobes)."""

    @always(clk.posedge)
    def tell():
        probe.received.next = receive.done
        probe.sent.next = send.done
        probe.decode_row.next = decode_takes != 0
        probe.encode_row.next = encode_takes != 0

    return tell
