"""Phase and reset, passed from block to block: each has a register of its own, close to its readers."""

from myhdl import always, block

from oscar_hdl.streams.bundles import word


@block
def next_phase(clk, before, own):
    """Give a block the phase `own`, equal to `before`, which counts up by one a clock.

    No two blocks may follow the same `before`: synthesis makes one register of equal ones.
    """

    @always(clk.posedge)
    def count():
        own.next = before + 1

    return count


@block
def first_phase(clk, phase):
    """Count up for ever, by a register that counts down.

    So a `next_phase` behind it has another input than `phase`, and synthesis keeps both.
    """
    back = word(len(phase), -1)

    @always(clk.posedge)
    def count():
        back.next = back - 1
        phase.next = 0 - back

    return count


@block
def next_reset(clk, rst, before, own):
    """Reset a block a clock behind rst, as all others, and release it a clock behind the one `before` it."""

    @always(clk.posedge)
    def follow():
        own.next = rst or before

    return follow
