"""Decides how each block of a frame is sent, in order: a block in four clocks where nothing waits."""

from collections.abc import Sequence

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar.coding.asc.params import DIRECTORY_BYTES, PREFIX_BYTES, RAW_SAVES
from oscar.coding.frame import HEADER_BYTES
from oscar_hdl.coder.ports import RawJob
from oscar_hdl.nic.send import ports
from oscar_hdl.nic.send.encode_dealer import bank_place
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.hot_tree import hot_tree

CODED, RAW, CONSTANT = 0, 1, 2  # types of blocks in the directory
MINUS = 0xFFFF  # the upper half of a negative value


class Verdict:
    """The block that was taken last, and what becomes of it where it is settled."""

    def __init__(self, row_bits: int) -> None:
        self.result = result = word(ports.RESULT_BITS)
        self.constant, self.value, self.bits, self.bad = result(0), result(17, 1), result(21, 17), result(57)
        self.seeds, self.first, self.last = result(24, 21), result(31, 24), result(38, 31)
        self.bytes, self.width = result(57, 38), word(5)  # width: bits of a value, raw
        self.values, self.row, self.final = word(18), word(row_bits), bit()  # final: the frame's last
        self.raw_size, self.short = word(19), bit()  # short: not too long to be sent coded
        self.dropped, self.raw, self.length = bit(), bit(), word(19)  # it does not count; it is sent raw
        self.settle = bit()  # strobe


@block
def entry_writer(clk, rst, verdict: Verdict, failed, entries: ports.EntryPort, busy):
    """Write a block's entry into the directory in the three clocks behind its verdict."""
    entry, pairs, ending = word(48), word(2), bit()

    @always_comb
    def look():
        busy.next = pairs != 0

    @always(clk.posedge)
    def write():
        entries.write.next = pairs != 0 and not rst
        entries.last.next = ending and pairs == 1
        entries.entry.next = entry[16:]
        entry.next = entry[48:16]
        if pairs != 0:
            pairs.next = pairs - 1
        if verdict.settle and not failed:
            pairs.next = 3
            ending.next = verdict.final
            entry.next = concat(
                modbv(0)[5:], verdict.length, modbv(0)[5:], verdict.last, verdict.first, verdict.seeds,
                modbv(CODED)[2:],
            )  # fmt: skip
            if verdict.raw:
                entry.next = concat(
                    modbv(0)[5:], verdict.length, modbv(0)[17:], verdict.width, modbv(RAW)[2:]
                )
            if verdict.constant:
                entry.next = concat(modbv(0)[16:], verdict.value, modbv(CONSTANT)[16:])
                if verdict.result[16]:  # the value's sign
                    entry.next = concat(modbv(MINUS)[16:], verdict.value, modbv(CONSTANT)[16:])
        if rst:
            pairs.next = 0

    return look, write


@block
def measure(clk, frame: ports.SentFrame, verdict: Verdict):
    """Say how many bytes a block has raw, two clocks behind its result, and in the next if it is short coded
    (docs/reference/asc.md, "What the sender decides")."""
    # Bits: as raw values, and of the frame's width; rounded up to bytes, and with what raw has to save.
    product, most, total, wide, limit = word(23), word(23), word(22), word(22), word(22)
    SOME, ALONE = 7 + 8 * RAW_SAVES, 7

    @always_comb
    def split():
        verdict.width.next = verdict.bits + 1
        verdict.raw_size.next = total[22:3]

    # A raw block's bytes: its values, as often as one has bits.
    @always(clk.posedge)
    def add():
        product.next = verdict.values * verdict.width
        most.next = verdict.values * frame.width
        total.next = product[22:] + ALONE
        limit.next = product[22:] + SOME
        if frame.last_block == 0:
            limit.next = product[22:] + ALONE
        wide.next = most[22:] + ALONE
        verdict.short.next = verdict.bytes < limit[22:3] and verdict.bytes < wide[22:3]

    return split, add


@block
def place_counter(
    clk, rst, frame: ports.SentFrame, verdict: Verdict, judging: ports.Judging, settled: ports.SettledBlock,
    *, store_bits: int, size_bits: int,
):  # fmt: skip
    """Follow the end of the frame, and whether it has failed.

    store_bits, size_bits: of the number of the store's words, and of a word's bytes. The last four words
    of the store stay free.
    """
    HEAD = HEADER_BYTES + PREFIX_BYTES + DIRECTORY_BYTES
    END, LOW, PLACE_BITS = store_bits + size_bits, size_bits + 2, len(judging.place)
    FULL = (1 << (store_bits - 2)) - 1
    six_blocks, first_place, full = word(11), word(11), bit()

    @always_comb
    def look():
        settled.judge_place.next = judging.place
        judging.failed.next = judging.wrong or judging.long

    @always(clk.posedge)
    def follow():
        six_blocks.next = concat(frame.last_block, modbv(0)[2:]) + concat(frame.last_block, modbv(0)[1:])
        first_place.next = six_blocks + HEAD
        if verdict.settle:
            judging.place.next = judging.place + verdict.length
            if verdict.bad:
                judging.wrong.next = True
        full.next = judging.place[END:LOW] == FULL or judging.place[PLACE_BITS:END] != 0
        if full:
            judging.long.next = True
        if judging.failed:
            judging.place.next = 0
        if frame.begin or rst:
            judging.place.next = first_place
            judging.wrong.next = False
            judging.long.next = False
        if frame.begin and frame.empty:
            judging.place.next = HEADER_BYTES

    return look, follow


