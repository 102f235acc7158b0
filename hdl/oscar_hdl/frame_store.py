"""A memory for frames: in a product it is outside the chip, here it stands for it."""

from __future__ import annotations

from typing import Any

from myhdl import always, block

from oscar_hdl.streams.bundles import word


@block
def frame_store(
    clk: Any, wr_en: Any, wr_addr: Any, wr_data: Any, rd_en: Any, rd_addr: Any, rd_data: Any
) -> Any:
    """Keep one word for each address; the width of the addresses says how many.

    Write: wr_en, wr_addr, wr_data. Read: rd_data one clock after rd_en with rd_addr, held until the next
    rd_en. An address is never read in the clock in which it is written.
    """
    if len(wr_addr) != len(rd_addr) or len(wr_data) != len(rd_data):
        raise ValueError(
            f"both sides need equal widths, got addresses of {len(wr_addr)} and {len(rd_addr)} bits, "
            f"data of {len(wr_data)} and {len(rd_data)}"
        )
    memory = [word(len(wr_data)) for _ in range(1 << len(wr_addr))]

    @always(clk.posedge)
    def access():
        if wr_en:
            memory[wr_addr].next = wr_data
        if rd_en:
            rd_data.next = memory[rd_addr]

    return access
