"""Lists of commands, but for who finds an entry's frame (frame_finder)."""

from __future__ import annotations

from typing import Any

from myhdl import always_comb, block, concat, modbv

from oscar_hdl.nic.control.command_list import command_list
from oscar_hdl.nic.control.list_control import list_control
from oscar_hdl.nic.control.list_ends import list_ends
from oscar_hdl.nic.control.list_ports import (
    EndedEntries,
    FinderLinks,
    FiredEntry,
    ListedCommand,
    ListRegisters,
    ListRun,
    RegisterFill,
    StartedEntry,
    TrackerStatus,
    TrackerUpdate,
)
from oscar_hdl.nic.control.tracker import tracker
from oscar_hdl.nic.ports import FrameCommand, MadeRows
from oscar_hdl.streams.bundles import Stream


@block
def list_unit(
    clk: Any, rst: Any, s_axis_list: Stream, registers: ListRegisters, run: ListRun, command: ListedCommand,
    fill: RegisterFill, finder: FinderLinks, made: MadeRows, receive: FrameCommand, send: FrameCommand,
) -> Any:  # fmt: skip
    """Take lists, and run them (docs/engine.md, "A list").

    s_axis_list: Stream(64), three words an entry. command: to command_ports; fill: to registers. made:
    whoever loads rows. receive, send: commands that end.
    """
    status, fire = TrackerStatus(), FiredEntry()
    given, received, sent = TrackerUpdate(arms=True), TrackerUpdate(), TrackerUpdate()
    receives, sends = StartedEntry(receive=True), StartedEntry(receive=False)
    ended, sends_ended = EndedEntries(), EndedEntries()
    armed, found, gate = finder.armed, finder.found, finder.gate
    ended.returned = found.returned

    @always_comb
    def place():
        """STORED: IRQ_ENABLE, then FRAME, SHAPE and TABLES of each direction; SHAPE is the higher half."""
        fill.data.next = command.data
        fill.low.next = concat(
            command.fill_send[1], modbv(0)[1:], command.fill_send[0],
            command.fill_receive[1], modbv(0)[1:], command.fill_receive[0], modbv(0)[1:],
        )  # fmt: skip
        fill.high.next = concat(
            modbv(0)[1:], command.fill_send[0], modbv(0)[2:], command.fill_receive[0], modbv(0)[2:]
        )  # fmt: skip

    return (
        place,
        command_list(
            clk, rst, s_axis_list, registers.bad_packet, run, command, given, armed, fire, found, receives,
            sends,
        ),
        tracker(clk, rst, given, received, sent, made, run, fire, registers.show, gate, status),
        list_ends(clk, rst, receives, receive.done, receive.error, received, ended, receive=True),
        list_ends(clk, rst, sends, send.done, send.error, sent, sends_ended, receive=False),
        list_control(clk, rst, registers, run, status, ended, sends_ended),
    )  # fmt: skip
