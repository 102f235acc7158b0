"""Which blocks' streams are proven, for how many clocks, and what they pass on."""

from __future__ import annotations

from oscar_hdl.build.formal import Proof, Words
from oscar_hdl.nic.head_writer import FIRST

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

STREAM_JOIN = """
  reg [255:0] words; reg [2:0] filled = 0; reg ended = 0; reg [2:0] quiet = 0; integer i;
  wire came = s_axis_tvalid && s_axis_tready, left = m_axis_tvalid && m_axis_tready;
  always @(posedge clk) begin
    if (came) begin words[64 * filled +: 64] <= s_axis_tdata; filled <= filled + 1; ended <= s_axis_tlast; end
    if (left) begin
      `RULE(rst || ((filled == 4 || ended) && m_axis_tlast == ended));
      for (i = 0; i < 4; i = i + 1)
        if (i < filled) `RULE(rst || m_axis_tdata[64 * i +: 64] == words[64 * i +: 64]);
      filled <= 0; ended <= 0;
    end
    if (came && !rst) `RULE(!left && !ended && filled < 4);
    quiet <= rst || left || !(filled == 4 || ended) ? 0 : quiet + m_axis_tready;
    `RULE(quiet < 5);
    if (rst) begin filled <= 0; ended <= 0; end
  end
"""
STREAM_SPLIT = """
  reg [255:0] rest; reg [2:0] more = 0;
  wire came = s_axis_tvalid && s_axis_tready, left = m_axis_tvalid && m_axis_tready;
  always @(posedge clk) begin
    if (left) begin
      `RULE(rst || (more != 0 && m_axis_tdata == rest[63:0]));
      rest <= rest >> 64; more <= more - 1;
    end
    if (came) begin `RULE(rst || more == 0); rest <= s_axis_tdata; more <= 4; end
    if (rst || forget) more <= 0;
    if (began && !rst) `RULE((more != 0) == m_axis_tvalid);
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
    // A register for orders is written by whole words only, once a write; a refused write answers SLVERR.
    if (!rst && (wr_strobe || refused)) `RULE(s_axil_bvalid && !(wr_strobe && refused));
    if (!rst && refused) `RULE(s_axil_bresp == 2);
    if (!rst && wr_strobe) `RULE(s_axil_bresp == 0);
    `SEEN(b && s_axil_bresp == 0); `SEEN(b && s_axil_bresp == 2); `SEEN(r && s_axil_rresp == 0);
    `SEEN(wr_strobe); `SEEN(refused);
    if (rst) begin writes <= 0; reads <= 0; waits <= 0; delays <= 0; end
  end
"""
FRAME_READER = """
  // A frame of 1 to 31 words; the words of its store are 0, 1, 2 .., all frames behind each other.
  reg busy = 0; reg [4:0] words_now, given = 0, at = 0; reg [2:0] tail_now;
  wire gone = m_axis_tvalid && m_axis_tready;
  always @(posedge clk) begin
    assume(!start || (words != 0 && !busy && idle));
    if (start) begin busy <= 1; words_now <= words; tail_now <= tail; given <= 0; end
    if (m_axis_tvalid && !rst) begin
      `RULE(busy && m_axis_tlast == (given + 5'd1 == words_now) && m_axis_tdata == at);
      `RULE(m_axis_tkeep == (m_axis_tlast && tail_now ? (8'd1 << tail_now) - 8'd1 : 8'd255));
    end
    if (gone) begin given <= given + 1; at <= at + 1; busy <= !m_axis_tlast; end
    if (idle && !rst) `RULE(!m_axis_tvalid);
    `SEEN(gone && m_axis_tlast && given == 2 && !rst);
    if (rst) begin busy <= 0; at <= 0; end
  end
"""
COMMAND_PORT = """
  // Every order is refused or started, once, and one at a time; two commands are under way at most.
  reg [1:0] orders = 0, under_way = 0; reg early = 0; reg [3:0] settling = 0;
  always @(posedge clk) begin
    assume(!command_done || under_way != 0);
    if (began && !rst && !$past(rst)) begin
      if ($past(locked)) assume($stable(frame) && $stable(shape) && $stable(tables));
      `RULE(!refused || early || orders != 0);
      `RULE(!command_start || (orders != 0 && under_way < 2 && $past(command_idle)));
      `RULE(running <= 2 && (!locked || orders != 0));
      `RULE(!$past(locked && !issue && !command_start) || locked || refused || command_start);
    end
    early <= issue && locked && !rst;
    orders <= rst ? 0 : (issue && !locked) || (orders != 0 && !command_start && !(refused && !early));
    under_way <= rst ? 0 : under_way + command_start - command_done;
    `SEEN(command_start); `SEEN(refused && !early);
  end
"""
DEFRAMER = """
  // The ring: frames between tail and head are never written to; tail follows head.
  wire [4:0] kept = head - tail, used = wr_addr - tail, ahead = wr_addr - head;
  reg [5:0] frames = 0, told = 0; reg open = 0;
  wire came = s_axis_rx_tvalid && s_axis_rx_tready;
  always @(posedge clk) begin
    if (began && !$past(rst)) begin
      assume(tail == $past(tail) || (tail - $past(tail)) <= (head - $past(tail)));
      `RULE(head == $past(head) || head == $past(wr_addr));
      `RULE(!wr_en || used >= kept);
      `RULE(!(bad && head != $past(head)));
    end
    if (rst || (began && $past(rst))) assume(tail == 0);
    `SEEN(came && s_axis_rx_tlast); `SEEN(bad);
  end
"""
RAW_DECODER = """
  // Bytes are taken for a block only, and a block is started only when none is under way.
  reg busy = 0;
  always @(posedge clk) begin
    assume(!job_start || job_idle);
    busy <= !rst && (job_start || (busy && !job_done));
    if (!rst) `RULE(!s_axis_raw_tready || busy);
    if (!rst) `RULE(!job_done || busy);
    `SEEN(s_axis_raw_tready);
  end
"""
BYTE_SOURCE = """
  // Bytes of two blocks at most: of the one that is read, and of the next; a block is over when it is whole.
  reg [1:0] blocks = 0; reg open = 0;
  wire came = s_axis_tvalid && s_axis_tready;
  always @(posedge clk) begin
    assume(!turn || whole);
    if (!rst) `RULE(blocks <= 2 && (!came || blocks < 2));
    if (!rst && whole) `RULE(blocks != 0);
    if (!rst && turn) `RULE(blocks != 0);
    blocks <= rst ? 0 : blocks + (came && s_axis_tlast) - turn;
    `SEEN(blocks == 2);
  end
"""
DECODER = """
  always @(posedge clk) begin
    assume(!job_start || job_idle);
    if (began && $past(rst)) `RULE(job_idle && !job_done && !position_take && !sums_take && !counts_valid);
  end
"""
FEEDER = """
  // Of each stream, one pair is followed: which one is free. Words land as fetch_ring gives them.
  (* anyconst *) wire s; reg [1:0] l;
  wire [1:0] takes_now = takes; reg [1:0] takes_before = 0; reg landed_before = 0;
  wire gone = s ? m_axis_b_tvalid && m_axis_b_tready : m_axis_a_tvalid && m_axis_a_tready;
  wire [15:0] data = s ? m_axis_b_tdata : m_axis_a_tdata; wire last = s ? m_axis_b_tlast : m_axis_a_tlast;
  (* anyseq *) wire pick; (* anyseq *) wire [1:0] which;
  reg picked = 0; reg [3:0] inside = 0, ahead; reg [15:0] expected; reg expected_last;
  wire came = land[s]; wire [3:0] rest = inside - gone;
  wire [15:0] chosen = pairs >> {which, 4'd0};
  always @(posedge clk) begin
    assume(land != 3 && (land & ~takes_before) == 0 && (!land || (!landed_before && top >= low)));
    takes_before <= rst ? 0 : takes_now; landed_before <= land != 0 && !rst;
    inside <= rest + (came ? top - low + 1 : 0);
    if (gone && !rst) `RULE(inside != 0);
    if (gone && !rst && picked && ahead == 0) `RULE(data == expected && last == expected_last);
    if (came && pick && !picked && which <= top && which >= low) begin
      picked <= 1; ahead <= rest + (top - which);
      expected <= {chosen[7:0], chosen[15:8]}; expected_last <= closes && which == low;
    end else if (gone && picked) begin ahead <= ahead - 1; picked <= ahead != 0; end
    if (rst) begin inside <= 0; picked <= 0; end
    `SEEN(gone && last && picked);
  end
"""
RAW_FEEDER = """
  // The bytes from `first` on, two in a word that leaves; one byte is followed: which one is free.
  reg busy = 0; reg [4:0] given = 0, most = 0; reg [19:0] size_now; reg odd_now; reg [4:0] unit = 0;
  (* anyconst *) wire [4:0] which; reg [7:0] expected; integer i;
  wire gone = m_axis_tvalid && m_axis_tready; reg fresh = 0; reg [1:0] first_now; reg settled = 0;
  wire [4:0] byte_at = (given << 1);
  always @(posedge clk) begin
    assume(!go || (idle && size != 0 && size < 20));
    assume(!land || (avail && busy && !go));
    if (began && $past(go)) assume($stable(odd) && $stable(size));
    if (go) begin busy <= 1; given <= 0; unit <= 0; size_now <= size; odd_now <= odd; first_now <= first; end
    if (land) begin
      for (i = 0; i < 4; i = i + 1)
        if (i >= first_now) begin
          if (2 * (unit + i - first_now) == which + odd_now) expected <= data >> 16 * i;
          if (2 * (unit + i - first_now) + 1 == which + odd_now) expected <= data >> 16 * i + 8;
        end
      unit <= unit + 4 - first_now; first_now <= 0;
    end
    if (m_axis_tvalid && !rst) begin
      `RULE(busy && byte_at < size_now && m_axis_tlast == (byte_at + 2 >= size_now));
      if (byte_at == which) `RULE(m_axis_tdata[7:0] == expected);
      if (byte_at + 1 == which && which < size_now) `RULE(m_axis_tdata[15:8] == expected);
    end
    if (gone) begin given <= given + 1; if (m_axis_tlast) busy <= 0; end
    `SEEN(gone && m_axis_tlast && given == 3);
    if (rst) busy <= 0;
  end
"""
VALUE_LOADER = """
  // A word of the stream a write, zeros behind the last, and every row is written whole.
  reg busy = 0; reg [18:0] left; reg [5:0] row_now; reg [2:0] part_now; reg [63:0] expected; reg held = 0;
  reg [2:0] words = 0;
  wire came = s_axis_values_tvalid && s_axis_values_tready;
  wire put = write_enable != 0;
  wire [18:0] after = left < 4 ? 0 : left - 4;
  always @(posedge clk) begin
    assume(!command_start || (command_idle && command_count != 0 && command_count < 80));
    if (busy) assume($stable(command_first) && $stable(command_count));
    assume(!began || phase == $past(phase) + 5'd1);
    if (came) begin
      `RULE(rst || (busy && left != 0));
      expected <= left == 1 ? s_axis_values_tdata[15:0] : left == 2 ? s_axis_values_tdata[31:0]
        : left == 3 ? s_axis_values_tdata[47:0] : s_axis_values_tdata; held <= 1;
    end
    if (put && !rst) begin
      `RULE(busy && write_enable == (row_now[2] ? 2 : 1) && write_part == part_now);
      `RULE(write_row == {row_now[5:3], row_now[1:0]});
      `RULE(write_data == (held ? expected : 64'd0) && held == (left != 0));
      held <= came; part_now <= part_now + 1; left <= after;
      if (part_now == 7) row_now <= row_now + 1;
    end
    if (command_done && !rst) `RULE(busy && left <= 4);
    if (busy && command_idle && !put) busy <= 0;
    if (command_start) begin
      busy <= 1; left <= command_count; row_now <= command_first; part_now <= 0;
    end
    `SEEN(command_done && left <= 4);
    if (rst) begin busy <= 0; held <= 0; left <= 0; end
  end
"""
ROW_PORT = """
  // A loader is idle between commands, and takes words inside one; one clear is asked for at a time.
  reg busy = 0, waiting = 0, asked = 0, inside = 0, owed = 0, fits = 0, lacking = 0, due = 0; reg [2:0] delay = 0;
  reg [31:0] row_now, count_now;
  wire came = s_axis_tvalid && s_axis_tready, gone = m_axis_tvalid && m_axis_tready, header = came && !inside;
  wire [32:0] end_now = s_axis_tdata[31:0] + ((s_axis_tdata[63:32] + 33'd31) >> 5);
  always @(posedge clk) begin
    assume(command_idle == (!busy || command_done));
    assume(!command_done || busy);
    assume(!m_axis_tready || (busy && !command_done));
    assume(!clear || !waiting);
    if (waiting) assume($stable(first_row) && $stable(rows));
    if (began && !rst && !$past(rst)) begin
      // Each packet is started as it says, or is wrong; soon, and one at a time.
      if (command_start && !command_clear)
        `RULE(!busy && owed && fits && command_first == row_now && command_count == count_now);
      if (command_start && command_clear)
        `RULE(!busy && asked && command_first == first_row && command_count == {rows, 5'd0});
      `RULE(!header || ((!owed || wrong) && !busy));
      `RULE(wrong ? due || (owed && !fits) : !due);
      `RULE(delay <= 5);
      // Words go on as they come, zeros behind them; a clear takes none; a rest is thrown away at once.
      if (gone) `RULE(!command_clear && m_axis_tdata == (came ? s_axis_tdata : 64'd0) && (came || !inside));
      if (inside && !busy && !owed) `RULE(s_axis_tready);
      `RULE(cleared == $past(command_done && command_clear));
      `RULE(!cleared || waiting);
    end
    if (header) begin row_now <= s_axis_tdata; count_now <= s_axis_tdata >> 32; end
    if (header) fits <= s_axis_tdata[63:32] != 0 && s_axis_tdata[63:51] == 0 && end_now <= 1024;
    owed <= header || (owed && !command_start && !wrong);
    delay <= owed && !command_start && !wrong ? delay + 1 : 0;
    inside <= came ? !s_axis_tlast : inside;
    busy <= command_start || (busy && !command_done);
    lacking <= !command_start && (lacking || (gone && !came));
    due <= command_done && !command_clear && (lacking || inside);
    waiting <= clear || (waiting && !cleared); asked <= clear || (asked && !(command_start && command_clear));
    `SEEN(command_start && !command_clear); `SEEN(wrong && !due); `SEEN(wrong && due); `SEEN(cleared);
    if (rst) begin
      busy <= 0; waiting <= 0; asked <= 0; inside <= 0; owed <= 0; lacking <= 0; due <= 0; delay <= 0; end
  end
"""
SIDE_LOADER = """
  // Three words a row: a header and eight writes of distances; headers of 0 to the end of the last group. Or
  // each row is cleared once, and none but those from the first on.
  reg busy = 0, held = 0, wiping; reg [7:0] left, row_now, rows_now; reg [3:0] item = 0; reg [63:0] word;
  wire came = s_axis_side_tvalid && s_axis_side_tready, put = write_header != 0 || write_distances != 0;
  wire [1:0] here = row_now[2] ? 2 : 1; wire [15:0] four = word >> {item[1:0] - 2'd1, 4'd0};
  (* anyconst *) wire [5:0] one; reg wiped = 0; wire [6:0] offset = {1'b0, one} - command_first;
  wire now = write_clear[one[2]] && write_row == {one[5:3], one[1:0]};
  always @(posedge clk) begin
    assume(!command_start || (command_idle && !command_done && command_count != 0 && command_count < 1024));
    assume(!command_start || !command_clear || command_first[1:0] == 0);
    assume(!command_start || command_first + ((command_count + 31) >> 5) <= 64);
    if (busy) assume($stable(command_first) && $stable(command_count) && $stable(command_clear));
    assume(!began || phase == $past(phase) + 5'd1);
    if (!rst) begin
      if (came) `RULE(busy && !wiping && left != 0 && (item == 0 || item == 1 || item == 5));
      if (put) begin
        `RULE(busy && !wiping && write_clear == 0 && write_row == {row_now[5:3], row_now[1:0]});
        `RULE(item == 0 ? write_header == here && write_distances == 0 : write_distances == here && !write_header);
        if (item == 0) `RULE(write_header_data == (left ? word[10:0] : 11'd0) && held == (left != 0));
        if (item != 0) `RULE(left && write_part == item - 1 && held == (item == 1 || item == 5));
        if (item != 0) `RULE(write_data == {four[14:12], four[10:8], four[6:4], four[2:0]});
      end
      if (write_clear != 0) `RULE(busy && wiping && !put);
      if (now) `RULE(!wiped && one >= command_first && offset < rows_now);
      if (command_done) `RULE(busy);
      if (busy && $past(command_done)) `RULE(wiping ? wiped || one < command_first || offset >= rows_now : left == 0);
    end
    if (came) begin word <= s_axis_side_tdata; end
    if (put) begin
      item <= left && item != 8 ? item + 1 : 0;
      if (!left || item == 8) begin row_now <= row_now + 1; left <= left ? left - 1 : 0; end
    end
    held <= came || (held && !put);
    wiped <= busy && (wiped || now);
    if (busy && $past(command_done)) busy <= 0;
    if (command_start) begin
      busy <= 1; wiping <= command_clear; row_now <= command_first; left <= (command_count + 31) >> 5; item <= 0;
      rows_now <= (command_count + 31) >> 5; wiped <= 0;
    end
    `SEEN(came && item == 5); `SEEN(command_done && wiping && wiped && left > 5); `SEEN(command_done && !wiping);
    if (rst) begin busy <= 0; held <= 0; item <= 0; end
  end
"""
ROW_UNLOADER = """
  // Banks give, in clocks of even phase, the address of three clocks before; every third row has class 0. A
  // descriptor is there eight clocks after its row, and for two behind it.
  reg busy = 0; reg [4:0] words = 0, words_now; reg [2:0] rows = 0, rows_now; reg [3:0] same = 0;
  reg [4:0] row_1, row_2; reg good_1 = 0, good_2 = 0;
  reg [7:0] past_1 = 0, past_2 = 0, past_3 = 0;
  wire gone = m_axis_values_tvalid && m_axis_values_tready;
  wire told = m_axis_descriptors_tvalid && m_axis_descriptors_tready;
  wire [5:0] at = command_first + words[4:3], told_at = command_first + rows;
  function [6:0] kind(input [5:0] of); kind = of % 3 == 0 ? 7'd0 : {of, 1'b1}; endfunction
  always @(posedge clk) begin
    assume(!began || phase == $past(phase) + 5'd1);
    assume(!command_start || (command_idle && !command_done && command_count != 0 && command_count <= 96));
    if (busy) assume($stable(command_first) && $stable(command_count));
    past_1 <= {row, part}; past_2 <= past_1; past_3 <= past_2;
    same <= row == row_1 ? (same == 12 ? same : same + 1) : 0;
    if (!phase[0]) assume(data_a == {1'b0, past_3} + 1 && data_b == {1'b1, past_3} + 1);
    row_1 <= row; row_2 <= row_1; good_1 <= same >= 4 && row == row_1; good_2 <= good_1;
    if (good_2) begin
      assume(kind_a == kind({row_2[4:2], 1'b0, row_2[1:0]}));
      assume(kind_b == kind({row_2[4:2], 1'b1, row_2[1:0]})); end
    if (!rst) begin
      if (m_axis_values_tvalid) begin
        `RULE(busy && words < words_now && m_axis_values_tlast == (words + 5'd1 == words_now));
        `RULE(m_axis_values_tdata == (at % 3 ? {at[2], at[5:3], at[1:0], words[2:0]} + 1 : 0));
      end
      if (m_axis_descriptors_tvalid) begin
        `RULE(busy && rows < rows_now && m_axis_descriptors_tlast == (rows + 3'd1 == rows_now));
        `RULE(m_axis_descriptors_tdata == kind(told_at));
      end
      if (command_done) `RULE(busy && words == words_now && rows == rows_now);
    end
    if (gone) words <= words + 1;
    if (told) rows <= rows + 1;
    if (command_done) busy <= 0;
    if (command_start) begin
      busy <= 1; words <= 0; rows <= 0; words_now <= (command_count + 3) >> 2;
      rows_now <= (command_count + 31) >> 5;
    end
    `SEEN(command_done);
    if (rst) busy <= 0;
  end
"""
PREFIX_READER = """
  // Units come some clocks after they were asked for, and stay until others are.
  reg busy = 0, waits = 0, built = 0; reg [1:0] came = 0; reg [15:0] prefix; reg [5:0] sent = 0; integer i;
  reg [5:0] chosen;
  wire there = waits && units_ready, gone = m_axis_sent_tvalid && m_axis_sent_tready;
  wire fits = prefix[4:0] >= 10 && prefix[4:0] <= 17 && prefix[9:5] == 0 && !prefix[15];
  always @* begin chosen = 0; for (i = 0; i < 32; i = i + 1) chosen = chosen + mask[i]; end
  always @(posedge clk) begin
    assume(!go || !busy);
    if (waits && $past(units_get)) assume(!units_ready);
    if (began && $past(units_ready && !units_get)) assume(units_ready && $stable(units_units));
    if (!rst) begin
      `RULE(!units_get || (busy && !waits));
      if (m_axis_sent_tvalid) `RULE(built && m_axis_sent_tdata == units_units && units_ready && sent < chosen);
      if (build) `RULE(busy && !built && fits && right && came == (prefix[10] ? 2 : 1) && last == prefix[14:11]);
      if (done) `RULE(busy && came != 0 && right == fits && log2 == prefix[4:0] && (built || build) == fits);
      if (done) `RULE(sent == (fits && prefix[10] ? chosen : 0));
    end
    if (there) begin came <= came == 2 ? 2 : came + 1; if (came == 0) prefix <= units_units[63:48]; end
    waits <= units_get || (waits && !units_ready); sent <= sent + gone; built <= built || build;
    if (go) begin came <= 0; sent <= 0; built <= 0; end
    busy <= go || (busy && !done);
    `SEEN(done && !fits); `SEEN(done && fits && sent == 1);
    if (rst) begin busy <= 0; waits <= 0; end
  end
"""
HEAD_WRITER = """
  // Pairs of the header in their order, what is covered by the CRC behind two of 0; the directory is anything.
  reg busy = 0, final_now; reg [4:0] given = 0; reg [15:0] pair;
  wire gone = m_axis_tvalid && m_axis_tready; wire [4:0] at = final_now ? given : given - 5'd2;
  always @* case (at)
    0: pair = FIRST; 1: pair = fields_step; 2: pair = fields_chunk; 3: pair = {fields_width, fields_sub};
    4: pair = fields_sequence; 5: pair = fields_checksum; 6: pair = fields_count; 7: pair = fields_count[18:16];
    8: pair = length; 9: pair = length[19:16]; 10: pair = final_now ? ~crc[15:0]
      : {fields_last, 6'd0, fields_block_log2};
    11: pair = ~crc[31:16]; default: pair = 0; endcase
  always @(posedge clk) begin
    assume(!start || !busy);
    if (busy) assume($stable({fields_step, fields_chunk, fields_sub, fields_width, fields_sequence}));
    if (busy) assume($stable({fields_count, fields_checksum, fields_last, fields_block_log2, length, crc}));
    if (m_axis_tvalid && !rst) begin
      `RULE(busy && m_axis_tkeep == 3);
      if (final_now || at < 11 || at > 29) `RULE(m_axis_tdata == pair);
      if (final_now) `RULE(m_axis_tlast == (given == 11));
      if (!final_now && (given < 12 || fields_count == 0)) `RULE(m_axis_tlast == (given == 11 && fields_count == 0));
    end
    if (gone) begin given <= given == 20 ? 20 : given + 1; busy <= !m_axis_tlast; end
    if (start) begin busy <= 1; given <= 0; final_now <= whole; end
    `SEEN(gone && m_axis_tlast && final_now); `SEEN(gone && m_axis_tlast && !final_now && fields_count != 0);
    if (rst) busy <= 0;
  end
"""
RAW_PACKER = """
  // As many bytes as the values need, of one job; the last pair ends it.
  reg busy = 0, over = 0; reg [6:0] bytes = 0; wire gone = m_axis_tvalid && m_axis_tready;
  wire [6:0] wanted = (job_values[5:0] * job_width[4:0] + 7) >> 3;
  always @(posedge clk) begin
    assume(!job_start || (job_idle && !busy));
    assume(job_values != 0 && job_values < 40 && job_width != 0 && job_width <= 16);
    if (busy) assume($stable(job_values) && $stable(job_width) && $stable(job_constant));
    if (!rst) begin
      if (m_axis_tvalid) `RULE(busy && !over && !job_constant && (m_axis_tkeep == 3 || m_axis_tkeep == 1));
      if (m_axis_tvalid) `RULE(m_axis_tlast == (bytes + 1 + m_axis_tkeep[1] == wanted) && bytes < wanted);
      if (m_axis_tvalid && !m_axis_tlast) `RULE(m_axis_tkeep == 3);
      if (job_done) `RULE(busy && (job_constant || over));
      if (source_take) `RULE(busy && !over && $past(source_ok && allow, 2));
    end
    if (gone) begin bytes <= bytes + 1 + m_axis_tkeep[1]; over <= m_axis_tlast; end
    busy <= job_start || (busy && !job_done);
    if (job_start) begin bytes <= 0; over <= 0; end
    `SEEN(job_done && bytes > 3); `SEEN(job_done && job_constant);
    if (rst) busy <= 0;
  end
"""
COLLECTOR = """
  // One job after another; one byte of the job is followed, which one is free. Lanes are four.
  reg busy_now = 0, over = 0, ending = 0; reg [5:0] bytes = 0; reg [2:0] shift; reg [5:0] base = 0;
  (* anyconst *) wire [5:0] which; reg [7:0] expected; reg seen = 0, found = 0; integer i;
  reg absorb_1 = 0, absorb_2 = 0; reg kept = 0;
  wire came = s_axis_tvalid && s_axis_tready;
  wire [5:0] place = which + shift;
  always @(posedge clk) begin
    assume(!began || turn == $past(turn) + 2'd1);
    assume(!start || (turn == 0 && !busy && !busy_now));
    assume(!keep || busy_now); assume(!drop && !cancel);
    absorb_1 <= ended && !rst; absorb_2 <= absorb_1 && !rst; assume(absorb == absorb_2);
    if (start) begin
      busy_now <= 1; over <= 0; bytes <= 0; shift <= {lane, odd}; base <= 0; seen <= 0; found <= 0; kept <= 0;
    end
    if (keep) kept <= 1;
    if (came) begin
      `RULE(rst || (busy_now && !over));
      assume(s_axis_tkeep == 3 || (s_axis_tkeep == 1 && s_axis_tlast)); assume(bytes < 20);
      if (bytes == which) begin expected <= s_axis_tdata[7:0]; seen <= 1; end
      if (bytes + 1 == which && s_axis_tkeep[1]) begin expected <= s_axis_tdata[15:8]; seen <= 1; end
      bytes <= bytes + 1 + s_axis_tkeep[1]; over <= s_axis_tlast;
    end
    if (valid && !rst && began && !$past(rst)) begin  // what is given behind a reset reaches nobody
      `RULE(busy_now && first == (base == 0) && turn == 1);
      for (i = 0; i < 8; i = i + 1) begin
        if (base + i == place && enables[i]) begin
          `RULE(seen && !found && words[8 * i +: 8] == expected); found <= 1; end
        if (enables[i]) `RULE(base + i >= shift && base + i < shift + bytes);
      end
      base <= base + 8;
    end
    if (!valid && !rst && began && !$past(rst)) `RULE(words == 0 && enables == 0);
    if (ended && !rst) `RULE(busy_now && over && kept && (found == seen));
    if (busy_now && !busy && !start && !(began && $past(start))) busy_now <= 0;
    `SEEN(ended && bytes > 12);
    if (rst) begin busy_now <= 0; over <= 0; end
  end
"""

