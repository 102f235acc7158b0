"""The table sets of a link direction: builds a frame's tables, learns from its counts."""

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.ports import BANK_BITS, SET_BITS, CountChain, CountedPairs, TablesPort, TableWrites
from oscar_hdl.coder.tables.build_control import RowReads, build_control
from oscar_hdl.coder.tables.frame_sets import frame_sets
from oscar_hdl.coder.tables.learn_control import learn_control
from oscar_hdl.coder.tables.learn_rows import learn_rows
from oscar_hdl.coder.tables.row_quads import row_quads
from oscar_hdl.coder.tables.row_ratio import RATIO_BITS, row_ratio
from oscar_hdl.coder.tables.row_source import row_source
from oscar_hdl.coder.tables.row_totals import TOTAL_BITS, row_totals
from oscar_hdl.coder.tables.set_store import set_checksum, set_store
from oscar_hdl.streams.bundles import Bundle, bit, word
from oscar_hdl.streams.copied import copied_fields
from oscar_hdl.streams.lane_delay import lane_delay

QUADS_AT, QUAD_BITS = 36, 50  # clocks from a quad that is read to its write
# Clocks from `built` to the last quad, to decode and to encode. A block starts 5 clocks behind `built` or
# later. An encoder looks no symbol up sooner than 40 clocks behind that, a decoder not sooner than 83, since
# the final states come first; and quads pass eight units at most, a clock each.
EARLY = 56, 32


class BuildFields(Bundle):
    """Fields of the build that is under way, or was last."""

    fresh, last, bank = bit(), word(4), word(BANK_BITS)


@block
def table_writer(clk, rst, reading, quad, bank, cut, tables: TableWrites, ended, over, *, early: int):
    """Write quads u50 QUADS_AT clocks after they were read.

    cut: strobe, none of those that were read is written any more. ended: strobe, 1 + early before the last
    quad; over: strobe, 1 before it.
    """
    LAST, ENDED = 126, 126 - early
    way, place, own = word(QUADS_AT), word(7), word(BANK_BITS)

    @always(clk.posedge)
    def follow():
        way.next[QUADS_AT:1] = way[QUADS_AT - 1 :]
        way.next[0] = reading
        if way[QUADS_AT - 1]:
            place.next = place + 1
        if place == 0:  # the next build's fields may come
            own.next = bank
        if cut or rst:
            way.next = 0
            place.next = 0

    @always_comb
    def outputs():
        tables.enable.next = way[QUADS_AT - 1]
        tables.address.next = concat(own, place)
        tables.data.next = quad
        ended.next = way[QUADS_AT - 1] and place == ENDED
        over.next = way[QUADS_AT - 1] and place == LAST

    return follow, outputs


@block
def table_builder(
    clk, rst, port: TablesPort, hold, kept, reads: RowReads, fields: BuildFields, histogram,
    tables: TableWrites, *, encoding: bool,
):  # fmt: skip
    """Build tables, four symbols a clock: from port.build to port.built.

    kept u64: of the set, two clocks behind reads.at, with which `histogram` u64 comes: what the row was.
    Phases say where in its row each stage is; docs/develop/engine.md, "A build", has the clocks.
    """
    ended, over, cut = bit(), bit(), bit()
    entries, possible, possible_late, quad = word(64), word(4), word(4), word(QUAD_BITS)
    total, lost, peak, ratio = word(TOTAL_BITS), word(4), word(4), word(RATIO_BITS)
    here, middle, late, late_entries, late_possible = word(68), word(68), word(68), word(64), word(4)
    ticks = word(4)

    control = build_control(clk, rst, port, hold, fields.bank, ended, over, cut, reads)
    source = row_source(clk, reads.at, fields.fresh, fields.last, kept, entries, possible, histogram)
    totals = row_totals(clk, reads.phase, entries, possible, total, lost, peak)
    division = row_ratio(clk, reads.phase, total, lost, ratio)
    delays = [lane_delay(clk, ticks, here, middle, 16), lane_delay(clk, ticks, middle, late, 7)]
    quads = row_quads(clk, reads.phase, late_entries, late_possible, ratio, peak, quad)
    writer = table_writer(
        clk, rst, reads.reading, quad, fields.bank, cut, tables, ended, over, early=EARLY[encoding]
    )  # fmt: skip

    @always_comb
    def wires():
        here.next = concat(possible_late, entries)
        late_possible.next = late[68:64]
        late_entries.next = late[64:]

    @always(clk.posedge)
    def follow():
        ticks.next = ticks + 1
        possible_late.next = possible

    kept_fields = copied_fields(clk, port, fields, load=port.build)  # a command's may change behind `built`
    return kept_fields, control, source, totals, division, delays, quads, writer, wires, follow


@block
def link_tables(
    clk, rst, port: TablesPort, tables: TableWrites, request: CountChain, answer: CountChain, *,
    encoding: bool, sets: int = 16,
):  # fmt: skip
    """Build, learn, query (docs/develop/engine.md, "Tables").

    They run side by side. After a reset all counts are taken first (about 1,160 clocks); build and learn are
    accepted meanwhile.
    sets: a power of two. The answer is the request, with constant delay, its totals five clocks later than
    its address.
    """
    mute, away, hold, clear, ended = bit(True), bit(), bit(True), bit(), bit()
    reads, fields, kept, histogram = RowReads(), BuildFields(), word(64), word(64)
    counts, olds, learnt, save, new_checksum = CountedPairs(), word(32), word(32), word(SET_BITS), word(16)
    write, written, stored = bit(), bit(), bit()

    builder = table_builder(clk, rst, port, hold, kept, reads, fields, histogram, tables, encoding=encoding)
    store = set_store(
        clk, port, reads.at, kept, save, clear, write, away, learnt, written, ended, new_checksum, sets=sets
    )
    frames = frame_sets(
        clk, rst, port, fields.bank, reads.reading, reads.at, histogram, counts.at, olds, save
    )
    drain = learn_control(clk, rst, port, request, answer, mute, away, hold, clear, ended, counts)
    learning = learn_rows(clk, clear, counts.valid, counts.pair, olds, write, learnt)
    check = set_checksum(clk, clear, write, learnt, new_checksum)

    # A set is complete when its last pair is written; its checksum is, two clocks later.
    @always(clk.posedge)
    def finish_up():
        stored.next = written
        ended.next = stored
        if rst:
            stored.next = False
            ended.next = False

    return builder, store, frames, drain, learning, check, finish_up
