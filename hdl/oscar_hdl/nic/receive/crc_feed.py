"""What a frame's CRC covers, word by word: all but the field of the CRC itself."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar.coding.frame import HEADER_BYTES
from oscar_hdl.streams.bundles import word


@block
def crc_feed(
    clk: Any, rst: Any, taken: Any, data: Any, keep: Any, final: Any, header: Any, fed: Any, fed_data: Any,
    fed_last: Any, fed_missing: Any,
) -> Any:  # fmt: skip
    """Give the words of frame_crc with a lead of 4 bytes, which is where the CRC's 4 bytes went.

    taken (strobe): a word, data, with keep; final: the frame's last. header: one bit, for the word of the
    header that it is, 0 behind it. fed (strobe), fed_data, fed_last, fed_missing: a clock later.
    """
    size, bits = len(keep), len(data)
    PART = 8 * (HEADER_BYTES % size)  # bits of the header in its last word, 0 for all
    LAST = len(header) - 1
    held, moved, chosen, missing = word(32), word(bits), word(bits), word(len(fed_missing))

    @always_comb
    def move():
        moved.next = concat(data[bits - 32 :], held)

    if PART == 0:

        @always_comb
        def choose():
            chosen.next = data
            if header != 0:
                chosen.next = moved

    else:

        @always_comb
        def choose():
            chosen.next = data
            if header[LAST]:
                chosen.next = concat(data[bits:PART], moved[PART:])
            elif header != 0:
                chosen.next = moved

    @always_comb
    def count():
        missing.next = 0
        for n in range(1, size):
            if keep[n - 1] and not keep[n]:
                missing.next = size - n

    @always(clk.posedge)
    def feed():
        fed.next = taken
        fed_last.next = final
        for n in range(bits):
            fed_data.next[n] = chosen[n] and keep[n // 8]
        if taken:
            fed_missing.next = missing
            held.next = data[bits : bits - 32]
        if (taken and final) or rst:
            held.next = 0
        if rst:
            fed.next = False

    return move, choose, count, feed
