"""What two units counted, in one block RAM: two banks of 512 counts."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.coder.ports import CountPort
from oscar_hdl.nic.ports import CountChain
from oscar_hdl.streams.bundles import bit, word

COUNT_BITS = 18
ADDRESS_BITS = 10  # bank, context, symbol
MOST = 1 << COUNT_BITS
DECIDE = 26  # phase in which grants are decided


@block
def symbol_counts(
    clk: Any, rst: Any, phase: Any, first: CountPort, second: CountPort, first_bank: Any, second_bank: Any,
    before: CountChain, after: CountChain, *, strobe_slots: int = 4,
) -> Any:  # fmt: skip
    """Count a symbol a clock, whatever its address, and hand counts to the chain (docs/engine.md).

    phase u5; first_bank, second_bank: where the units count. A chain that holds (`valid` low, bit 0 of
    `address` high) gets no grants any more; bit 1 of `address` is set while granted slots may still have
    strobes, which is so for up to `strobe_slots` slots. With `valid` a count is taken and cleared. Address,
    bank and valid are passed on one clock later, a total too, which comes five clocks behind its address.
    A count is at most 2^18; 2^18 itself only where nothing else of its bank counts values.
    A reset leaves counts alone: link_tables takes them all after it.
    """
    memory = [word(COUNT_BITS) for _ in range(1 << ADDRESS_BITS)]
    near, near_counts, near_takes, near_step = word(ADDRESS_BITS), bit(), bit(), word(2)
    # The clocks of an entry: its place is read in 0, the count arrives in 2, the sum is written in 3.
    place0, place1, place2, place3 = (word(ADDRESS_BITS) for _ in range(4))
    counts0, counts1, counts2, counts3 = bit(), bit(), bit(), bit()
    takes0, takes1, takes2, takes3 = bit(), bit(), bit(), bit()
    amount0, amount1, amount2, amount3 = word(4), word(4), word(4), word(4)
    same1, same2, same2_late, same3, same3_late, same3_last = (bit() for _ in range(6))
    fetched, got = word(COUNT_BITS), word(COUNT_BITS)
    more, most = word(5), word(5)
    total3, total4, total5 = word(COUNT_BITS + 1), word(COUNT_BITS), word(COUNT_BITS)
    own, full, write = word(COUNT_BITS + 1), word(2), bit()
    deciding, second_next, settling = bit(), bit(), word(3)
    holds = bit()

    @always(clk.posedge)
    def use_memory():
        if write:
            memory[place3].next = total3[COUNT_BITS:]
        fetched.next = memory[place0]

    @always_comb
    def control():
        write.next = takes3 or (counts3 and not total3[COUNT_BITS])
        holds.next = before.valid or before.address[0]

    @always(clk.posedge)
    def gather():
        near_counts.next = first.valid or second.valid
        near_takes.next = before.valid
        if before.valid:
            near.next = concat(before.bank, before.address)
        elif first.valid:
            near.next = concat(first_bank, first.address)
        else:
            near.next = concat(second_bank, second.address)
        near_step.next = second.step
        if first.valid:
            near_step.next = first.step
        if rst:
            near_counts.next = False
            near_takes.next = False

    # A count is read before the two entries ahead are written, and while the third is: it adds what
    # the two add too, and takes the third's sum instead of what it read.
    @always(clk.posedge)
    def follow():
        place0.next = near
        place1.next = place0
        place2.next = place1
        place3.next = place2
        counts0.next = near_counts
        counts1.next = counts0
        counts2.next = counts1
        counts3.next = counts2
        takes0.next = near_takes
        takes1.next = takes0
        takes2.next = takes1
        takes3.next = takes2
        same1.next = counts0 and near == place0
        same2.next = counts1 and near == place1
        same2_late.next = same2
        same3.next = counts2 and near == place2
        same3_late.next = same3
        same3_last.next = same3_late
        amount0.next[0] = near_step == 0
        amount0.next[1] = near_step == 1
        amount0.next[2] = near_step == 2
        amount0.next[3] = near_step == 3
        amount1.next = amount0
        amount2.next = amount1
        amount3.next = amount2
        if rst:
            counts0.next = False
            counts1.next = False
            counts2.next = False
            counts3.next = False
            takes0.next = False
            takes1.next = False
            takes2.next = False
            takes3.next = False

    @always(clk.posedge)
    def add():
        ahead = modbv(0)[4:]
        base = modbv(0)[COUNT_BITS:]
        if same1:
            ahead[:] = amount1
        more.next = amount0 + ahead
        ahead[:] = 0
        if same2_late:
            ahead[:] = amount3
        most.next = more + ahead
        got.next = fetched
        base[:] = got
        if same3_last:
            base[:] = total5
        total3.next = base + most
        if takes2:
            total3.next = 0
        total4.next = total3[COUNT_BITS:]
        total5.next = total4

    @always(clk.posedge)
    def hand_on():
        after.valid.next = before.valid
        after.bank.next = before.bank
        after.address.next = before.address
        after.address.next[1] = before.address[1] or (not before.valid and settling != 0)
        # A count that reached 2^18 was left as it had been, and is known by its highest bit.
        own.next = got
        if got[COUNT_BITS - 1] and ((full[0] and not place2[9]) or (full[1] and place2[9])):
            own.next = MOST
        after.total.next = before.total + own
        if counts3 and total3[COUNT_BITS]:
            if place3[9]:
                full.next[1] = True
            else:
                full.next[0] = True
        if takes3 and place3[9:] == 511:
            if place3[9]:
                full.next[1] = False
            else:
                full.next[0] = False
        if rst:
            after.valid.next = False
            full.next = 0

    @always(clk.posedge)
    def decide():
        deciding.next = phase == DECIDE - 1
        if deciding:
            first.grant.next = first.ask and not holds and not (second.ask and second_next)
            second.grant.next = second.ask and not holds and not (first.ask and not second_next)
            if settling != 0:
                settling.next = settling - 1
            if (first.ask or second.ask) and not holds:
                settling.next = strobe_slots
                second_next.next = first.ask and not (second.ask and second_next)
        if rst:
            deciding.next = False
            first.grant.next = False
            second.grant.next = False
            settling.next = 0

    return use_memory, control, gather, follow, add, hand_on, decide
