"""A few pairs of bytes between a source that cannot wait and a stream."""

from myhdl import always, always_comb, block, concat

from oscar_hdl.streams.bundles import bit, word


@block
def pair_fifo(clk, rst, push, pair, two, last, m_axis, empty, *, depth_log2: int = 4):
    """Keep up to 2^depth_log2 pairs. push (strobe; never when full), pair u16, two: both bytes are there;
    last. m_axis: Stream(16, keep=2). empty: nothing is kept, nor in m_axis, nor was pushed just now.
    """
    memory = [word(18) for _ in range(1 << depth_log2)]
    MASK = (1 << depth_log2) - 1
    write_at, read_at, read = word(depth_log2), word(depth_log2), word(18)
    more, kept = bit(), word(18)

    @always_comb
    def look():
        read.next = memory[read_at]
        more.next = write_at != read_at

    @always_comb
    def give():
        m_axis.tdata.next = kept[16:]
        m_axis.tkeep.next = 1
        if kept[16]:
            m_axis.tkeep.next = 3
        m_axis.tlast.next = kept[17]

    @always(clk.posedge)
    def run():
        empty.next = not more and not push and not m_axis.tvalid
        if push:
            memory[write_at].next = concat(last, two, pair)
            write_at.next = (write_at + 1) & MASK
        if m_axis.tready or not m_axis.tvalid:
            kept.next = read
            m_axis.tvalid.next = more
            if more:
                read_at.next = (read_at + 1) & MASK
        if rst:
            write_at.next = 0
            read_at.next = 0
            m_axis.tvalid.next = False

    return look, give, run
