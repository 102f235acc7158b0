"""A decoding unit: blocks of bytes in, sums of their values and local ones out (docs/engine.md)."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.decode.byte_source import byte_source
from oscar_hdl.coder.decode.decoder_core import decoder_core
from oscar_hdl.coder.decode.decoder_search import LevelWrites, level_writes
from oscar_hdl.coder.decode.decoder_slots import Slot, decoder_slots
from oscar_hdl.coder.decode.lane_step import StepControl, StepFound
from oscar_hdl.coder.decode.row_class import row_class
from oscar_hdl.coder.decode.seed_symbol import seed_symbol
from oscar_hdl.coder.decode.value_rebuild import value_rebuild
from oscar_hdl.coder.value_context import value_context
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.lane_delay import lane_delay

LANE = tuple((10 - phase) % 32 for phase in range(32))  # a table takes less logic than a subtraction


@block
def decoder(
    clk: Any, rst: Any, phase: Any, job: Any, tables: Any, s_axis_bytes: Any, position: Any, sums: Any,
    counts: Any,
) -> Any:  # fmt: skip
    """Decode a block a job, add, count; all ports are those of docs/engine.md.

    Time t of decoder_core is phase t + 10 of a lane's slot for lane 31: distances come in phase 4, contexts
    in 8 (t = -2), symbols in 16 (6), sums in 31 (21), counts in 53 (43). What a slot is comes along in
    steps: flags of the slot are copied in the phases in which lane 31 is at the place.
    """
    slot = Slot()
    enough, whole_in, exact, wrong, turn, drain = (bit() for _ in range(6))
    half, pair, held, prime = bit(), word(16), word(8), bit()
    control, step, state0 = StepControl(), StepFound(), word(24)
    table_row, header, context_class = word(5), bit(), word(4)
    levels, banked_row = LevelWrites(), word(6)

    # Which lanes take part.
    target2, lane2, here3, here4, begin3 = word(5), word(5), bit(), bit(), bit()
    whole2, whole3, exact2, exact3, decodes2, decodes3, decodes4 = (bit() for _ in range(7))
    present_now, present4, present5, present_on = bit(), bit(), bit(), word(9)  # time 20 and on
    code5, every5, row5, active6 = word(4), bit(), bit(), bit()

    # Classes of rows.
    classes6, write7, lane7, class7, arrive7 = bit(), bit(), word(5), word(4), bit()
    alive, thinned = bit(), word(2)

    # The slot behind the core: what was in it, from phase 25 on; in sums, from 31 on; described, from 57 on.
    late_classes, late_load, late_real, late_seed, late_row, late_class = (
        bit(), bit(), bit(), bit(), word(12), word(4),
    )  # fmt: skip
    seed15, seed_not14, seed_whole15 = bit(), word(5), bit()
    upper15, lower15 = bit(), bit()
    late_bits, low_bits, count_bits = word(2), word(2), word(2)
    sum_seed, past_real, past_row = bit(), bit(), word(12)
    value20, local20, present20, value_there = word(16), word(16), bit(), bit()
    low15, low17, low33 = word(8), word(8), word(8)
    total_begin, found_class, found_size, found_top = bit(), word(4), word(3), word(4)

    # Faults.
    first0, wrong1, odd_seeds = bit(), bit(), bit()

    # Counts.
    # On their way with the contexts, in bit 5: the lanes that take part.
    context_one, context0, context14, context28 = word(5), word(5), word(5), word(5)
    both0, both14, both28, both42 = word(6), word(6), word(6), word(6)
    symbol12, symbol13, symbol27, symbol28, symbol42 = (word(4) for _ in range(5))
    symbols, seed_symbol26, seed_symbol27, seed27 = word(28), word(4), word(4), bit()
    counted, counted_step = bit(), word(2)

    slots = decoder_slots(
        clk, rst, phase, job, position, enough, whole_in, exact, wrong, slot, write7, lane7, class7,
        arrive7, late_classes, alive, thinned, turn, drain,
    )  # fmt: skip
    source = byte_source(
        clk, rst, s_axis_bytes, drain, turn, job.odd, prime, step.take_one, step.take_two, half, pair, held,
        enough, whole_in, exact,
    )  # fmt: skip
    contexts = value_context(clk, header, context_class, position.mean, position.data, table_row)
    writes = level_writes(clk, tables, levels)
    core = decoder_core(
        clk, rst, phase, levels, banked_row, control, half, pair, held, state0, step,
    )  # fmt: skip
    values = value_rebuild(
        clk, symbol12, step, seed15, seed_not14, upper15, lower15, low_bits, low15, low17,
        value20,
    )  # fmt: skip
    seed_symbols = seed_symbol(clk, value20, count_bits, seed_symbol26)
    classifier = row_class(clk, total_begin, sums.total, found_class, found_size, found_top)
    # With low17 itself and the registers behind 32 clocks.
    low_half = lane_delay(clk, phase, low17, low33, 16)
    low_loop = lane_delay(clk, phase, low33, low15, 14)
    # Small delays are registers; the others share their address.
    context_late1 = lane_delay(clk, phase, both0, both14, 14)
    context_late2 = lane_delay(clk, phase, context14, context28, 14)
    context_late3 = lane_delay(clk, phase, both28, both42, 14)
    symbol_late1 = lane_delay(clk, phase, symbol13, symbol27, 14)
    symbol_late2 = lane_delay(clk, phase, symbol28, symbol42, 14)

    @always(clk.posedge)
    def prepare() -> None:
        # In these processes flags of the slot are copied in the phase before the one they are needed in.
        if phase == 3:
            header.next = slot.classes
            context_class.next = slot.row_class
        prime.next = slot.load_high and phase == 14
        if phase == 14:
            code5.next = slot.raw_code
            every5.next = slot.seed_step
            row5.next = slot.row_step
        if phase == 15:
            classes6.next = slot.classes
        if phase == 21:
            control.clear.next = slot.load_high
        if phase == 23:
            control.refill.next = not slot.seed_step and (
                slot.load_high or slot.load_low or slot.classes or slot.row_step or slot.raw_step
            )
        if rst:
            classes6.next = False
            control.refill.next = False
            prime.next = False

    @always_comb
    def lanes_now() -> None:
        present_now.next = whole3 or (here3 and exact3) or (not begin3 and (here4 or present4))

    @always(clk.posedge)
    def lanes() -> None:
        # A short slot's lanes begin at the one that is the number of values behind whole rows, less 1; of
        # rows in a group, less 1 only if no short row follows.
        lane2.next = LANE[phase]
        if phase == 11:
            target2.next = job.values[5:]
            exact2.next = False
            if slot.classes:
                target2.next = job.values[10:5]
                exact2.next = job.values[5:] != 0
            whole2.next = slot.whole
            decodes2.next = slot.classes or slot.row_step
        whole3.next = whole2
        exact3.next = exact2
        decodes3.next = decodes2
        decodes4.next = decodes3
        here3.next = lane2 == target2
        here4.next = here3
        begin3.next = phase == 12
        present4.next = present_now
        present5.next = present4
        present_on.next = concat(present_on[8:], both14[5])
        control.active.next = present4 and decodes4
        active6.next = control.active
        control.from_symbol.next = control.active and row5
        control.code.next = 0
        if every5 or present5:
            control.code.next = code5
        write7.next = classes6
        lane7.next = 15 - phase
        arrive7.next = classes6 and active6 and step.symbol != 0
        class7.next = 0
        if active6:
            class7.next = step.symbol
        if rst:
            write7.next = False
            arrive7.next = False

    @always(clk.posedge)
    def behind() -> None:
        sums.take.next = False
        if phase == 23:
            seed_not14.next = slot.seed_not
        if phase == 24:
            late_classes.next = slot.classes
            late_load.next = slot.load_low
            late_real.next = slot.real and (slot.row_step or slot.seed_step)
            sums.take.next = slot.real and (slot.row_step or slot.seed_step)
            late_seed.next = slot.seed_step
            late_row.next = slot.row
            late_class.next = slot.row_class
            seed15.next = slot.seed_step
            seed_whole15.next = slot.seed_whole
            upper15.next = slot.raw_step and slot.raw_code != 12
            lower15.next = slot.raw_step and slot.raw_code == 12
            past_real.next = late_real
            past_row.next = late_row
        if phase == 27:
            low_bits.next = late_bits
            if late_seed:
                low_bits.next = 0
                if seed_whole15:
                    low_bits.next = 3
        if phase == 29:
            count_bits.next = late_bits
        if rst:
            sums.take.next = False
            late_classes.next = False
            late_load.next = False
            late_real.next = False
            late_seed.next = False
            past_real.next = False

    @always_comb
    def outputs() -> None:
        banked_row.next = concat(job.bank, table_row)
        sums.row.next = late_row
        sums.described_row.next = past_row
        sums.row_class.next = found_class
        sums.row_size.next = found_size
        sums.row_top.next = found_top
        late_bits.next = 0
        if late_class[4:2] == 3:
            late_bits.next = late_class[2:]
        symbol12.next = symbols[24:20]
        symbol13.next = symbols[28:24]
        both0.next = concat(present5, context0)
        context14.next = both14[5:]
        both28.next = concat(present_on[8], context28)

    @always(clk.posedge)
    def add() -> None:
        local20.next = sums.local
        present20.next = both14[5]
        sums.total.next = value20 + local20
        if not present20:
            sums.total.next = 0
        if phase == 30:
            sums.valid.next = late_real
            sum_seed.next = late_seed
        total_begin.next = phase == 30
        sums.described.next = phase == 3 and past_real
        if rst:
            sums.valid.next = False
            sum_seed.next = False
            sums.described.next = False

    @always(clk.posedge)
    def check() -> None:
        # 2^16 plus the seeds: above them a 1 alone, in lanes without a row nothing.
        if phase == 9:
            first0.next = slot.seed_first
        odd_seeds.next = job.seeds == 3 or job.seeds == 5
        wrong1.next = first0 and (state0[24:16] != 1 or (odd_seeds and state0[15]))
        value_there.next = value20 != 0
        if (
            wrong1
            or (late_load and step.take_two)
            or (sum_seed and value_there and not (present_on[1] and sums.valid))
        ):
            wrong.next = True
        if job.start or rst:
            wrong.next = False
        if rst:
            first0.next = False
            wrong1.next = False

    @always(clk.posedge)
    def count() -> None:
        symbols.next = concat(symbols[24:], step.symbol)
        context_one.next = table_row
        context0.next = context_one
        seed_symbol27.next = seed_symbol26
        if phase == 4:
            seed27.next = late_seed
        symbol28.next = symbol27
        if seed27:
            symbol28.next = seed_symbol27
        if phase == 19:
            counted.next = (late_classes and alive) or (
                late_real
                and (not thinned[0] or thinned[1] or not late_row[0])
                and (not thinned[1] or late_row[2:] == 0)
                and (thinned != 3 or not late_row[2])
            )
            counted_step.next = thinned
            if late_classes:
                counted_step.next = 0
        counts.valid.next = counted and both42[5]
        counts.address.next = concat(both42[5:], symbol42)
        counts.step.next = counted_step
        if rst:
            counted.next = False
            counts.valid.next = False

    return (
        slots, source, contexts, writes, core, values, seed_symbols, classifier, low_half, low_loop,
        context_late1, context_late2, context_late3, symbol_late1, symbol_late2, prepare, lanes_now, lanes,
        behind, outputs, add, check, count,
    )  # fmt: skip
