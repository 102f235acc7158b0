"""Which rows are counted, and how much (docs/asc.md, "Counts")."""

from myhdl import always, always_comb, block

from oscar_hdl.streams.bundles import bit


@block
def row_weight(clk, context, row, counts, step):
    """Say whether row u5 is counted, and as 2^step (asc.md, "Counts"), a clock behind its context."""
    two, four, eight = bit(), bit(), bit()

    @always(clk.posedge)
    def weigh():
        two.next = context.thinning != 0 and context.crowd[0]
        four.next = context.thinning != 0 and context.crowd[1]
        eight.next = context.thinning[1] and context.crowd[1]

    @always_comb
    def count():
        counts.next = not ((two and row[0]) or (four and row[1]) or (eight and row[2]))
        step.next[1] = four
        step.next[0] = (two and not four) or eight

    return weigh, count
