"""The slots of a bank, shared by a unit and the seldom raw one: for decoding, and for encoding."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.streams.bundles import bit, word


@block
def encode_share(
    clk: Any, rst: Any, phase: Any, source: Any, base: Any, raw_source: Any, raw_base: Any, raw_here: Any,
    raw_ok: Any, bank_source: Any, source_row: Any, *, block_bits: int, skip_bits: int,
) -> Any:  # fmt: skip
    """Pass on what either unit asks for; tell each when it may ask.

    source: SourcePort of the encoder, base of its block; raw_source, raw_base: of the raw packer, whose block
    is in this bank if raw_here; data and ok of its port are left to others, who get raw_ok. bank_source: to
    the bank; source_row is the row there.
    """
    own_row, raw_row, taken = word(len(source_row)), word(len(source_row)), bit()
    places = {"block_bits": block_bits, "skip_bits": skip_bits}

    parts = [
        slot_share(clk, rst, phase, raw_here, taken, source.ok, raw_ok, slots=1),
        bank_row(base, source.row, own_row, **places),
        bank_row(raw_base, raw_source.row, raw_row, **places),
    ]

    @always_comb
    def choose() -> None:
        taken.next = raw_source.take and raw_here

    @always_comb
    def ask() -> None:
        bank_source.take.next = source.take or taken
        bank_source.header.next = source.header
        source_row.next = own_row
        if taken:
            bank_source.header.next = raw_source.header
            source_row.next = raw_row

    @always_comb
    def receive() -> None:
        source.data.next = bank_source.data
        source.mean.next = bank_source.mean

    return parts, choose, ask, receive


SLOTS = 2  # a decoder asks for sums in phase 25 of a row's slot, the raw decoder at once


@block
def decode_share(
    clk: Any, rst: Any, phase: Any, position: Any, sums: Any, base: Any, adopt: Any, raw_position: Any,
    raw_sums: Any, raw_base: Any, raw_adopt: Any, raw_here: Any, raw_ok: Any, bank_position: Any,
    position_row: Any, bank_sums: Any, sum_row: Any, described_row: Any, bank_adopt: Any, *, block_bits: int,
    skip_bits: int,
) -> Any:  # fmt: skip
    """Pass on what either unit asks for and gives; tell each when it may ask.

    position, sums: PositionPort and SumPort of the decoder, base and adopt of its block; raw_position ..: of
    the raw decoder, whose block is in this bank if raw_here; data and ok of its ports are left to others, who
    get raw_ok. bank_position, bank_sums, bank_adopt: to the bank; position_row, sum_row and described_row are
    the rows there.
    """
    ROW_BITS = len(position_row)
    own_row, own_sum, own_described = word(ROW_BITS), word(ROW_BITS), word(ROW_BITS)
    raw_row, raw_sum, raw_described = word(ROW_BITS), word(ROW_BITS), word(ROW_BITS)
    taken, valid, described = bit(), bit(), bit()  # by the raw decoder, here
    places = {"block_bits": block_bits, "skip_bits": skip_bits}

    parts = [
        slot_share(clk, rst, phase, raw_here, taken, position.ok, raw_ok, slots=SLOTS),
        bank_row(base, position.row, own_row, **places),
        bank_row(base, sums.row, own_sum, **places),
        bank_row(base, sums.described_row, own_described, **places),
        bank_row(raw_base, raw_position.row, raw_row, **places),
        bank_row(raw_base, raw_sums.row, raw_sum, **places),
        bank_row(raw_base, raw_sums.described_row, raw_described, **places),
    ]

    @always_comb
    def choose() -> None:
        taken.next = raw_position.take and raw_here
        valid.next = raw_sums.valid and raw_here
        described.next = raw_sums.described and raw_here

    @always_comb
    def ask() -> None:
        bank_position.take.next = position.take or taken
        bank_position.header.next = position.header
        position_row.next = own_row
        if taken:
            bank_position.header.next = raw_position.header
            position_row.next = raw_row
        bank_sums.take.next = sums.take or (raw_sums.take and raw_here)
        sum_row.next = own_sum
        if raw_sums.take and raw_here:
            sum_row.next = raw_sum

    @always(clk.posedge)
    def keep() -> None:
        if raw_sums.take and raw_here:
            bank_adopt.next = raw_adopt
        elif sums.take:
            bank_adopt.next = adopt

    @always_comb
    def give() -> None:
        bank_sums.valid.next = sums.valid or valid
        bank_sums.total.next = sums.total
        if valid:
            bank_sums.total.next = raw_sums.total
        bank_sums.described.next = sums.described or described
        described_row.next = own_described
        bank_sums.row_class.next = sums.row_class
        bank_sums.row_size.next = sums.row_size
        if described:
            described_row.next = raw_described
            bank_sums.row_class.next = raw_sums.row_class
            bank_sums.row_size.next = raw_sums.row_size

    @always_comb
    def receive() -> None:
        position.data.next = bank_position.data
        position.mean.next = bank_position.mean
        sums.local.next = bank_sums.local

    return parts, choose, ask, keep, give, receive


@block
def bank_row(base: Any, row: Any, found: Any, *, block_bits: int, skip_bits: int) -> Any:
    """Leave out the bits of a row's number that choose its bank.

    base: first row of the block in the NIC's memory, a multiple of 2^block_bits; row: u12, in the block.
    Above block_bits come skip_bits that say the bank; what is above these, and the row, are left.
    """
    LOW = block_bits + skip_bits
    TOP = LOW + len(found) - block_bits
    if len(base) < TOP:
        raise ValueError(f"rows of the memory's {TOP} bits need bases as wide, got {len(base)} bits")
    if not 5 <= block_bits <= min(12, len(found)):
        raise ValueError(f"a block has 2^5 to 2^12 rows and fits a bank, got 2^{block_bits}")

    if TOP == LOW:

        @always_comb
        def place() -> None:
            found.next = row[block_bits:]
    else:

        @always_comb
        def place() -> None:
            found.next = concat(base[TOP:LOW], row[block_bits:])

    return place


SELDOM = 63  # slots from one offer to the next, while the second unit takes none


@block
def slot_share(
    clk: Any, rst: Any, phase: Any, chosen: Any, taken: Any, first_ok: Any, second_ok: Any, *, slots: int
) -> Any:
    """Say when each of two units may begin a slot.

    chosen: level, the second unit works here. taken: strobe, it has begun a slot. first_ok: level, changes
    with phase 0; it is low for `slots` slots before one that the second may begin. second_ok: in phase 30
    before that. The slots between offers are few as long as the second unit takes what is offered.
    """
    at = word(6)  # slots to the next offer
    offers = bit()
    SLOTS = slots

    @always_comb
    def show() -> None:
        first_ok.next = at >= SLOTS
        second_ok.next = offers

    @always(clk.posedge)
    def count() -> None:
        offers.next = phase == 29 and at == 0
        if not chosen or rst:
            at.next = SELDOM
        elif taken:
            at.next = SLOTS + 1
        elif phase == 31:
            at.next = at - 1

    return show, count
