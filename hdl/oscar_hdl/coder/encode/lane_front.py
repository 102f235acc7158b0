"""A lane's value to the address of a table's entry, and to raw bits."""

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.coder.unit.row_contexts import context_at
from oscar_hdl.streams.bundles import bit, word


@block
def lane_front(clk, LANE: int, data3, reading, present6, step, wrong7):
    """Read a value a clock; a number in a name is the clock of the turn's first values.

    data3: those of all lanes. reading: Reading. present6 u8: lanes that take part. step: Step, all but
    the state. wrong7: the value has no symbol, as its row's class is not its own.
    """
    AT = 19 * LANE
    own3, high4, magnitude5, low6 = word(19), word(9), word(9), word(6)
    sign4, sign5, sign6, distance4, distance5, distance6 = bit(), bit(), bit(), word(3), word(3), word(3)
    wide4, mixed_15_11, mixed_11_9, mixed_9_8, outside5, outside6 = word(2), bit(), bit(), bit(), bit(), bit()
    from_128, idle6, spread, upper, symbol, context = bit(), word(3), word(6), word(3), word(4), word(5)

    near = context_at(distance6, reading.contexts6, context)

    @always_comb
    def split():
        own3.next = data3[AT + 19 : AT]

    @always(clk.posedge)
    def cut():
        if reading.wide3[1]:
            if reading.wide3[0]:
                high4.next = concat(own3[15], own3[16:8])
            else:
                high4.next = own3[12:3]
        else:
            if reading.wide3[0]:
                high4.next = own3[10:1]
            else:
                high4.next = own3[9:]
        if reading.pair3:
            high4.next[2:] = own3[8:6]
            if reading.top3:
                high4.next[2:] = own3[16:14]
        sign4.next = own3[15] and reading.signed3
        distance4.next = own3[19:16]
        if reading.classes3:
            distance4.next = own3[10:7]
            if own3[10]:
                distance4.next = 7
        wide4.next = reading.wide3
        mixed_15_11.next = own3[16:11] != 0 and own3[16:11] != 31
        mixed_11_9.next = own3[12:9] != 0 and own3[12:9] != 7
        mixed_9_8.next = own3[9] != own3[8]
        # Bits above the nine have to be copies of the sign.
        if sign4:
            magnitude5.next = 0 - high4
        else:
            magnitude5.next = high4
        sign5.next = sign4
        distance5.next = distance4
        outside5.next = wide4 != 3 and (
            mixed_15_11 or (wide4 != 2 and (mixed_11_9 or (wide4 != 1 and mixed_9_8)))
        )

    @always(clk.posedge)
    def align():
        if reading.raw5:
            idle6.next = reading.idle5
        elif magnitude5[8:6] != 0:
            idle6.next = 0
        elif magnitude5[5]:
            idle6.next = 1
        elif magnitude5[4]:
            idle6.next = 2
        elif magnitude5[3]:
            idle6.next = 3
        elif magnitude5[2]:
            idle6.next = 4
        elif magnitude5[2:] != 0:
            idle6.next = 5
        else:
            idle6.next = 6
        from_128.next = magnitude5[7]
        low6.next = magnitude5[6:]
        sign6.next = sign5
        distance6.next = distance5
        outside6.next = outside5 or magnitude5[8] or magnitude5[8:6] == 3

    @always_comb
    def look():
        shifted = modbv(0)[6:]
        shifted[:] = low6
        if idle6[0]:
            shifted[:] = concat(shifted[5:], False)
        if idle6[1]:
            shifted[:] = concat(shifted[4:], modbv(0)[2:])
        if idle6[2]:
            shifted[:] = concat(shifted[2:], modbv(0)[4:])
        spread.next = shifted
        if idle6 == 0:
            upper.next = concat(True, True, from_128)
        elif idle6 == 5:
            upper.next = concat(False, False, low6[1])
        elif idle6 == 6:
            upper.next = 0
        else:
            upper.next = 6 - idle6

    @always_comb
    def choose():
        symbol.next = concat(upper, spread[5])
        if reading.classes6:
            symbol.next = low6[4:]

    # Lanes that do nothing have no raw bits and no symbol.
    @always(clk.posedge)
    def give():
        step.address7.next = concat(reading.bank6, context, symbol)
        step.none7.next = not reading.coded6 or not present6[LANE]
        step.idle7.next = 6
        if present6[LANE] and not reading.classes6:
            step.idle7.next = idle6
        step.raw7.next = spread
        if reading.signed6:
            step.raw7.next[5] = sign6
        step.must7.next = reading.must6 and present6[LANE]
        wrong7.next = outside6 and reading.signed6 and present6[LANE]

    return near, split, cut, align, look, choose, give