@block
def block_judge(
    clk, rst, frame: ports.SentFrame, rings: Sequence[ports.UnitRing], judging: ports.Judging,
    settled: ports.SettledBlock, raw: RawJob, raw_row, pairs: ports.PairJob, entries: ports.EntryPort, *,
    block_log2: int, store_bits: int, size_bits: int,
):  # fmt: skip
    """Take the results of a frame's blocks in its order, and settle each: coded, raw, constant, or dropped.

    raw, raw_row: raw_packer's job and the first row of its block. A raw block waits for the one before it,
    others do not wait for it. store_bits, size_bits: see place_counter.
    rst: nothing is under way.
    """
    readies, takes = [ring.ready for ring in rings], [ring.take for ring in rings]
    earlies, settles = [ring.early for ring in rings], [ring.settle for ring in rings]
    results, units = [ring.result for ring in rings], len(rings)
    VALUES, ROWS = 1 << block_log2, 1 << (block_log2 - 5)  # of a block but the last
    states = enum("LOOK", "MEASURE", "SUM", "COMPARE")
    state = Signal(states.LOOK)
    index, base, final, running, taken_all = word(8), word(len(frame.row)), bit(), bit(), bit()
    hot, first_hot, whose = word(units), word(units), word(units)
    first = word(len(frame.row) - units.bit_length() + 1)
    take, waits, may_take, settling, writing, raw_free, silent = (bit() for _ in range(7))  # silent: no bytes
    next_result = word(ports.RESULT_BITS)
    verdict = Verdict(len(frame.row))

    begin_at = bank_place(frame.row, first_hot, first, block_log2=block_log2)
    choose = hot_tree(None, results, hot, next_result)
    sizes = measure(clk, frame, verdict)
    directory = entry_writer(clk, rst, verdict, judging.failed, entries, writing)
    places = place_counter(
        clk, rst, frame, verdict, judging, settled, store_bits=store_bits, size_bits=size_bits
    )

    @always_comb
    def look():
        waits.next = state == states.LOOK and running and not taken_all
        may_take.next = not settling or silent or verdict.short  # a raw block is settled before another
        judging.idle.next = state == states.LOOK and not settling and not writing

    @always_comb
    def ask():
        any_ready = modbv(0)[1:]
        for n in range(units):
            if hot[n] and readies[n]:
                any_ready[:] = 1
            takes[n].next = waits and may_take and hot[n] and readies[n]
            earlies[n].next = waits and not settling and hot[n]
        take.next = waits and may_take and any_ready == 1

    @always_comb
    def decide():
        verdict.raw.next = not (silent or verdict.short)
        raw_free.next = pairs.idle and raw.idle

    @always_comb
    def add_up():
        verdict.settle.next = settling and (not verdict.raw or raw_free)
        verdict.length.next = verdict.bytes
        if silent:
            verdict.length.next = 0
        elif not verdict.short:
            verdict.length.next = verdict.raw_size

    @always(clk.posedge)
    def follow():
        """Know which block is the next, and of which unit."""
        running.next = judging.run
        final.next = index == frame.last_block
        if take:
            verdict.result.next = next_result
            verdict.final.next = final
            verdict.row.next = base
            verdict.values.next = VALUES
            if final:
                verdict.values.next = frame.last_size
            whose.next = hot
            taken_all.next = final
            index.next = index + 1
            base.next = base + ROWS
            for n in range(units):
                hot.next[n] = hot[(n + units - 1) % units]
        if frame.begin or rst:
            hot.next = first_hot
            base.next = frame.row
            index.next = 0
            taken_all.next = False
        if rst:
            running.next = False

    @always(clk.posedge)
    def sequence():
        if state == states.LOOK:
            if take:
                state.next = states.MEASURE
        elif state == states.MEASURE:
            state.next = states.SUM
        elif state == states.SUM:
            state.next = states.COMPARE
        else:
            state.next = states.LOOK
        if rst:
            state.next = states.LOOK

    # A clock late, and in time: when a block is to be settled, those before it have said whether they failed.
    @always(clk.posedge)
    def know():
        silent.next = verdict.constant or judging.failed or verdict.bad
        verdict.dropped.next = judging.failed or verdict.bad

    @always(clk.posedge)
    def settle():
        raw.start.next = verdict.settle and verdict.raw and not rst
        pairs.raw.next = verdict.settle and verdict.raw and not rst
        if verdict.settle and verdict.raw:
            raw.values.next = verdict.values
            raw.width.next = verdict.width
            raw_row.next = verdict.row
            pairs.place.next = judging.place
        settling.next = state == states.COMPARE or (settling and not verdict.settle)
        settled.keep.next = verdict.short and not verdict.constant and not verdict.dropped
        settled.place.next = judging.place
        for n in range(units):
            settles[n].next = verdict.settle and whose[n] and not rst
        if verdict.settle and verdict.final:
            judging.over.next = True
        if frame.begin or rst:
            judging.over.next = False
        if rst:
            settling.next = False

    return (
        begin_at, choose, sizes, directory, places, look, ask, decide, add_up, follow, sequence, know,
        settle,
    )  # fmt: skip
