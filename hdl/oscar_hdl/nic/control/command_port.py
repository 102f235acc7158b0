"""Commands of one direction: checked, kept until they can start, and how they ended."""

from myhdl import Signal, always, always_comb, block, concat, enum

from oscar_hdl.nic.control.register_ports import CommandAsk, CommandFields, CommandState
from oscar_hdl.nic.control.registers import (
    BY_NAME,
    COMMAND_PARTS,
    ERROR_ABORTED,
    KEPT_ERRORS,
    ROW_BITS,
    places,
)
from oscar_hdl.nic.ports import ERROR_BITS, FRAME_ROW_BITS, FrameCommand
from oscar_hdl.streams.balance import balance
from oscar_hdl.streams.bundles import bit, word


@block
def command_port(
    clk, rst, ask: CommandAsk, command: FrameCommand, row, state: CommandState, *, receive: bool, sets: int,
    rows_log2: int, block_log2: int,
):  # fmt: skip
    """Turn commands into frames for the receiver or the sender.

    row u20: of the last command that was started. Frames begin at multiples of a block's rows.
    """
    NAME = "RECEIVE" if receive else "SEND"
    frame, shape, tables, order = (BY_NAME[name].fields for name in (*COMMAND_PARTS, f"{NAME}_COMMAND"))
    (STEP, STEP_END), (CHUNK, CHUNK_END) = places(frame, "step", "chunk")
    (COUNT, COUNT_END), (WIDTH, WIDTH_END), (SUB, SUB_END) = places(shape, "count", "width", "sub")
    (SEQUENCE, SEQUENCE_END), (LOAD, LOAD_END), (SAVE, SAVE_END) = places(tables, "sequence", "load", "save")
    (ROW, ROW_END), (PEER, PEER_END), (FRESH, _) = places(order, "row", "peer", "fresh")
    (ADD, _), (ADOPT, _) = places(order, "add", "adopt") if receive else [(0, 0)] * 2
    # A frame begins where a block of memory does: low bits of its row are 0, as bits without a field.
    INSIDE = (1 << (block_log2 - 5)) - 1
    UNUSED = (~BY_NAME[f"{NAME}_COMMAND"].mask | INSIDE << ROW) & 0xFFFFFFFF
    SETS, ROWS = sets, 1 << rows_log2

    steps = enum("NOTHING", "LOOK", "MEASURE", "WEIGH", "DECIDE", "WAITING")
    at = Signal(steps.NOTHING)
    wanted, fields, rows = word(32), CommandFields(), word(FRAME_ROW_BITS)  # what waits
    bad_shape, bad_tables, bad_order, bad = bit(), bit(), bit(), bit()
    behind = word(ROW_BITS + 1)
    idle, starting, aborting, ended, errors = bit(), bit(), bit(), word(8), word(KEPT_ERRORS * ERROR_BITS)
    KEPT = (KEPT_ERRORS - 1) * ERROR_BITS

    @always_comb
    def outputs():
        starting.next = at == steps.WAITING and idle and not aborting and not state.running[2]
        ask.locked.next = at != steps.NOTHING
        state.result.next = concat(errors, ended)

    @always(clk.posedge)
    def judge():
        bad_shape.next = (
            fields.shape[COUNT_END:COUNT] == 0
            or fields.shape[COUNT_END - 1]
            or fields.shape[WIDTH_END:WIDTH] == 0
            or (fields.shape[WIDTH_END - 1] and fields.shape[WIDTH_END - 1 : WIDTH] != 0)
        )
        bad_tables.next = (
            (not wanted[FRESH] and fields.tables[LOAD_END:LOAD] >= SETS)
            or fields.tables[SAVE_END:SAVE] >= SETS
        )  # fmt: skip
        bad_order.next = (wanted & UNUSED) != 0
        if receive and wanted[ADD] == wanted[ADOPT]:
            bad_order.next = True
        rows.next = fields.shape[COUNT_END : COUNT + 5]
        if fields.shape[COUNT + 5 : COUNT] != 0:
            rows.next = fields.shape[COUNT_END : COUNT + 5] + 1
        bad.next = bad_shape or bad_tables or bad_order or behind > ROWS
        behind.next = wanted[ROW_END:ROW] + rows

    @always(clk.posedge)
    def proceed():
        ask.refused.next = ask.issue and at != steps.NOTHING
        ask.judged.next = False
        ask.bad.next = False
        if at == steps.NOTHING:
            if ask.issue:
                wanted.next = ask.order
                fields.frame.next = ask.fields.frame
                fields.shape.next = ask.fields.shape
                fields.tables.next = ask.fields.tables
                at.next = steps.LOOK
        elif at == steps.LOOK:
            at.next = steps.MEASURE
        elif at == steps.MEASURE:
            at.next = steps.WEIGH
        elif at == steps.WEIGH:
            at.next = steps.DECIDE
        elif at == steps.DECIDE:
            at.next = steps.WAITING
            if ask.trial:
                ask.judged.next = True
                ask.bad.next = bad
                at.next = steps.NOTHING
            elif bad:
                ask.refused.next = True
                at.next = steps.NOTHING
        elif starting:
            at.next = steps.NOTHING
        if rst:
            at.next = steps.NOTHING
            ask.refused.next = False
            ask.judged.next = False
            ask.bad.next = False

    # idle is a clock late: behind a start it has fallen before the next command waits.
    @always(clk.posedge)
    def start():
        idle.next = command.idle
        command.start.next = starting and not rst
        if starting:
            command.step.next = fields.frame[STEP_END:STEP]
            command.chunk.next = fields.frame[CHUNK_END:CHUNK]
            command.count.next = fields.shape[COUNT_END:COUNT]
            command.width.next = fields.shape[WIDTH_END:WIDTH]
            command.sub.next = fields.shape[SUB_END:SUB]
            command.peer.next = wanted[PEER_END:PEER]
            command.sequence.next = fields.tables[SEQUENCE_END:SEQUENCE]
            command.load.next = fields.tables[LOAD_END:LOAD]
            command.save.next = fields.tables[SAVE_END:SAVE]
            command.fresh.next = wanted[FRESH]
            row.next = wanted[ROW_END:ROW]
            command.adopt.next = wanted[ADOPT]

    @always(clk.posedge)
    def account():
        if command.done:
            ended.next = ended + 1
            errors.next = concat(errors[KEPT:], command.error)
        if state.running == 0 or (command.done and command.error == ERROR_ABORTED):
            aborting.next = False
        elif state.abort:
            aborting.next = True
        command.abort.next = aborting
        if rst:
            ended.next = 0
            errors.next = 0
            aborting.next = False
            command.abort.next = False

    return balance(clk, rst, starting, command.done, state.running), outputs, judge, proceed, start, account
