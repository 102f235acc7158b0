"""Where the rows of a frame are in a NIC's banks, one after another."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.streams.bundles import bit, word


@block
def row_walk(
    clk: Any, restart: Any, first: Any, forward: Any, groups: Any, bank: Any, row: Any, *, block_bits: int,
    skip_bits: int,
) -> Any:  # fmt: skip
    """Give the bank of a row, a bit for each, and its row there.

    restart: strobe, go to row `first` of the NIC's memory. forward: strobe, to the next row, or with `groups`
    (level; None: never, True: always) to the next group's. Results are there one clock later. Blocks have
    2^block_bits rows; 2^skip_bits banks take turns with them.
    """
    BANKS, LOW, TOP = len(bank), block_bits + skip_bits, len(row) + skip_bits
    absolute, following, by_groups = word(TOP), word(TOP), bit()

    @always_comb
    def follow() -> None:
        following.next = absolute + 1
        if by_groups:
            following.next = absolute + 32

    @always(clk.posedge)
    def move() -> None:
        if forward:
            absolute.next = following
        if restart:
            absolute.next = first[TOP:]

    parts: list[Any] = [follow, move]
    if groups is None or groups is True:
        ALWAYS = groups is True

        @always(clk.posedge)
        def by_rows() -> None:
            by_groups.next = ALWAYS

        parts.append(by_rows)
    else:

        @always_comb
        def by() -> None:
            by_groups.next = groups

        parts.append(by)

    if skip_bits == 0:

        @always(clk.posedge)
        def one_bank() -> None:
            bank.next = 1

        parts.append(one_bank)
    else:
        turn = word(skip_bits)

        @always_comb
        def choose() -> None:
            for i in range(BANKS):
                bank.next[i] = turn == i

        @always_comb
        def slice_turn() -> None:
            turn.next = absolute[LOW:block_bits]

        parts += [choose, slice_turn]

    if len(row) == block_bits:

        @always_comb
        def show() -> None:
            row.next = absolute[block_bits:]
    else:

        @always_comb
        def show() -> None:
            row.next = concat(absolute[TOP:LOW], absolute[block_bits:])

    return parts, show
