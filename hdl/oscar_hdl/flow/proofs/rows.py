"""Rules of the blocks that load and read rows of memory: SystemVerilog of their ports (proofs.py)."""

from __future__ import annotations

ROW_PORT = """
  // A loader is idle between commands, and takes words inside one; one clear is asked for at a time.
  reg busy = 0, waiting = 0, asked = 0, inside = 0, owed = 0, fits = 0, lacking = 0, due = 0;
  reg [2:0] delay = 0; reg [1:0] waits = 0;
  reg flag = 0, stale = 0, granted = 0, refused = 0, tell = 0;
  reg [31:0] row_now, count_now; reg [7:0] entry_now;
  wire came = s_axis_tvalid && s_axis_tready, gone = m_axis_tvalid && m_axis_tready, header = came && !inside;
  wire [32:0] end_now = s_axis_tdata[23:0] + ((s_axis_tdata[61:32] + 33'd31) >> 5);
  always @(posedge clk) begin
    assume(command_idle == (!busy || command_done));
    assume(!command_done || busy);
    assume(!m_axis_tready || (busy && !command_done));
    assume(!clear || !waiting);
    if (waiting) assume($stable(first_row) && $stable(rows));
    assume(!made_taken || made_valid);
    if (began && !rst && !$past(rst)) begin
      // Each packet is started as it says, or is wrong; soon, and one at a time.
      if (command_start && !command_clear) `RULE(!busy && owed && fits && granted == flag);
      if (command_start && !command_clear) `RULE(command_first == row_now && command_count == count_now);
      if (command_start && command_clear)
        `RULE(!busy && asked && command_first == first_row && command_count == {rows, 5'd0});
      `RULE(!header || ((!owed || wrong) && !busy && !tell && (made_open || !s_axis_tdata[62])));
      `RULE(wrong ? due || refused || (owed && !fits) : !(due || refused));
      // One that counts for an entry is started when it may, and tells once when all is written.
      if (made_valid) `RULE(flag && made_entry == entry_now && made_values == count_now);
      if (made_valid) `RULE(made_ends ? tell : owed && fits && !busy && !granted);
      `RULE(waits <= 2);
      `RULE(delay <= 5);
      // Words go on as they come, zeros behind them; a clear takes none; a rest is thrown away at once.
      if (gone) `RULE(!command_clear && m_axis_tdata == (came ? s_axis_tdata : 64'd0) && (came || !inside));
      if (inside && !busy && !owed) `RULE(s_axis_tready);
      `RULE(cleared == $past(command_done && command_clear));
      `RULE(!cleared || waiting);
    end
    if (header) begin
      row_now <= s_axis_tdata[23:0]; entry_now <= s_axis_tdata[31:24]; count_now <= s_axis_tdata[61:32];
      flag <= s_axis_tdata[62];
      fits <= s_axis_tdata[61:32] != 0 && s_axis_tdata[61:51] == 0 && !s_axis_tdata[63] && end_now <= 1024 &&
        (s_axis_tdata[31:24] == 0 || s_axis_tdata[62]);
    end
    owed <= header || (owed && !command_start && !wrong);
    delay <= owed && !command_start && !wrong && !made_valid ? delay + 1 : 0;
    granted <= !header && (granted || (made_taken && !made_ends && !made_refused));
    refused <= made_taken && made_refused;
    stale <= !header && flag && (stale || !made_open);
    tell <= tell ? !made_taken : command_done && !command_clear && flag && !lacking && !inside && !stale;
    waits <= tell && !made_valid ? waits + 1 : 0;
    inside <= came ? !s_axis_tlast : inside;
    busy <= command_start || (busy && !command_done);
    lacking <= !command_start && (lacking || (gone && !came));
    due <= command_done && !command_clear && (lacking || inside || stale);
    waiting <= clear || (waiting && !cleared); asked <= clear || (asked && !(command_start && command_clear));
    `SEEN(tell && made_taken); `SEEN(refused); `SEEN(due && stale);
    `SEEN(command_start && !command_clear); `SEEN(wrong && !due); `SEEN(wrong && due); `SEEN(cleared);
    if (rst) begin
      busy <= 0; waiting <= 0; asked <= 0; inside <= 0; owed <= 0; lacking <= 0; due <= 0; delay <= 0;
      refused <= 0; tell <= 0; waits <= 0; end
  end
"""

