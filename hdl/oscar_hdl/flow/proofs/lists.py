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
  wire fired = fire_put && fire_entry[1:0] == who;
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
      if (fired && known) `RULE(owed || fires);
    end
    owed <= !rst && !status_clear && (fires || owed) && !fired;
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

FRAME_FINDER = """
  // A list is armed whole, entry by entry, before it is active; `stop` ends it, and then what is looked at.
  reg begun = 0, was = 0; reg [1:0] seen = 0; reg [1:0] settles = 0;
  wire [1:0] all = (3'd1 << run_entries) - 3'd1;
  // One entry, any of them, with any name; no other RECEIVE of the list has this one.
  (* anyconst *) wire who; (* anyconst *) wire [47:0] mine;
  reg open = 0, owed = 0, ended = 0, made = 0; reg [1:0] need = 0; reg [7:0] its = 0;
  reg [3:0] shown = 0; reg [4:0] waits = 0;
  wire here = oldest_there && mine == {oldest_peer, oldest_sub, oldest_chunk, oldest_step};
  wire free = need == 0 || need == 3, may = free || ended || (need == 1 && made);
  wire armed_who = armed_put && armed_entry == who, found_who = found_valid && found_entry == who;
  always @(posedge clk) begin
    assume(run_entries != 0 && run_entries <= 2);
    assume(!run_started || (run_running && !begun && !run_active && !run_stop));
    assume(!armed_put || (begun && !was && !run_active && armed_entry < run_entries));
    assume(!armed_put || !seen[armed_entry[0]]);
    assume(!run_active || (run_running && settles == 0 && seen == all && !run_idle));
    if (began && !rst && !$past(rst)) begin
      if ($past(run_running)) assume($stable(run_entries) || !run_running);
      if ($past(run_active) && !run_active) assume($past(run_stop));
      if (was && !$past(run_active)) assume(!run_active);
      if ($past(run_running) && !run_running) assume($past(run_stop && !run_active && !run_looking));
      if ($past(run_stop && run_running)) assume(run_stop || !run_running);
      // A frame stays the oldest until it has left; then there is none for a clock.
      if ($past(oldest_there && !held_gone))
        assume(oldest_there && $stable({oldest_peer, oldest_sub, oldest_chunk, oldest_step}));
      if ($past(held_gone)) assume(!oldest_there);
      assume(!held_gone || (oldest_there && !$past(held_hold)));
    end
    assume(!run_stop || run_running);
    assume(!held_gone || !held_hold); assume(!held_refused || !held_hold);
    assume(!found_given || (found_valid && !run_idle));
    assume(!armed_put || !armed_open || (armed_name == mine) == (armed_entry == who));
    // The gate shows what it is some clocks after it was asked for.
    if (shown == 10 && gate_state == 3) assume(ended);
    if (shown == 10 && gate_left == 0) assume(made);
    if (shown == 10 && ended) assume(gate_state == 3);
    if (shown == 10 && made) assume(gate_left == 0);
    shown <= run_active && gate_at == its ? shown + (shown != 10) : 0;
    if (!rst && began) begin
      if (found_who) `RULE(open && here && may);
      if (held_discard) `RULE(run_running && !(open && here));
      if (run_running && !held_hold && !held_discard && here) `RULE(!open);
      `RULE(waits <= 14);
    end
    waits <= !rst && run_active && !run_stop && open && here && free &&
      !found_valid && !found_aborts && !owed ? waits + 1 : 0;
    owed <= !rst && (found_aborts || (owed && !found_returned));
    if (armed_who) begin open <= armed_open; need <= armed_need; its <= armed_gate; end
    else if (found_given && found_entry == who) open <= 0;
    else if (owed && found_returned && found_entry == who) open <= 1;
    if (run_active && again_ended) ended <= 1;
    if (run_active && again_made) made <= 1;
    begun <= run_running && (begun || run_started); was <= run_running && (was || run_active);
    seen <= run_started ? 0 : armed_put ? seen | 2'd1 << armed_entry : seen;
    settles <= armed_put ? 3 : settles - (settles != 0);
    `SEEN(!rst && found_who && need == 2); `SEEN(!rst && held_discard); `SEEN(owed && found_returned);
    if (run_started) begin open <= 0; ended <= 0; made <= 0; end
    if (rst) begin open <= 0; begun <= 0; was <= 0; seen <= 0; waits <= 0; end
  end
  (* anyseq *) wire again_ended, again_made;
