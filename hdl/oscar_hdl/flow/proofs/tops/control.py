"""Registers, commands and lists, as they are converted for proofs."""

from __future__ import annotations

from typing import Any

from myhdl import block

from oscar_hdl.flow.proofs.tops.bundles import only
from oscar_hdl.nic.ports import FrameCommand, MadeRows
from oscar_hdl.streams.bundles import AxiLite, Stream, bit, word


@block
def _axi_lite_registers(clk, rst, s_axil, wr, rd, events, irq):  # type: ignore[no-untyped-def]
    from oscar_hdl.nic.control.axi_lite_registers import axi_lite_registers as made
    from oscar_hdl.nic.control.registers import REGISTERS

    values = [word(32) for register in REGISTERS if register.access == "RW"]
    return made(clk, rst, s_axil, values, wr, rd, events, irq)


def axi_lite_registers() -> Any:
    """All registers of a NIC."""
    from oscar_hdl.nic.control.register_ports import RegisterRead, RegisterWrite

    return _axi_lite_registers(bit(), bit(), AxiLite(8), RegisterWrite(), RegisterRead(), word(32), bit())


def command_port() -> Any:
    """That of RECEIVE, with 16 sets and 1,024 rows."""
    from oscar_hdl.nic.control.command_port import command_port as made
    from oscar_hdl.nic.control.register_ports import CommandAsk, CommandState

    return made(
        bit(), bit(), CommandAsk(), FrameCommand(), word(20), CommandState(),
        receive=True, sets=16, rows_log2=10, block_log2=10,
    )  # fmt: skip


def command_list() -> Any:
    """Of two entries, not 256."""
    from oscar_hdl.nic.control import list_ports as lists
    from oscar_hdl.nic.control.command_list import command_list as made

    run = only(
        lists.ListRun(), "go", "entries", "started", "refused", "wrong", "error", "entry", "active", "stop",
        "idle",
    )  # fmt: skip
    return made(
        bit(), bit(), Stream(64), bit(), run, lists.ListedCommand(), lists.TrackerUpdate(arms=True),
        lists.ArmedReceive(), lists.FiredEntry(), only(lists.FoundEntry(), "valid", "given", "entry"),
        lists.StartedEntry(receive=True), lists.StartedEntry(receive=False), entries_log2=1,
    )  # fmt: skip


def frame_finder() -> Any:
    """Of two entries, not 256."""
    from oscar_hdl.nic.control import list_ports as lists
    from oscar_hdl.nic.receive.frame_finder import frame_finder as made
    from oscar_hdl.nic.receive.ports import HeldFrame, OldestFrame

    return made(
        bit(), bit(), only(OldestFrame(), "there", "peer", "step", "chunk", "sub"),
        only(HeldFrame(), "hold", "discard", "refused", "gone"), lists.ArmedReceive(),
        only(lists.ListRun(), "active", "entries", "running", "started", "stop", "idle", "looking"),
        lists.FoundEntry(), only(lists.TrackerLook(), "at", "state", "left"), entries_log2=1,
    )  # fmt: skip


def tracker() -> Any:
    """Of four entries, not 256."""
    from oscar_hdl.nic.control import list_ports as lists
    from oscar_hdl.nic.control.tracker import tracker as made

    updates = [lists.TrackerUpdate(arms=n == 0) for n in range(3)]
    looks = [lists.TrackerLook() for _ in range(2)]
    run = only(lists.ListRun(), "active", "entries", "running")
    return made(
        bit(), bit(), *updates, MadeRows(), run, lists.FiredEntry(), *looks,
        lists.TrackerStatus(), entries_log2=2,
    )  # fmt: skip
