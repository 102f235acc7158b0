"""Values and descriptors out of a NIC's banks of rows, into streams."""

from __future__ import annotations

from typing import Any

from myhdl import Signal, always, always_comb, block, concat, enum, modbv

from oscar_hdl.nic.memory.bank_ports import DESCRIPTOR_BITS, WORD_BITS
from oscar_hdl.nic.memory.row_walk import row_walk
from oscar_hdl.streams.bundles import bit, word

States = enum("IDLE", "FIRST", "READ", "DRAIN")
DEPTH = 16  # words between memory and stream
ASKED = 5  # clocks from a request to the word
SETTLE = 2  # pairs of clocks after which a row's descriptor is there in time for its first word


@block
def row_unloader(
    clk: Any, rst: Any, phase: Any, command: Any, row: Any, part: Any, banks: Any, descriptors: Any,
    m_axis_values: Any, m_axis_descriptors: Any, *, block_bits: int, skip_bits: int, odd: bool = False,
) -> Any:  # fmt: skip
    """Read a frame's values, four every second clock, and a descriptor a row.

    command: RowCommand of one value or more; `clear` is ignored. row, part: of BankRead, for all banks; they
    change with clocks of odd phases (even ones, if `odd`). banks, descriptors: lists of what the banks give.
    m_axis_values: Stream(64), ceil(count / 4) words; m_axis_descriptors: Stream(8), class and size << 4 of
    each row; both with tlast at the end. Values of rows of class 0 are given as 0. A row waits until the
    descriptor of the one before is taken.
    """
    BANKS, ODD = len(banks), int(odd)
    state = Signal(States.IDLE)
    restart, forward, at_end = bit(), bit(), bit()
    bank, row_now, part_now = word(BANKS), word(len(row)), word(3)
    settle = word(2)
    left, room, issue, row_end, final = word(19), bit(), bit(), bit(), bit()
    more, fewer, popped, ending = bit(), bit(), bit(), bit()
    # Of what was asked for, a bit for each clock since; the bank it is in.
    asked, finals, row_ends, row_finals = word(ASKED), word(ASKED), word(ASKED), word(ASKED)
    bank1, bank2, bank3, bank4 = word(BANKS), word(BANKS), word(BANKS), word(BANKS)
    found, alive, descriptor, described = word(WORD_BITS), word(WORD_BITS), word(DESCRIPTOR_BITS), bit()
    buffer = [word(WORD_BITS + 1) for _ in range(DEPTH)]
    write_at, read_at = word(4), word(4)
    level, stored = word(5), word(5)  # words asked for and not taken; those in the buffer
    top = word(WORD_BITS + 1)

    walk = row_walk(
        clk, restart, command.first, forward, None, bank, row_now, at_end, block_bits=block_bits,
        skip_bits=skip_bits,
    )  # fmt: skip

    @always(clk.posedge)
    def ask() -> None:
        issue.next = (
            state == States.READ
            and phase[0] != ODD
            and settle == 0
            and room
            and (part_now != 7 or not described)
            and not rst
        )

    @always_comb
    def show() -> None:
        row_end.next = part_now == 7
        ending.next = issue and part_now == 7
        final.next = left <= 4
        top.next = buffer[read_at]
        alive.next = 0
        if descriptor[4:] != 0:
            alive.next = found
        more.next = issue and left != 0
        fewer.next = m_axis_values.tvalid and m_axis_values.tready
        popped.next = stored != 0 and (m_axis_values.tready or not m_axis_values.tvalid)

    @always(clk.posedge)
    def follow() -> None:
        asked.next = concat(asked[ASKED - 1 :], more)
        finals.next = concat(finals[ASKED - 1 :], final)
        row_ends.next = concat(row_ends[ASKED - 1 :], ending)
        row_finals.next = concat(row_finals[ASKED - 1 :], final)
        bank1.next = bank
        bank2.next = bank1
        bank3.next = bank2
        bank4.next = bank3
        if rst:
            asked.next = 0
            row_ends.next = 0

    @always(clk.posedge)
    def choose() -> None:
        found.next = 0
        descriptor.next = 0
        for i in range(BANKS):
            if bank4[i]:
                found.next = banks[i]
                descriptor.next = descriptors[i]

    @always(clk.posedge)
    def control() -> None:
        command.done.next = False
        restart.next = False
        forward.next = False
        if state == States.IDLE:
            part_now.next = 0
            if command.start:
                command.idle.next = False
                restart.next = True
                left.next = command.count
                state.next = States.FIRST
        elif state == States.FIRST:
            settle.next = SETTLE
            if phase[0] == ODD:
                state.next = States.READ
        elif state == States.READ:
            if phase[0] == ODD:
                row.next = row_now
                part.next = part_now
                if settle != 0:
                    settle.next = settle - 1
            if issue:
                part_now.next = part_now + 1
                forward.next = row_end
                if row_end:
                    settle.next = SETTLE
                left.next = left - 4
                if final:
                    left.next = 0
                    if row_end:
                        state.next = States.DRAIN
        elif level == 0 and not described:
            state.next = States.IDLE
            command.done.next = True
            command.idle.next = True
        if rst:
            state.next = States.IDLE
            command.done.next = False
            command.idle.next = True

    @always(clk.posedge)
    def buffering() -> None:
        room.next = level < DEPTH - 2
        if more and not fewer:
            level.next = level + 1
        elif fewer and not more:
            level.next = level - 1
        if asked[ASKED - 1] and not popped:
            stored.next = stored + 1
        elif popped and not asked[ASKED - 1]:
            stored.next = stored - 1
        if asked[ASKED - 1]:
            buffer[write_at].next = concat(finals[ASKED - 1], alive)
            write_at.next = write_at + 1
        if m_axis_values.tready:
            m_axis_values.tvalid.next = False
        if popped:
            m_axis_values.tvalid.next = True
            m_axis_values.tdata.next = top[WORD_BITS:]
            m_axis_values.tlast.next = top[WORD_BITS]
            read_at.next = read_at + 1
        if rst:
            level.next = 0
            stored.next = 0
            write_at.next = 0
            read_at.next = 0
            m_axis_values.tvalid.next = False

    @always(clk.posedge)
    def describe() -> None:
        if m_axis_descriptors.tvalid and m_axis_descriptors.tready:
            m_axis_descriptors.tvalid.next = False
            described.next = False
        if issue and row_end:
            described.next = True
        if row_ends[ASKED - 1]:
            m_axis_descriptors.tvalid.next = True
            m_axis_descriptors.tdata.next = concat(modbv(0)[1:], descriptor)
            m_axis_descriptors.tlast.next = row_finals[ASKED - 1]
        if rst:
            described.next = False
            m_axis_descriptors.tvalid.next = False

    return walk, ask, show, follow, choose, control, buffering, describe
