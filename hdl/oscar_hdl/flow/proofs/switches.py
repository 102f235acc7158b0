"""Rules of the blocks between ports of a switch and what adds there."""

from __future__ import annotations

from oscar_hdl.flow.proofs.formal import Words

PORTS = 4
# Words of each port, as they come and as they leave.
MERGED = tuple(
    (
        Words(f"s_axis_{n}_tvalid && s_axis_{n}_tready",
          f"{{s_axis_{n}_tlast, s_axis_{n}_tkeep, s_axis_{n}_tdata}}", 10),
        Words(f"m_axis_tvalid && m_axis_tready && m_axis_tid == {n}",
          "{m_axis_tlast, m_axis_tkeep, m_axis_tdata}", 10, "m_axis_tready"),
    )
    for n in range(PORTS)
)  # fmt: skip
PORT_MERGE = """
  wire [3:0] offers = {s_axis_3_tvalid, s_axis_2_tvalid, s_axis_1_tvalid, s_axis_0_tvalid};
  wire [3:0] taken = offers & {s_axis_3_tready, s_axis_2_tready, s_axis_1_tready, s_axis_0_tready};
  wire [3:0] ends = taken & {s_axis_3_tlast, s_axis_2_tlast, s_axis_1_tlast, s_axis_0_tlast};
  // One port, any of them: while it offers a frame, each other one has at most one in front of it.
  (* anyconst *) wire [1:0] who; reg [3:0] before = 0; reg inside = 0, going = 0; reg [7:0] of;
  reg [1:0] waits = 0;
  always @(posedge clk) begin
    if (!rst && began && !$past(rst)) begin
      `RULE((taken & (taken - 4'd1)) == 0);
      if (m_axis_tvalid) `RULE(m_axis_tid < 4);
      if (m_axis_tvalid && inside) `RULE(m_axis_tid == of);
      `RULE((before & ends) == 0 && waits < 3);
    end
    if (m_axis_tvalid && m_axis_tready) begin inside <= !m_axis_tlast; of <= m_axis_tid; end
    going <= taken[who] ? !ends[who] : going;
    before <= offers[who] && !going && !taken[who] ? before | ends : 0;
    waits <= offers != 0 && taken == 0 && m_axis_tready && !going && (!inside || ends != 0) ? waits + 1 : 0;
    `SEEN(before == (4'd15 & ~(4'd1 << who)) && taken[who]);
    if (rst) begin inside <= 0; going <= 0; before <= 0; waits <= 0; end
  end
"""
# A word is taken when all have it whom it is for; each has it once, the same.
PORT_COPY = """
  reg [1:0] had = 0;
  wire [1:0] wanted = s_axis_tdest == 255 ? 3 : s_axis_tdest < 2 ? 2'd1 << s_axis_tdest : 0;
  wire [1:0] now = {m_axis_1_tvalid && m_axis_1_tready, m_axis_0_tvalid && m_axis_0_tready};
  wire came = s_axis_tvalid && s_axis_tready;
  always @(posedge clk) begin
    if (!rst) begin
      if (m_axis_0_tvalid) `RULE(s_axis_tvalid && wanted[0] && !had[0]);
      if (m_axis_1_tvalid) `RULE(s_axis_tvalid && wanted[1] && !had[1]);
      if (now[0])
        `RULE({m_axis_0_tlast, m_axis_0_tkeep, m_axis_0_tdata} == {s_axis_tlast, s_axis_tkeep, s_axis_tdata});
      if (now[1])
        `RULE({m_axis_1_tlast, m_axis_1_tkeep, m_axis_1_tdata} == {s_axis_tlast, s_axis_tkeep, s_axis_tdata});
      if (s_axis_tvalid) `RULE(came == ((had | now) == wanted));
    end
    had <= rst || came ? 0 : s_axis_tvalid ? had | now : had;
    `SEEN(came && had == 1 && now == 2); `SEEN(came && wanted == 0); `SEEN(came && now == 3);
  end
"""
