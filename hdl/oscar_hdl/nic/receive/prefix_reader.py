"""Reads the prefix of a payload, and has tables built for it."""

from myhdl import Signal, always, always_comb, block, enum

from oscar_hdl.streams.bundles import bit, word


@block
def prefix_reader(clk, rst, go, units, build, last, done, right, *, block_log2: int):
    """Read what is before the directory.

    go (strobe): the next unit is the prefix. units: UnitPort. build (strobe) with last u4, which holds until
    the next go: for link_tables. done (strobe) with right: whether the prefix may be as it is, with blocks of
    2^block_log2 values and no table rows; if not, nothing is built.
    """
    BLOCK = block_log2
    states = enum("IDLE", "PREFIX", "JUDGE")
    state = Signal(states.IDLE)
    got, prefix = bit(), word(16)

    @always_comb
    def give():
        got.next = units.ready and not units.get
        prefix.next = units.units[64:48]
        units.amount.next = 1

    @always(clk.posedge)
    def run():
        units.get.next = False
        build.next = False
        done.next = False
        if state == states.IDLE:
            if go:
                units.get.next = True
                state.next = states.PREFIX
        elif state == states.PREFIX:
            last.next = prefix[15:11]
            right.next = prefix[11:] == BLOCK and not prefix[15]
            if got:
                state.next = states.JUDGE
        else:
            build.next = right
            done.next = True
            state.next = states.IDLE
        if rst:
            state.next = states.IDLE
            units.get.next = False
            build.next = False
            done.next = False

    return give, run
