"""Rules of the blocks of a list."""

from __future__ import annotations

TRACKER = """
  // Who has an update holds it until it is taken; an entry is armed once in a list, before all else.
  wire counts = made_taken && made_ends && !made_refused;
  wire [3:0] taken = {counts, sent_taken, received_taken, given_taken};
  wire [2:0] what = given_taken ? given_what : received_taken ? received_what : sent_taken ? sent_what : 6;
  wire [7:0] entry = given_taken ? given_entry : received_taken ? received_entry : sent_taken ? sent_entry :
    made_entry;
  wire update = taken != 0, arms = update && what[2:1] == 0; reg [3:0] seen = 0; reg [2:0] busy = 0;
  reg [5:0] active = 0; reg [8:0] listed = 0;  // the last clocks of run_active, and its entries
  // One entry, any of them: it fires when it was armed as a SEND and its events and values have come, and not
  // again.
  (* anyconst *) wire [1:0] who; reg known = 0, armed = 0, owed = 0; reg [5:0] left = 0;
  reg [18:0] rest = 0;
  wire fired = m_axis_fire_tvalid && m_axis_fire_tready && m_axis_fire_tdata[1:0] == who;
  wire here = update && entry[1:0] == who;
  wire fires = here && ((what == 1 && given_events == 0 && given_values == 0) ||
    (armed && ((what == 2 && left == 1 && rest == 0) || (what == 6 && left == 0 && rest == made_values))));
  always @(posedge clk) begin
    assume(given_entry < 4 && received_entry < 4 && sent_entry < 4);
    assume(received_what >= 2 && sent_what >= 2 && given_what < 6 && received_what < 6 && sent_what < 6);
    if (began && !rst && !$past(rst)) begin
      if ($past(given_valid && !given_taken))
        assume(given_valid && $stable({given_what, given_entry, given_events, given_values}));
      if ($past(received_valid && !received_taken))
        assume(received_valid && $stable({received_what, received_entry}));
      if ($past(sent_valid && !sent_taken)) assume(sent_valid && $stable({sent_what, sent_entry}));
      if ($past(given_taken)) assume(!given_valid);
      if ($past(received_taken)) assume(!received_valid);
      if ($past(sent_taken)) assume(!sent_valid);
      if ($past(made_valid && !made_taken))
        assume(made_valid && $stable({made_ends, made_entry, made_values}));
      if ($past(made_taken)) assume(!made_valid);
      if ($past(run_active)) assume($stable(run_entries) || !run_active);
    end
    // Values count when all entries of the list are armed; no entry is armed while values count.
    assume(run_entries <= 4 && made_values != 0);
    assume(!run_active || (~seen & ((5'd1 << run_entries) - 5'd1)) == 0);
    assume(!run_active || !((given_valid && given_what[2:1] == 0) || status_clear));
    active <= {active[4:0], run_active};
    if (run_active) listed <= run_entries;
    assume(!status_clear || !made_valid);
    assume(!status_clear || (!given_valid && !received_valid && !sent_valid && busy == 0));
    assume(!given_valid || given_what[2:1] != 0 || !seen[given_entry[1:0]] || given_taken);
    assume(!here || arms || seen[who]);
    seen <= rst || status_clear ? 0 : arms ? seen | 4'd1 << entry[1:0] : seen;
    busy <= rst ? 0 : update ? 5 : busy - (busy != 0);
    if (!rst && began) begin
      if (update) `RULE((taken & (taken - 4'd1)) == 0);
      if (made_taken) `RULE(made_valid);
      if (made_taken && !made_refused) `RULE(made_entry < 4);
      if (made_taken && made_entry == who && known && !made_refused) `RULE(armed && rest >= made_values);
      if (made_taken && made_refused && made_entry == who && known && &active && armed)
        `RULE(rest < made_values || made_entry >= listed);
      if (fired && known) `RULE(owed);
    end
    owed <= !rst && !status_clear && (fires || (owed && !fired));
    if (here && what[2:1] == 0) begin
      known <= 1; armed <= what[0] && (given_events != 0 || given_values != 0);
      left <= given_events; rest <= given_values;
    end else if (here && armed) begin
      if (fires) armed <= 0;
      if (what == 2 && left != 0) left <= left - 1;
      if (what == 6) rest <= rest - made_values;
    end
    if (rst) known <= 0;
    `SEEN(fired && known); `SEEN(fires && what == 2); `SEEN(fires && what == 6);
    `SEEN(made_taken && made_refused); `SEEN(status_wrong);
  end
"""
