"""Units of 16 bits from the store, in order, on demand."""

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.streams.bundles import Bundle, bit, word

UNITS_BITS = 3  # of a unit's number in a chunk


class UnitPort(Bundle):
    """Demand for units: `get` (strobe) with `amount`; `ready` when the last of them is in `units`."""

    get, amount, ready = bit(), word(3), bit()
    soon = bit()  # in the clock before ready; with ready the next `get` may come
    units = word(64)  # the last four, the newest at the top


class ChunkAsk:
    """Chunks of the store, one after another: ask (strobe), and `at` holds until land (strobe) with data."""

    def __init__(self, chunk_bits: int) -> None:
        self.ask, self.at, self.land, self.data = bit(), word(chunk_bits), bit(), word(128)


@block
def chunk_reader(clk, rst, opened, first, chunk: ChunkAsk, port: UnitPort):
    """Give units from number `first` of the store on, after opened (strobe), which forgets all before.

    A chunk is asked for while the one before is used; of a chunk that was asked for before `opened` nothing
    is used.
    """
    bits, LAST = len(chunk.data), (1 << UNITS_BITS) - 1
    words, spare, held, full = word(bits), word(bits), bit(), bit()
    index, left, unit, shift = word(UNITS_BITS), word(3), word(16), bit()
    reading, asked, stale = bit(), bit(), bit()

    @always_comb
    def choose():
        moved = modbv(0)[bits:]
        moved[:] = words >> concat(index, modbv(0)[4:])
        unit.next = moved[16:]
        shift.next = held and left != 0
        port.ready.next = left == 0
        port.soon.next = held and left == 1

    @always(clk.posedge)
    def fetch():
        chunk.ask.next = False
        if chunk.land:
            asked.next = False
            stale.next = False
            if not stale:
                chunk.at.next = chunk.at + 1
        elif reading and not asked and not full:
            chunk.ask.next = True
            asked.next = True
        if opened:
            chunk.ask.next = False
            asked.next = asked and not chunk.land
            stale.next = asked and not chunk.land
            reading.next = True
            chunk.at.next = first[:UNITS_BITS]
        if rst:
            chunk.ask.next = False
            asked.next = False
            stale.next = False
            reading.next = False

    @always(clk.posedge)
    def keep():
        if not full:
            spare.next = chunk.data
        if chunk.land and not stale:
            full.next = True
        if full and not held:
            words.next = spare
            held.next = True
            full.next = False
        if shift:
            index.next = index + 1
            if index == LAST:
                held.next = False
        if opened:
            held.next = False
            full.next = False
            index.next = first[UNITS_BITS:]
        if rst:
            held.next = False
            full.next = False
        if shift:
            port.units.next = concat(unit, port.units[64:16])
            left.next = left - 1
        if port.get:
            left.next = port.amount
        if rst:
            left.next = 0

    return choose, fetch, keep
