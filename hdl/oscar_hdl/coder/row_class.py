"""Class and size of rows of 32 values (docs/asc.md, "Rows, groups, blocks"; docs/engine.md)."""

from __future__ import annotations

from typing import Any

from myhdl import always, block, concat

from oscar_hdl.streams.bundles import bit, word

CLOCKS = 5  # from a row's last value to its class


@block
def row_class(clk: Any, rst: Any, valid: Any, value: Any, done: Any, found: Any, size: Any) -> Any:
    """Describe each 32 values.

    valid: strobe, value u16, two's complement, in any order. done: strobe, 5 clocks after a row's 32nd value,
    with found u4, the row's class, and size u3.
    """
    lane, first1, last1, valid1 = word(5), bit(), bit(), bit()
    first2, last2, valid2, last3, last4 = bit(), bit(), bit(), bit(), bit()
    x1, negative1 = word(15), bit()  # the magnitude, or one less where it is negative
    low2, negative2 = word(8), bit()
    # Of a value, then of the row: it needs more than 3, 4, 5, 8 bits; 0, 1, 3 low bits round the tables are
    # too few.
    needs2, wide2, needs3, wide3 = word(4), word(3), word(4), word(3)
    total3 = word(13)  # right if the row is not wide
    # Bit lengths of three parts of the total; the uppermost bits of it are in most4.
    most4, high4, middle4, low4 = bit(), word(2), word(3), word(3)
    size4, wide4 = word(3), word(3)

    @always(clk.posedge)
    def magnitude() -> None:
        valid1.next = valid and not rst
        first1.next = lane == 0
        last1.next = lane == 31
        if valid:
            lane.next = lane + 1
        if rst:
            lane.next = 0
        negative1.next = value[15]
        x1.next = value[15:]
        if value[15]:
            x1.next = ~value[15:]

    # Without k low bits the magnitude is x >> k, of negative values one more.
    @always(clk.posedge)
    def measure() -> None:
        valid2.next = valid1 and not rst
        first2.next = first1
        last2.next = last1
        low2.next = x1[8:]
        negative2.next = negative1
        needs2.next[0] = x1[15:2] != 0
        needs2.next[1] = x1[15:3] != 0
        needs2.next[2] = x1[15:4] != 0
        needs2.next[3] = x1[15:7] != 0
        wide2.next[0] = x1[15:8] != 0 or (x1[7] and x1[6]) or (negative1 and x1[8:] == 191)
        wide2.next[1] = x1[15:9] != 0 or (x1[8] and x1[7]) or (negative1 and x1[9:1] == 191)
        wide2.next[2] = x1[15:11] != 0 or (x1[10] and x1[9]) or (negative1 and x1[11:3] == 191)

    @always(clk.posedge)
    def gather() -> None:
        last3.next = valid2 and last2 and not rst
        if valid2:
            if first2:
                total3.next = low2 + concat(False, negative2)
                needs3.next = needs2
                wide3.next = wide2
            else:
                total3.next = total3 + low2 + concat(False, negative2)
                needs3.next = needs3 | needs2
                wide3.next = wide3 | wide2

    @always(clk.posedge)
    def lengths() -> None:
        last4.next = last3 and not rst
        wide4.next = wide3
        most4.next = total3[13:11] != 0
        high4.next = 0
        if total3[10]:
            high4.next = 3
        elif total3[9]:
            high4.next = 2
        elif total3[8]:
            high4.next = 1
        middle4.next = 0
        if total3[7]:
            middle4.next = 4
        elif total3[6]:
            middle4.next = 3
        elif total3[5]:
            middle4.next = 2
        elif total3[4]:
            middle4.next = 1
        low4.next = 0
        if total3[3]:
            low4.next = 4
        elif total3[2]:
            low4.next = 3
        elif total3[1]:
            low4.next = 2
        elif total3[0]:
            low4.next = 1
        size4.next = 1
        if needs3[3]:
            size4.next = 5
        elif needs3[2]:
            size4.next = 4
        elif needs3[1]:
            size4.next = 3
        elif needs3[0]:
            size4.next = 2

    @always(clk.posedge)
    def conclude() -> None:
        done.next = last4 and not rst
        size.next = size4
        if wide4[2]:
            found.next = 15
        elif wide4[1]:
            found.next = 14
        elif wide4[0]:
            found.next = 13
        elif most4:
            found.next = 12
        elif high4 != 0:
            found.next = concat(True, False, high4)
        elif middle4 != 0:
            found.next = concat(middle4[2], not middle4[2], middle4[2:])
        else:
            found.next = low4
            if low4 == 0:
                size.next = 0

    return magnitude, measure, gather, lengths, conclude
