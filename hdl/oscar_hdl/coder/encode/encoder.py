"""An encoding unit of a lane a clock: blocks from memory to bytes (docs/engine.md)."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.encode.byte_sink import byte_sink
from oscar_hdl.coder.encode.encoder_core import encoder_core
from oscar_hdl.coder.encode.encoder_slots import RowList, Slot, encoder_slots
from oscar_hdl.coder.encode.row_list import row_list
from oscar_hdl.coder.encode.step_bits import step_bits
from oscar_hdl.coder.encode.value_symbol import value_symbol
from oscar_hdl.coder.value_context import value_context
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.lane_delay import lane_delay


@block
def block_facts(
    clk: Any, clear: Any, value: Any, valid: Any, phase: Any, measure: Any, equal: Any, last: Any, bits: Any
) -> Any:
    """See whether all values are equal, and how many bits they need.

    clear: a block begins. value u16, valid: a value a clock. equal: all so far were, to last u16, two clocks
    later; last is 0 before the first. measure: a slot without values, in whose phases 1 to 16 `bits` u4, the
    bit length of the or of all v xor (v >> 15), is found. phase u5.
    """
    ones = word(16)
    fresh, compared, unlike, hit, at = bit(), bit(), word(8), bit(), word(4)

    @always(clk.posedge)
    def compare() -> None:
        for i in range(8):
            unlike.next[i] = value[2 * i] != last[2 * i] or value[2 * i + 1] != last[2 * i + 1]
        compared.next = valid and not fresh
        if valid:
            last.next = value
            fresh.next = False
        if compared and unlike != 0:
            equal.next = False
        if clear:
            equal.next = True
            fresh.next = True
            last.next = 0

    # Bit i of a value is bit i + 1 here, so that the place of the uppermost one is the length.
    @always(clk.posedge)
    def gather() -> None:
        if valid:
            if value[15]:
                ones.next[16:1] = ones[16:1] | ~value[15:]
            else:
                ones.next[16:1] = ones[16:1] | value[15:]
        if clear:
            ones.next = 0

    @always(clk.posedge)
    def find() -> None:
        at.next = phase[4:]
        hit.next = measure and not phase[4] and ones[phase[4:]]
        if hit:
            bits.next = at
        if clear:
            bits.next = 0

    return compare, gather, find


@block
def encoder(
    clk: Any, rst: Any, phase: Any, job: Any, tables: Any, source: Any, counts: Any, m_axis_bytes: Any
) -> Any:
    """Encode blocks (docs/asc.md, format 3), a row of 32 values a slot.

    phase u5: counts 0..31, the same for all units. job: EncoderJob. tables: TableWrites. source:
    SourcePort. counts: CountPort. m_axis_bytes: Stream(16, keep=2), 1,024 pairs are kept.

    A number in a name is the phase in which the signal belongs to lane 0 of a slot.
    """
    slot, rows = Slot(), RowList()
    silent, coding, equal, holes, room, limit = bit(), bit(), bit(), bit(), bit(), word(5)
    load_3, load_4, load_8, load_9, load_13, load_15 = bit(), bit(), bit(), bit(), bit(), bit()
    data5, value5, mean5, context_data5 = word(19), word(16), word(4), word(4)
    list_class2, list_mean2, mean3, mean4, class5 = word(4), word(3), word(3), word(3), word(4)
    class7, class8, classes4, classes6, classes7 = word(4), word(4), bit(), bit(), bit()
    lane5, present5 = word(5), bit()
    header5, classes5, values5, symbols5, raw5, seed5 = bit(), bit(), bit(), bit(), bit(), bit()
    taken5, upper5, wide5, valid5, header_data5 = word(8), bit(), word(2), bit(), word(11)
    coded6, coded7, coded8, coded9, some6, some7, some8, some9 = (bit() for _ in range(8))
    counted9, seeding9, bits6, bits7, bits8, bits9, stepping9 = (bit() for _ in range(7))
    width9 = word(3)
    context9, symbol9, too_large9, address9 = word(5), word(4), bit(), word(10)
    low_bits11, negative11, opening10, impossible14 = word(5), bit(), bit(), bit()
    power11, shift11, low14, high14, keep15, raw15 = word(17), word(3), bit(), bit(), word(6), word(16)
    put16, put_two16, data16, high16, final16, counting16 = bit(), bit(), word(16), bit(), bit(), bit()
    keeps16, keeps_two16, loud16, fresh, size = bit(), bit(), bit(), bit(), word(19)

    order = encoder_slots(
        clk, rst, phase, job, source, room, rows, list_class2, equal, holes, slot, silent, coding,
        fresh, limit,
    )  # fmt: skip
    listing = row_list(
        clk, rows.clear, header5, lane5, header_data5, rows.at, rows.row, rows.live, rows.below,
        rows.seeds, rows.above_8, rows.above_16, rows.complete, slot.classes, phase, source.row, list_class2,
        list_mean2,
    )  # fmt: skip
    late_class = lane_delay(clk, phase, list_class2, class7, 5)
    contexts = value_context(clk, classes5, class5, mean5, context_data5, context9)
    symbols = value_symbol(clk, value5, wide5, classes7, class8, symbol9, low_bits11, negative11, too_large9)
    bits = step_bits(
        clk, phase, value5, taken5, upper5, symbol9, bits9, stepping9, seeding9, width9, low_bits11,
        negative11, power11, shift11, keep15, raw15,
    )  # fmt: skip
    core = encoder_core(
        clk, phase, tables, address9, coded9, opening10, slot.start, power11, shift11, keep15, raw15, low14,
        high14, impossible14, put16, put_two16, data16,
    )  # fmt: skip
    facts = block_facts(clk, fresh, value5, valid5, phase, slot.end, equal, job.value, job.bits)
    sink = byte_sink(
        clk,
        rst,
        phase,
        keeps16,
        keeps_two16,
        data16,
        final16,
        job.start,
        counting16,
        size,
        room,
        m_axis_bytes,
    )

    @always(clk.posedge)
    def watch() -> None:
        load_3.next = phase == 2
        load_4.next = phase == 3
        load_8.next = phase == 7
        load_9.next = phase == 8
        load_13.next = phase == 12
        load_15.next = phase == 14
        lane5.next = phase - 4

    # What a slot does reaches each stage with the slot's lane 0.
    @always(clk.posedge)
    def load() -> None:
        if load_3:
            classes4.next = slot.classes
        if load_4:
            header5.next = slot.header
            classes5.next = slot.classes
            values5.next = slot.values
            symbols5.next = slot.symbols
            raw5.next = slot.raw
            seed5.next = slot.seed
            upper5.next = slot.upper
            class5.next = list_class2
            wide5.next = 0
            if list_class2[4:2] == 3:
                wide5.next = list_class2[2:]
        if load_8:
            stepping9.next = slot.raw or slot.seed
            seeding9.next = slot.seed
            width9.next = slot.width
            counted9.next = slot.counted
            counts.step.next = slot.step
        if load_9:
            opening10.next = slot.opening
        if load_13:
            low14.next = slot.low
            high14.next = slot.high
        if load_15:
            high16.next = slot.high
            counting16.next = coding and not slot.high
            loud16.next = (coding and not silent) or slot.low or slot.high
        final16.next = high16 and phase == 14
        if rst:
            header5.next = False
            classes5.next = False
            values5.next = False
            symbols5.next = False
            counted9.next = False
            high16.next = False
            loud16.next = False

    # A raw step takes the lowest bits of a value; seeds without a row take none.
    @always(clk.posedge)
    def load_taken() -> None:
        if load_4:
            for i in range(6):
                taken5.next[i] = slot.width > i
            taken5.next[6] = slot.seed and slot.width[3:1] == 3
            taken5.next[7] = slot.seed and slot.width == 7
            if not slot.raw and not (slot.seed and slot.values):
                taken5.next = 0

    @always(clk.posedge)
    def receive() -> None:
        data5.next = source.data
        mean5.next = source.mean
        mean3.next = list_mean2
        mean4.next = mean3
        context_data5.next = source.data[19:16]
        if classes4:
            context_data5.next = mean4
        if lane5 == limit:
            present5.next = False
        if load_4:
            present5.next = True

    @always_comb
    def split() -> None:
        value5.next = data5[16:]
        header_data5.next = data5[11:]
        valid5.next = values5 and present5
        address9.next = concat(job.bank, context9, symbol9)
        keeps16.next = put16 and loud16
        keeps_two16.next = put_two16 and loud16

    # Classes come with the next group's header or are those of the last group, which has the same rows.
    @always(clk.posedge)
    def follow() -> None:
        classes6.next = classes5
        classes7.next = classes6
        class8.next = class7
        if not classes7:
            class8.next = 0
        coded6.next = (symbols5 and present5) or (classes5 and (present5 or header5))
        coded7.next = coded6
        coded8.next = coded7
        coded9.next = coded8
        some6.next = (values5 and present5) or (classes5 and (present5 or header5))
        some7.next = some6
        some8.next = some7
        some9.next = some8
        bits6.next = ((symbols5 or raw5) and present5) or seed5
        bits7.next = bits6
        bits8.next = bits7
        bits9.next = bits8
        if header5 and present5 and data5[4:] == 0:
            holes.next = True
        if (too_large9 and some9) or impossible14:
            job.bad.next = True
        if fresh:
            job.bad.next = False
        if job.start:
            holes.next = False

    @always_comb
    def outputs() -> None:
        counts.valid.next = counted9 and some9
        counts.address.next = concat(context9, symbol9)
        job.bytes.next = size

    return (
        order, listing, late_class, contexts, symbols, bits, core, facts, sink, watch, load, load_taken,
        receive, split, follow, outputs,
    )  # fmt: skip