PROOFS: dict[str, Proof] = {
    "pair_fifo": Proof(
        HERE + "pair_fifo",
        passes=((Words("push", "{last, two, pair}", 18), Words("m_axis_tvalid && m_axis_tready",
          "{m_axis_tlast, m_axis_tkeep == 2'd3, m_axis_tdata}", 18, "m_axis_tready")),),
        rules=PAIR_FIFO, drains=6,
    ),
    "stream_join": Proof(HERE + "stream_join", rules=STREAM_JOIN),
    "stream_split": Proof(HERE + "stream_split", rules=STREAM_SPLIT, forget="forget"),
    "frame_reader": Proof(HERE + "frame_reader", rules=FRAME_READER),
    "axi_lite_registers": Proof(HERE + "axi_lite_registers", rules=AXI_LITE),
    "command_port": Proof(HERE + "command_port", rules=COMMAND_PORT),
    "deframer": Proof(HERE + "deframer", light=False, rules=DEFRAMER, reach=24),
    "byte_sink": Proof(HERE + "byte_sink", free=512),
    "byte_source": Proof(HERE + "byte_source", rules=BYTE_SOURCE, free=512, reach=40),
    "raw_decoder": Proof(HERE + "raw_decoder", 16, rules=RAW_DECODER, free=512, reach=80),
    "splitter": Proof("splitter", light=False, free=512, still=("m_axis",)),
    "encoder": Proof("encoder", free=512, still=("m_axis_bytes",)),
    "decoder": Proof("decoder", 12, light=False, rules=DECODER, free=512),
    "feeder": Proof(HERE + "feeder", 16, rules=FEEDER),
    "raw_feeder": Proof(HERE + "raw_feeder", 16, rules=RAW_FEEDER, reach=40),
    "value_loader": Proof(HERE + "value_loader", 14, rules=VALUE_LOADER, reach=30),
    "row_port": Proof(HERE + "row_port", 26, rules=ROW_PORT, forget="command_done"),
    "side_loader": Proof(HERE + "side_loader", 26, rules=SIDE_LOADER, reach=50),
    "row_unloader": Proof(HERE + "row_unloader", 22, light=False, rules=ROW_UNLOADER, reach=60),
    "prefix_reader": Proof(HERE + "prefix_reader", 30, rules=PREFIX_READER, reach=100),
    "head_writer": Proof(HERE + "head_writer", 19, light=False, rules=HEAD_WRITER.replace("FIRST", f"{FIRST}"), free=512, reach=40),
    "raw_packer": Proof(HERE + "raw_packer", 30, rules=RAW_PACKER, reach=60),
    "collector": Proof(HERE + "collector", 26, rules=COLLECTOR, reach=50),
}  # fmt: skip
