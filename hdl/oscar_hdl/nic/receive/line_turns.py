"""Which line of the store is read in a clock: the next one of a thread's block, or the reader's."""

from collections.abc import Sequence

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.coder.unit.ports import THREAD_BITS, THREADS
from oscar_hdl.nic.receive.chunk_reader import ChunkAsk
from oscar_hdl.nic.receive.line_choice import line_choice
from oscar_hdl.nic.receive.ports import RawWord
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.copied import copied
from oscar_hdl.streams.zero import zero

PUT_LATER = 4  # clocks from a span's `put` until it is written


class ThreadSpan:
    """A block in the store, for a thread: put (strobe), in the four clocks behind which the rest holds.

    at: unit << 3 | thread. top, bottom: chunks of its last byte and its first, which are not in one line: a
    coded block has 96 bytes or more.
    """

    def __init__(self, at_bits: int, chunk_bits: int) -> None:
        self.put, self.at = bit(), word(at_bits)
        self.top, self.bottom = word(chunk_bits), word(chunk_bits)


@block
def span_table(clk, span: ThreadSpan, put, at, step, step_at, step_top, step_whole, top, bottom, whole):
    """Keep what is left of each thread's block.

    put (strobe): span is written; step (strobe, not with put): step_top and step_whole, of thread step_at.
    at: a thread; a clock later top, bottom of its block, and whole: the rest of it is in one line.
    """
    CHUNK = len(top)
    tops = [word(CHUNK + 1) for _ in range(1 << len(at))]
    bottoms = [word(CHUNK) for _ in range(1 << len(at))]
    written, write, write_at, line = word(CHUNK + 1), bit(), word(len(at)), word(CHUNK + 1)

    @always_comb
    def choose():
        write.next = put or step
        written.next = concat(step_whole, step_top)
        write_at.next = step_at
        if put:
            written.next = concat(False, span.top)
            write_at.next = span.at
        top.next = line[CHUNK:]
        whole.next = line[CHUNK]

    @always(clk.posedge)
    def access():
        if write:
            tops[write_at].next = written
        if put:
            bottoms[span.at].next = span.bottom
        line.next = tops[at]
        bottom.next = bottoms[at]

    return choose, access


@block
def unit_wants(clk, rst, put, put_at, ends, at, room, wants, *, unit: int):
    """Know which threads of a unit have more to be given, and have room for it: wants u8.

    put (strobe): thread put_at (unit << 3 | thread) begins; ends (strobe): thread `at` has its last line.
    """
    live, seen, FIRST = word(THREADS), word(THREADS), THREADS * unit

    @always_comb
    def tell():
        wants.next = live & seen

    @always(clk.posedge)
    def keep():
        seen.next = room
        for i in range(THREADS):
            if ends and at == FIRST + i:
                live.next[i] = False
            if put and put_at == FIRST + i:
                live.next[i] = True
        if rst:
            live.next = 0

    return tell, keep


@block
def line_turns(clk, rst, turn, rooms: Sequence, span: ThreadSpan, chunk: ChunkAsk, raw: RawWord, line, tag):
    """Read a line a clock, of unit `turn` four clocks before.

    rooms: u8 of each unit, threads that have room. span: a block begins; chunk: of the reader, which goes
    before; raw: a word that is not of the store takes a turn of its unit. line: the one to read, with `tag`,
    for whom its columns are: whether the last one is the raw word, a bit for each that is the reader's, a bit
    for each that is the thread's, thread u3.
    """
    CHUNK, LINE, AT = len(chunk.at), len(line), len(span.at)
    SHIFT, COLUMNS, LAST = CHUNK - LINE, 1 << (CHUNK - LINE), 1 << (1 << CHUNK - LINE) - 1
    LATE = 2 % (1 << len(turn))  # VHDL warns of a number that has more bits than the signal
    wants, pause, ends3 = [word(THREADS) for _ in rooms], bit(), bit()
    thread2, some2, at2, turn2 = word(THREAD_BITS), bit(), word(AT), word(len(turn))
    top3, bottom3, whole3, some3, at3 = word(CHUNK), word(CHUNK), bit(), bit(), word(AT)
    own3, mine3, line3, below3 = word(COLUMNS), word(COLUMNS), word(LINE), word(LINE)
    step4, put4, at4, top4, whole4 = bit(), bit(), word(AT), word(CHUNK), bit()
    puts, asks, raws = word(PUT_LATER), word(3), word(3)
    raw_goes, raw_waits, raw_unit = bit(), bit(), word(len(turn))

    choice = line_choice(clk, rst, turn, wants, pause, thread2, some2)
    table = span_table(clk, span, put4, at2, step4, at4, top4, whole4, top3, bottom3, whole3)

    units = [
        unit_wants(clk, rst, put4, span.at, ends3, at3, room, wants[n], unit=n)
        for n, room in enumerate(rooms)
    ]

    @always_comb
    def look():
        ends3.next = some3 and whole3
        pause.next = span.put or chunk.ask or raw_goes
        raw_goes.next = raw.want and not raw_waits and turn == raw_unit and not chunk.ask
        turn2.next = turn - LATE
        put4.next = puts[PUT_LATER - 1]
        line3.next = top3[CHUNK:SHIFT]
        below3.next = top3[CHUNK:SHIFT] - 1

    if AT == THREAD_BITS:
        point = copied(None, thread2, at2), zero(clk, raw_unit)
    else:

        @always_comb
        def point():
            at2.next = concat(turn2[AT - THREAD_BITS :], thread2)
            raw_unit.next = raw.at[AT:THREAD_BITS]

    if SHIFT:

        @always_comb
        def own():
            for c in range(COLUMNS):
                own3.next[c] = asks[2] and chunk.at[SHIFT:] == c
                mine3.next[c] = c <= top3[SHIFT:] and (not whole3 or c >= bottom3[SHIFT:])

        @always(clk.posedge)
        def go_down():
            top4.next = concat(below3, modbv(COLUMNS - 1)[SHIFT:])

    else:

        @always_comb
        def own():
            own3.next = asks[2]
            mine3.next = 1

        go_down = copied(clk, below3, top4)

    @always(clk.posedge)
    def follow():
        puts.next = concat(puts[PUT_LATER - 1 :], span.put)
        asks.next = concat(asks[2:], chunk.ask)
        some3.next = some2
        at3.next = at2
        step4.next = some3 and not whole3
        at4.next = at3
        whole4.next = below3 == bottom3[CHUNK:SHIFT]
        line.next = line3
        raws.next = concat(raws[2:], raw_goes)
        raw_waits.next = (raw_waits or raw_goes) and not raw.land
        tag.next = concat(False, own3, modbv(0)[COLUMNS:], at3[THREAD_BITS:])
        if some3:
            tag.next = concat(False, own3, mine3, at3[THREAD_BITS:])
        if raws[2]:
            tag.next = concat(True, own3, modbv(LAST)[COLUMNS:], raw.at[THREAD_BITS:])
        if asks[2]:
            line.next = chunk.at[CHUNK:SHIFT]
        if rst:
            puts.next = 0
            asks.next = 0
            raws.next = 0
            raw_waits.next = False
            some3.next = False
            step4.next = False
            tag.next = 0

    return choice, table, units, look, point, own, go_down, follow
