"""The next iteration's chunk plan, from the sums of this one as they pass."""

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_hdl.streams.copied import chain


@block
def splitter(
    clk, rst, clear_smoothing, nodes, blocks, seg_start, s_axis: Stream, finish, m_axis: Stream, equal, done,
    *, granule_log2: int = 8,
):  # fmt: skip
    """Estimate what each block of 2^granule_log2 values costs to code, and cut the gradient into chunks of
    equal cost (docs/reference/protocol.md, "Chunk plans"); bit for bit as oscar.numerics.plans.splitter.

    clear_smoothing: strobe between iterations, and before the first: forget all costs. s_axis: Stream(16) of
    sums, in segments that end with tlast, in any order; seg_start: index of a segment's first value, sampled
    with it; its width says how many values there can be. finish: strobe, no earlier than with the last value;
    `nodes` u5 (1 to 16) and `blocks` (of the gradient, not 0) hold from then to `done` (strobe). m_axis:
    Stream(16), the nodes - 1 boundaries as numbers of blocks, tlast with the last; none if `equal`: all costs
    are 0 and chunks shall be equal. One value a clock, none for 9 clocks after a tlast; finish to done: 18
    clocks a block.
    """
    place_bits = len(seg_start)
    block_bits = place_bits - granule_log2
    if not 3 <= granule_log2 <= 12 or not 3 <= block_bits <= 15:
        raise ValueError(
            f"expected granule_log2 of 3 to 12 and 8 to 2^15 blocks, got {granule_log2} and a seg_start of "
            f"{place_bits} bits"
        )
    if len(blocks) != block_bits + 1:
        raise ValueError(f"blocks must have {block_bits + 1} bits, got {len(blocks)}")
    last_cleared = (1 << block_bits) + 7  # writes come four clocks behind
    last_of_block = (1 << granule_log2) - 1
    fresh_bits = granule_log2 + 6  # a value costs 33 at most
    cost_bits = fresh_bits + 8
    sum_bits = cost_bits + block_bits
    word_bits = cost_bits + fresh_bits
    scaled_bits = cost_bits + 5
    distance_bits = sum_bits + 2
    all_ones = (1 << distance_bits) - 1
    minus = (1 << (distance_bits - scaled_bits)) - 1

    # Costs: smoothed, from earlier iterations, above this iteration's.
    memory = [word(word_bits) for _ in range(1 << block_bits)]
    rd, fetched, got = word(block_bits), word(word_bits), word(word_bits)
    wr, write, new_cost, new_fresh = word(block_bits), bit(), word(cost_bits), word(fresh_bits)

    # A value on its way: taken, complemented, magnitude, length in two steps, added to its piece of a block.
    taking, guard = bit(), word(3)
    valid, last = word(5), word(5)
    value, flipped, negative, magnitude = word(16), word(16), bit(), word(16)
    high, nibble, some, length, some_too = word(2), word(4), bit(), word(5), bit()
    first_taken, first_placed, first_added = bit(), bit(), bit()  # of a segment, of a segment, of a piece
    first_place, place, at_end = word(place_bits), word(place_bits), bit()
    piece, piece_1, piece_2, piece_3 = (word(fresh_bits) for _ in range(4))
    piece_block, rd_1, rd_2 = word(block_bits), word(block_bits), word(block_bits)
    ended = word(4)

    # TAKE values. Over the blocks: CLEAR; or DRAIN what is on its way, SMOOTH costs, then cut: from OPEN on
    # one GOAL, the end of a chunk, after another. Of each block READ costs, go to its MIDDLE, LOOK, DECIDE.
    # END: the last edge is to be taken.
    states = enum(
        "TAKE", "CLEAR", "DRAIN", "SMOOTH", "OPEN", "FIRST_GOAL", "START", "READ", "MIDDLE", "LOOK", "DECIDE",
        "GOAL", "END",
    )  # fmt: skip
    state = Signal(states.TAKE)
    first = bit()  # plan since the costs were forgotten
    index, following, step, at_last = word(block_bits + 1), word(block_bits + 1), word(4), bit()
    average = word(fresh_bits + 1)
    cost, some_cost, total = word(cost_bits), bit(), word(sum_bits)
    addend, scaled, multiplier = word(cost_bits), word(scaled_bits), word(5)  # scaled: - nodes * cost
    nothing, late, multiplying, to_goal = bit(), bit(), bit(), bit()
    distance, change, moved = word(distance_bits), word(distance_bits), word(distance_bits)
    near, crossed, free = bit(), bit(), bit()
    plateau, left, last_left = word(block_bits + 1), word(4), bit()
    m_valid, m_last, m_edge = bit(), bit(), word(block_bits + 1)

    delays = [chain(clk, piece, piece_1, piece_2, piece_3), chain(clk, rd, rd_1, rd_2)]

    @always(clk.posedge)
    def storage():
        if write:
            memory[wr].next = concat(new_cost, new_fresh)
        fetched.next = memory[rd]

    @always(clk.posedge)
    def take():
        valid.next[0] = s_axis.tvalid and taking
        valid.next[5:1] = valid[4:]
        last.next[0] = s_axis.tlast
        last.next[5:1] = last[4:]
        value.next = s_axis.tdata
        if s_axis.tvalid and taking:
            first_taken.next = s_axis.tlast
            if first_taken:
                first_place.next = seg_start
        negative.next = value[15]
        flipped.next = value
        if value[15]:
            flipped.next = value ^ 0xFFFF
        magnitude.next = flipped + negative
        if rst:
            valid.next = 0
            first_taken.next = True

    # Bit length: 4 * high + 1 to 4, from the highest nibble that is not 0.
    @always(clk.posedge)
    def measure():
        some.next = magnitude != 0
        if magnitude[16:12] != 0:
            high.next = 3
            nibble.next = magnitude[16:12]
        elif magnitude[12:8] != 0:
            high.next = 2
            nibble.next = magnitude[12:8]
        elif magnitude[8:4] != 0:
            high.next = 1
            nibble.next = magnitude[8:4]
        else:
            high.next = 0
            nibble.next = magnitude[4:]
        some_too.next = some
        if nibble[3]:
            length.next = concat(high, modbv(0)[2:]) + 4
        elif nibble[2]:
            length.next = concat(high, modbv(3)[2:])
        elif nibble[1]:
            length.next = concat(high, modbv(2)[2:])
        else:
            length.next = concat(high, modbv(0)[1:], some)

    @always(clk.posedge)
    def gather():
        if valid[3]:
            first_placed.next = last[3]
            if first_placed:
                place.next = first_place
            else:
                place.next = place + 1
        ended.next[4:1] = ended[3:]
        ended.next[0] = valid[4] and at_end
        piece_block.next = place[place_bits:granule_log2]
        if valid[4]:
            first_added.next = at_end
            if first_added:
                piece.next = concat(length, some_too)
            else:
                piece.next = piece + concat(length, some_too)
        if rst:
            ended.next = 0
            first_placed.next = True
            first_added.next = True

    @always(clk.posedge)
    def admit():
        guard.next = 0
        if s_axis.tvalid and taking and s_axis.tlast:
            taking.next = False
        elif not taking and state == states.TAKE:
            guard.next = guard + 1
            if guard == 7:
                taking.next = True
        if finish or clear_smoothing or rst:
            taking.next = False

    # Smoothing takes five clocks a block.
    @always(clk.posedge)
    def walk():
        following.next = index + 1
        at_last.next = following == blocks
        step.next = 0
        if state == states.DRAIN or state == states.CLEAR or state == states.SMOOTH or state == states.READ:
            step.next = step + 1
        if state == states.DRAIN:
            index.next = 0
            total.next = 0
        if state == states.CLEAR and step[0]:
            index.next = following
        if state == states.SMOOTH and step == 4:
            step.next = 0
            total.next = total + cost
            index.next = following
            if at_last:
                index.next = 0
        if state == states.DECIDE and not crossed:
            index.next = following
        if clear_smoothing or rst:
            index.next = 0

    @always(clk.posedge)
    def sequence():
        done.next = False
        if state == states.CLEAR:
            if step[0] and index == last_cleared:
                state.next = states.TAKE
        elif state == states.DRAIN:
            if step == 15:
                state.next = states.SMOOTH
        elif state == states.SMOOTH:
            if step == 4 and at_last:
                state.next = states.OPEN
        elif state == states.OPEN:
            state.next = states.FIRST_GOAL
        elif state == states.FIRST_GOAL:
            state.next = states.START
        elif state == states.START:
            equal.next = distance[distance_bits - 1]
            state.next = states.READ
            if nothing:
                state.next = states.END
        elif state == states.READ:
            if step == 9:
                state.next = states.MIDDLE
        elif state == states.MIDDLE or state == states.GOAL:
            state.next = states.LOOK
        elif state == states.LOOK:
            state.next = states.DECIDE
        elif state == states.DECIDE:
            if not crossed:
                state.next = states.READ
            elif free:
                state.next = states.GOAL
                if last_left:
                    state.next = states.END
        elif state == states.END and not m_valid:
            done.next = True
            first.next = False
            state.next = states.TAKE
        if finish:
            state.next = states.DRAIN
        if clear_smoothing:
            first.next = True
            state.next = states.CLEAR
        if rst:
            state.next = states.TAKE

    # `distance` is twice the way from a block edge to the goal, less 1: its sign tells "not beyond". At a
    # block's middle the sign says which edge is nearer; LOOK whether the goal lies in it; DECIDE moves on to
    # the block's end, or sends an edge.
    @always(clk.posedge)
    def cut():
        last_left.next = left == 1
        if state == states.DRAIN:
            left.next = nodes - 1
            plateau.next = 0
            distance.next = all_ones
        elif state == states.MIDDLE or to_goal or (state == states.DECIDE and not crossed):
            distance.next = moved
        if state == states.LOOK:
            near.next = distance[distance_bits - 1]
            crossed.next = moved[distance_bits - 1]
        if m_axis.tready:
            m_valid.next = False
        if state == states.DECIDE:
            if not crossed:
                if some_cost:
                    plateau.next = following
            elif free:
                left.next = left - 1
                m_valid.next = True
                m_last.next = last_left
                m_edge.next = following
                if near:
                    m_edge.next = plateau
        if rst:
            m_valid.next = False

    @always(clk.posedge)
    def cost_of_block():
        rd.next = piece_block
        if state != states.TAKE and state != states.DRAIN:
            rd.next = index[block_bits:]
        got.next = fetched
        some_cost.next = got[word_bits:fresh_bits] != 0
        cost.next = concat(average, got[fresh_bits + 8 : fresh_bits + 1])
        multiplying.next = late and step != 9
        multiplier.next = nodes
        if late:
            multiplier.next = multiplier << 1
        addend.next = 0
        if multiplier[4]:
            addend.next = got[word_bits:fresh_bits]
        if multiplying:
            scaled.next = (scaled << 1) - addend
        elif state == states.READ:
            scaled.next = 0
        write.next = ended[3] or state == states.CLEAR or (state == states.SMOOTH and step == 4)
        wr.next = rd_2
        new_fresh.next = got[fresh_bits:] + piece_3
        new_cost.next = got[word_bits:fresh_bits]
        if state == states.SMOOTH:
            new_cost.next = cost
            new_fresh.next = 0
        if state == states.CLEAR:
            new_cost.next = 0
            new_fresh.next = 0
        if rst:
            write.next = False

    # c + ((fresh - c) >> 1), c having 8 bits more, is (c + fresh) >> 1; at first it is fresh (c is 0).
    @always_comb
    def smooth():
        if first:
            average.next = concat(got[fresh_bits:], modbv(0)[1:])
        else:
            average.next = got[word_bits : fresh_bits + 8] + got[fresh_bits:]

    @always_comb
    def conditions():
        at_end.next = last[4] or place[granule_log2:] == last_of_block
        late.next = state == states.READ and step[4:2] != 0
        free.next = not m_valid or m_axis.tready
        to_goal.next = state == states.FIRST_GOAL or state == states.GOAL
        nothing.next = distance[distance_bits - 1] or left == 0

    @always_comb
    def move():
        change.next[scaled_bits:] = scaled
        change.next[distance_bits:scaled_bits] = 0
        if scaled[scaled_bits - 1]:
            change.next[distance_bits:scaled_bits] = minus
        if to_goal:
            change.next = total << 1

    @always_comb
    def outputs():
        moved.next = distance + change
        s_axis.tready.next = taking
        m_axis.tdata.next = m_edge
        m_axis.tvalid.next = m_valid
        m_axis.tlast.next = m_last

    costs = delays, storage, take, measure, gather, cost_of_block, smooth
    return costs, admit, walk, sequence, cut, conditions, move, outputs
