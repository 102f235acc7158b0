"""A stream's packets as commands of a memory's loader or reader."""

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar_hdl.nic import ports
from oscar_hdl.nic.memory.ports import FloatPacket
from oscar_hdl.nic.ports import STREAM_BITS
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_hdl.streams.zero import zero

BIAS, MANTISSA = 150, 24  # of FloatFormat.base; bits
CHECKED = 3  # clocks until it is known whether all rows are in memory


@block
def float_head(clk, load, head, packet: FloatPacket, quantised, unfit, bad):
    """Take what a packet's first word says of floats while `load` (level); unfit: it is not valid.

    quantised: its values are floats, at once. bad: a value of it was NaN or Inf.
    """
    FORMAT, WIDTH, EXPONENT, TENSOR = ports.FORMAT_AT, ports.WIDTH_AT, ports.EXPONENT_AT, ports.TENSOR_AT
    FORMAT_END, WIDTH_END = FORMAT + ports.FORMAT_BITS, WIDTH + ports.WIDTH_BITS
    EXPONENT_END, TENSOR_END = EXPONENT + ports.EXPONENT_BITS, TENSOR + ports.TENSOR_BITS
    kind, width, base = word(ports.FORMAT_BITS), word(ports.WIDTH_BITS), word(ports.EXPONENT_BITS)
    LEAST_BASE, MOST_BASE = ports.LEAST_EXPONENT + BIAS, ports.NO_STEP + BIAS

    @always_comb
    def cut():
        kind.next = head[FORMAT_END:FORMAT]
        quantised.next = head[FORMAT_END:FORMAT] != ports.INT16
        width.next = head[WIDTH_END:WIDTH]
        base.next = head[EXPONENT_END:EXPONENT] + BIAS
        bad.next = packet.bad

    @always(clk.posedge)
    def take():
        if load:
            packet.format.next = kind
            packet.base.next = base
            packet.least.next = MANTISSA + 1 - width
            packet.tensor.next = head[TENSOR_END:TENSOR]
            packet.replaces.next = not head[ports.ADDS_AT]
            for i in range(ports.MOST_WIDTH):
                packet.limit.next[i] = width > i + 1
            unfit.next = (
                head[WIDTH:FORMAT_END] != 0
                or head[EXPONENT:WIDTH_END] != 0
                or head[TENSOR:EXPONENT_END] != 0
                or head[STREAM_BITS:TENSOR_END] != 0
                or kind > ports.FLOAT32
                or (kind != ports.INT16 and (width < ports.LEAST_WIDTH or width > ports.MOST_WIDTH))
                or (kind != ports.INT16 and (base < LEAST_BASE or base > MOST_BASE))
            )

    return cut, take


@block
def no_floats(clk, load, head, quantised, unfit, bad):
    """Refuse packets of floats; of a narrow stream there are none."""
    END, LOW = ports.FORMAT_AT + ports.FORMAT_BITS, ports.FORMAT_AT
    nothing = zero(clk, quantised), zero(clk, bad)
    if len(head) <= LOW:
        return nothing, zero(clk, unfit)

    @always(clk.posedge)
    def take():
        if load:
            unfit.next = head[END:LOW] != 0

    return nothing, take