VALUES_IN = """
  // A word of the stream or, behind the last value, of zeros, in the clock of its place in the row; every row
  // is written whole, and its number is there in phase 3.
  reg busy = 0, fresh = 0; reg [18:0] left = 0; reg [5:0] row_now; reg [1:0] part = 0; reg [4:0] seen;
  reg [127:0] word;
  wire came = s_axis_values_tvalid && s_axis_values_tready, put = write_enable != 0;
  wire [1:0] next = part + put;
  always @(posedge clk) begin
    assume(!command_start || (command_idle && command_count != 0 && command_count < 80));
    if (busy) assume($stable(command_first) && $stable(command_count));
    assume(!began || phase == $past(phase) + 4'd1);
    if (!rst) begin
      if (came) `RULE(busy && left != 0 && !held && phase[1:0] == next + 2'd2);
      if (put) begin
        `RULE(busy && phase[1:0] == part + 2'd3 && write_enable == (row_now[2] ? 2 : 1) && !$past(held));
        `RULE((part == 0 ? write_row : seen) == {row_now[5:3], row_now[1:0]});
        `RULE(fresh ? write_data == word : left == 0 && write_data == 0);
      end
      if (fresh) `RULE(put);
      if (command_done) `RULE(busy && put && part == 3 && left == 0);
    end
    fresh <= came && !rst;
    if (phase[1:0] == 3) seen <= write_row;
    if (came) begin
      word <= left < 8 ? s_axis_values_tdata & ~(~128'd0 << 16 * left[2:0]) : s_axis_values_tdata;
      left <= left < 8 ? 0 : left - 8;
    end
    if (put) begin part <= part + 1; if (part == 3) row_now <= row_now + 1; end
    if (command_done) busy <= 0;
    if (command_start) begin busy <= 1; left <= command_count; row_now <= command_first; part <= 0; end
    `SEEN(command_done && row_now != command_first);
    if (rst) begin busy <= 0; left <= 0; part <= 0; end
  end
"""

SIDE_IN = """
  // A word a row: its header and its distances; headers of 0 to the end of the last group. Or each row is
  // cleared once, and none but those from the first on.
  reg busy = 0, kept = 0, wiping; reg [7:0] left, row_now, rows_now; reg [127:0] word;
  wire came = s_axis_side_tvalid && s_axis_side_tready, put = write_header != 0 || write_distances != 0;
  wire [1:0] here = row_now[5] ? 2 : 1;
  (* anyconst *) wire [6:0] one; reg wiped = 0; wire [7:0] offset = {1'b0, one} - command_first;
  wire now = write_clear[one[5]] && write_row == {one[6], one[4:3], 3'd0} && write_lanes[one[2:0]];
  always @(posedge clk) begin
    assume(!command_start || (command_idle && !command_done && command_count != 0 && command_count < 4096));
    assume(!command_start || !command_clear || command_first[4:0] == 0);
    assume(!command_start || command_first + ((command_count + 31) >> 5) <= 128);
    if (busy) assume($stable(command_first) && $stable(command_count) && $stable(command_clear));
    assume(!began || phase == $past(phase) + 4'd1);
    if (!rst) begin
      if (came) `RULE(busy && !wiping && left != 0 && !kept && !held && phase[1:0] == 0);
      if (put || write_clear != 0) `RULE(!$past(held));
      if (put) begin
        `RULE(busy && !wiping && phase[1:0] == 1 && write_clear == 0);
        `RULE(write_row == {row_now[6], row_now[4:0]});
        `RULE(write_header == here && write_distances == (left ? here : 0) && kept == (left != 0));
        `RULE(write_header_data == (left ? word[14:0] : 15'd0));
        if (left <= 1) `RULE(behind || command_done);
        if (left) `RULE(write_data == word[127:32]);
      end
      if (write_clear != 0) `RULE(busy && wiping && phase[1:0] == 1 && !put);
      if (now) `RULE(!wiped && one >= command_first && offset < rows_now);
      if (command_done) `RULE(busy);
      if (behind) `RULE(busy && !wiping && left <= 1);
      if (busy && $past(command_done) && !wiping) `RULE(left == 0);
      if (busy && $past(command_done) && wiping) `RULE(wiped || one < command_first || offset >= rows_now);
    end
    if (came) begin word <= s_axis_side_tdata; kept <= 1; end
    if (put) begin row_now <= row_now + 1; left <= left ? left - 1 : 0; kept <= 0; end
    wiped <= busy && (wiped || now);
    if (busy && $past(command_done)) busy <= 0;
    if (command_start) begin
      busy <= 1; wiping <= command_clear; row_now <= command_first; wiped <= 0;
      left <= (command_count + 31) >> 5; rows_now <= (command_count + 31) >> 5;
    end
    `SEEN(put && left == 1); `SEEN(command_done && wiping && wiped && left > 35);
    `SEEN(command_done && !wiping);
    if (rst) begin busy <= 0; kept <= 0; end
  end
"""

