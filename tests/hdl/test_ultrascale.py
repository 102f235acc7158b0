"""Sums of cells on a card; blocks with lists of ports as tops; a netlist's module without its inside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from myhdl import always, block

from needs import needs
from oscar_hdl.flow.convert import run_tool
from oscar_hdl.flow.placement import parts
from oscar_hdl.flow.placement.ultrascale import SHARED, UNIT, card_lines
from oscar_hdl.streams.bundles import Stream, word


def test_the_scarcest_cell_says_how_many() -> None:
    one = {"LUT": 100, "FF": 10, "CARRY8": 1, "DSP": 1, "RAMB36": 2}
    lines = card_lines(dict.fromkeys([*UNIT, *SHARED], one), 4)
    assert lines[0].split() == ["unit", "600", "60", "6", "6", "12"]
    assert lines[1].split()[3:] == ["2,900", "290", "29", "29", "58"]
    assert "24 NICs, 96 units; of RAMB36 there is least" in lines[2]  # .7 * 2016 / 58


@block
def adder(clk, rst, stream, numbers, total):
    @always(clk.posedge)
    def add():
        total.next = numbers[0] + numbers[1]
        stream.tready.next = stream.tvalid and not rst

    return add


def test_ports_in_lists_become_two_wide_ones() -> None:
    top = parts.wide(adder, lambda: (Stream(8), [word(3), word(5)], word(6)))
    takes, gives = top.args[-2:]
    assert [len(signal) for signal in takes] == [8, 1, 1, 3, 5]
    assert [len(signal) for signal in gives] == [1, 6]
    assert (len(top.args[2]), len(top.args[3])) == (18, 7)


@pytest.mark.filterwarnings("ignore::myhdl.ToVerilogWarning")  # of what a part leaves unread
@pytest.mark.parametrize("side", [parts.frame_receiver, parts.frame_sender])
def test_wide_sides_of_a_nic_are_legal_verilog(side: Any, tmp_path: Path) -> None:
    """Stress converts NICs of one and two units, whose stores have one column; eight units have four."""
    needs("iverilog")
    side(units=8, bus_bits=512, store_log2=9).convert(hdl="Verilog", path=str(tmp_path), name="side")
    run_tool(["iverilog", "-g2012", "-t", "null", tmp_path / "side.v"], "iverilog")
