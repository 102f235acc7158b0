"""Sums in packets, eight a word, as values one by one for the splitter."""

from myhdl import always, always_comb, block

from oscar_hdl.streams.bundles import Stream, bit, word

VALUE_BITS, LANES = 16, 8


@block
def sum_feed(clk, rst, segment, first, counts, hold, s_axis: Stream, m_axis: Stream, place, idle, wants):
    """Give the values of packets, and say which of the gradient they are.

    segment (strobe): from the next packet on values are passed on, if `counts`, and thrown away if not; its
    first value is number `first` of the gradient. It holds for packets that begin three clocks later. Any
    other packet begins where the one before ended. Behind the last value that `place` can tell nothing is
    passed on. hold (level): no packet that is passed on shall begin; idle (level): none is under way, and
    with hold for two clocks none will be. wants (level): the next packet is passed on.
    s_axis: Stream(128, keep=16): whole values, from the lowest lane on. m_axis: Stream(16), tlast at the end
    of a packet; place: number of the packet's first value, holds while it is passed on.
    """
    ready, left, ends, inside = bit(), word(4), bit(), bit()
    rest, here, lanes = word(LANES * VALUE_BITS), word(len(place)), word(4)
    asked, wanted, wanted_counts, counting = bit(), word(len(place)), bit(), bit()
    LAST = (1 << len(place)) - 1

    @always_comb
    def show():
        s_axis.tready.next = ready
        wants.next = counting
        if asked:
            wants.next = wanted_counts
        m_axis.tdata.next = rest[VALUE_BITS:]
        m_axis.tvalid.next = left != 0
        m_axis.tlast.next = here == LAST or (ends and left == 1)
        lanes.next = 1
        if s_axis.tkeep[14]:
            lanes.next = 8
        elif s_axis.tkeep[12]:
            lanes.next = 7
        elif s_axis.tkeep[10]:
            lanes.next = 6
        elif s_axis.tkeep[8]:
            lanes.next = 5
        elif s_axis.tkeep[6]:
            lanes.next = 4
        elif s_axis.tkeep[4]:
            lanes.next = 3
        elif s_axis.tkeep[2]:
            lanes.next = 2

    @always(clk.posedge)
    def pass_on():
        if ready:
            rest.next = s_axis.tdata
            ends.next = s_axis.tlast
            if s_axis.tvalid:
                inside.next = not s_axis.tlast
                if counting:
                    left.next = lanes
                if not inside:
                    place.next = here
        elif left != 0 and m_axis.tready:
            rest.next = rest >> VALUE_BITS
            left.next = left - 1
            here.next = here + 1
            if here == LAST:
                left.next = 0
                counting.next = False
        elif left == 0 and asked and not inside:
            here.next = wanted
            counting.next = wanted_counts
        if rst:
            left.next = 0
            inside.next = False
            counting.next = False

    @always(clk.posedge)
    def admit():
        idle.next = left == 0 and not (counting and (inside or ready))
        if ready:
            if s_axis.tvalid:
                ready.next = not counting and not s_axis.tlast
            elif not inside:
                ready.next = not (asked or (hold and counting))
        elif inside:
            ready.next = left == 0 or (left == 1 and m_axis.tready)
        elif left == 0:
            ready.next = not (asked or (hold and counting))
            asked.next = False
        if segment:
            asked.next = True
            wanted.next = first
            wanted_counts.next = counts
        if rst:
            idle.next = False
            ready.next = False
            asked.next = False

    return show, pass_on, admit