FRAME_SYMBOL = """
  // Banks answer in any clock, each of its part of the frame; symbols of eights of rows are free, 0 or 1.
  (* anyconst *) wire [15:0] symbols; reg busy = 0; reg [1:0] owed = 0, told = 0; integer i;
  reg [2:0] at_a = 0, at_b = 0; reg [3:0] words_a = 0, words_b = 0, most, best_a, best_b;
  wire [1:0] first = port_row[6:5]; wire [13:0] rows = (port_count + 31) >> 5, eights = (rows + 7) >> 3;
  always @* begin
    most = 0; best_a = 0; best_b = 0;
    for (i = 0; i < 16; i = i + 1)
      if (i >= 4 * first && i < 4 * first + eights && symbols[i] > most) most = symbols[i];
    for (i = 0; i < 8; i = i + 1) begin
      if (i >= at_a && i < at_a + words_a && symbols[8 * (i / 4) + i % 4] > best_a)
        best_a = symbols[8 * (i / 4) + i % 4];
      if (i >= at_b && i < at_b + words_b && symbols[8 * (i / 4) + 4 + i % 4] > best_b)
        best_b = symbols[8 * (i / 4) + 4 + i % 4];
    end
  end
  always @(posedge clk) begin
    assume(!port_ask || (!busy && port_count != 0 && port_count <= 4096 && 4 * first + eights <= 16));
    assume(port_row[4:0] == 0);
    if (busy) assume($stable(port_row) && $stable(port_count));
    assume((known & ~owed) == 0);
    assume(symbol_a == best_a && symbol_b == best_b);
    if (!rst) begin
      if (ask != 0) `RULE(busy && (ask & (owed | told)) == 0 && row[2:0] == 0);
      if (port_known) `RULE(busy && told == 3 && port_symbol == most);
    end
    if (ask[0]) begin at_a <= row[5:3]; words_a <= words; end
    if (ask[1]) begin at_b <= row[5:3]; words_b <= words; end
    owed <= rst ? 0 : (owed | ask) & ~known;
    told <= rst || port_ask ? 0 : told | known;
    busy <= !rst && (port_ask || (busy && !port_known));
    `SEEN(port_known && eights == 9 && !rst);
  end
"""

ROWS_OUT = """
  // A row that is taken comes ten clocks later, a word a clock.
  reg busy = 0; reg [3:0] words = 0, words_now; reg [2:0] rows = 0, rows_now;
  reg [12:0] there = 0; reg [77:0] past;
  wire gone = m_axis_values_tvalid && m_axis_values_tready;
  wire told = m_axis_descriptors_tvalid && m_axis_descriptors_tready;
  wire [5:0] at = command_first + words[3:2], told_at = command_first + rows;
  wire [1:0] part = there[9] ? 0 : there[10] ? 1 : there[11] ? 2 : 3;
  wire [5:0] now = past[6 * (9 + part) +: 6];
  always @(posedge clk) begin
    assume(!command_start || (command_idle && !command_done && command_count != 0 && command_count <= 96));
    if (busy) assume($stable(command_first) && $stable(command_count));
    assume(!taken || (want && there[2:0] == 0));
    assume(comes == (there[12:9] != 0));
    if (comes) assume(data == {now, part});
    if (comes && part != 3) assume(descriptor == now);
    if (!rst) begin
      if (want) `RULE(busy && (bank == 1 || bank == 2));
      if (m_axis_values_tvalid) begin
        `RULE(busy && words < words_now && m_axis_values_tlast == (words + 4'd1 == words_now));
        `RULE(m_axis_values_tdata == {at, words[1:0]});
      end
      if (m_axis_descriptors_tvalid) begin
        `RULE(busy && rows < rows_now && m_axis_descriptors_tlast == (rows + 3'd1 == rows_now));
        `RULE(m_axis_descriptors_tdata == told_at);
      end
      if (command_done) `RULE(busy && words == words_now && rows == rows_now);
    end
    there <= rst ? 0 : {there, taken}; past <= {past, row[4:2], bank[1], row[1:0]};
    if (gone) words <= words + 1;
    if (told) rows <= rows + 1;
    if (command_done) busy <= 0;
    if (command_start) begin
      busy <= 1; words <= 0; rows <= 0; words_now <= (command_count + 7) >> 3;
      rows_now <= (command_count + 31) >> 5;
    end
    `SEEN(command_done); `SEEN(gone && words == 4);
    if (rst) busy <= 0;
  end
"""
