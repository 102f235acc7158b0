"""Which blocks' streams are proven, for how many clocks, and what they pass on."""

from __future__ import annotations

from oscar_hdl.flow.proofs.formal import Proof, Words
from oscar_hdl.flow.proofs.frames import (
    DEFRAMER,
    FRAME_NAMES,
    HEAD_WRITER,
    PREFIX_READER,
    RAW_FEEDER,
    RAW_PACKER,
)
from oscar_hdl.flow.proofs.lists import COMMAND_LIST, FRAME_FINDER, TRACKER
from oscar_hdl.flow.proofs.rows import (
    FRAME_SYMBOL,
    LOADER_ORDER,
    ROW_PORT,
    ROWS_OUT,
    SIDE_IN,
    SUM_ROWS,
    VALUES_IN,
)
from oscar_hdl.flow.proofs.switches import MERGED, PORT_COPY, PORT_MERGE

MEMORY, CONTROL, FRAMES, STREAMS = (
    f"oscar_hdl.flow.proofs.tops.{room}:" for room in ("memory", "control", "frames", "streams")
)

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

SUM_FEED = """
  reg [127:0] rest; reg [3:0] more = 0; reg [4:0] here = 0, then, at_first; reg [1:0] since = 0, waits = 0;
  reg inside = 0, asked = 0, counts_then, counting = 0, ending, quiet = 0;
  wire came = s_axis_tvalid && s_axis_tready, left = m_axis_tvalid && m_axis_tready;
  wire now = asked && !inside ? counts_then : counting;
  integer i; reg [3:0] values;
  always @* begin values = 1; for (i = 1; i < 8; i = i + 1) if (s_axis_tkeep[2 * i]) values = i + 1; end
  always @(posedge clk) begin
    assume(s_axis_tkeep == 16'hffff || (s_axis_tlast && s_axis_tkeep == (17'd1 << 2 * values) - 1));
    if (!inside && since != 0) assume(!s_axis_tvalid);
    if (began && !rst) begin
      `RULE(m_axis_tvalid == (more != 0) && (!s_axis_tready || more == 0) && waits < 3);
      if (m_axis_tvalid) `RULE(m_axis_tdata == rest[15:0] && place == at_first);
      if (m_axis_tvalid) `RULE(m_axis_tlast == (&here || (ending && more == 1)));
      if (quiet || ($past(hold && !rst) && idle)) `RULE(more == 0 && !(came && now));
    end
    if (left) begin
      rest <= rest >> 16; more <= &here ? 0 : more - 1; here <= here + 1;
      if (&here) counting <= 0;
    end
    if (came) begin
      rest <= s_axis_tdata; ending <= s_axis_tlast; more <= now ? values : 0; counting <= now;
      inside <= !s_axis_tlast;
      if (!inside) begin asked <= 0; here <= asked ? then : here; at_first <= asked ? then : here; end
    end
    if (segment) begin asked <= 1; then <= first; counts_then <= counts; end
    since <= segment ? 3 : since - (since != 0);
    waits <= !rst && s_axis_tvalid && !came && more == 0 && (inside || !hold) ? waits + 1 : 0;
    quiet <= hold && !rst && (quiet || ($past(hold) && idle));
    if (rst) begin more <= 0; inside <= 0; asked <= 0; counting <= 0; end
    `SEEN(left && m_axis_tlast); `SEEN(came && inside && !now); `SEEN(left && &here && !ending);
    `SEEN(quiet && asked);
  end
"""
# Who manages AXI4-Lite holds what it offers, and offers nothing behind a reset.
AXI_LITE = """
  reg [1:0] writes = 0, reads = 0; reg [2:0] waits = 0, delays = 0;
  wire aw = s_axil_awvalid && s_axil_awready, w = s_axil_wvalid && s_axil_wready;
  wire b = s_axil_bvalid && s_axil_bready, ar = s_axil_arvalid && s_axil_arready;
  wire r = s_axil_rvalid && s_axil_rready;
  always @(posedge clk) begin
    if (began && !$past(rst)) begin
      if ($past(s_axil_awvalid && !s_axil_awready)) assume(s_axil_awvalid && $stable(s_axil_awaddr));
      if ($past(s_axil_wvalid && !s_axil_wready))
        assume(s_axil_wvalid && $stable(s_axil_wdata) && $stable(s_axil_wstrb));
      if ($past(s_axil_arvalid && !s_axil_arready)) assume(s_axil_arvalid && $stable(s_axil_araddr));
      // Responses stay until they are taken.
      if ($past(s_axil_bvalid && !s_axil_bready)) `RULE(s_axil_bvalid && $stable(s_axil_bresp));
      if ($past(s_axil_rvalid && !s_axil_rready))
        `RULE(s_axil_rvalid && $stable(s_axil_rdata) && $stable(s_axil_rresp));
    end
    if (began && $past(rst)) begin
      assume(!s_axil_awvalid && !s_axil_wvalid && !s_axil_arvalid);
      `RULE(!s_axil_bvalid && !s_axil_rvalid && !s_axil_awready && !s_axil_wready && !s_axil_arready);
    end
    // One response for each request, none without, within so many clocks; an address goes with its data.
    if (!rst) begin
      `RULE(aw == w);
      if (aw) `RULE(writes == 0);
      if (ar) `RULE(reads == 0);
      if (s_axil_bvalid) `RULE(writes == 1 && (s_axil_bresp == 0 || s_axil_bresp == 2));
      if (s_axil_rvalid) `RULE(reads == 1 && (s_axil_rresp == 0 || s_axil_rresp == 2));
      `RULE(waits <= 3 && delays <= 5);
    end
    writes <= writes + aw - b; reads <= reads + ar - r;
    waits <= writes && !s_axil_bvalid ? waits + 1 : 0;
    delays <= reads && !s_axil_rvalid ? delays + 1 : 0;
    // A register for orders is written by whole words only, once a write.
    if (!rst && wr_strobe) `RULE(s_axil_bvalid && s_axil_bresp == 0);
    `SEEN(b && s_axil_bresp == 0); `SEEN(b && s_axil_bresp == 2); `SEEN(r && s_axil_rresp == 0);
    `SEEN(wr_strobe);
    if (rst) begin writes <= 0; reads <= 0; waits <= 0; delays <= 0; end
  end
"""
FRAME_READER = """
  // A frame of 1 to 31 words; the words of its store are 0, 1, 2 .., all frames behind each other.
  reg busy = 0; reg [4:0] words_now, given = 0, at = 0; reg [2:0] tail_now;
  reg [7:0] peer_now;
  wire gone = m_axis_tvalid && m_axis_tready;
  always @(posedge clk) begin
    assume(!start || (words != 0 && !busy && idle));
    if (start) begin busy <= 1; words_now <= words; tail_now <= tail; given <= 0;
      peer_now <= peer; end
    if (m_axis_tvalid && !rst) begin
      `RULE(busy && m_axis_tlast == (given + 5'd1 == words_now) && m_axis_tdata == at);
      `RULE(m_axis_tkeep == (m_axis_tlast && tail_now ? (8'd1 << tail_now) - 8'd1 : 8'd255));
    end
    if (m_axis_tvalid && !rst) `RULE(m_axis_tdest == peer_now);
    if (gone) begin given <= given + 1; at <= at + 1; busy <= !m_axis_tlast; end
    if (idle && !rst) `RULE(!m_axis_tvalid);
    `SEEN(gone && m_axis_tlast && given == 2 && !rst);
    if (rst) begin busy <= 0; at <= 0; end
  end
"""
COMMAND_PORT = """
  // Every order is refused, started or only judged, once, one at a time; four commands are under way at most.
  reg [1:0] orders = 0; reg [2:0] under_way = 0; reg early = 0; reg [3:0] settling = 0;
  always @(posedge clk) begin
    assume(!command_done || under_way != 0);
    if (began && !rst && !$past(rst)) begin
      if ($past(ask_locked || ask_issue)) assume($stable(ask_trial));
      assume(!$past(command_idle) || command_idle || $past(command_start));
      `RULE(!command_start || !$past(ask_trial));
      `RULE(!ask_judged || (orders != 0 && $past(ask_trial)));
      `RULE(!ask_refused || early || orders != 0);
      `RULE(!command_start || (orders != 0 && under_way < 4 && $past(command_idle)));
      `RULE(state_running <= 4 && (!ask_locked || orders != 0));
      `RULE(!$past(ask_locked && !ask_issue && !command_start) || ask_locked || ask_refused ||
            command_start || ask_judged);
    end
    early <= ask_issue && ask_locked && !rst;
    orders <= rst ? 0 : (ask_issue && !ask_locked) || (orders != 0 && !command_start && !ask_judged &&
      !(ask_refused && !early));
    under_way <= rst ? 0 : under_way + command_start - command_done;
    `SEEN(command_start); `SEEN(ask_refused && !early);
    `SEEN(ask_judged && !ask_bad); `SEEN(ask_judged && ask_bad);
  end
"""

