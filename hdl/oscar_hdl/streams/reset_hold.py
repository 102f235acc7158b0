"""A reset that lasts until pipelines are empty."""

from myhdl import Signal, always, block, modbv

from oscar_hdl.streams.bundles import bit

# What has no reset travels for less: a decoder's turn, which takes longest, for 52 (docs/develop/engine.md).
CLOCKS = 64


@block
def reset_hold(clk, rst, held):
    """Let `held` be high from the clock after `rst` to 64 clocks after its end; also from power-up on.

    Pipelines of data and delays in distributed RAM have no reset. They run empty while all that says what
    they hold is reset.
    """
    left, over = Signal(modbv(CLOCKS - 1, min=0, max=CLOCKS)), bit()

    @always(clk.posedge)
    def hold():
        held.next = rst or not over
        over.next = left == 0 and not rst
        if left != 0:
            left.next = left - 1
        if rst:
            left.next = CLOCKS - 1

    return hold
