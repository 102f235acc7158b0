"""Class, size and largest symbol of a row of sums (docs/reference/asc.md; docs/develop/engine.md, sizes)."""

from myhdl import always, block

from oscar_hdl.streams.bundles import bit, word


@block
def value_size(clk, value, negative1, flipped1, negative2, low2, over2, wider2):
    """Give how large a value u16 is, a value a clock.

    flipped1 u15, negative1: |value| is the first, and 1 more where the value is negative. low2 u8, negative2:
    of them the lowest bits, a clock later. over2 u3: |v >> K| is 192 or more for K = 0, 1, 3: the highest
    that is set. wider2 u4: more than 3, 4, 5, 8 bits: the highest that is set.
    """

    @always(clk.posedge)
    def magnitude():
        negative1.next = value[15]
        flipped1.next = value[15:]
        if value[15]:
            flipped1.next = ~value[15:]
        negative2.next = negative1
        low2.next = flipped1[8:]
        # v >> K rounds down: -192 and 191 are one value of flipped1 >> K.
        # What counts is the highest that is set, so each looks only at bits that the one above may not see.
        over2.next[0] = flipped1[8] or (flipped1[7] and (flipped1[6] or (negative1 and flipped1[6:] == 63)))
        over2.next[1] = flipped1[11:9] != 0 or (
            flipped1[8] and (flipped1[7] or (negative1 and flipped1[7:1] == 63))
        )
        over2.next[2] = flipped1[15:11] != 0 or (
            flipped1[10] and (flipped1[9] or (negative1 and flipped1[9:3] == 63))
        )
        wider2.next[0] = flipped1[2]
        wider2.next[1] = flipped1[3]
        wider2.next[2] = flipped1[7:4] != 0
        wider2.next[3] = flipped1[15:7] != 0

    return magnitude


@block
def row_verdict(clk, total3, much3, over3, wider3, found_class, found_size):
    """Give class u4 and size u3 of a row, three clocks later.

    total3 u11: the sum of magnitudes; much3: more than that. over3, wider3: of value_size, or of all values.
    """
    upper4, part4, lowest4, over4, wider4, much4 = bit(), word(5), bit(), word(3), word(4), bit()
    length5, over5, wider5, much5 = word(4), word(3), word(4), bit()

    @always(clk.posedge)
    def encode():
        much4.next = much3
        upper4.next = total3[11:6] != 0
        part4.next = total3[6:1]
        if total3[11:6] != 0:
            part4.next = total3[11:6]
        lowest4.next = total3[0]
        over4.next = over3
        wider4.next = wider3
        # The bit length of 11 bits.
        if part4[4]:
            length5.next = 11 if upper4 else 6
        elif part4[3]:
            length5.next = 10 if upper4 else 5
        elif part4[2]:
            length5.next = 9 if upper4 else 4
        elif part4[1]:
            length5.next = 8 if upper4 else 3
        elif part4[0]:
            length5.next = 7 if upper4 else 2
        else:
            length5.next = lowest4
        over5.next = over4
        wider5.next = wider4
        much5.next = much4

    @always(clk.posedge)
    def result():
        found_class.next = length5
        if over5[2]:
            found_class.next = 15
        elif over5[1]:
            found_class.next = 14
        elif over5[0]:
            found_class.next = 13
        elif much5:
            found_class.next = 12
        found_size.next = 1
        if wider5[3]:
            found_size.next = 5
        elif wider5[2]:
            found_size.next = 4
        elif wider5[1]:
            found_size.next = 3
        elif wider5[0]:
            found_size.next = 2
        elif length5 == 0 and not much5:
            found_size.next = 0

    return encode, result
