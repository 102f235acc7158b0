"""Raw and constant blocks: values out of packed bytes, counted like coded ones and added to memory."""

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar_hdl.coder.decode.raw_unpack import raw_unpack
from oscar_hdl.coder.decode.row_class import row_class
from oscar_hdl.coder.decode.seed_symbol import seed_symbol
from oscar_hdl.coder.value_context import value_context
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.copied import chain
from oscar_hdl.streams.lane_delay import lane_delay

# NEXT to READY find a group's values and classes. HEADER asks for its positions, and PAUSE is the slot of
# that; ROWS takes a row a slot; LAST and AFTER are slots for the last row to go through.
States = enum("IDLE", "NEXT", "FILL", "READY", "HEADER", "PAUSE", "ROWS", "LAST", "AFTER")


@block
def raw_decoder(clk, rst, phase, job, s_axis_raw, position, sums, counts):
    """Do a block a job (docs/develop/engine.md), in some two clocks a value, of 16 bits in three.

    job: RawJob, not of a block of zeros. s_axis_raw: Stream(16), the block's bytes in memory order, two in a
    word: it takes ceil(values * width / 16) of them, none of a constant block; tlast is not looked at.
    position: PositionPort, sums: SumPort, counts: CountPort. Takes come with phase 0, of sums with phase 1,
    strobes of counts with phase 11 and later. A RawPosition is asked for what is taken next, so that `ok` can
    follow from it: a header a group ahead of its rows, a row from phase 3 on.
    """
    state = Signal(States.IDLE)
    last_value = word(17)
    final, short = bit(), bit()  # the last value's group, its row
    group, j, end_row = word(7), word(5), word(5)  # end_row: the group's last one
    tick, early, ready = bit(), bit(), bit()  # a slot's last clock; a clock to skip a row; may take
    header, row, slot_begins = bit(), bit(), bit()  # what is taken
    heads, asked, asking = bit(), bit(), getattr(position, "ask", bit())
    restart, fill, filling, given, value = bit(), bit(), bit(), bit(), word(16)
    memory = [word(16) for _ in range(1024)]  # values of a group
    write_at, read_at, fetched, value4 = word(10), word(10), word(16), word(16)
    classes = [word(4) for _ in range(32)]
    class_at, class_read, class_now = word(5), word(5), word(4)
    live, row_live = word(6), bit()
    # Of the slot that a take begins, from its phase 0 on; numbers: clocks from there. limit: the last lane.
    slot_header, slot_row = bit(), bit()
    slot_class, slot_j, slot_limit = word(4), word(5), word(5)
    j1, lane3, header3, limit3, pick3 = word(5), word(5), bit(), word(5), word(2)
    header4, row4, counted4, exists4, class_of_row4, class4 = bit(), bit(), bit(), bit(), word(4), word(4)
    row5, row6, value5, value6, local6 = bit(), bit(), word(16), word(16), word(16)
    low_bits4, context8, context9, context10, strobes = word(2), word(5), word(5), word(5), word(6)
    symbol10, class10, header10 = word(4), word(4), bit()
    begin8, value8, found, size, top = bit(), word(16), word(4), word(3), word(4)
    last, ended, done = bit(), word(6), bit()  # a row's last value; clocks since then; its class is found

    parts = [
        raw_unpack(
            clk, rst, restart, fill, final, last_value(10, 0), job.width, job.constant, job.value, s_axis_raw,
            given, value,
        ),
        row_class(clk, begin8, value8, found, size, top),
        value_context(clk, header4, class4, position.mean, position.data, context8),
        seed_symbol(clk, value4, low_bits4, symbol10),
        lane_delay(clk, phase, class4, class10, 6),
        chain(clk, context8, context9, context10),
        chain(clk, value4, value5, value6),
    ]  # fmt: skip

    @always_comb
    def select():
        filling.next = state == States.FILL
        done.next = ended[5]
        header.next = tick and ready and state == States.HEADER
        heads.next = state == States.NEXT or state == States.HEADER
        row.next = tick and ready and state == States.ROWS and row_live
        class_read.next = j
        if header3:
            class_read.next = lane3
        class4.next = class_of_row4
        if header4:
            class4.next = class_now

    @always(clk.posedge)
    def follow_block():
        last_value.next = job.values[17:] - 1
        final.next = group == last_value[17:10]
        end_row.next = 31
        if final:
            end_row.next = last_value[10:5]
        short.next = final and j == last_value[10:5]
        tick.next = phase == 30
        early.next = phase[2:] == 2 and (phase == 30 or (not phase[4] and phase[4:2] != 0))
        ready.next = position.ok
        row_live.next = class_now != 0

    @always(clk.posedge)
    def control():
        restart.next = False
        fill.next = False
        job.done.next = False
        if state == States.IDLE:
            group.next = 0
            if job.start:
                job.idle.next = False
                restart.next = True
                state.next = States.NEXT
        elif state == States.NEXT:
            if tick:
                fill.next = True
                state.next = States.FILL
        elif state == States.FILL:
            if done and class_at == end_row:
                state.next = States.READY
        elif state == States.READY:
            j.next = end_row
            if tick:
                state.next = States.HEADER
                if live == 0:
                    state.next = States.AFTER
        elif state == States.HEADER:
            if tick and ready:
                state.next = States.PAUSE
        elif state == States.PAUSE:
            if tick:
                state.next = States.ROWS
        elif state == States.ROWS:
            if early and ((tick and ready) or not row_live):
                j.next = j - 1
                if j == 0:
                    state.next = States.LAST
        elif state == States.LAST:
            if tick:
                state.next = States.AFTER
        elif tick:
            group.next = group + 1
            state.next = States.NEXT
            if final:
                state.next = States.IDLE
                job.done.next = True
                job.idle.next = True
        if rst:
            state.next = States.IDLE
            restart.next = False
            fill.next = False
            job.done.next = False
            job.idle.next = True

    @always(clk.posedge)
    def take():
        position.take.next = (header or row) and not rst
        sums.take.next = slot_begins and not rst
        slot_begins.next = row and not rst
        position.header.next = heads
        position.row.next = concat(group, j)
        if heads:
            position.row.next = concat(group, modbv(0)[5:])
        sums.row.next = concat(group, slot_j)
        if tick or rst:
            slot_header.next = header and not rst
            slot_row.next = row and not rst
            slot_class.next = class_now
            slot_j.next = j
            slot_limit.next = 31
            if header and final:
                slot_limit.next = last_value[10:5]
            elif row and short:
                slot_limit.next = last_value[5:]

    # Once a row, as soon as it is known that it has a class above 0.
    @always(clk.posedge)
    def ask():
        asking.next = False
        if state == States.NEXT:
            asking.next = tick
        elif state == States.ROWS and phase[2:] == 2 and row_live and not header3 and not asked:
            asking.next = True
            asked.next = True
        if row or rst:
            asked.next = False
        if rst:
            asking.next = False

    @always(clk.posedge)
    def windows():
        if phase == 0:
            j1.next = slot_j
        if phase == 2:
            header3.next = slot_header
            limit3.next = slot_limit
            pick3.next = group[2:]
            if slot_row:
                pick3.next = slot_j[2:] + slot_j[4:2] + slot_j[4] + group[2:]
        if phase == 3:
            header4.next = slot_header
            row4.next = slot_row
            counted4.next = slot_header or slot_row
            class_of_row4.next = slot_class
            low_bits4.next = 0
            if slot_class[4:2] == 3:
                low_bits4.next = slot_class[2:]
        if phase == 9:
            header10.next = header4
        if phase == 20:
            sums.described_row.next = concat(group, slot_j)
        exists4.next = lane3 <= limit3 and lane3[2:] == pick3  # and is counted
        row5.next = row4
        row6.next = row5
        strobes.next[6:1] = strobes[5:]
        strobes.next[0] = counted4 and exists4
        counts.valid.next = strobes[5]
        counts.address.next = concat(context10, symbol10)
        if header10:
            counts.address.next = concat(context10, class10)
        sums.valid.next = row6
        if rst:
            header3.next = False
            header4.next = False
            row4.next = False
            row5.next = False
            row6.next = False
            counted4.next = False
            strobes.next = 0
            counts.valid.next = False
            sums.valid.next = False

    @always(clk.posedge)
    def access():
        lane = modbv(0)[5:]
        if given:
            memory[write_at].next = value
            write_at.next = write_at + 1
        if state == States.NEXT:
            write_at.next = 0
        # In the clock of phase p the address is made that is there in phase p + 1: lane 31 is in phase 2.
        lane[:] = 0 - phase
        read_at.next = concat(j1, lane)
        fetched.next = memory[read_at]
        value4.next = fetched
        lane3.next = read_at[5:]

    @always(clk.posedge)
    def classify():
        local6.next = sums.local
        sums.total.next = local6 + value6
        # One row_class serves values and sums; between values come zeros, which change no class.
        value8.next = 0
        begin8.next = False
        last.next = False
        if given:
            value8.next = value
            begin8.next = write_at[5:] == 0
            last.next = write_at[5:] == 31
        elif sums.valid:
            value8.next = sums.total
            begin8.next = phase == 7
            last.next = phase == 6
        ended.next = concat(ended[5:], last)
        if rst:
            last.next = False
            ended.next = 0

    @always(clk.posedge)
    def describe():
        class_now.next = classes[class_read]
        if filling and done:
            classes[class_at].next = found
            class_at.next = class_at + 1
            if found != 0:
                live.next = live + 1
        if state == States.NEXT:
            live.next = 0
            class_at.next = 0
        sums.described.next = done and not filling and not rst
        sums.row_class.next = found
        sums.row_size.next = size
        sums.row_top.next = top

    return parts, select, follow_block, control, take, ask, windows, access, classify, describe
