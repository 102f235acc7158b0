"""The memory of received frames: one port to write, one to read."""

from __future__ import annotations

from typing import Any

from myhdl import always, block

from oscar_hdl.streams.bundles import word


@block
def receive_store(clk: Any, wr_en: Any, wr_addr: Any, wr_data: Any, rd_addr: Any, rd_data: Any) -> Any:
    """Keep a word for each address; the width of the addresses says how many.

    wr_en (strobe), wr_addr, wr_data: write. rd_data: what rd_addr held two clocks ago; what is written in
    the clock in which it is read comes out as anything.
    """
    memory = [word(len(wr_data)) for _ in range(1 << len(wr_addr))]
    found = word(len(wr_data))

    @always(clk.posedge)
    def access():
        if wr_en:
            memory[wr_addr].next = wr_data
        found.next = memory[rd_addr]
        rd_data.next = found

    return access