"""

COMMAND_LIST = """
  // Any list of two entries, and which of them a command_port refuses.
  (* anyconst *) wire [383:0] words; (* anyconst *) wire [1:0] refuses;
  wire [63:0] trigger_0 = words[128 +: 64], trigger_1 = words[320 +: 64];
  wire [1:0] kind = {trigger_1[63], trigger_0[63]}; wire two = run_entries == 2;
  wire [1:0] sends_now = {two & kind[1], kind[0]};
  // SENDs have no gate and no need, RECEIVEs nothing else; who names another names a SEND of the list.
  wire stray_0 = (trigger_0 & (kind[0] ? 64'h7fff00ffc0f80000 : 64'h7cffff00ffffffff)) != 0;
  wire stray_1 = (trigger_1 & (kind[1] ? 64'h7fff00ffc0f80000 : 64'h7cffff00ffffffff)) != 0;
  wire [7:0] its_0 = trigger_0[39:32], its_1 = trigger_1[39:32], behind_0 = trigger_0[47:40];
  wire gate_0 = trigger_0[57:56] == 3 ? its_0 == 0 : its_0 < 2 && sends_now[its_0[0]];
  wire gate_1 = trigger_1[57:56] == 3 ? its_1 == 0 : its_1 < 2 && sends_now[its_1[0]];
  wire next_0 = behind_0 == 0 || (behind_0 == 1 && sends_now[1]), next_1 = trigger_1[47:40] == 1;
  wire [1:0] fits = {!stray_1 && (kind[1] ? next_1 : gate_1), !stray_0 && (kind[0] ? next_0 : gate_0)};
  wire [1:0] good = fits & ~refuses;
  reg [2:0] place = 0; reg [1:0] loaded = 0; reg running = 0, owed = 0;
  reg [1:0] fired = 0, sent = 0; reg first_fired;
  reg [1:0] tried = 0, armed_now = 0; reg [3:0] stuck = 0;
  reg [2:0] age = 0; reg gone = 0, woke = 0;
  wire came = s_axis_list_tvalid && s_axis_list_tready, wrong_size = place != 2 && place != 5;
  wire issue = command_issue_receive || command_issue_send, now = run_entry[0];
  wire [63:0] first = now ? words[192 +: 64] : words[0 +: 64];
  wire [63:0] second = now ? words[256 +: 64] : words[64 +: 64];
  wire [63:0] trigger = now ? trigger_1 : trigger_0; wire at = update_entry[0];
  wire [63:0] its = at ? trigger_1 : trigger_0; wire arms = update_valid && update_what[2:1] == 0;
  wire all_good = good[0] && (good[1] || !two);
  always @(posedge clk) begin
    // A list takes some sixty clocks to its first commands: there is one, behind a reset; no pauses, no stop.
    assume(!rst || !began); assume(s_axis_list_tvalid == (woke && loaded == 0));
    assume(s_axis_list_tlast == (place == 5)); assume(run_go == (loaded != 0 && !gone));
    assume(update_taken == update_valid);
    if (place < 6) assume(s_axis_list_tdata == words[64 * place +: 64]);
    assume(!command_judged || (owed && age == 4));  // a command_port takes five clocks
    assume(command_bad == refuses[tried[0]] || !command_judged);
    // The tracker: a SEND fires once it is armed, once.
    assume(!fire_put || (running && fire_entry < armed_now));
    assume(!fire_put || (sends_now & ~fired) >> fire_entry[0] & 1);
    assume(!found_valid || (run_active && found_entry < run_entries && !kind[found_entry[0]]));
    assume(!run_stop);
    if (began && !rst && !$past(rst)) begin
      if (running || $past(run_go)) assume($stable(run_entries));
      if ($past(found_valid && !found_given))
        assume(found_valid && $stable(found_entry));
      `RULE(bad == $past(came && s_axis_list_tlast && wrong_size));
      `RULE(run_started == $past(run_go && run_entries == loaded && loaded != 0));
      `RULE(run_refused == $past(run_go && !(run_entries == loaded && loaded != 0)));
      // Judged one by one, whatever comes of it; the first that is not good ends the list.
      if (issue) `RULE(running && !owed && command_first == first && command_second == second);
      if (issue) `RULE(command_issue_send == trigger[63] && command_issue_receive == !trigger[63]);
      if (issue && command_trial) `RULE(run_entry == tried && tried < run_entries && armed_now == 0);
      if (run_wrong) `RULE(running && run_entry == tried - 2'd1 && !good[now]);
      if (run_wrong) `RULE(run_error == (refuses[now] ? 1 : 2) && armed_now == 0);
      // Armed one by one, if and only if all are good.
      if (armed_put || arms) `RULE(running && all_good && tried == run_entries);
      if (armed_put) `RULE(armed_entry == armed_now && armed_now < run_entries && armed_open == !trigger[63]);
      if (armed_put && armed_open)
        `RULE(armed_name == {second[59:52], first[63:56], first[31:0]} && armed_gate == trigger[39:32]);
      if (armed_put && armed_open) `RULE(armed_need == trigger[57:56]);
      if (arms) `RULE(update_entry < run_entries && update_what == its[63]);
      if (arms && its[63]) `RULE(update_events == its[29:24] && update_values == its[18:0]);
      if (run_active) `RULE(running && armed_now == run_entries);
      `RULE(stuck < 12);
      // Given is what has fired or was found.
      if (issue && !command_trial) `RULE(run_active);
      if (command_issue_send && !command_trial)
        `RULE(fired != sent && run_entry == (sent == 0 ? first_fired : !first_fired) && sends_put);
      if (command_issue_receive && !command_trial) `RULE(found_given && run_entry == found_entry);
      if (sends_put) `RULE(command_issue_send && !command_trial && sends_entry == run_entry);
      if (receives_put) `RULE(command_issue_receive && !command_trial && receives_entry == run_entry);
      if (receives_put) `RULE(receives_gate == trigger[39:32] && receives_counts == !trigger[57]);
      `RULE(!found_given || receives_put);
    end
    place <= came ? (s_axis_list_tlast ? 0 : place + (place != 7)) : place;
    if (came) loaded <= s_axis_list_tlast && !wrong_size ? 1 + (place == 5) : 0;
    woke <= began; gone <= gone || run_go;
    running <= run_started || (running && !run_wrong);
    if (run_started) begin tried <= 0; armed_now <= 0; end
    else begin
      tried <= tried + (command_judged && owed); armed_now <= armed_now + armed_put;
    end
    age <= owed ? age + (age != 4) : 0;
    owed <= (issue && command_trial) || (owed && !command_judged);
    if (fire_put) fired <= fired | 2'd1 << fire_entry[0];
    if (fire_put && fired == 0) first_fired <= fire_entry[0];
    if (sends_put) sent <= sent | 2'd1 << run_entry[0];
    stuck <= run_started || !running || issue || owed || armed_put || update_valid|| run_active ?
      0 : stuck + 1;
    `SEEN(!rst && run_active && two); `SEEN(!rst && run_wrong && run_entry == 1);
    `SEEN(!rst && found_given); `SEEN(!rst && sends_put);
    if (rst) begin
      place <= 0; loaded <= 0; running <= 0; owed <= 0; tried <= 0; armed_now <= 0;
      fired <= 0; sent <= 0; stuck <= 0;
    end
  end
"""
