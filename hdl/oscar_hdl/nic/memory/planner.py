"""The next iteration's chunk plan, for registers: the splitter, what feeds it, and the boundaries."""

from myhdl import Signal, always, always_comb, block, concat, enum

from oscar_hdl.nic.control.registers import BY_NAME, PLAN_EDGES, places
from oscar_hdl.nic.memory.splitter import splitter
from oscar_hdl.nic.memory.sum_feed import sum_feed
from oscar_hdl.streams.bundles import Stream, bit, word


@block
def planner(
    clk, rst, s_axis_sums: Stream, segment, issue, order, edge_index, edge, result, cut, refused, wants, *,
    granule_log2: int, blocks_log2: int,
):  # fmt: skip
    """Cut chunks of equal cost from the sums that pass, as PLAN_COMMAND asks (docs/reference/registers.md).

    s_axis_sums: Stream(128, keep=16), see sum_feed. segment, issue: strobes, with order u32: writes to
    PLAN_SEGMENT and PLAN_COMMAND. edge_index u4 -> edge u16 one clock later: a boundary as a number of
    blocks. result u10: running, equal, how many plans were cut (u8). cut, refused: strobes: a plan is made;
    a command is not taken. wants (level): the next packet counts. Blocks have 2^granule_log2 values; a
    gradient has up to 2^blocks_log2 of them.
    """
    segment_fields, cut_fields = BY_NAME["PLAN_SEGMENT"], BY_NAME["PLAN_COMMAND"]
    PLACE_BITS, BLOCK_BITS = granule_log2 + blocks_log2, blocks_log2 + 1
    (FIRST, _), (COUNTS, _) = places(segment_fields.fields, "first", "count")
    (NODES, NODES_END), (BLOCKS, BLOCKS_END) = places(cut_fields.fields, "nodes", "blocks")
    CUT, CLEAR = cut_fields.field("cut").low, cut_fields.field("clear").low
    FIRST_END, MOST_NODES, MOST_BLOCKS = FIRST + PLACE_BITS, PLAN_EDGES + 1, 1 << blocks_log2
    UNUSED = ~cut_fields.mask & 0xFFFFFFFF

    states = enum("FORGET", "READY", "JUDGE", "WAIT", "CLEAR", "CLEARING", "CUT", "CUTTING")
    state = Signal(states.FORGET)
    fed, edges, place, idle = Stream(16), Stream(16), word(PLACE_BITS), bit()
    first, counts = order(FIRST_END, FIRST), order(COUNTS)
    nodes, blocks, given = word(5), word(BLOCK_BITS), word(32)
    begin = bit()
    clear, finish, equal, done, bad = (bit() for _ in range(5))
    kept, edge_at, cuts, running = [word(16) for _ in range(16)], word(4), word(8), bit()

    feed = sum_feed(clk, rst, begin, first, counts, running, s_axis_sums, fed, place, idle, wants)
    split = splitter(
        clk, rst, clear, nodes, blocks, place, fed, finish, edges, equal, done, granule_log2=granule_log2
    )

    @always_comb
    def show():
        begin.next = segment and order[COUNTS:FIRST_END] == 0
        clear.next = state == states.CLEAR
        finish.next = state == states.CUT
        running.next = state != states.READY
        edges.tready.next = True

    @always_comb
    def tell():
        result.next = concat(running, equal, cuts)

    @always(clk.posedge)
    def judge():
        if state == states.READY:
            given.next = order
        nodes.next = given[NODES_END:NODES]
        blocks.next = given[BLOCKS + BLOCK_BITS : BLOCKS]
        bad.next = (given & UNUSED) != 0 or given[CUT] == given[CLEAR]
        if given[CUT] and (
            given[NODES_END:NODES] == 0
            or given[NODES_END:NODES] > MOST_NODES
            or given[BLOCKS_END:BLOCKS] == 0
            or given[BLOCKS_END:BLOCKS] > MOST_BLOCKS
        ):
            bad.next = True

    @always(clk.posedge)
    def sequence():
        refused.next = (issue and state != states.READY) or (segment and not begin)
        cut.next = False
        if state == states.FORGET:
            state.next = states.CLEAR
        elif state == states.READY:
            if issue:
                state.next = states.JUDGE
        elif state == states.JUDGE:
            state.next = states.WAIT
        elif state == states.WAIT:
            if bad:
                refused.next = True
                state.next = states.READY
            elif idle:
                state.next = states.CUT
                if given[CLEAR]:
                    state.next = states.CLEAR
        elif state == states.CLEAR:
            state.next = states.CLEARING
        elif state == states.CLEARING:
            if fed.tready:
                state.next = states.READY
        elif state == states.CUT:
            state.next = states.CUTTING
        elif done:
            state.next = states.READY
            cuts.next = cuts + 1
            cut.next = True
        if rst:
            state.next = states.FORGET
            cuts.next = 0
            refused.next = False

    @always(clk.posedge)
    def keep():
        if finish:
            edge_at.next = 0
        if edges.tvalid:
            kept[edge_at].next = edges.tdata
            edge_at.next = edge_at + 1
        edge.next = kept[edge_index]

    return feed, split, show, tell, judge, sequence, keep
