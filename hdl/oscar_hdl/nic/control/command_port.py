"""Commands of one direction: checked, kept until they can start, and how they ended."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, concat, enum

from oscar.coding.asc.params import MIN_BLOCK_LOG2
from oscar_hdl.nic.control.registers import BY_NAME, ERROR_ABORTED, ROW_BITS
from oscar_hdl.nic.ports import FRAME_ROW_BITS, FrameCommand, block_sizes
from oscar_hdl.streams.bundles import bit, word


@block
def command_port(
    clk: Any, rst: Any, issue: Any, trial: Any, order: Any, frame: Any, shape: Any, tables: Any, abort: Any,
    command: FrameCommand, row: Any, running: Any, locked: Any, refused: Any, verdict: Any, result: Any, *,
    receive: bool, sets: int, rows_log2: int, block_log2: int,
) -> Any:  # fmt: skip
    """Turn writes to a command's registers into frames for the receiver or the sender.

    issue: pulse, with order u32, a write to COMMAND; frame, shape, tables u32: what registers
    hold, still while `locked`. trial: level with issue, until verdict u2: the command is only judged (bit 0,
    pulse), refused or not (bit 1), and is not counted. abort: pulse. row u20: of the last command that was
    started. running u2: commands under way, two at most. refused: pulse. result u23: how many ended, and
    three errors. block_log2: the only one of a SEND command that is taken, and rows are multiples of such a
    block's; or 0: any.
    """
    NAME = "RECEIVE" if receive else "SEND"
    f_frame, f_shape, f_tables = (
        {f.name: (f.low, f.low + f.bits) for f in BY_NAME[f"{NAME}_{part}"].fields}
        for part in ("FRAME", "SHAPE", "TABLES")
    )
    f_order = {f.name: (f.low, f.low + f.bits) for f in BY_NAME[f"{NAME}_COMMAND"].fields}
    RECEIVE = receive
    STEP, STEP_END = f_frame["step"]
    CHUNK, CHUNK_END = f_frame["chunk"]
    COUNT, COUNT_END = f_shape["count"]
    WIDTH, WIDTH_END = f_shape["width"]
    SUB, SUB_END = f_shape["sub"]
    SEQUENCE, SEQUENCE_END = f_tables["sequence"]
    LOAD, LOAD_END = f_tables["load"]
    SAVE, SAVE_END = f_tables["save"]
    ROW, ROW_END = f_order["row"]
    FRESH = f_order["fresh"][0]
    ADD, ADOPT = (f_order[name][0] if receive else 0 for name in ("add", "adopt"))
    PEER, PEER_END = f_order["peer"]
    BLOCK, BLOCK_END = f_order.get("block_log2", (0, 3))
    # A frame begins where a block of memory does: low bits of its row are 0, as bits without a field.
    INSIDE = (1 << (block_log2 - 5)) - 1 if block_log2 else 0
    UNUSED = (~BY_NAME[f"{NAME}_COMMAND"].mask | INSIDE << ROW) & 0xFFFFFFFF
    SETS, ROWS = sets, 1 << rows_log2
    LEAST_BLOCK, ANY_BLOCK = block_sizes(block_log2)[0], not block_log2
    OWN_BLOCK = LEAST_BLOCK - MIN_BLOCK_LOG2

    steps = enum("NOTHING", "LOOK", "MEASURE", "WEIGH", "DECIDE", "WAITING")
    at = Signal(steps.NOTHING)
    wanted, rows = word(32), word(FRAME_ROW_BITS)
    bad_shape, bad_tables, bad_order, bad = bit(), bit(), bit(), bit()
    behind = word(ROW_BITS + 1)
    starting, aborting, ended, errors = bit(), bit(), word(8), word(15)

    @always_comb
    def outputs():
        starting.next = at == steps.WAITING and command.idle and not aborting and not running[1]
        locked.next = at != steps.NOTHING
        result.next = concat(errors, ended)

    @always(clk.posedge)
    def judge():
        bad_shape.next = (
            shape[COUNT_END:COUNT] == 0
            or shape[COUNT_END - 1]
            or shape[WIDTH_END:WIDTH] == 0
            or (shape[WIDTH_END - 1] and shape[WIDTH_END - 1 : WIDTH] != 0)
        )
        bad_tables.next = (
            (not wanted[FRESH] and tables[LOAD_END:LOAD] >= SETS) or tables[SAVE_END:SAVE] >= SETS
        )  # fmt: skip
        if RECEIVE:
            bad_order.next = (wanted & UNUSED) != 0 or wanted[ADD] == wanted[ADOPT]
        else:
            bad_order.next = (wanted & UNUSED) != 0 or not (ANY_BLOCK or wanted[BLOCK_END:BLOCK] == OWN_BLOCK)
        rows.next = shape[COUNT_END : COUNT + 5]
        if shape[COUNT + 5 : COUNT] != 0:
            rows.next = shape[COUNT_END : COUNT + 5] + 1
        bad.next = bad_shape or bad_tables or bad_order or behind > ROWS
        behind.next = wanted[ROW_END:ROW] + rows

    @always(clk.posedge)
    def proceed():
        refused.next = issue and at != steps.NOTHING
        verdict.next = 0
        if at == steps.NOTHING:
            if issue:
                wanted.next = order
                at.next = steps.LOOK
        elif at == steps.LOOK:
            at.next = steps.MEASURE
        elif at == steps.MEASURE:
            at.next = steps.WEIGH
        elif at == steps.WEIGH:
            at.next = steps.DECIDE
        elif at == steps.DECIDE:
            at.next = steps.WAITING
            if trial:
                verdict.next[0] = True
                verdict.next[1] = bad
                at.next = steps.NOTHING
            elif bad:
                refused.next = True
                at.next = steps.NOTHING
        elif starting:
            at.next = steps.NOTHING
        if rst:
            at.next = steps.NOTHING
            refused.next = False
            verdict.next = 0

    @always(clk.posedge)
    def start():
        command.start.next = starting and not rst
        if starting:
            command.step.next = frame[STEP_END:STEP]
            command.chunk.next = frame[CHUNK_END:CHUNK]
            command.count.next = shape[COUNT_END:COUNT]
            command.width.next = shape[WIDTH_END:WIDTH]
            command.sub.next = shape[SUB_END:SUB]
            command.peer.next = wanted[PEER_END:PEER]
            command.sequence.next = tables[SEQUENCE_END:SEQUENCE]
            command.load.next = tables[LOAD_END:LOAD]
            command.save.next = tables[SAVE_END:SAVE]
            command.fresh.next = wanted[FRESH]
            row.next = wanted[ROW_END:ROW]
            command.adopt.next = wanted[ADOPT]
            command.block_log2.next = MIN_BLOCK_LOG2 + wanted[BLOCK_END:BLOCK]

    @always(clk.posedge)
    def account():
        if starting and not command.done:
            running.next = running + 1
        elif command.done and not starting:
            running.next = running - 1
        if command.done:
            ended.next = ended + 1
            errors.next = concat(errors[10:], command.error)
        if running == 0 or (command.done and command.error == ERROR_ABORTED):
            aborting.next = False
        elif abort:
            aborting.next = True
        command.abort.next = aborting
        if rst:
            running.next = 0
            ended.next = 0
            errors.next = 0
            aborting.next = False
            command.abort.next = False

    return outputs, judge, proceed, start, account
