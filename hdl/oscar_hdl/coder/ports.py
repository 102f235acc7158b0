"""Bundles of ports between the coder's blocks; docs/engine.md says what each signal means and when."""

from __future__ import annotations

from oscar_hdl.streams.bundles import bit, word

LANES = 32  # of a row, and clocks of a slot
ROW_BITS = 12  # rows of a block: up to 2^17 values
VALUES_BITS = 18
SET_BITS = 8  # numbers of table sets on ports, whatever a NIC has
COUNT_BITS = 19  # of a symbol's count: up to 2^18 values
READ_CLOCKS = 4  # from a request to the first lane's data


class PositionPort:
    """Means and distances for a decoder."""

    def __init__(self) -> None:
        self.ok, self.take, self.header, self.row = bit(), bit(), bit(), word(ROW_BITS)
        self.data, self.mean = word(4), word(4)


class SourcePort:
    """Rows and descriptors for an encoder."""

    def __init__(self) -> None:
        self.ok, self.take, self.header, self.row = bit(), bit(), bit(), word(ROW_BITS)
        self.data, self.mean = word(19), word(4)


class SumPort:
    """Where a decoder adds: local values in, sums and their descriptors out."""

    def __init__(self) -> None:
        self.take, self.row, self.local = bit(), word(ROW_BITS), word(16)
        self.valid, self.total = bit(), word(16)
        self.described, self.described_row = bit(), word(ROW_BITS)
        self.row_class, self.row_size, self.row_top = word(4), word(3), word(4)


class RawPosition(PositionPort):
    """Of the raw decoder, which asks (strobe, with header, row): `ok` is high when that row can be taken."""

    def __init__(self) -> None:
        super().__init__()
        self.ask = bit()


class RawSource(SourcePort):
    """Of the raw packer, which asks (strobe, with row): `ok` is high when that row can be taken."""

    def __init__(self) -> None:
        super().__init__()
        self.ask = bit()


class CountPort:
    """What a unit counts: a symbol a clock, none behind the job's `done`."""

    def __init__(self) -> None:
        self.valid, self.address, self.step = bit(), word(9), word(2)


class TableWrites:
    """Writes of units' tables: c of four symbols and of the one behind them, a quad of a row."""

    def __init__(self) -> None:
        self.enable, self.address, self.data = bit(), word(8), word(50)


class TablesPort:
    """What receiver and sender ask of their link_tables."""

    def __init__(self) -> None:
        self.build, self.built, self.learn, self.learnt = bit(), bit(), bit(), bit()
        self.load, self.save, self.fresh = word(SET_BITS), word(SET_BITS), bit()
        self.last, self.bank, self.mask = word(4), bit(), word(32)
        self.count_bank, self.forget = bit(), bit()
        self.query, self.query_fresh, self.checksum = word(SET_BITS), bit(), word(16)
        self.steady = bit()  # no frame under way is to save the set that is queried


class RawJob:
    """A raw or constant block: for raw_decoder with `width` bits a value from bytes, or for raw_packer."""

    def __init__(self) -> None:
        self.start, self.idle, self.done = bit(), bit(), bit()
        self.values, self.width = word(18), word(5)
        self.constant, self.value = bit(), word(16)  # raw_decoder only
        self.bank, self.thinning = bit(), word(2)  # raw_decoder only


class CountChain:
    """Counts of two symbols on their way through all symbol_counts to link_tables: each adds its own."""

    def __init__(self) -> None:
        self.valid, self.address, self.bank, self.totals = bit(), word(8), bit(), word(2 * COUNT_BITS)
