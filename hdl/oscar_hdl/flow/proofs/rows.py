"""Rules of the blocks that load and read rows of memory: SystemVerilog of their ports (proofs.py)."""

from __future__ import annotations

ROW_PORT = """
  // A loader is idle between commands, and takes words inside one; one clear is asked for at a time.
  reg busy = 0, waiting = 0, asked = 0, inside = 0, owed = 0, fits = 0, lacking = 0, due = 0;
  reg [2:0] delay = 0; reg [1:0] waits = 0;
  reg flag = 0, adding = 0, stale = 0, granted = 0, refused = 0, tell = 0;
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
      if (command_start && !command_clear)
        `RULE(command_first == row_now && command_count == count_now && command_adds == adding);
      if (command_start && command_clear)
        `RULE(!busy && asked && !command_adds && command_first == first_row && command_count == {rows, 5'd0});
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
      flag <= s_axis_tdata[62]; adding <= s_axis_tdata[63];
      fits <= s_axis_tdata[61:32] != 0 && s_axis_tdata[61:51] == 0 && end_now <= 1024 &&
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
  // Two banks, blocks of two rows. A row is written when its words have come, a word for each bank in each of
  // phases 1, 2, 3 and 0, of the rows that the packet has there. Of any word of any bank lane 5 is followed:
  // it is written, or behind the last value 0, with what there was if it is added. A row that is added to was
  // read before, and comes nine clocks later. There is one reset: another of 16 clocks would leave no time.
  reg busy_now = 0; reg [3:0] step = 0; reg [1:0] part = 0; reg [5:0] taken_words = 0; reg [12:0] begun = 0;
  reg [127:0] before;
  wire came = s_axis_values_tvalid && s_axis_values_tready, put = enable != 0;
  wire skip = command_first[1];
  wire [3:0] last = (command_count - 19'd1) >> 5, place = skip + (last >> 1);
  wire alone = last < 2 || !place[0];
  wire [3:0] steps = {place[3:1], alone ? last[0] : 1'b1} + 4'd1;
  wire [1:0] rest = (command_count - 19'd1) >> 3;
  wire [5:0] words = {steps - 4'd1, alone ? rest : 2'd3} + 6'd1;
  (* anyconst *) wire [5:0] one; (* anyconst *) wire bank; reg [15:0] value;
  wire [15:0] put_value = bank ? data[208 +: 16] : data[80 +: 16];
  wire [15:0] old_value = command_adds ? before[80 +: 16] : 0;
  reg [1:0] here; reg over; reg [4:0] r; integer b;
  always @* begin
    over = 0;
    for (b = 0; b < 2; b = b + 1) begin
      r = {2 * step[3:1] + b - skip, step[0]};
      here[b] = 2 * step[3:1] + b >= skip && r <= last;
      if (bank == b) over = 32 * r + 8 * part + 5 >= command_count;
    end
  end
  always @(posedge clk) begin
    assume(!command_start || (command_idle && command_count != 0 && command_count <= 192));
    assume(!command_first[0]);
    if (busy_now) assume($stable(command_first) && $stable(command_count) && $stable(command_adds));
    assume(!began || phase == $past(phase) + 4'd1);
    assume(!taken || (want && phase[1:0] == 3));
    assume(!rst || !began);
    if (!rst) begin
      if (came) `RULE(busy_now && taken_words < words);
      if (want) `RULE(busy_now && command_adds && phase[1:0] == 3 && !$past(busy));
      if (part != 0) `RULE(put);
      if (put) begin
        `RULE(busy_now && step < steps && phase[1:0] == part + 2'd1 && enable == here);
        `RULE({step, part} + 6'd4 - part <= taken_words || taken_words == words);
        if (part == 0) `RULE(row == {command_first[4:2], 1'b0} + step);
        if (part == 0 && command_adds) `RULE(begun[9]);
        if (here[bank] && (over || {step, part} == one))
          `RULE(put_value == (over ? 16'd0 : value) + old_value);
      end
      if (command_done) `RULE(busy_now && part == 0 && step == steps);
    end
    begun <= {begun, taken}; before <= old;
    if (came) taken_words <= taken_words + 1;
    if (came && taken_words == one)
      value <= bank ? s_axis_values_tdata[208 +: 16] : s_axis_values_tdata[80 +: 16];
    if (put) begin part <= part + 1; if (part == 3) step <= step + 1; end
    if (command_done) busy_now <= 0;
    if (command_start) begin busy_now <= 1; taken_words <= 0; step <= 0; part <= 0; end
    `SEEN(command_done && enable == 0 && command_adds); `SEEN(enable == 3 && command_adds);
  end
"""

