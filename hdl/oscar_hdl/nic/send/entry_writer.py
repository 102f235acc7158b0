"""A block's entry of the directory, as three pairs of bytes (docs/asc.md, "Payload")."""

from __future__ import annotations

from typing import Any

from myhdl import always, block, concat, modbv

CODED, RAW, CONSTANT = 0, 1, 2


@block
def entry_writer(
    clk: Any, go: Any, step: Any, constant: Any, raw: Any, width: Any, seeds: Any, first: Any, last: Any,
    length: Any, value: Any, final: Any, write: Any, entry: Any,
    entry_last: Any,
) -> Any:  # fmt: skip
    """Give pair `step` u2 (0..2) one clock after `go` (strobe), with `write`.

    constant, raw: the block's type; else it is coded. width u5: bits of a raw value; seeds u3, first u7,
    last u7: of a coded block; length u19: bytes; value u16: of a constant one. final: it is the
    last block's, whose last pair has entry_last.
    """

    @always(clk.posedge)
    def give():
        write.next = go
        entry_last.next = final and step == 2
        if constant:
            entry.next = 0
            if step == 0:
                entry.next = CONSTANT
            elif step == 1:
                entry.next = value
            elif value[15]:
                entry.next = 0xFFFF
        elif step == 0:
            entry.next = concat(last[4:], first, seeds, modbv(CODED)[2:])
            if raw:
                entry.next = concat(modbv(0)[9:], width, modbv(RAW)[2:])
        elif step == 1:
            entry.next = concat(length[8:], modbv(0)[5:], last[7:4])
            if raw:
                entry.next = concat(length[8:], modbv(0)[8:])
        else:
            entry.next = length[19:8]

    return give
