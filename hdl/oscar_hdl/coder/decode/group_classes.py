"""Classes of a group's rows as they are decoded: which are above 0, and how many."""

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.coder.decode.ports import CLASSES
from oscar_hdl.coder.unit.ports import THREAD_BITS, WIDTH
from oscar_hdl.streams.bundles import bit, word


@block
def group_classes(clk, phase, symbols15, active14, plan13, plan17, group, alive33):
    """Take symbols of eight rows a clock, the last eight first.

    symbols15 u32, active14 u8: of LaneLevels. plan13, plan17: DecodePlan. group: GroupClasses, of which
    classes are given from clock 16 on, the rest in clock 20. alive33: one of them is above 0.
    """
    active15, live16, count17 = word(WIDTH), word(WIDTH), word(4)
    total, sums = word(6), word(6)
    thread15, beat15, classes15 = word(THREAD_BITS), word(2), bit()
    alive21, alive25, alive29 = bit(), bit(), bit()

    @always(clk.posedge)
    def count():
        # Lane 8 n + i of a turn is row 8 n + i of its group.
        active15.next = active14
        group.classes.next = symbols15
        for i in range(WIDTH):
            live16.next[i] = active15[i] and (
                symbols15[4 * i] or symbols15[4 * i + 1] or symbols15[4 * i + 2] or symbols15[4 * i + 3]
            )
        if phase[2:] == 2:
            thread15.next = plan13.thread
            classes15.next = plan13.op == CLASSES
        group.at.next = concat(thread15, beat15)
        group.write.next = classes15
        ones = modbv(0)[4:]
        for i in range(WIDTH):
            if live16[i]:
                ones[:] = ones + 1
        count17.next = ones
        group.mask.next = concat(group.mask[24:], live16)
        total.next = sums
        if phase[2:] == 0:
            alive21.next = sums != 0
            alive25.next = alive21
            alive29.next = alive25
            alive33.next = alive29

    @always_comb
    def give():
        beat15.next = 2 - phase[2:]
        sums.next = total + count17
        if phase[2:] == 1:
            sums.next = count17
        group.ends.next = phase[2:] == 0 and plan17.op == CLASSES
        group.thread.next = plan17.thread
        group.left.next = sums
        group.crowd.next[0] = sums > 8
        group.crowd.next[1] = sums > 16

    return count, give
