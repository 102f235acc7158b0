"""Has frames learnt from, one after another, and says when counts of a bank may be used again."""

from myhdl import always, block

from oscar_hdl.coder.ports import TablesPort
from oscar_hdl.streams.bundles import bit


@block
def learn_turn(clk, rst, tables: TablesPort, ask, bank, failed, owed, next_bank, blocked):
    """Pass `ask` (strobe) on to link_tables when the frame before is learnt.

    bank, and failed (its counts are forgotten), hold while `owed`: it was not passed on yet. blocked: counts
    of next_bank are not drained.
    """
    learning = bit()

    @always(clk.posedge)
    def run():
        tables.learn.next = False
        blocked.next = learning and tables.count_bank == next_bank
        if tables.learnt:
            learning.next = False
        if owed and not learning:
            tables.learn.next = True
            tables.count_bank.next = bank
            tables.forget.next = failed
            learning.next = True
            owed.next = False
        if ask:
            owed.next = True
        if rst:
            tables.learn.next = False
            learning.next = False
            owed.next = False

    return run
