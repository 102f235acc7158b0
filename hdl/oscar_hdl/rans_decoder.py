"""The decoder's core: twelve rANS states, word FIFO, tables and contexts (docs/format2.md, "The coder")."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, concat, modbv

from oscar_hdl.asc_context import asc_context
from oscar_hdl.format2.params import LANES, STATE_LOW
from oscar_hdl.streams.bundles import bit, word

DEPTH = 16  # of a distributed RAM
FINE_ROWS = 256  # bank, context, coarse comparisons as they are (000, 001, 011 or 111)
TABLE_ROWS = 512  # bank, context, symbol


@block
def rans_decoder(
    clk: Any, rst: Any, tw_en: Any, tw_addr: Any, tw_f: Any, tw_c: Any, push_valid: Any, push_ready: Any,
    push_word: Any, words_end: Any, start: Any, start_bank: Any, start_zero: Any, in_valid: Any,
    in_ready: Any, in_class: Any, in_final: Any, in_end: Any, out_valid: Any, out_lane: Any, out_ctx: Any,
    out_sym: Any, end_valid: Any, end_words: Any, end_ok: Any,
) -> Any:  # fmt: skip
    """Decode one symbol per clock, lanes in turn; ports and timing are in docs/hardware.md.

    A symbol passes 14 ranks of registers; names end in the rank. Its lane's next symbol comes 12 clocks
    later at the earliest and reads the state in rank 2, the clock after rank 13 wrote it.

     1    the neighbour state's bit length is read (asc_context)
     2    context
     3    coarse thresholds c[4], c[8], c[12] of the context; low half of the state
     4    three comparisons: they are the address, as they are, of a row of fine thresholds
     5, 6 fine thresholds (block RAM and its output register)
     7    three comparisons
     8    symbol; with bank and context the address of (f, c); the neighbour state moves on
     9, 10 f, c (block RAM and its output register)
    11    factors: f and the upper half of the state
    12    product; slot - c
    13    y; below 4,096 it takes the next word
    14    state (for the check of the last one)

    A block starts with 24 setup steps, 2 for each lane, which pass the same ranks. Step 2 l pops the lower
    half of the start state of lane l, step 2 l + 1 the upper half and writes the state. They also copy the
    coarse thresholds of context l out of the table: its row of symbol 8 holds c[4], that of symbol 12 holds
    c[8] and c[12]. So only one set of them is kept in distributed RAM. With start_zero they set the lane's
    neighbour state to 0.
    """
    fine_mem = [Signal(modbv(0)[36:]) for _ in range(FINE_ROWS)]
    table_mem = [Signal(modbv(0)[36:]) for _ in range(TABLE_ROWS)]
    coarse1_mem = [Signal(modbv(0)[12:]) for _ in range(DEPTH)]
    coarse2_mem = [Signal(modbv(0)[12:]) for _ in range(DEPTH)]
    coarse3_mem = [Signal(modbv(0)[12:]) for _ in range(DEPTH)]
    low_mem = [Signal(modbv(0)[12:]) for _ in range(DEPTH)]
    high_mem = [Signal(modbv(0)[12:]) for _ in range(DEPTH)]
    even_mem = [Signal(modbv(0)[12:]) for _ in range(DEPTH)]
    odd_mem = [Signal(modbv(0)[12:]) for _ in range(DEPTH)]

    # Table writes.
    fine_we, table_we = bit(), bit()
    fine_at, table_at = word(8), word(9)
    freq_w, cum_w, cum1, cum2, cum3, cum4 = (word(12) for _ in range(6))

    # Control.
    running, setting, begun, enough = (bit() for _ in range(4))
    take, take_final, take_end, prepare = (bit() for _ in range(4))
    half, lane, bank, zero = bit(), word(4), bit(), bit()

    # Word FIFO: even and odd words in two memories, so that the one not popped has its next word ready.
    push1, pop, pop1, parity, was_rst = (bit() for _ in range(5))
    word1, head = word(12), word(12)
    fill, write_at, even_at, odd_at = word(6), word(5), word(4), word(4)

    # Flags of a symbol or setup step on its way; the index is the rank.
    valid, setup, upper = word(14), word(14), word(14)
    final, last = word(16), word(17)
    banks = word(8)
    lane1, lane2, lane3, lane4, lane5, lane6, lane7 = (word(4) for _ in range(7))
    lane8, lane9, lane10, lane11, lane12, lane13 = (word(4) for _ in range(6))

    ctx2, ctx3, ctx4, ctx5, ctx6, ctx7 = (word(4) for _ in range(6))
    coarse3_1, coarse3_2, coarse3_3 = word(12), word(12), word(12)
    low3, low4, low5, low6, low7, low8, low9, low10 = (word(12) for _ in range(8))
    fine_from, table_from = word(8), word(9)
    reach4, reach7 = word(3), word(3)
    fine5, fine6, entry9, entry10 = word(36), word(36), word(36), word(36)
    part5, part6, part7 = word(2), word(2), word(2)
    sym8, moved8 = word(4), bit()
    high10, high11, freq11, cum11, slot11, upper12, rest12 = (word(12) for _ in range(7))
    product12, y13, state13, state14 = word(24), word(24), word(24), word(24)
    high11_4, high11_8, freq11_4, freq11_8, beyond12 = (bit() for _ in range(5))
    large13, stay13, write13, pop13 = (bit() for _ in range(4))
    pop14, right15, wrong = bit(), bit(), bit()
    words = word(13)

    contexts = asc_context(clk, moved8, lane8, sym8, setup(8), lane, in_class, False, ctx2)

    @always(clk.posedge)
    def tables():
        # Symbols of a context come in rising order: a row of fine thresholds is the last three c.
        table_we.next = tw_en
        table_at.next = tw_addr
        fine_we.next = tw_en and tw_addr[2:] == 3
        fine_at.next[8:3] = tw_addr[9:4]
        fine_at.next[2] = tw_addr[3] and tw_addr[2]
        fine_at.next[1] = tw_addr[3]
        fine_at.next[0] = tw_addr[3] or tw_addr[2]
        if tw_en:
            freq_w.next = tw_f
            cum_w.next = tw_c
            cum1.next = cum_w
            cum2.next = cum1
            cum3.next = cum2
            cum4.next = cum3
        if fine_we:
            fine_mem[fine_at].next = concat(cum_w, cum1, cum2)
        if table_we:
            table_mem[table_at].next = concat(cum4, freq_w, cum_w)
        fine5.next = fine_mem[fine_from]
        fine6.next = fine5
        entry9.next = table_mem[table_from]
        entry10.next = entry9

    @always_comb
    def addresses():
        fine_from.next = concat(banks[4], ctx4, reach4)
        moved8.next = valid[8] or (setup[8] and zero)
        take.next = in_valid and in_ready
        take_final.next = in_valid and in_ready and in_final
        take_end.next = in_valid and in_ready and in_end
        prepare.next = setting and (enough or half)
        pop13.next = not large13 and not y13[12]
        pop.next = not stay13 and (not y13[12] or setup[11])
        state13.next = y13
        if not large13 and not y13[12]:
            state13.next = concat(y13[12:], head)

    @always_comb
    def ports():
        out_valid.next = valid[8]
        out_lane.next = lane8
        out_ctx.next = table_from[8:4]
        out_sym.next = table_from[4:]
        end_valid.next = last[16]
        end_words.next = words
        end_ok.next = not wrong

    @always(clk.posedge)
    def control():
        # A value may come if 16 words are there: pops of the last three clocks are not counted yet, and up
        # to its own, 13 clocks later, there may be one in each clock. The same bound holds for setup steps.
        enough.next = fill >= 16 or words_end
        in_ready.next = running and (fill >= 16 or words_end) and not take_end
        if take or (prepare and half):
            lane.next = lane + 1
            if lane == LANES - 1:
                lane.next = 0
                setting.next = False
        if prepare:
            half.next = not half
        # Symbols come when the coarse thresholds of the last setup step can be read.
        if setup[7] and upper[7] and lane7 == LANES - 1:
            running.next = True
        if take_end:
            running.next = False
        begun.next = start
        if begun:
            setting.next = True
        if start:
            lane.next = 0
            bank.next = start_bank
            zero.next = start_zero

        valid.next = concat(valid[13:1], take, False)
        setup.next = concat(setup[13:1], prepare, False)
        last.next = concat(last[16:1], take_end, False)
        if rst:
            half.next = False
            begun.next = False
            setting.next = False
            running.next = False
            in_ready.next = False
            valid.next = 0
            setup.next = 0
            last.next = 0
        upper.next = concat(upper[13:1], half, False)
        final.next = concat(final[15:1], take_final, False)
        banks.next = concat(banks[7:1], bank, False)
        lane1.next = lane

    @always(clk.posedge)
    def fifo():
        push1.next = push_valid and push_ready and not rst
        word1.next = push_word
        push_ready.next = fill < 28  # three pushes may be under way
        if push1:
            write_at.next = write_at + 1
            if write_at[0]:
                odd_mem[write_at[5:1]].next = word1
            else:
                even_mem[write_at[5:1]].next = word1
        pop1.next = pop
        was_rst.next = rst
        change = modbv(0)[6:]
        if push1 and not pop1:
            change[:] = 1
        elif pop1 and not push1:
            change[:] = 63
        fill.next = fill + change
        if pop:
            parity.next = not parity
            if parity:
                odd_at.next = odd_at + 1
            else:
                even_at.next = even_at + 1
        if parity != pop:
            head.next = odd_mem[odd_at]
        else:
            head.next = even_mem[even_at]
        if rst or was_rst:  # a pop of what the reset struck is a clock late
            fill.next = 0
            write_at.next = 0
            even_at.next = 0
            odd_at.next = 0
            parity.next = False
            pop1.next = False

    @always(clk.posedge)
    def search():
        lane2.next = lane1
        lane3.next = lane2
        lane4.next = lane3
        lane5.next = lane4
        lane6.next = lane5
        lane7.next = lane6
        lane8.next = lane7
        lane9.next = lane8
        lane10.next = lane9
        lane11.next = lane10
        lane12.next = lane11
        lane13.next = lane12

        # A setup step looks up the context whose number is that of its lane.
        if setup[2]:
            ctx3.next = lane2
        else:
            ctx3.next = ctx2
        ctx4.next = ctx3
        ctx5.next = ctx4
        ctx6.next = ctx5
        ctx7.next = ctx6

        low3.next = low_mem[lane2]
        low4.next = low3
        low5.next = low4
        low6.next = low5
        low7.next = low6
        low8.next = low7
        low9.next = low8
        low10.next = low9

        coarse3_1.next = coarse1_mem[ctx2]
        coarse3_2.next = coarse2_mem[ctx2]
        coarse3_3.next = coarse3_mem[ctx2]
        if setup[10]:
            if upper[10]:
                coarse2_mem[lane10].next = entry10[36:24]
                coarse3_mem[lane10].next = entry10[12:]
            else:
                coarse1_mem[lane10].next = entry10[36:24]

        reach4.next[0] = low3 >= coarse3_1
        reach4.next[1] = low3 >= coarse3_2
        reach4.next[2] = low3 >= coarse3_3
        part5.next[0] = (reach4[0] and not reach4[1]) or reach4[2]
        part5.next[1] = reach4[1]
        part6.next = part5
        part7.next = part6
        reach7.next[0] = low6 >= fine6[12:]
        reach7.next[1] = low6 >= fine6[24:12]
        reach7.next[2] = low6 >= fine6[36:24]

        found = modbv(0)[4:]
        found[3] = part7[1]
        found[2] = part7[0]
        found[1] = reach7[1]
        found[0] = (reach7[0] and not reach7[1]) or reach7[2]
        table_from.next[9:4] = concat(banks[7], ctx7)
        table_from.next[4:] = found
        sym8.next = found
        if setup[7]:
            table_from.next[4:] = concat(True, upper[7], modbv(0)[2:])
            sym8.next = 0  # with state 0 before, so that a lane's neighbour state becomes 0

    @always(clk.posedge)
    def states():
        # A setup step makes product and cum 0; the lower half of the state, which the step before it pops
        # in this very clock, takes the way of the slot, the upper half is added to the product.
        high10.next = high_mem[lane9]
        if setup[9]:
            high10.next = 0
        high11.next = high10
        freq11.next = entry10[24:12]
        cum11.next = entry10[12:]
        slot11.next = low10
        if setup[10]:
            cum11.next = 0
            slot11.next = head
        product12.next = high11 * freq11
        rest12.next = slot11 - cum11
        upper12.next = 0
        if setup[11]:
            upper12.next = head
        # y < 4096 means that the product is, and that the sum does not carry into bit 12. A product is beyond
        # 2^12 when one factor has reached 2^4 and the other 2^8, and below 2^16 otherwise: what is left to be
        # looked at behind the multiplier is four bits.
        high11_4.next = high10[12:4] != 0
        high11_8.next = high10[12:8] != 0
        freq11_4.next = entry10[24:16] != 0
        freq11_8.next = entry10[24:20] != 0
        beyond12.next = (high11_4 and freq11_8) or (high11_8 and freq11_4) or not valid[11]
        y13.next = product12 + concat(upper12, rest12)
        large13.next = product12[16:12] != 0
        if beyond12:
            large13.next = True
        # The same for the FIFO, which a setup step pops from rank 11: one LUT between it and the pop.
        stay13.next = (product12[16:12] != 0 or beyond12) and not setup[10]
        if rst:
            beyond12.next = True
        write13.next = valid[12] or (setup[12] and upper[12])
        if write13:
            low_mem[lane13].next = state13[12:]
            high_mem[lane13].next = state13[24:12]
        state14.next = state13
        pop14.next = pop13
        right15.next = state14 == STATE_LOW
        if setup[13]:
            words.next = 0
            wrong.next = False
        else:
            if pop14:
                words.next = words + 1
            if final[15] and not right15:
                wrong.next = True

    return contexts, tables, addresses, ports, control, fifo, search, states
