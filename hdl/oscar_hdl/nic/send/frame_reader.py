"""Sends a frame from the store."""

from myhdl import always, always_comb, block

from oscar_hdl.streams.bundles import bit, word


@block
def frame_reader(clk, rst, start, words, tail, peer, idle, left, address, advance, m_axis):
    """Read a frame behind the one before.

    start (strobe, while idle): a frame of `words` words, of whose last one `tail` bytes belong to it, 0: all;
    for `peer`.
    left: the words that are not read yet and one more; 0 when the frame before was read.
    address, advance: to the store, whose data come two clocks of advance later, as m_axis.tdata; the other
    signals of m_axis are driven here.
    """
    size = len(m_axis.tkeep)
    ALL = (1 << size) - 1
    more, valid_1, last_1, keep = bit(), bit(), bit(), word(size)

    @always_comb
    def look():
        advance.next = m_axis.tready or not m_axis.tvalid
        idle.next = left == 0 and not valid_1 and not m_axis.tvalid
        m_axis.tkeep.next = ALL
        if m_axis.tlast:
            m_axis.tkeep.next = keep

    @always(clk.posedge)
    def run():
        if advance:
            valid_1.next = more
            last_1.next = left == 2
            m_axis.tvalid.next = valid_1
            m_axis.tlast.next = last_1
            if more:
                address.next = address + 1
        if left == 1:
            left.next = 0
        elif more and advance:
            left.next = left - 1
            more.next = left != 2
        if start:
            left.next = words + 1
            more.next = True
            m_axis.tdest.next = peer
            for i in range(size):
                keep.next[i] = tail == 0 or i < tail
        if rst:
            left.next = 0
            more.next = False
            address.next = 0
            valid_1.next = False
            m_axis.tvalid.next = False

    return look, run
