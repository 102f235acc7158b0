"""Which blocks' streams are proven, for how many clocks, and what they pass on."""

from __future__ import annotations

from oscar_hdl.build.formal import Proof, Words

HERE = "oscar_hdl.build.proof_tops:"

PAIR_FIFO = """
  // Who pushes leaves room: four pairs at most.
  reg [2:0] level = 0;
  always @(posedge clk) level <= rst ? 0 : level + push - (m_axis_tvalid && m_axis_tready);
  always @* assume(!push || level < 4);
  always @(posedge clk) begin
    if (!rst && empty && began && !$past(rst)) `RULE(level == 0);
    if (!rst && began && $past(level == 0 && !push && !rst)) `RULE(level != 0 || empty);
  end
"""

PROOFS: dict[str, Proof] = {
    "pair_fifo": Proof(
        HERE + "pair_fifo",
        passes=((Words("push", "{last, two, pair}", 18), Words("m_axis_tvalid && m_axis_tready",
          "{m_axis_tlast, m_axis_tkeep == 2'd3, m_axis_tdata}", 18, "m_axis_tready")),),
        rules=PAIR_FIFO, drains=6,
    ),
}  # fmt: skip
