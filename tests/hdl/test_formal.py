"""The checker of streams finds what breaks their rules, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.needs import needs

from oscar_hdl.flow.convert import convert_top
from oscar_hdl.flow.proofs.formal import FormalError, Proof, prove
from oscar_hdl.flow.proofs.proofs import PROOFS

# A register between two streams; `%s` is what a fault replaces.
SLICE = """
module slice (
  clk, rst, s_axis_tdata, s_axis_tvalid, s_axis_tready, m_axis_tdata, m_axis_tvalid, m_axis_tready
);
input clk;
input rst;
input [7:0] s_axis_tdata;
input s_axis_tvalid;
output s_axis_tready;
wire s_axis_tready;
output [7:0] m_axis_tdata;
reg [7:0] m_axis_tdata;
output m_axis_tvalid;
reg m_axis_tvalid;
input m_axis_tready;
initial m_axis_tvalid = 0;
assign s_axis_tready = %(ready)s;
always @(posedge clk) begin
  if (s_axis_tready) begin m_axis_tdata <= s_axis_tdata; m_axis_tvalid <= s_axis_tvalid; end
  if (%(reset)s) m_axis_tvalid <= 0;
end
endmodule
"""
GOOD = {"ready": "!m_axis_tvalid || m_axis_tready", "reset": "rst"}


@pytest.mark.parametrize(
    ("fault", "holds"),
    [({}, True), ({"ready": "1'b1"}, False), ({"reset": "1'b0"}, False), ({"ready": "m_axis_tready"}, True)],
)
def test_a_broken_stream_is_found(fault: dict[str, str], holds: bool, tmp_path: Path) -> None:
    needs("fpga", "berkeley-abc")
    file = tmp_path / "slice_in.v"
    file.write_text(SLICE % (GOOD | fault))
    proof = Proof("slice", passes=(("s_axis", "m_axis"),), drains=2)
    if holds:
        assert prove(proof, file, tmp_path)
    else:
        with pytest.raises(FormalError, match="slice: a rule is broken"):
            prove(proof, file, tmp_path)


def test_a_stream_that_never_moves_is_found(tmp_path: Path) -> None:
    needs("fpga", "berkeley-abc")
    file = tmp_path / "slice_in.v"
    file.write_text(SLICE % (GOOD | {"reset": "1'b1"}))
    with pytest.raises(FormalError, match="slice: cannot happen in 20 clocks"):
        prove(Proof("slice"), file, tmp_path)


def test_a_stream_that_is_not_there_is_named(tmp_path: Path) -> None:
    needs("fpga", "berkeley-abc")
    file = tmp_path / "slice_in.v"
    file.write_text(SLICE % GOOD)
    with pytest.raises(FormalError, match="expected a stream 's_axis_wrong'"):
        prove(Proof("slice", passes=(("s_axis_wrong", "m_axis"),)), file, tmp_path)


FAULTS = [  # in converted Verilog
    ("pair_fifo", r"write_at <= \(\(write_at \+ 1\)", "write_at <= ((write_at + 2)"),
    ("axi_lite_registers", r"s_axil_bvalid <= 1'b1;", "s_axil_bvalid <= s_axil_bready;"),
    ("sum_feed", r"(here == [^\n]*begin\n\s+)\w*left <= 0;", r"\1"),
    ("side_in", r"\(side_in0_here\[1\] \|\| side_in0_over\[1\]\)", "1'b1"),
    ("tracker", r" && exact\);", " && 1'b1);"),
    (
        "command_list",
        r"(judged\) begin\s+state <= 4'b0111;\s+if \()\(command_bad \|\| unfit\)",
        r"\1command_bad",
    ),
    ("frame_finder", r"read\[48\] && scans", "scans"),
    (
        "port_merge",
        r"(if \(\(vacant && chosen\[\(9 \+ 1\)\]) && chosen\[9\]",
        r"\1",
    ),
    ("port_copy", r"\(gone \| \(offers", "(1'b0 | (offers"),
    ("loader_order", r"recent <= 6;", "recent <= 5;"),
    ("loader_order", r"sames\[9\] <= \(rows_under_way0_row_under_way9_valid", "sames[9] <= (1'b0"),
    ("row_port", r"made_taken && \(!made_refused\)", "made_taken"),
    ("command_port", r"command_start <= \(starting", "command_start <= (1'b1"),
]


@pytest.mark.parametrize(("name", "what", "instead"), FAULTS)
def test_a_fault_in_a_block_breaks_its_proof(name: str, what: str, instead: str, tmp_path: Path) -> None:
    needs("fpga", "berkeley-abc")
    proof = PROOFS[name]
    file = convert_top(proof.top, "verilog", tmp_path, proof.parameters)
    broken, count = re.subn(what, instead, file.read_text())
    assert count == 1
    file.write_text(broken)
    with pytest.raises(FormalError, match=f"{name}: a rule is broken in clock "):
        prove(proof, file, tmp_path)


# Stand-ins with the ports of wb2axip's rules, of which none is in this repository.
STREAM_RULES = """
module {name} #(parameter C_S_AXI_DATA_WIDTH = 32, C_S_AXI_ID_WIDTH = 1, C_S_AXI_ADDR_WIDTH = 1) (
  input i_aclk, i_aresetn, i_tvalid, i_tready, input [C_S_AXI_DATA_WIDTH-1:0] i_tdata
);
  reg began = 0; always @(posedge i_aclk) begin
    began <= 1;
    if (began && $past(i_aresetn && i_tvalid && !i_tready)) {say}(i_tvalid && $stable(i_tdata));
    cover(i_tvalid);
  end
endmodule
"""


@pytest.mark.parametrize(("ready", "holds"), [(GOOD["ready"], True), ("1'b1", False)])
def test_rules_of_somebody_else_take_the_place_of_ours(ready: str, holds: bool, tmp_path: Path) -> None:
    needs("fpga", "berkeley-abc")
    (tmp_path / "theirs").mkdir()
    for name, say in (("faxis_master", "assert"), ("faxis_slave", "assume"), ("faxil_slave", "assume")):
        (tmp_path / "theirs" / f"{name}.v").write_text(STREAM_RULES.format(name=name, say=say))
    file = tmp_path / "slice_in.v"
    file.write_text(SLICE % (GOOD | {"ready": ready}))
    if holds:
        assert prove(Proof("slice"), file, tmp_path, tmp_path / "theirs")
    else:
        with pytest.raises(FormalError, match=r"slice: a rule is broken in clock \d+: .*faxis_master"):
            prove(Proof("slice"), file, tmp_path, tmp_path / "theirs")
