"""Reads prefix and sent rows of a payload, and has tables built of them."""

from myhdl import Signal, always, always_comb, block, enum

from oscar_hdl.streams.bundles import Stream, bit, word


@block
def prefix_reader(
    clk, rst, go, units, build, last, mask, m_axis_sent: Stream, done, right, *, block_log2: int
):
    """Read what is before the directory.

    go (strobe): the next unit is the prefix. units: UnitPort. build (strobe) with last u4 and mask u32, then
    m_axis_sent: for link_tables; all hold until the next go. done (strobe) with right: whether the prefix may
    be as it is, with blocks of 2^block_log2 values; if not, nothing is built.
    """
    BLOCK = block_log2
    states = enum("IDLE", "PREFIX", "JUDGE", "MASK", "LOOK", "ROW", "FETCH", "SEND")
    state = Signal(states.IDLE)
    row, chosen, got = word(6), bit(), bit()
    prefix = word(16)

    @always_comb
    def give():
        got.next = units.ready and not units.get
        prefix.next = units.units[64:48]
        m_axis_sent.tdata.next = units.units
        m_axis_sent.tlast.next = False

    @always(clk.posedge)
    def run():
        units.get.next = False
        build.next = False
        done.next = False
        chosen.next = mask[int(row[5:])]
        if state == states.IDLE:
            row.next = 0
            units.amount.next = 1
            if go:
                units.get.next = True
                state.next = states.PREFIX
        elif state == states.PREFIX:
            last.next = prefix[15:11]
            right.next = prefix[10:] == BLOCK and not prefix[15]
            if got:
                state.next = states.JUDGE
        elif state == states.JUDGE:
            mask.next = 0
            if right and prefix[10]:
                units.get.next = True
                units.amount.next = 2
                state.next = states.MASK
            else:
                build.next = right
                done.next = True
                state.next = states.IDLE
        elif state == states.MASK:
            mask.next = units.units[64:32]
            if got:
                build.next = True
                state.next = states.LOOK
        elif state == states.LOOK:
            units.amount.next = 4
            state.next = states.ROW
            if row[5]:
                done.next = True
                state.next = states.IDLE
        elif state == states.ROW:
            row.next = row + 1
            state.next = states.LOOK
            if chosen:
                units.get.next = True
                state.next = states.FETCH
        elif state == states.FETCH:
            if got:
                m_axis_sent.tvalid.next = True
                state.next = states.SEND
        elif state == states.SEND and m_axis_sent.tready:
            m_axis_sent.tvalid.next = False
            state.next = states.LOOK
        if rst:
            state.next = states.IDLE
            units.get.next = False
            build.next = False
            done.next = False
            m_axis_sent.tvalid.next = False

    return give, run