@block
def row_port(
    clk, rst, s_axis: Stream, m_axis: Stream, clear, first_row, rows, cleared, command, wrong,
    made: ports.MadeRows, *, align: int = 0, adds: bool = False, floats: FloatPacket | None = None,
):  # fmt: skip
    """Start a command with the first word of each packet, and pass the rest on.

    s_axis: Stream(64 or more); a packet's first word has the row in bits 0 to 31 and the number of values, 1
    or more, in bits 32 to 61. A command without data has packets of one word. m_axis: as wide. clear: pulse,
    with first_row and rows u14, which hold: rows shall be cleared, between two packets; cleared: pulse.
    made: where bit 62 is set, the packet waits until a list takes such, and its values count for the entry in
    bits 24 to 31 as soon as all are written; if the list stops meanwhile they do not, and it was wrong.
    adds: packets may have bit 63 set, which add their values. floats: what packets of floats say, whose
    commands add to rows or to nothing; None: there are none. command: RowCommand; the memory has as many rows
    as `first` tells apart. While rst is high nothing is taken.

    wrong (pulse): a packet was not as its first word says. Of rows that are not all in memory, of no values,
    from a row on that is no multiple of 2^align, or of more values than the entry waits for, none is written
    or read. One that is too short goes on with zeros, of one that is too long the rest is thrown away. What
    NaN or Inf leaves of a packet does not count either.
    """
    steps = enum("HEADER", "CHECK", "ASK", "DATA", "TELL", "REST")
    at, rest = Signal(steps.HEADER), Signal(steps.HEADER)
    asked, clearing = bit(), bit()
    over, lacking = bit(), bit()  # the packet has ended, and was too short
    counts, stale, free = bit(), bit(), bit()  # for an entry; its list has stopped
    stray, outside, wait, unfit, bad = bit(), bit(), word(2), bit(), bit()
    heading, quantised = bit(), bit()
    FIRST_BITS, COUNT_BITS = len(command.first), len(command.count)
    ALIGN, ADDS = (1 << align) - 1, int(adds)
    ENTRY_END = ports.ENTRY_AT + ports.ENTRIES_LOG2
    FIRST_END, COUNT_END, ROWS = ports.ROW_AT + FIRST_BITS, ports.COUNT_AT + COUNT_BITS, 1 << FIRST_BITS
    number, behind = word(ports.FRAME_ROW_BITS + 1), word(max(FIRST_BITS, ports.FRAME_ROW_BITS + 1) + 1)

    first_word = heading, s_axis.tdata
    if floats is None:
        kinds = no_floats(clk, *first_word, quantised, unfit, bad)
    else:
        kinds = float_head(clk, *first_word, floats, quantised, unfit, bad)

    @always_comb
    def connect():
        heading.next = at == steps.HEADER
        m_axis.tdata.next = s_axis.tdata
        if over:
            m_axis.tdata.next = 0
        m_axis.tlast.next = s_axis.tlast or over
        m_axis.tvalid.next = at == steps.DATA and not clearing and (s_axis.tvalid or over)
        s_axis.tready.next = not rst and (
            (at == steps.HEADER and command.idle and not asked and free)
            or (at == steps.DATA and m_axis.tready and not clearing and not over)
            or at == steps.REST
        )

    @always(clk.posedge)
    def measure():
        if at == steps.HEADER:
            stray.next = (
                s_axis.tdata[ports.ENTRY_AT : FIRST_END] != 0
                or (s_axis.tdata[ENTRY_END : ports.ENTRY_AT] != 0 and not s_axis.tdata[ports.MADE_AT])
                or s_axis.tdata[ports.MADE_AT : COUNT_END] != 0
                or (s_axis.tdata[ports.ADDS_AT] and not ADDS)
                or s_axis.tdata[COUNT_END : ports.COUNT_AT] == 0
                or (s_axis.tdata[FIRST_END : ports.ROW_AT] & ALIGN) != 0
            )
        number.next = concat(False, command.count[COUNT_BITS:5])
        if command.count[5:] != 0:
            number.next = concat(False, command.count[COUNT_BITS:5]) + 1
        behind.next = command.first + number
        outside.next = stray or unfit or behind > ROWS

    @always(clk.posedge)
    def take():
        """What a command is for."""
        if at == steps.HEADER:
            clearing.next = asked
            command.clear.next = asked
            command.adds.next = (s_axis.tdata[ports.ADDS_AT] or quantised) and not asked
            counts.next = s_axis.tdata[ports.MADE_AT] and not asked
            made.entry.next = s_axis.tdata[ENTRY_END : ports.ENTRY_AT]
            if asked:
                command.first.next = first_row[FIRST_BITS:]
                command.count.next = concat(rows, modbv(0)[5:])
            else:
                command.first.next = s_axis.tdata[FIRST_END : ports.ROW_AT]
                command.count.next = s_axis.tdata[COUNT_END : ports.COUNT_AT]

    @always(clk.posedge)
    def proceed():
        wait.next = 0
        if clear:
            asked.next = True
        if at == steps.HEADER:
            over.next = s_axis.tlast
            lacking.next = False
            if command.idle and (asked or (s_axis.tvalid and free)):
                at.next = steps.CHECK
                if asked:
                    asked.next = False
        elif at == steps.CHECK:
            wait.next = wait + 1
            if wait == CHECKED:
                at.next = steps.DATA
                if outside and not clearing:
                    at.next = rest
                elif counts:
                    at.next = steps.ASK
        elif at == steps.ASK:
            if made.taken:
                at.next = steps.DATA
                if made.refused:
                    at.next = rest
        elif at == steps.DATA:
            if s_axis.tvalid and s_axis.tready and s_axis.tlast:
                over.next = True
            if m_axis.tvalid and m_axis.tready and over:
                lacking.next = True
            if command.done:
                at.next = rest
                if clearing:
                    at.next = steps.HEADER
                elif counts and over and not (lacking or stale or bad):
                    at.next = steps.TELL
        elif at == steps.TELL:
            if made.taken:
                at.next = steps.HEADER
        elif s_axis.tvalid and s_axis.tlast:
            at.next = steps.HEADER
        if rst:
            at.next = steps.HEADER
            asked.next = False

    @always_comb
    def look_behind():
        rest.next = steps.REST
        if over:
            rest.next = steps.HEADER

    @always(clk.posedge)
    def say():
        """What becomes of a command, and of its packet."""
        command.start.next = (
            at == steps.CHECK and wait == CHECKED and (clearing or not (outside or counts))
        ) or (at == steps.ASK and made.taken and not made.refused)
        cleared.next = at == steps.DATA and command.done and clearing
        wrong.next = (
            (at == steps.CHECK and wait == CHECKED and outside and not clearing)
            or ((at == steps.ASK or at == steps.TELL) and made.taken and made.refused)
            or (at == steps.DATA and command.done and not clearing and (lacking or not over or stale or bad))
        )
        if rst:
            command.start.next = False
            cleared.next = False
            wrong.next = False

    @always_comb
    def wait_for_list():
        free.next = made.open or not s_axis.tdata[ports.MADE_AT]
        made.values.next = command.count

    @always(clk.posedge)
    def tell():
        stale.next = at != steps.HEADER and counts and (stale or not made.open)
        made.ends.next = at == steps.TELL
        made.valid.next = (at == steps.ASK or at == steps.TELL) and not made.taken
        if rst:
            made.valid.next = False

    return kinds, connect, measure, take, proceed, look_behind, say, wait_for_list, tell
