"""Rules of the blocks that take frames apart and make them: SystemVerilog of their ports (proofs.py)."""

from __future__ import annotations

from oscar_hdl.nic.send.head_writer import FIRST

DEFRAMER = """
  // The ring: frames between tail and head are never written to; tail follows head.
  wire [4:0] kept = head - tail, used = wr_addr - tail, ahead = wr_addr - head;
  wire came = s_axis_rx_tvalid && s_axis_rx_tready;
  always @(posedge clk) begin
    if (began && !$past(rst)) begin
      assume(tail == $past(tail) || (tail - $past(tail)) <= (head - $past(tail)));
      `RULE(head == $past(head) || head == $past(wr_addr));
      `RULE(!wr_en || used >= kept);
      `RULE(!(came_lost && head != $past(head)));
      `RULE(came_push == (head != $past(head)));
    end
    if (rst || (began && $past(rst))) assume(tail == 0);
    `SEEN(came && s_axis_rx_tlast); `SEEN(came_lost);
  end
"""

FRAME_NAMES = """
  // A frame comes as the deframer lets it: four clocks apart, and the next only if `full` was low between.
  // Its name is put before, and holds.
  reg put = 0;
  reg [4:0] level = 0; reg [1:0] since = 0; reg open = 1; reg [1:0] waits = 0; reg [7:0] popped = 0;
  always @(posedge clk) begin
    assume(!gone || oldest_there);
    assume(!came_push || (open && since == 0 && put));
    assume(!came_put || (open && since == 0 && !came_push));
    if (put) assume($stable({came_peer, came_sub, came_chunk, came_step}));
    put <= !rst && (came_put || (put && !came_push));
    open <= rst ? 1 : came_push ? 0 : open || !came_full;
    since <= rst ? 0 : came_push ? 3 : since - (since != 0);
    level <= rst ? 0 : level + came_push - gone; popped <= rst ? 0 : popped + gone;
    waits <= rst || gone || level == 0 || oldest_there ? 0 : waits + 1;
    if (!rst && began && !$past(rst)) begin
      `RULE(level <= 4 && waits < 3);
      `RULE(!oldest_there || (level != 0 && oldest_number == popped));
      `RULE(oldest_arrived == (oldest_there && !$past(oldest_there)));
      if ($past(oldest_there && !gone)) `RULE(oldest_there && $stable({oldest_peer, oldest_step}));
      if ($past(oldest_there && !gone)) `RULE($stable({oldest_chunk, oldest_sub, oldest_number}));
    end
    `SEEN(level == 2 && gone); `SEEN(oldest_arrived);
  end
"""

