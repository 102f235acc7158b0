"""Sixteen 32-bit counters in one small memory, and what counts rows for them."""

from myhdl import always, block, modbv

from oscar_hdl.streams.bundles import bit, word


@block
def row_counter(clk, phase, takes, rows):
    """Set a bit of rows u3 for each row, a turn later.

    phase: a turn begins where its two lower bits are 0. takes: a bit for each unit (strobes), 12 at most; a
    unit takes a row a turn, always in the same clock of it.
    """
    UNITS = len(takes)
    if UNITS > 12:
        raise ValueError(f"rows of 12 units can be counted, got {UNITS}")
    taken, left = word(UNITS), word(max(UNITS, 3))

    @always(clk.posedge)
    def count():
        rows.next = left[3:]
        left.next = left >> 3
        if phase[2:] == 0:
            left.next = taken
            taken.next = takes
        else:
            taken.next = taken | takes

    return count


COUNTERS = 16
AHEAD_BITS = 6  # a counter is visited every 16 clocks
GROUP = 4  # counters among which one clock chooses


@block
def event_counters(clk, rst, events, second, third, rd_index, rd_count):
    """Count in how many clocks each bit is set, of `events`, `second` and `third` u16 together.

    rd_index u4 -> rd_count u32 one clock later; it lags up to 19 clocks. Memory is cleared in 21 clocks
    behind a reset; until then all read as 0.
    """
    if any(len(bits) != COUNTERS for bits in (events, second, third)):
        raise ValueError(f"events have {COUNTERS} bits, got {len(events)}, {len(second)}, {len(third)}")
    memory = [word(32) for _ in range(COUNTERS)]
    ahead = [word(AHEAD_BITS) for _ in range(COUNTERS)]  # counted since the last visit
    # turn: the counter that is visited next. visited: a bit for each, so that no choice is far from its
    # register. visit: the same as a number, and that of one and two clocks before.
    turn, visited, visit, visit_1, visit_2 = word(4), word(COUNTERS), word(4), word(4), word(4)
    chosen, counted = [word(AHEAD_BITS) for _ in range(COUNTERS // GROUP)], word(AHEAD_BITS)
    before, add, shown = word(32), bit(), bit()
    ones, twos = word(COUNTERS), word(COUNTERS)
    wr_en, wr_index, wr_count = bit(), word(4), word(32)

    @always(clk.posedge)
    def count():
        ones.next = events ^ second ^ third
        twos.next = (events & second) | (events & third) | (second & third)
        for i in range(COUNTERS):
            visited.next[i] = turn == i
            amount = modbv(0)[2:]
            amount[0] = ones[i]
            amount[1] = twos[i]
            if visited[i]:
                ahead[i].next = amount
            else:
                ahead[i].next = ahead[i] + amount
        if rst:
            ones.next = 0
            twos.next = 0
            for i in range(COUNTERS):
                ahead[i].next = 0

    @always(clk.posedge)
    def choose():
        one = modbv(0)[AHEAD_BITS:]
        for group in range(COUNTERS // GROUP):
            one[:] = 0
            for i in range(GROUP):
                if visited[GROUP * group + i]:
                    one |= ahead[GROUP * group + i]
            chosen[group].next = one
        one[:] = 0
        for group in range(COUNTERS // GROUP):
            one |= chosen[group]
        counted.next = one

    @always(clk.posedge)
    def keep():
        rd_count.next = 0
        if shown:
            rd_count.next = memory[rd_index]
        shown.next = add
        turn.next = (turn + 1) & 15
        visit.next = turn
        visit_1.next = visit
        visit_2.next = visit_1
        before.next = memory[visit_1]
        wr_en.next = True
        wr_index.next = visit_2
        wr_count.next = counted
        if add:
            wr_count.next = before + counted
        if visit_2 == COUNTERS - 1:
            add.next = True
        if wr_en:
            memory[wr_index].next = wr_count
        if rst:
            turn.next = 0
            visit.next = 0
            visit_1.next = 0
            visit_2.next = 0
            add.next = False
            shown.next = False
            wr_en.next = False

    return count, choose, keep
