"""A signal that nothing else drives."""

from myhdl import always, block


@block
def zero(clk, signal):
    """Hold `signal` at 0: an input that a block has and this use of it has not."""

    @always(clk.posedge)
    def hold():
        signal.next = 0

    return hold
