"""Where the rows of a frame are in a NIC's banks, one after another."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.streams.bundles import word


@block
def row_walk(
    clk: Any, restart: Any, first: Any, forward: Any, rounds: Any, bank: Any, row: Any, at_end: Any, *,
    block_bits: int, skip_bits: int,
) -> Any:  # fmt: skip
    """Give the bank of a row, a bit for each, and its row there.

    restart: strobe, go to row `first` of the NIC's memory. forward: strobe, to the next row. Results are
    there one clock later. rounds: only rows of one bank are visited (None: never). at_end: the row is its
    block's last. Blocks have 2^block_bits rows; 2^skip_bits banks take turns with them.
    """
    BANKS, LOW, TOP = len(bank), block_bits + skip_bits, len(row) + skip_bits
    ROUND = (1 << LOW) - (1 << block_bits) + 1
    absolute, following, turn = word(TOP), word(TOP), word(skip_bits)

    END = (1 << block_bits) - 1  # the last row of a block

    @always_comb
    def end() -> None:
        at_end.next = absolute[block_bits:] == END

    if rounds is None:

        @always_comb
        def follow() -> None:
            following.next = absolute + 1
    else:

        @always_comb
        def follow() -> None:
            following.next = absolute + 1
            if at_end and rounds:
                following.next = absolute + ROUND

    @always(clk.posedge)
    def move() -> None:
        if forward:
            absolute.next = following
        if restart:
            absolute.next = first[TOP:]

    @always_comb
    def choose() -> None:
        for i in range(BANKS):
            bank.next[i] = turn == i

    @always_comb
    def slice_turn() -> None:
        turn.next = absolute[LOW:block_bits]

    if len(row) == block_bits:

        @always_comb
        def show() -> None:
            row.next = absolute[block_bits:]
    else:

        @always_comb
        def show() -> None:
            row.next = concat(absolute[TOP:LOW], absolute[block_bits:])

    return end, follow, move, choose, slice_turn, show
