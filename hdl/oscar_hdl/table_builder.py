"""Frequencies, cumulative frequencies and reciprocals of one context after another."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.reciprocal import reciprocal
from oscar_hdl.streams.bundles import bit, word


@block
def table_builder(
    clk: Any, rst: Any, phase: Any, second: Any, stepping: Any, seventh: Any, tick: Any,
    go: Any, enc: Any, total: Any, h_valid: Any, h_sym: Any, h: Any, busy: Any,
    dec_valid: Any, dec_f: Any, dec_c: Any, enc_valid: Any, enc_f: Any, enc_c: Any, enc_rcp: Any,
) -> Any:  # fmt: skip
    """Make the table rows of a context from its histogram (docs/format2.md, "Tables").

    Clocks come in rounds of eight, 0 to 7: `phase` is high in odd ones, `second` in 1, `stepping` in 1 to 6,
    `seventh` in 6, `tick` in 7. go: in clock 7, not while `busy`; `total` u11 is the histogram's sum plus 1,
    and the histogram follows from the next clock 2 on, an entry every two clocks: h_valid, h_sym u4, h u10.
    Rows come by rising symbol: dec_valid (enc is 0) in consecutive clocks, with f and c u12; enc_valid (enc
    is 1) in clock 7 of consecutive rounds, with the reciprocal u18 too. c goes on from context to context:
    frequencies of each add up to 0 modulo 4096.
    """
    rows = [word(10) for _ in range(16)]
    largest, peak, peak_kept = word(10), word(4), word(4)
    at = word(4)  # the row that is looked up
    entry, scale, product = word(10), word(18), word(28)
    adding, settling, making = bit(), bit(), bit()  # first pass, over the sum; second pass, over the rows
    added = word(3)  # adding, as the pipeline moves
    made = word(2)
    at_peak, plus = bit(), word(7)
    missing = word(7)  # 4097 - sum of f, modulo 128: what the largest entry gets instead of 1
    divisor, small, medium = word(12), bit(), bit()
    quotient = word(18)
    scales, divisions = word(3), word(3)  # what each unit of the divider works on: the scale, a row

    divider = reciprocal(clk, tick, stepping, divisor, go, small, medium, quotient, enc_f)

    @always_comb
    def choose():
        divisor.next = dec_f
        if go:
            divisor.next = total

    @always_comb
    def pass_on():
        enc_rcp.next = quotient

    # Both passes multiply anew, which is cheaper than to keep frequencies.
    @always(clk.posedge)
    def frequency():
        less = modbv(0)[11:]
        less[:] = largest - h  # its sign: a comparison with > costs twice as much
        if h_valid and not phase:
            rows[h_sym].next = h
            if h_sym == 0 or less[10]:
                largest.next = h
                peak.next = h_sym
        entry.next = rows[at]
        at_peak.next = making and at == peak_kept
        product.next = entry * scale
        plus.next = 1
        if at_peak:
            plus.next = missing
        dec_f.next = product[24:12] + plus
        small.next = dec_f[12:7] == 0 and (dec_f[7:] == 64 or not dec_f[6])
        medium.next = dec_f[12:10] == 0 and (dec_f[10:] == 512 or not dec_f[9])
        if settling:
            peak_kept.next = peak
        if tick and scales[2]:
            scale.next = quotient
            missing.next = 1
        elif added[2]:
            missing.next = missing - dec_f[7:]

    @always(clk.posedge)
    def sequence():
        added.next = concat(added[2:], adding)
        made.next[1] = made[0]
        made.next[0] = making and not enc
        dec_valid.next = made[1]
        enc_valid.next = seventh and divisions[2]
        if dec_valid:
            dec_c.next = dec_c + dec_f
        if enc_valid:
            enc_c.next = enc_c + enc_f
        if tick:
            scales.next = concat(scales[2:], go)
            divisions.next[3:1] = divisions[2:]
            divisions.next[0] = making and enc
        if go:
            busy.next = True
        if tick and scales[2]:
            at.next = 0
            adding.next = True
        elif adding or (making and (second or not enc)):
            at.next = at + 1
        if adding and at == 15:
            adding.next = False
            settling.next = True
        if settling and second:
            settling.next = False
            making.next = True
            if not enc:
                busy.next = False  # the next context's scale takes longer than these rows
        if making and at == 15 and (tick or not enc):
            making.next = False
            if enc:
                busy.next = False
        if rst:
            added.next = 0
            made.next = 0
            dec_valid.next = False
            enc_valid.next = False
            dec_c.next = 0
            enc_c.next = 0
            scales.next = 0
            divisions.next = 0
            busy.next = False
            adding.next = False
            settling.next = False
            making.next = False

    return divider, choose, pass_on, frequency, sequence