LOADER_ORDER = """
  // One bank. One row, any: what a decoder is given is read at once, and its sums and their
  // kind are written within 45 clocks; what a loader takes is read from the second clock on, and written
  // within 27.
  (* anyconst *) wire [4:0] one; reg [5:0] decoded = 0; reg [4:0] loaded = 0, asked; reg was = 0;
  wire reads = taken && at == one, gives = given && asked == one;
  always @(posedge clk) begin
    assume(!command_start || (command_idle && command_count != 0 && command_count < 1024));
    assume(command_first + ((command_count + 31) >> 5) <= 32);
    assume(began ? phase == $past(phase) + 4'd1 : phase == 0);
    if (!command_idle || command_start) assume($stable(command_first) && $stable(command_count));
    if (!command_idle || command_start) assume($stable(command_adds));
    assume(!taken || (want && phase[1:0] == 3));
    if (!rst) begin
      if (reads) `RULE(decoded <= 2 && loaded == 0 && !gives);
      if (gives) `RULE(decoded == 0 && loaded == 0);
      if (command_done) `RULE(loaded <= 1);
    end
    asked <= row; decoded <= gives ? 45 : decoded - (decoded != 0);
    loaded <= reads ? 27 : loaded - (loaded != 0);
    `SEEN(reads && !rst && decoded == 2); `SEEN(gives && was && !rst);
    was <= was || reads;
    if (rst) begin decoded <= 0; loaded <= 0; was <= 0; end
  end
"""

SIDE_IN = """
  // Two banks, blocks of 32 rows. In each step a word for each bank: its row's header and distances; headers
  // of 0 to the end of the last group. Or each row is cleared once, and none but those from the first on.
  reg busy = 0, kept = 0, wiping; reg [7:0] step = 0; reg [255:0] word; wire skip = command_first[5];
  wire came = s_axis_side_tvalid && s_axis_side_tready, put = header != 0 || distances != 0;
  wire [7:0] last = (command_count - 19'd1) >> 5; wire [3:0] place = skip + (last >> 5);
  wire alone = last < 32 || !place[0]; wire [7:0] steps = {place[3:1], alone ? last[4:0] : 5'd31} + 8'd1;
  reg [1:0] here, over; reg [8:0] r; integer b;
  always @*
    for (b = 0; b < 2; b = b + 1) begin
      r = {2 * step[7:5] + b - skip, step[4:0]};
      here[b] = 2 * step[7:5] + b >= skip && r <= last;
      over[b] = 2 * step[7:5] + b >= skip && r > last && r <= (last | 31);
    end
  (* anyconst *) wire [6:0] one; reg wiped = 0; wire [7:0] offset = {1'b0, one} - command_first;
  wire now = clear[one[5]] && row == {one[6], one[4:3], 3'd0} && lanes[one[2:0]];
  always @(posedge clk) begin
    assume(!command_start || (command_idle && !command_done && command_count != 0 && command_count < 4096));
    assume(command_first[4:0] == 0);
    assume(!command_start || command_first + ((command_count + 31) >> 5) <= 128);
    if (busy) assume($stable(command_first) && $stable(command_count) && $stable(command_clear));
    assume(!began || phase == $past(phase) + 4'd1);
    if (!rst) begin
      if (came) `RULE(busy && !wiping && step < steps && !kept && phase[1:0] == 0);
      if (put) begin
        `RULE(busy && !wiping && phase[1:0] == 1 && clear == 0);
        `RULE(row == {command_first[6], 5'd0} + step);
        `RULE(kept == (step < steps) && header == (here | over) && distances == (kept ? here : 0));
        if (header[0]) `RULE(header_data[14:0] == (over[0] ? 15'd0 : word[14:0]));
        if (header[1]) `RULE(header_data[29:15] == (over[1] ? 15'd0 : word[142:128]));
        if (distances[0]) `RULE(data[95:0] == word[127:32]);
        if (distances[1]) `RULE(data[191:96] == word[255:160]);
        if (step + 8'd1 >= steps) `RULE(behind || command_done);
      end
      if (clear != 0) `RULE(busy && wiping && phase[1:0] == 1 && !put);
      if (now) `RULE(!wiped && one >= command_first && offset <= last);
      if (command_done) `RULE(busy);
      if (command_done && !wiping) `RULE(put && step + 8'd1 >= steps && step[4:0] == 31);
      if (behind) `RULE(busy && !wiping && step + 8'd1 >= steps);
      if (busy && $past(command_done) && wiping) `RULE(wiped || one < command_first || offset > last);
    end
    if (came) begin word <= s_axis_side_tdata; kept <= 1; end
    if (put) begin step <= step + 1; kept <= 0; end
    wiped <= busy && (wiped || now);
    if (busy && $past(command_done)) busy <= 0;
    if (command_start) begin busy <= 1; wiping <= command_clear; step <= 0; wiped <= 0; end
    `SEEN(put && over != 0); `SEEN(command_done && wiping && wiped && last > 34);
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
  // Two banks, blocks of two rows. A row of both that is taken comes ten clocks later, a word a clock.
  reg busy = 0; reg [5:0] words = 0; reg [3:0] told_steps = 0; reg [12:0] there = 0; reg [51:0] past;
  wire gone = m_axis_values_tvalid && m_axis_values_tready;
  wire told = m_axis_descriptors_tvalid && m_axis_descriptors_tready;
  wire [3:0] last = (command_count - 19'd1) >> 5, place = command_first[1] + (last >> 1);
  wire alone = last < 2 || !place[0];
  wire [3:0] steps = {place[3:1], alone ? last[0] : 1'b1} + 4'd1;
  wire [1:0] rest = (command_count - 19'd1) >> 3;
  wire [5:0] number = {steps - 4'd1, alone ? rest : 2'd3} + 6'd1;
  wire [3:0] at = {command_first[4:2], 1'b0} + words[5:2], told_at = {command_first[4:2], 1'b0} + told_steps;
  wire [1:0] part = there[9] ? 0 : there[10] ? 1 : there[11] ? 2 : 3;
  wire [3:0] now = past[4 * (9 + part) +: 4];
  always @(posedge clk) begin
    assume(!command_start || (command_idle && !command_done && command_count != 0 && command_count <= 160));
    assume(!command_first[0]);
    if (busy) assume($stable(command_first) && $stable(command_count));
    if (busy && $past(busy)) assume(!waits || $past(waits));
    assume(!taken || (want && there[2:0] == 0));
    assume(comes == (there[12:9] != 0));
    if (comes) assume(data == {now, 2'd2, part, now, 2'd1, part});
    if (comes && part != 3) assume(descriptor == {5'd2, now, 2'd0, 5'd1, now, 2'd0});
    if (!rst) begin
      if (want) `RULE(busy);
      if (m_axis_values_tvalid) begin
        `RULE(busy && words < number && m_axis_values_tlast == (words + 6'd1 == number));
        `RULE(m_axis_values_tdata == {at, 2'd2, words[1:0], at, 2'd1, words[1:0]});
        `RULE(!(waits && m_axis_values_tlast));
      end
      if (m_axis_descriptors_tvalid) begin
        `RULE(busy && told_steps < steps && m_axis_descriptors_tlast == (told_steps + 4'd1 == steps));
        `RULE(m_axis_descriptors_tdata == {5'd0, 5'd2, told_at, 2'd0, 5'd0, 5'd1, told_at, 2'd0});
      end
      if (command_done) `RULE(busy && words == number && told_steps == steps);
    end
    there <= rst ? 0 : {there, taken}; past <= {past, row};
    if (gone) words <= words + 1;
    if (told) told_steps <= told_steps + 1;
    if (command_done) busy <= 0;
    if (command_start) begin busy <= 1; words <= 0; told_steps <= 0; end
    `SEEN(command_done); `SEEN(gone && words == 4);
    if (rst) busy <= 0;
  end
"""

