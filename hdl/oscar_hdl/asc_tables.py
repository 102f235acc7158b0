"""Statistics and tables of a lane's decoder and encoder: one builder serves both."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.format2.params import PRIOR as PRIOR_ROW
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_hdl.symbol_counts import ADDRESS_BITS, COUNT_BITS, symbol_counts
from oscar_hdl.table_builder import table_builder

MERGE, MERGE_ONLY, DROP, PRIOR, LOAD, SAVE = range(6)


@block
def asc_tables(
    clk: Any, rst: Any,
    dec_cnt_valid: Any, dec_cnt_addr: Any, dec_cnt_bank: Any,
    dec_req: Any, dec_op: Any, dec_bank: Any, dec_tbank: Any, dec_ack: Any,
    enc_cnt_valid: Any, enc_cnt_addr: Any, enc_cnt_bank: Any, enc_wipe: Any,
    enc_req: Any, enc_op: Any, enc_bank: Any, enc_tbank: Any, enc_ack: Any,
    state_client: Any, s_axis_state: Stream, m_axis_state: Stream,
    dec_tw_en: Any, dec_tw_addr: Any, dec_tw_f: Any, dec_tw_c: Any,
    enc_tw_en: Any, enc_tw_addr: Any, enc_tw_f: Any, enc_tw_c: Any, enc_tw_rcp: Any,
) -> Any:  # fmt: skip
    """Count symbols of two clients, keep their histograms, and write their tables (docs/hardware.md).

    A client's counts lie in its memory, its histogram in the other's, so that both are read at once. An
    operation goes over the 16 contexts in three overlapping stages: read (histogram + counts, their sum),
    write (halved histogram back, counts cleared), rows (table_builder).
    """
    prior_row = tuple(PRIOR_ROW)

    # Rounds of eight clocks; odd ones are phase 1.
    clock = word(3)
    phase, second, stepping, seventh, tick = bit(), bit(), bit(), bit(), bit()

    # The operation: armed for a round, while counts on their way arrive, then running.
    armed, running, ending = bit(), bit(), bit()
    dec, enc = bit(), bit()  # whose it is
    op, dec_low, enc_low, tbank = word(3), bit(), bit(), bit()
    merges, priors, loads, saves, keeps = bit(), bit(), bit(), bit(), bit()  # keeps: H is not written
    builds, both = bit(), bit()
    acked_dec, acked_enc, dec_wipe = bit(), bit(), bit()

    # Memories.
    dec_rd, enc_rd = word(ADDRESS_BITS), word(ADDRESS_BITS)
    dec_got, enc_got = word(COUNT_BITS), word(COUNT_BITS)
    dec_wr, enc_wr = word(ADDRESS_BITS), word(ADDRESS_BITS)
    dec_wr_en, enc_wr_en, dec_both, enc_both = bit(), bit(), bit(), bit()

    # Reading stage, context `ctx`: issue addresses, enter what arrives, add up.
    step = bit()
    ctx, read_sym, reading, arriving = word(4), word(4), bit(), bit()
    enter, entering, enter_sym = bit(), bit(), word(4)
    prior_entry = word(4)
    n, n_sym, n_valid = word(COUNT_BITS), word(4), bit()
    merged = [word(COUNT_BITS) for _ in range(16)]
    sum_0, sum_1 = word(COUNT_BITS), word(COUNT_BITS - 1)
    sum_2, sum_3 = word(COUNT_BITS - 2), word(COUNT_BITS - 3)
    full, settled, halving, ready = bit(), bit(), bit(), bit()
    start, started, add_one, drop_0, drop_1, drop_2, drop_3 = (bit() for _ in range(7))
    low_zero, halve_1, halve_2, halve_3 = bit(), bit(), bit(), bit()
    total = word(11)

    # Writing stage, context `write_ctx`.
    go, go_build = bit(), bit()
    write_ctx, write_sym, writing = word(4), word(4), bit()
    unhalved, h, h_sym, h_valid = word(COUNT_BITS), word(10), word(4), bit()
    state_valid, state_last = bit(), bit()

    # Rows.
    busy, row = bit(), word(8)
    dec_row, dec_f, dec_c = bit(), word(12), word(12)
    enc_row, enc_f, enc_c, enc_rcp = bit(), word(12), word(12), word(18)

    dec_memory = symbol_counts(
        clk, rst, phase, dec_cnt_valid, dec_cnt_addr, dec_cnt_bank, dec_wipe,
        dec_rd, dec_got, dec_wr_en, dec_both, dec_wr, h,
    )  # fmt: skip
    enc_memory = symbol_counts(
        clk, rst, phase, enc_cnt_valid, enc_cnt_addr, enc_cnt_bank, enc_wipe,
        enc_rd, enc_got, enc_wr_en, enc_both, enc_wr, h,
    )  # fmt: skip
    builder = table_builder(
        clk, rst, phase, second, stepping, seventh, tick, go_build, enc, total, h_valid, h_sym, h, busy,
        dec_row, dec_f, dec_c, enc_row, enc_f, enc_c, enc_rcp,
    )  # fmt: skip

    @always(clk.posedge)
    def rounds():
        clock.next = clock + 1
        phase.next = not clock[0]
        second.next = clock == 0
        stepping.next = clock < 6
        seventh.next = clock == 5
        tick.next = clock == 6
        if rst:
            clock.next = 0
            phase.next = False
            second.next = False
            stepping.next = False
            seventh.next = False
            tick.next = False

    @always(clk.posedge)
    def operation():
        acked_dec.next = False
        acked_enc.next = False
        if tick:
            armed.next = False
            if armed:
                running.next = True
            elif not running:
                if dec_req and not acked_dec:
                    armed.next = True
                    dec.next = True
                    enc.next = False
                elif enc_req and not acked_enc:
                    armed.next = True
                    dec.next = False
                    enc.next = True
        if armed:
            op.next = dec_op
            tbank.next = dec_tbank
            if enc:
                op.next = enc_op
                tbank.next = enc_tbank
            dec_low.next = dec_bank and not enc
            enc_low.next = enc_bank and enc
            merges.next = op == MERGE
            loads.next = op == LOAD
            priors.next = op == PRIOR
            saves.next = op == SAVE
            keeps.next = op == DROP
            builds.next = merges or priors or loads
            both.next = priors or loads
        dec_both.next = both and running and not enc
        enc_both.next = both and running and enc
        if dec_row or enc_row:
            row.next = row + 1
        if ((dec_row or enc_row) and row == 255) or (ending and tick and not state_valid and not builds):
            running.next = False
            ending.next = False
            acked_dec.next = not enc
            acked_enc.next = enc
        elif step and writing and write_sym == 15 and write_ctx == 15:
            ending.next = True
        if rst:
            armed.next = False
            running.next = False
            ending.next = False
            enc.next = False
            acked_dec.next = False
            acked_enc.next = False
            row.next = 0

    # The sums are 1 + the sum of n >> 0, 1, 2, 3; those that the halvings do not ask for become 0.
    @always(clk.posedge)
    def read():
        prior_entry.next = prior_row[int(enter_sym)]
        full.next = n_valid and n_sym == 15 and not phase
        settled.next = full
        halving.next = settled
        low_zero.next = sum_0[10:] == 0
        if settled:
            high = modbv(0)[3:]
            high[:] = sum_0[13:10]
            halve_1.next = (high == 1 and not low_zero) or (high == 2 and low_zero)
            halve_2.next = high == 3 or (high == 2 and not low_zero) or (high == 4 and low_zero)
            halve_3.next = high > 4 or (high == 4 and not low_zero)
        if n_valid and not phase:
            merged[n_sym].next = n
            sum_0.next = sum_0 + n
            sum_1.next = sum_1 + n[13:1]
            sum_2.next = sum_2 + n[13:2]
            sum_3.next = sum_3 + n[13:3]
        drop_0.next = start or (halving and (halve_1 or halve_2 or halve_3))
        drop_1.next = start or (halving and not halve_1)
        drop_2.next = start or (halving and not halve_2)
        drop_3.next = start or (halving and not halve_3)
        started.next = start
        add_one.next = started
        if drop_0:
            sum_0.next = 0
        if drop_1:
            sum_1.next = 0
        if drop_2:
            sum_2.next = 0
        if drop_3:
            sum_3.next = 0
        if add_one:
            sum_0.next[0] = True
            sum_1.next[0] = True
            sum_2.next[0] = True
            sum_3.next[0] = True
        if halving:
            ready.next = True
        if phase:
            arriving.next = reading and step
            n_valid.next = enter
            n.next = dec_got + enc_got
            if loads:
                n.next = s_axis_state.tdata
            if priors:
                n.next = prior_entry
            n_sym.next = enter_sym
            if enter:
                enter_sym.next = enter_sym + 1
                if enter_sym == 15:
                    entering.next = False
        if step and reading:
            read_sym.next = read_sym + 1
            if read_sym == 15:
                reading.next = False
        if go:
            ctx.next = ctx + 1
            ready.next = False
        if start:
            reading.next = True
            entering.next = True
        if rst:
            ctx.next = 0
            read_sym.next = 0
            enter_sym.next = 0
            reading.next = False
            arriving.next = False
            entering.next = False
            n_valid.next = False
            full.next = False
            settled.next = False
            halving.next = False
            ready.next = False

    @always(clk.posedge)
    def write():
        go.next = seventh and ready and not writing and not busy
        go_build.next = seventh and ready and not writing and not busy and builds
        if phase:
            h_valid.next = writing and step
        if step:
            h_sym.next = write_sym
            if halve_3:
                h.next = unhalved[13:3]
            elif halve_2:
                h.next = unhalved[12:2]
            elif halve_1:
                h.next = unhalved[11:1]
            else:
                h.next = unhalved[10:]
        if state_valid and m_axis_state.tready:
            state_valid.next = False
        if step and writing:
            write_sym.next = write_sym + 1
            if write_sym == 15:
                writing.next = False
            if saves:
                state_valid.next = True
                state_last.next = write_sym == 15 and write_ctx == 15
        if go:
            writing.next = True
            write_ctx.next = ctx
        if rst:
            go.next = False
            go_build.next = False
            write_sym.next = 0
            writing.next = False
            h_valid.next = False
            state_valid.next = False

    @always_comb
    def control():
        start.next = tick and (armed or (go and ctx != 15))
        step.next = phase and (not saves or not state_valid or m_axis_state.tready)
        s_axis_state.tready.next = phase and loads and entering
        enter.next = arriving and not loads
        if loads:
            enter.next = entering and s_axis_state.tvalid
        total.next = sum_0[11:] | sum_1[11:] | sum_2 | sum_3

    @always_comb
    def look_up():
        unhalved.next = merged[write_sym]

    @always_comb
    def addresses():
        dec_rd.next = concat(enc, dec_low, ctx, read_sym)
        enc_rd.next = concat(dec, enc_low, ctx, read_sym)
        dec_wr.next = concat(enc, dec_low, write_ctx, h_sym)
        enc_wr.next = concat(dec, enc_low, write_ctx, h_sym)
        dec_wr_en.next = h_valid and not (keeps and enc)
        enc_wr_en.next = h_valid and not (keeps and not enc)

    @always_comb
    def outputs():
        dec_wipe.next = False  # a decoder counts nothing of a constant block
        dec_ack.next = acked_dec
        enc_ack.next = acked_enc
        state_client.next = enc
        m_axis_state.tdata.next = h
        m_axis_state.tvalid.next = state_valid
        m_axis_state.tlast.next = state_last
        dec_tw_en.next = dec_row
        dec_tw_addr.next = concat(tbank, row)
        dec_tw_f.next = dec_f
        dec_tw_c.next = dec_c
        enc_tw_en.next = enc_row
        enc_tw_addr.next = concat(tbank, row)
        enc_tw_f.next = enc_f
        enc_tw_c.next = enc_c
        enc_tw_rcp.next = enc_rcp

    return (
        dec_memory,
        enc_memory,
        builder,
        rounds,
        operation,
        read,
        write,
        control,
        look_up,
        addresses,
        outputs,
    )