# Each query takes one packet of rows, whatever is in it, and is given once, when that has ended.
ROW_INTAKE = """
  reg open = 0, ended = 0; reg [15:0] counted = 0;
  wire came = s_axis_tvalid && s_axis_tready;
  always @(posedge clk) begin
    if (began && !$past(take)) assume($stable({bad, words, rows}));
    if (began && $past(give_free && !give_strobe)) assume(give_free);
    if (!rst && began && !$past(rst)) begin
      `RULE(!take || (ready && !open));
      `RULE(!came || (open && !ended));
      `RULE(!give_strobe || (give_free && open && ended));
      `RULE(!give_strobe || (give_reason == 1) == bad);
      `RULE(!row_word_valid || (open && !bad));
      `RULE(refused == counted);
    end
    open <= !rst && (take || (open && !give_strobe));
    ended <= !rst && !take && (ended || (came && s_axis_tlast));
    counted <= rst ? 0 : counted + (give_strobe && give_reason != 0);
    `SEEN(give_strobe && bad); `SEEN(give_strobe && give_reason == 2);
  end
"""

PROOFS: dict[str, Proof] = {
    "pair_fifo": Proof(
        STREAMS + "pair_fifo",
        passes=((Words("push", "{last, two, pair}", 18), Words("m_axis_tvalid && m_axis_tready",
          "{m_axis_tlast, m_axis_tkeep == 2'd3, m_axis_tdata}", 18, "m_axis_tready")),),
        rules=PAIR_FIFO, drains=6,
    ),
    "port_merge": Proof(
        "port_merge", passes=MERGED, rules=PORT_MERGE, drains=3, most=3, reach=20,
        parameters={"ports": 4, "bus_bits": 8},
    ),
    "port_copy": Proof("port_copy", rules=PORT_COPY, parameters={"ports": 2, "bus_bits": 8}),
    "sum_feed": Proof(MEMORY + "sum_feed", rules=SUM_FEED, reach=0),
    "frame_reader": Proof(FRAMES + "frame_reader", rules=FRAME_READER),
    "axi_lite_registers": Proof(CONTROL + "axi_lite_registers", rules=AXI_LITE),
    "command_port": Proof(CONTROL + "command_port", rules=COMMAND_PORT),
    "tracker": Proof(CONTROL + "tracker", 24, rules=TRACKER, forget="status_clear", reach=30),
    "command_list": Proof(CONTROL + "command_list", 64, light=False, rules=COMMAND_LIST, reach=84),
    "frame_finder": Proof(CONTROL + "frame_finder", 30, rules=FRAME_FINDER, reach=45),
    "deframer": Proof(FRAMES + "deframer", light=False, rules=DEFRAMER, reach=24),
    "frame_names": Proof(
        FRAMES + "frame_names", 30,
        passes=((Words("came_push", "{came_peer, came_sub, came_chunk, came_step}", 48),
          Words("gone", "{oldest_peer, oldest_sub, oldest_chunk, oldest_step}", 48)),),
        rules=FRAME_NAMES, most=7,
    ),
    "splitter": Proof("splitter", light=False, free=512, still=("m_axis",)),
    "byte_drain": Proof(STREAMS + "byte_drain", free=512),
    "row_intake": Proof(STREAMS + "row_intake", rules=ROW_INTAKE, reach=50),
    "raw_feeder": Proof(FRAMES + "raw_feeder", 16, rules=RAW_FEEDER, reach=40),
    "values_in": Proof(MEMORY + "values_in", 30, rules=VALUES_IN, reach=80),
    "loader_order": Proof(MEMORY + "loader_order", 84, rules=LOADER_ORDER, reach=90),
    "side_in": Proof(MEMORY + "side_in", 26, rules=SIDE_IN, reach=0),
    "frame_symbol": Proof(MEMORY + "frame_symbol", 22, rules=FRAME_SYMBOL, reach=45),
    "rows_out": Proof(MEMORY + "rows_out", 26, light=False, rules=ROWS_OUT, reach=60),
    "sum_rows": Proof(MEMORY + "sum_rows", 24, rules=SUM_ROWS, reach=60),
    "row_port": Proof(MEMORY + "row_port", 26, rules=ROW_PORT, forget="command_done"),
    "prefix_reader": Proof(FRAMES + "prefix_reader", 30, rules=PREFIX_READER, reach=100),
    "head_writer": Proof(
        FRAMES + "head_writer", 22, light=False, rules=HEAD_WRITER, forget="start", reach=40
    ),
    "raw_packer": Proof(FRAMES + "raw_packer", 30, rules=RAW_PACKER, reach=60),
}  # fmt: skip