SUM_ROWS = """
  // A row that is taken comes ten clocks later, a word a clock; words leave in the order of rows.
  reg on = 0, was = 0; reg [5:0] words = 0; reg [12:0] there = 0; reg [64:0] past;
  wire gone = m_axis_tvalid && m_axis_tready;
  wire [5:0] number = (command_count + 19'd7) >> 3; wire [4:0] at = command_first + words[5:2];
  wire [3:0] values = command_count[2:0] != 0 ? command_count[2:0] : 8;
  wire [1:0] part = there[9] ? 0 : there[10] ? 1 : there[11] ? 2 : 3;
  wire [4:0] now = past[5 * (9 + part) +: 5];
  always @(posedge clk) begin
    assume(!command_start || (!reads && command_count != 0 && command_count <= 160));
    if (on) assume($stable(command_first) && $stable(command_count));
    assume(!taken || (want && there[2:0] == 0));
    assume(comes == (there[12:9] != 0));
    if (comes) assume(data == {121'd0, now, part});
    if (!rst) begin
      `RULE(reads == (on || was));
      if (want) `RULE(on && (bank == 1 || bank == 2));
      if (m_axis_tvalid) begin
        `RULE(on && words < number && m_axis_tlast == (words + 6'd1 == number));
        `RULE(m_axis_tdata == {121'd0, at, words[1:0]});
        `RULE(m_axis_tkeep == (m_axis_tlast ? (17'd1 << 2 * values) - 1 : 17'h0FFFF));
      end
    end
    there <= rst ? 0 : {there, taken}; past <= {past, row[3:1], bank[1], row[0]};
    was <= on && !rst;
    if (gone) words <= words + 1;
    if (gone && words + 6'd1 == number) on <= 0;
    if (command_start && counts) begin on <= 1; words <= 0; end
    `SEEN(gone && words == 4 && m_axis_tlast);
    if (rst) on <= 0;
  end
"""
