"""The table row of a value, or of a row's class (docs/reference/asc.md, "Contexts")."""

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.copied import chain

CLOCKS = 4  # from the inputs to the context


@block
def value_context(clk, header, row_class, mean, data, context):
    """Find a context a clock, 4 clocks after its inputs.

    header: data u4 is the mean position class P of a row whose class is looked up; otherwise its three low
    bits are a value's distance (d + 3), row_class u4 and mean u4 (P) its row's. context: u5.
    """
    header1, header2 = bit(), bit()
    data1, data2 = word(4), word(4)
    is_wide, wide = bit(), word(3)  # class that stands for a wide row, less 4 and without its bit 3
    narrow1, scale2 = word(4), word(4)  # class less 4
    one1, two1, eleven1, twelve1, one2, two2, eleven2, twelve2 = (bit() for _ in range(8))
    far2 = word(2)
    total3, other3 = word(5), word(4)
    choice3 = word(2)  # 0 the sum, 1 it is below 0, 2 it is above 20, 3 another
    scale1 = word(4)
    wide_is_8, wide_is_11, wide_is_12 = bit(), bit(), bit()

    @always_comb
    def select():
        scale1.next = narrow1
        if is_wide:
            scale1.next = wide
            if wide == 0:
                scale1.next = 8

    @always(clk.posedge)
    def scale():
        is_wide.next = row_class[4:2] == 3 and row_class[2:] != 0
        # clamp(P + 2 - K, 8, 12) - 4: 4 to 8, of which 8 shows as 0; 12 where P is not known.
        wide.next = 4
        if mean == 0:
            wide.next = 0
        elif row_class[2:] == 1:
            if mean >= 11:
                wide.next = 0
            elif mean >= 8:
                wide.next = mean[3:] + 5
        elif row_class[2:] == 2:
            if mean >= 13:
                wide.next = 0
            elif mean >= 10:
                wide.next = mean[3:] + 3
        elif mean == 15:
            wide.next = 5
        narrow1.next = row_class - 4
        one1.next = row_class == 1
        two1.next = row_class == 2
        eleven1.next = row_class == 11
        twelve1.next = row_class == 12

    @always_comb
    def wide_rows():
        wide_is_8.next = wide == 4
        wide_is_11.next = wide == 7
        wide_is_12.next = wide == 0

    @always(clk.posedge)
    def bounds():
        scale2.next = scale1
        one2.next = one1
        two2.next = two1
        eleven2.next = eleven1 or (is_wide and wide_is_11)
        twelve2.next = twelve1 or (is_wide and wide_is_12)
        # 21 + min(2, (e - 1) >> 2) is 20 and these two bits.
        far2.next = 3
        if is_wide:
            if wide_is_8:
                far2.next = 2
        elif narrow1[3] == narrow1[2] and (narrow1[3] or narrow1[4:] == 0):
            far2.next = 1
        elif not narrow1[3] and (not narrow1[2] or narrow1[2:] == 0):
            far2.next = 2

    @always(clk.posedge)
    def look_up():
        total3.next = concat(scale2, True) + data2[3:]
        choice3.next = 0
        if header2 or data2[3:] == 0:
            choice3.next = 3
        elif (one2 and data2[3:] <= 4) or (two2 and data2[3:] <= 2):
            choice3.next = 1
        elif (twelve2 and data2[3:] >= 4) or (eleven2 and data2[3:] >= 6):
            choice3.next = 2
        other3.next = concat(modbv(1)[2:], far2)
        if header2:
            other3.next = concat(True, data2[3:])
            if data2[3]:
                other3.next = 15
        context.next = total3
        if choice3 == 1:
            context.next = 0
        elif choice3 == 2:
            context.next = 20
        elif choice3 == 3:
            context.next = concat(True, other3)

    delays = [chain(clk, header, header1, header2), chain(clk, data, data1, data2)]
    return delays, select, scale, wide_rows, bounds, look_up
