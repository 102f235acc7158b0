"""Feeds the threads of all barrel decoders from the store, a line of it at a time."""

from collections.abc import Sequence

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.decode.ports import FeedPort
from oscar_hdl.coder.unit.ports import THREAD_BITS
from oscar_hdl.nic.receive.chunk_reader import ChunkAsk
from oscar_hdl.nic.receive.frame_store import CHUNK_BITS, COLUMN_CLOCKS
from oscar_hdl.nic.receive.line_turns import ThreadSpan, line_turns
from oscar_hdl.nic.receive.ports import RawWord
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.copied import copied

COLUMN_AT = 6  # clocks from a unit's turn until the last column of its line is there


def turns_of(units: int, columns: int) -> int:
    """Return how many turns go round: as many as there are units, or clocks in which a unit takes a line."""
    return max(units, COLUMN_CLOCKS * columns)


@block
def column_offer(tag, chunk, offer, own, raw: RawWord, *, column: int, columns: int):
    """Give what a column has, offer: the word for a decoder, its thread u3 and whether there is one.

    own: it is the reader's. raw: what the last column has in the clock of its `land`.
    """
    MINE, OWN, BITS = THREAD_BITS + column, THREAD_BITS + columns + column, CHUNK_BITS
    RAW, turned = THREAD_BITS + 2 * columns, word(CHUNK_BITS)

    @always_comb
    def turn():
        """The byte that lies last pops first."""
        for i in range(BITS):
            turned.next[i] = chunk[BITS - 8 - i + 2 * (i % 8)]

    if column == columns - 1:

        @always_comb
        def join():
            offer.next = concat(tag[MINE], tag[THREAD_BITS:], turned)
            if tag[RAW]:
                offer.next = concat(tag[MINE], tag[THREAD_BITS:], raw.data)

        @always_comb
        def mark():
            """Apart from join: Verilog has all owns driven by assignments, or none."""
            raw.land.next = tag[RAW]
            own.next = tag[OWN]

        return turn, join, mark

    @always_comb
    def join():
        offer.next = concat(tag[MINE], tag[THREAD_BITS:], turned)
        own.next = tag[OWN]

    return turn, join


@block
def either(select, at: int, low, high, chosen):
    """Let `chosen` be low, or high if bit `at` of select is 1."""

    @always_comb
    def choose():
        chosen.next = low
        if select[at]:
            chosen.next = high

    return choose


@block
def chosen_of(select, parts: Sequence, chosen, *, at: int = 0):
    """Let `chosen` be the part whose number is in `select` from bit `at` on; there are 1, 2 or 4."""
    if len(parts) == 1:
        return copied(None, parts[0], chosen)
    if len(parts) == 2:
        return either(select, at, *parts, chosen)
    low, high = word(len(chosen)), word(len(chosen))
    halves = [chosen_of(select, parts[:2], low, at=at), chosen_of(select, parts[2:], high, at=at)]
    return halves, either(select, at + 1, low, high, chosen)


@block
def unit_feed(clk, turn, offers: Sequence, feed: FeedPort, *, unit: int):
    """Give a decoder the columns of its lines, the last one first, each when it is there."""
    COLUMNS, BEFORE = len(offers), (unit + COLUMN_AT - 1) % (1 << len(turn))
    CLOCKS = COLUMN_CLOCKS * COLUMNS
    place, chosen = word(len(turn)), word(len(offers[0]))
    pick = chosen_of(place, offers[::-1], chosen, at=1)

    @always(clk.posedge)
    def count():
        place.next = turn - BEFORE

    @always_comb
    def give():
        feed.valid.next = chosen[CHUNK_BITS + THREAD_BITS] and not place[0] and place < CLOCKS
        feed.thread.next = chosen[CHUNK_BITS + THREAD_BITS : CHUNK_BITS]
        feed.data.next = chosen[CHUNK_BITS:]

    return pick, count, give


@block
def byte_feeder(
    clk, rst, span: ThreadSpan, chunk: ChunkAsk, raw: RawWord, line, tag, chunks: Sequence, tags: Sequence,
    feeds: Sequence[FeedPort],
):  # fmt: skip
    """Give words of blocks to the threads that have room, and single chunks to a reader.

    Units take turns, a clock each, in which a line of a thread's block is asked for. span: a block begins.
    chunk: of the reader, who takes the turn of a unit; raw: of raw_words, which take one of theirs. line,
    tag, chunks, tags: frame_store's. feeds: of the units, 1, 2, 4 or 8.
    """
    UNITS, COLUMNS = len(feeds), len(chunks)
    turn = word((turns_of(UNITS, COLUMNS) - 1).bit_length())
    offers, owns = [word(CHUNK_BITS + THREAD_BITS + 1) for _ in chunks], [bit() for _ in chunks]
    place, data = word(3), word(CHUNK_BITS)

    turns = line_turns(clk, rst, turn, [feed.room for feed in feeds], span, chunk, raw, line, tag)
    columns = [
        column_offer(tags[c], chunks[c], offers[c], owns[c], raw, column=c, columns=COLUMNS)
        for c in range(COLUMNS)
    ]
    units = [unit_feed(clk, turn, offers, feeds[u], unit=u) for u in range(UNITS)]
    reader = chosen_of(place, chunks, data)

    @always_comb
    def join():
        chunk.land.next = False
        for c in range(COLUMNS):
            if owns[c]:
                chunk.land.next = True
        chunk.data.next = data
        place.next = chunk.at[3:]

    @always(clk.posedge)
    def count():
        turn.next = turn + 1

    return turns, columns, units, reader, join, count
