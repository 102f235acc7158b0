"""Blocks of the NIC with lists of ports as tops of their own: for their area, not for use.

All ports but clk and rst are in two wide ones, `inputs` and `outputs`, in the order of the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from myhdl import ConcatSignal, SignalType, always_comb, block

from oscar_hdl.coder import ports
from oscar_hdl.coder.ports import CountChain, TablesPort
from oscar_hdl.flow.elaboration import driven
from oscar_hdl.nic.control.registers import ROW_BITS
from oscar_hdl.nic.ports import STREAM_BITS, FrameCommand, TopPort, frames_in, frames_out
from oscar_hdl.streams.bundles import Stream, bit, word

Arguments = Callable[[], tuple[Any, ...]]


def _signals(item: Any) -> Iterator[Any]:
    """Yield the signals of bundles and lists of them."""
    if isinstance(item, SignalType):
        yield item
    elif item is not None:
        for part in item if isinstance(item, list) else vars(item).values():
            yield from _signals(part)


@block
def joint(given: Any, to: Any) -> Any:
    """Let `to` be what is given: a port and the signal behind it."""

    @always_comb
    def give() -> None:
        to.next = given

    return give


@block
def wide_ports(
    clk: Any, rst: Any, inputs: Any, outputs: Any, function: Any, arguments: Any, parameters: Any,
    takes: Any, gives: Any,
) -> Any:  # fmt: skip
    """Give a block two ports, `inputs` and `outputs`, of which `takes` are slices and `gives` the parts."""
    parts = [function(clk, rst, *arguments, **parameters), joint(ConcatSignal(*reversed(gives)), outputs)]
    low = 0
    for signal in takes:
        high = low + len(signal)
        parts.append(joint(inputs(low) if high == low + 1 else inputs(high, low), signal))
        low = high
    return parts


def sides(
    function: Any, make: Arguments, arguments: tuple[Any, ...], **parameters: Any
) -> tuple[tuple[Any, ...], ...]:
    """Return the signals that a block takes and those that it gives, of arguments such as make returns."""
    probe = make()
    outputs = driven(function(bit(), bit(), *probe, **parameters))
    ways = [id(signal) in outputs for argument in probe for signal in _signals(argument)]
    signals = [signal for argument in arguments for signal in _signals(argument)]
    return tuple(
        tuple(signal for signal, drive in zip(signals, ways, strict=True) if drive == wanted)
        for wanted in (False, True)
    )


def wide(function: Any, make: Arguments, **parameters: Any) -> Any:
    """Return a top of a block; make: its arguments behind clk and rst."""
    arguments = make()
    takes, gives = sides(function, make, arguments, **parameters)
    return wide_ports(
        bit(), bit(), word(sum(map(len, takes))), word(sum(map(len, gives))), function, arguments, parameters,
        takes, gives,
    )  # fmt: skip


def frame_receiver(
    units: int = 2, bus_bits: int = 64, store_log2: int = 12, block_log2: int = 12, row_bits: int = 10
) -> Any:  # fmt: skip
    """The receiver of so many barrel decoders, with banks of 2^row_bits rows."""
    from oscar_hdl.coder.decode.ports import DecoderJob, FeedPort
    from oscar_hdl.nic.ports import BankBlock
    from oscar_hdl.nic.receive.frame_receiver import frame_receiver as function
    from oscar_hdl.nic.receive.ports import ClearPort, DecodeUnits, Dropped, HeldFrame, OldestFrame

    def make() -> tuple[Any, ...]:
        jobs, feeds = [DecoderJob() for _ in range(units)], [FeedPort() for _ in range(units)]
        places = [BankBlock(row_bits) for _ in range(units)]
        head = frames_in(bus_bits), FrameCommand(), word(ROW_BITS), Dropped(), OldestFrame(), HeldFrame()
        decoders = DecodeUnits(jobs, feeds, places)
        return (*head, TablesPort(), decoders, ClearPort())

    return wide(function, make, bus_bits=bus_bits, store_log2=store_log2, block_log2=block_log2)


def frame_sender(
    units: int = 1, bus_bits: int = 64, store_log2: int = 12, block_log2: int = 10, row_bits: int = ROW_BITS
) -> Any:  # fmt: skip
    """The sender of so many barrel encoders."""
    from oscar_hdl.coder.encode.ports import DrainPort, EncoderJob
    from oscar_hdl.coder.unit.ports import WORD_BYTES
    from oscar_hdl.nic.ports import BankBlock
    from oscar_hdl.nic.send.frame_sender import EncodeUnits
    from oscar_hdl.nic.send.frame_sender import frame_sender as function

    def make() -> tuple[Any, ...]:
        lists = (
            [EncoderJob() for _ in range(units)],
            [DrainPort() for _ in range(units)],
            [Stream(8 * WORD_BYTES, keep=WORD_BYTES) for _ in range(units)],
            [BankBlock(row_bits - units.bit_length() + 1) for _ in range(units)],
        )
        head = frames_out(bus_bits), FrameCommand(), word(row_bits), TopPort(), TablesPort()
        return (*head, EncodeUnits(*lists, ports.SourcePort(), word(row_bits)))

    return wide(function, make, bus_bits=bus_bits, store_log2=store_log2, block_log2=block_log2)


def unit_counts() -> Any:
    """The counts of a barrel unit."""
    from oscar_hdl.coder.unit.ports import CountedLanes
    from oscar_hdl.coder.unit.unit_counts import unit_counts as function

    def make() -> tuple[Any, ...]:
        return CountedLanes(), CountChain(), CountChain()

    return wide(function, make)


def _tables(encoding: bool, sets: int) -> Any:
    from oscar_hdl.coder.tables.link_tables import link_tables

    def make() -> tuple[Any, ...]:
        return TablesPort(), ports.TableWrites(), CountChain(), CountChain()

    return wide(link_tables, make, encoding=encoding, sets=sets)


def decoder_tables(sets: int = 16) -> Any:
    """The tables of a receiver."""
    return _tables(False, sets)


def encoder_tables(sets: int = 16) -> Any:
    """The tables of a sender."""
    return _tables(True, sets)


@block
def listing(
    clk: Any, rst: Any, s_axis_list: Any, bad: Any, run: Any, command: Any, received: Any, sent: Any,
    made: Any, found: Any, show: Any, status: Any, receives: Any, sends: Any, oldest: Any, held: Any,
) -> Any:  # fmt: skip
    """Join command_list, tracker and frame_finder, as list_unit and the NIC do."""
    from oscar_hdl.nic.control import list_ports as lists
    from oscar_hdl.nic.control.command_list import command_list
    from oscar_hdl.nic.control.tracker import tracker
    from oscar_hdl.nic.receive.frame_finder import frame_finder

    given, armed, fire = lists.TrackerUpdate(arms=True), lists.ArmedReceive(), lists.FiredEntry()
    gate = lists.TrackerLook()
    return (
        command_list(
            clk, rst, s_axis_list, bad, run, command, given, armed, fire, found, receives, sends
        ),
        tracker(clk, rst, given, received, sent, made, run, fire, show, gate, status),
        frame_finder(clk, rst, oldest, held, armed, run, found, gate),
    )  # fmt: skip


def list_parts() -> Any:
    """What keeps a list, tracks it and finds its frames: command_list, tracker, frame_finder."""
    from oscar_hdl.nic.control import list_ports as lists
    from oscar_hdl.nic.ports import MadeRows
    from oscar_hdl.nic.receive.ports import HeldFrame, OldestFrame

    def make() -> tuple[Any, ...]:
        updates = lists.TrackerUpdate(), lists.TrackerUpdate()
        started = lists.StartedEntry(receive=True), lists.StartedEntry(receive=False)
        return (
            Stream(64), bit(), lists.ListRun(), lists.ListedCommand(), *updates, MadeRows(),
            lists.FoundEntry(), lists.TrackerLook(), lists.TrackerStatus(), *started, OldestFrame(),
            HeldFrame(),
        )  # fmt: skip

    return wide(listing, make)


def symbol_counts() -> Any:
    """The counts of a unit."""
    from oscar_hdl.coder.tables.symbol_counts import symbol_counts as function

    def make() -> tuple[Any, ...]:
        return ports.CountPort(), bit(), CountChain(), CountChain()

    return wide(function, make)


def row_bank(row_bits: int = 10, block_log2: int = 11, adds: int = 0) -> Any:
    """A bank of 2^row_bits rows for a barrel encoder and a barrel decoder, and a loader that adds."""
    from oscar_hdl.coder.decode.ports import CodedPosition, CodedSums
    from oscar_hdl.coder.encode.ports import CodedSource
    from oscar_hdl.nic.memory.ports import (
        AddedRows,
        BankAdds,
        BankLoads,
        BankTop,
        GroupRead,
        GroupWrite,
        SideWrite,
    )
    from oscar_hdl.nic.memory.row_bank import row_bank as function
    from oscar_hdl.nic.ports import BankBlock

    def make() -> tuple[Any, ...]:
        blocks = [BankBlock(row_bits) for _ in range(2)]
        decoding = CodedPosition(), blocks[0], CodedSums()
        added = BankAdds(word(row_bits), AddedRows(row_bits) if adds else None)
        loads = BankLoads(GroupWrite(word(row_bits)), SideWrite(word(row_bits), word(8)), added)
        reading = GroupRead(word(row_bits)), BankTop(word(row_bits), word(row_bits - 2))
        return (word(4), *decoding, CodedSource(), blocks[1], loads, *reading)

    return wide(function, make, block_bits=block_log2 - 5)


def memory_arguments(units: int, row_bits: int) -> tuple[Any, ...]:
    """Return row_memory's arguments behind clk and rst."""
    from oscar_hdl.coder.decode.ports import CodedPosition, CodedSums
    from oscar_hdl.coder.encode.ports import CodedSource
    from oscar_hdl.nic.memory.ports import BankBlock, PlannedRows, RawRows, RowCommand, RowCommands, UnitRows

    bank_bits = row_bits - units.bit_length() + 1
    blocks = [[BankBlock(bank_bits) for _ in range(units)] for _ in range(2)]
    decoding = [CodedPosition() for _ in range(units)], blocks[0], [CodedSums() for _ in range(units)]
    rows = UnitRows(*decoding, [CodedSource() for _ in range(units)], blocks[1])
    raw = RawRows(ports.RawSource(), word(ROW_BITS))
    commands = RowCommands(*(RowCommand(row_bits) for _ in range(3)))
    streams = [Stream(units * bits) for bits in (*[STREAM_BITS] * 3, 16)]
    sums = Stream(STREAM_BITS, keep=STREAM_BITS // 8)
    return (word(4), rows, raw, commands, TopPort(), PlannedRows(bit(), sums), *streams)


def row_memory(units: int = 2, row_bits: int = 11, block_log2: int = 11, adds: int = 1) -> Any:
    """A NIC's memory of 2^row_bits rows for so many barrel encoders and decoders, and raw_packer."""
    from oscar_hdl.nic.memory.row_memory import row_memory as function

    sizes = {"row_bits": row_bits, "block_log2": block_log2, "adds": bool(adds)}
    return wide(function, lambda: memory_arguments(units, row_bits), **sizes)