RAW_FEEDER = """
  // The bytes from `first` on, two in a word that leaves; one byte is followed: which one is free.
  reg busy = 0; reg [4:0] given = 0; reg [19:0] size_now; reg odd_now; reg [4:0] unit = 0;
  (* anyconst *) wire [4:0] which; reg [7:0] expected; integer i;
  wire gone = m_axis_tvalid && m_axis_tready; reg [2:0] first_now;
  wire [4:0] byte_at = (given << 1);
  // A chunk comes for each that is asked for; one asked for before a block is not of it.
  reg asked = 0, stale = 0;
  always @(posedge clk) begin
    assume(!go || (idle && size != 0 && size < 20));
    assume(!land || asked);
    asked <= !rst && (ask || (asked && !land));
    stale <= !rst && (go ? (asked || ask) && !land : stale && !land);
    if (began && $past(go)) assume($stable(odd) && $stable(size));
    if (go) begin busy <= 1; given <= 0; unit <= 0; size_now <= size; odd_now <= odd; first_now <= first; end
    else if (land && !stale) begin
      for (i = 0; i < 8; i = i + 1)
        if (i >= first_now) begin
          if (2 * (unit + i - first_now) == which + odd_now) expected <= data >> 16 * i;
          if (2 * (unit + i - first_now) + 1 == which + odd_now) expected <= data >> 16 * i + 8;
        end
      unit <= unit + 8 - first_now; first_now <= 0;
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

PREFIX_READER = """
  // The unit comes some clocks after it was asked for, and stays until another is.
  reg busy = 0, waits = 0, built = 0, came = 0; reg [15:0] prefix;
  wire there = waits && units_ready, fits = prefix[10:0] == 12 && !prefix[15];
  always @(posedge clk) begin
    assume(!go || !busy);
    if (waits && $past(units_get)) assume(!units_ready);
    if (began && $past(units_ready && !units_get)) assume(units_ready && $stable(units_units));
    if (!rst) begin
      `RULE(!units_get || (busy && !waits && units_amount == 1));
      if (build) `RULE(busy && !built && came && fits && right && last == prefix[14:11]);
      if (done) `RULE(busy && came && right == fits && (built || build) == fits);
    end
    if (there) begin came <= 1; if (!came) prefix <= units_units[63:48]; end
    waits <= units_get || (waits && !units_ready); built <= built || build;
    if (go) begin came <= 0; built <= 0; end
    busy <= go || (busy && !done);
    `SEEN(done && !fits); `SEEN(done && fits);
    if (rst) begin busy <= 0; waits <= 0; end
  end
"""

HEAD_WRITER = """
  // Pairs of the header in order, then entries as they were written, each once it was. A frame may fail: then
  // its fields need not hold any more, its pairs are anything, and a start throws away what is left of it.
  (* anyseq *) wire fails; reg failed = 0;
  reg busy = 0, over = 0; reg [4:0] given = 0; reg [15:0] pair; reg [2:0] came = 0;
  reg [15:0] wrote [0:3]; reg [3:0] ends;
  wire gone = m_axis_tvalid && m_axis_tready; wire [4:0] listed = given - 5'd13;
  always @* case (given)
    0: pair = FIRST; 1: pair = fields_step; 2: pair = fields_chunk; 3: pair = {fields_width, fields_sub};
    4: pair = fields_sequence; 5: pair = fields_checksum; 6: pair = fields_count;
    7: pair = fields_count[18:16]; 12: pair = {fields_last, 11'd12};
    13, 14, 15, 16: pair = wrote[listed[1:0]]; default: pair = 0; endcase
  always @(posedge clk) begin
    assume(!start || !busy || over || failed);
    assume(!write || (busy && !start && came < 4 && fields_count != 0 && (came == 0 || !ends[came - 1])));
    if (busy && !failed) begin
      assume($stable({fields_step, fields_chunk, fields_sub, fields_width, fields_sequence}));
      assume($stable({fields_count, fields_checksum, fields_last}));
    end
    if (m_axis_tvalid && !rst && !failed) begin
      `RULE(busy && !over && m_axis_tkeep == 3 && m_axis_tdata == pair);
      if (given < 13) `RULE(m_axis_tlast == (given == 11 && fields_count == 0));
      else `RULE(listed < came && m_axis_tlast == ends[listed[1:0]]);
    end
    if (write) begin wrote[came[1:0]] <= entry; ends[came[1:0]] <= entry_last; came <= came + 1; end
    if (gone) begin given <= given + 1; over <= m_axis_tlast; end
    failed <= !start && (failed || (busy && fails));
    if (start) begin busy <= 1; over <= 0; given <= 0; came <= 0; end
    `SEEN(start && failed && m_axis_tvalid); `SEEN(gone && m_axis_tlast && given == 11);
    `SEEN(gone && m_axis_tlast && given == 15);
    if (rst) begin busy <= 0; failed <= 0; end
  end
""".replace("FIRST", f"{FIRST}")

RAW_PACKER = """
  // As many bytes as the values need, of one job; the last pair ends it.
  reg busy = 0, over = 0; reg [6:0] bytes = 0; wire gone = m_axis_tvalid && m_axis_tready;
  wire [6:0] wanted = (job_values[5:0] * job_width[4:0] + 7) >> 3;
  always @(posedge clk) begin
    assume(!job_start || (job_idle && !busy));
    assume(job_values != 0 && job_values < 40 && job_width != 0 && job_width <= 16);
    if (busy) assume($stable(job_values) && $stable(job_width));
    if (!rst) begin
      if (m_axis_tvalid) `RULE(busy && !over && (m_axis_tkeep == 3 || m_axis_tkeep == 1));
      if (m_axis_tvalid) `RULE(m_axis_tlast == (bytes + 1 + m_axis_tkeep[1] == wanted) && bytes < wanted);
      if (m_axis_tvalid && !m_axis_tlast) `RULE(m_axis_tkeep == 3);
      if (job_done) `RULE(busy && over);
      if (source_take) `RULE(busy && !over && $past(source_ok, 2));
    end
    if (gone) begin bytes <= bytes + 1 + m_axis_tkeep[1]; over <= m_axis_tlast; end
    busy <= job_start || (busy && !job_done);
    if (job_start) begin bytes <= 0; over <= 0; end
    `SEEN(job_done && bytes > 3);
    if (rst) busy <= 0;
  end
"""
