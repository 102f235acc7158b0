"""Packs the values of a block that is too long coded: each in as many bits as the largest needs."""

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar_hdl.coder.ports import READ_CLOCKS
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.pair_fifo import pair_fifo


@block
def raw_packer(clk, rst, job, source, m_axis, *, depth_log2: int = 6):
    """Read the rows of a block and give its values, `width` bits each, the lowest bit first.

    job: RawJob; values and width (1..16) hold from start to done, when all bytes were taken.
    source: SourcePort; a RawSource is asked for each row while the one before is read, so that `ok` can
    follow from it. m_axis: Stream(16, keep=2), tlast with the last pair.

    depth_log2: of the FIFO of pairs. A row is taken when it is empty, so it has to hold the 32 pairs of a row
    and six more, unless they are taken as they come.
    """
    states = enum("IDLE", "MASK", "ROW", "READ", "LAST", "DRAIN")
    state = Signal(states.IDLE)
    last_value, row, clocks, widening = word(18), word(13), word(3), word(5)
    # Of the row that is asked for, and of the one that is read: it is the last; its last lane, the next one.
    final, stop, read_final, read_stop, lane, at_end = bit(), word(5), bit(), word(5), word(5), bit()
    ready, taken, reading, finish, empty = bit(), bit(), bit(), bit(), bit()
    mask, value, have, step, fill = word(16), word(16), bit(), bit(), word(4)
    # A value on its way to its place in a pair: moved up by fill % 4, then by the rest of fill. It starts
    # when the next one comes, so that it is known whether it is the last. `ends`: fill behind it, up to 31.
    near, near_up, near_valid, near_last, near_ends = word(19), word(2), bit(), bit(), word(5)
    far, far_valid, far_last, far_ends = word(31), bit(), bit(), word(5)
    rest, tail, tail_two = word(16), bit(), bit()
    push, pair, two, last = bit(), word(16), bit(), bit()
    asking = getattr(source, "ask", bit())

    fifo = pair_fifo(clk, rst, push, pair, two, last, m_axis, empty, depth_log2=depth_log2)

    @always_comb
    def look():
        source.row.next = row[12:]
        step.next = have and (reading or finish)
        taken.next = state == states.ROW and ready

    @always(clk.posedge)
    def watch():
        source.take.next = taken and not rst
        asking.next = not rst and (
            (state == states.MASK and widening == 0)
            or (state == states.READ and clocks == 1 and not read_final)
        )
        job.done.next = state == states.DRAIN and clocks == 7 and empty and not rst
        ready.next = source.ok and empty and not taken and not asking
        last_value.next = job.values - 1
        final.next = row == last_value[18:5]
        stop.next = 31
        if row == last_value[18:5]:
            stop.next = last_value[5:]
        at_end.next = lane == read_stop

    @always(clk.posedge)
    def read():
        finish.next = False
        reading.next = False
        if state == states.IDLE:
            row.next = 0
            clocks.next = 0
            widening.next = 0
            mask.next = 0
            job.idle.next = True
            if job.start:
                job.idle.next = False
                state.next = states.MASK
        elif state == states.MASK:
            widening.next = widening + 1
            mask.next = concat(mask[15:], modbv(1)[1:])
            if widening == job.width:
                mask.next = mask
                state.next = states.ROW
        elif state == states.ROW:
            lane.next = 0
            clocks.next = 0
            read_final.next = final
            read_stop.next = stop
            if taken:
                state.next = states.READ
        elif state == states.READ:
            if clocks == 0:
                row.next = row + 1
            if clocks != READ_CLOCKS - 1:
                clocks.next = clocks + 1
            else:
                reading.next = True
                lane.next = lane + 1
            if reading and at_end:
                reading.next = False
                clocks.next = 0
                state.next = states.ROW
                if read_final:
                    finish.next = True
                    state.next = states.LAST
        elif state == states.LAST:
            clocks.next = 0
            state.next = states.DRAIN
        else:  # a few clocks until what comes last is in the FIFO
            if clocks != 7:
                clocks.next = clocks + 1
            elif empty:
                state.next = states.IDLE
        if rst:
            state.next = states.IDLE
            job.idle.next = True
            finish.next = False
            reading.next = False

    @always(clk.posedge)
    def shift():
        if reading:
            value.next = source.data & mask
            have.next = True
        elif finish:
            have.next = False
        if step:
            fill.next = fill + job.width[4:]
        near_valid.next = step
        near_last.next = finish
        near_up.next = fill[4:2]
        near_ends.next = fill + job.width
        near.next = value << fill[2:]
        far_valid.next = near_valid
        far_last.next = near_last
        far_ends.next = near_ends
        far.next = near << concat(near_up, modbv(0)[2:])
        if rst or job.start:
            have.next = False
            fill.next = 0
        if rst:
            near_valid.next = False
            far_valid.next = False

    @always(clk.posedge)
    def pack():
        push.next = tail or (far_valid and (far_last or far_ends[4]))
        pair.next = rest | far[16:]
        two.next = far_ends[4] or far_ends[4:] > 8
        last.next = far_last and (not far_ends[4] or far_ends[4:] == 0)
        if tail:
            pair.next = rest
            two.next = tail_two
            last.next = True
        tail.next = far_valid and far_last and far_ends[4] and far_ends[4:] != 0
        tail_two.next = far_ends[4:] > 8
        if far_valid:
            rest.next = rest | far[16:]
            if far_ends[4]:
                rest.next = far[31:16]
        if rst or job.start:
            rest.next = 0
        if rst:
            push.next = False
            tail.next = False

    return fifo, look, watch, read, shift, pack
