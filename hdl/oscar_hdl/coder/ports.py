"""Bundles of ports between the coder's blocks; engine.md says what each signal means and when."""

from oscar_hdl.streams.bundles import Bundle, bit, word

LANES = 32  # of a row
ROW_BITS = 12  # rows of a block: up to 2^17 values
VALUES_BITS = 18
SET_BITS = 8  # numbers of table sets on ports, whatever a NIC has
BANKS, BANK_BITS = 4, 2  # of tables and counts, in each direction: frames under way, at most


def banks_of(units: int) -> int:
    """Return how many banks a NIC of so many units has: that of one is for parts with few block RAMs."""
    return 2 if units == 1 else BANKS


COUNT_BITS = 17  # of a symbol's count: up to 2^16, one in four of 2^18 values
READ_CLOCKS = 4  # from a request to the first lane's data


class SourcePort(Bundle):
    """Rows for raw_packer."""

    ok, take, row, data = bit(), bit(), word(ROW_BITS), word(16)


class RawSource(SourcePort):
    """Of the raw packer, which asks (strobe, with row): `ok` is high when that row can be taken."""

    ask = bit()


class CountPort(Bundle):
    """What a unit counts: a symbol a clock, none behind the job's `done`."""

    valid, address = bit(), word(9)


class TableWrites(Bundle):
    """Writes of a unit's tables, a quad of a row at a time.

    Attributes:
        enable: Strobe: write the quad. In any clock, while blocks read other banks.
        address: Bank (2 bits), row (5 bits), quad (2 bits), from the highest bit down.
        data: Cumulative counts c of the quad's four symbols and of the one after them, 10 bits each, the
            first lowest.
    """

    enable, address, data = bit(), word(7 + BANK_BITS), word(50)


class TablesPort(Bundle):
    """What receiver and sender ask of their link_tables."""

    build, built, learn, learnt = bit(), bit(), bit(), bit()
    load, save, fresh = word(SET_BITS), word(SET_BITS), bit()
    last, bank = word(4), word(BANK_BITS)
    count_bank, forget = word(BANK_BITS), bit()
    query, query_fresh, checksum = word(SET_BITS), bit(), word(16)
    steady = bit()  # no frame under way is to save the set that is queried


class RawJob(Bundle):
    """A raw block for raw_packer, of `width` bits a value."""

    start, idle, done = bit(), bit(), bit()
    values, width = word(18), word(5)


class CountedPairs(Bundle):
    """Counts of a frame, a pair of symbols a clock while `valid`; at: a pair's place, three clocks before."""

    valid, pair, at = bit(), word(2 * COUNT_BITS), word(8)


class CountChain(Bundle):
    """Counts of two symbols on their way through all symbol_counts to link_tables: each adds its own."""

    valid, address, bank = bit(), word(8), word(BANK_BITS)
    totals = word(2 * COUNT_BITS)
