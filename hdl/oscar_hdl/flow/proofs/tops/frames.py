"""What takes frames apart and puts them together, as they are converted for proofs."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block

from oscar_hdl.coder import ports
from oscar_hdl.coder.ports import RawJob
from oscar_hdl.flow.proofs.tops.bundles import without
from oscar_hdl.nic.ports import frames_in
from oscar_hdl.streams.bundles import Stream, bit, word


@block
def _frame_reader(clk, rst, start, words, tail, peer, idle, left, m_axis):  # type: ignore[no-untyped-def]
    from oscar_hdl.nic.send.frame_reader import frame_reader as made

    address, advance, before = word(len(words)), bit(), word(len(words))
    reader = made(clk, rst, start, words, tail, peer, idle, left, address, advance, m_axis)

    @always(clk.posedge)
    def store():
        if advance:
            before.next = address
            m_axis.tdata.next = before

    return reader, store


def frame_reader() -> Any:
    """With a store that holds at each address the address."""
    return _frame_reader(
        bit(), bit(), bit(), word(5), word(3), word(8), bit(), word(6), Stream(5, keep=8, dest=8)
    )


def deframer(at_bits: int = 5) -> Any:
    """With at_bits bits of an address in its store, of words of 64 bits."""
    from oscar_hdl.nic.receive.deframer import deframer as made
    from oscar_hdl.nic.receive.ports import CameFrame

    at = [word(at_bits) for _ in range(3)]
    return made(bit(), bit(), frames_in(64), bit(), at[0], word(64), at[1], at[2], CameFrame(), word(4))


def frame_names() -> Any:
    """For four frames, not sixteen."""
    from oscar_hdl.nic.receive.frame_names import frame_names as made
    from oscar_hdl.nic.receive.ports import CameFrame, OldestFrame

    return made(bit(), bit(), without(CameFrame(), "lost"), bit(), OldestFrame(), most_log2=2)


@block
def _raw_feeder(clk, rst, go, odd, size, first, ask, land, data, m_axis, idle):  # type: ignore[no-untyped-def]
    from oscar_hdl.nic.receive.chunk_reader import ChunkAsk, UnitPort, chunk_reader
    from oscar_hdl.nic.receive.raw_feeder import raw_feeder as made

    units, chunk, place = UnitPort(), ChunkAsk(4), word(7)
    chunk.ask, chunk.land, chunk.data = ask, land, data

    @always_comb
    def join():
        place.next = first

    return (
        chunk_reader(clk, rst, go, place, chunk, units),
        made(clk, rst, go, odd, size, units, m_axis, idle),
        join,
    )


def raw_feeder() -> Any:
    """With the reader of chunks that it asks."""
    return _raw_feeder(
        bit(), bit(), bit(), bit(), word(20), word(3), bit(), bit(), word(128), Stream(16), bit()
    )


def prefix_reader() -> Any:
    """Without `soon`, at which it does not look."""
    from oscar_hdl.nic.receive.chunk_reader import UnitPort
    from oscar_hdl.nic.receive.prefix_reader import prefix_reader as made

    units = without(UnitPort(), "soon")
    return made(bit(), bit(), bit(), units, bit(), word(4), bit(), bit(), block_log2=12)


@block
def _head_writer(clk, rst, start, write, entry, entry_last, fields, m_axis):  # type: ignore[no-untyped-def]
    from oscar_hdl.nic.send.head_writer import head_writer as made
    from oscar_hdl.nic.send.ports import EntryPort

    entries = EntryPort()
    entries.write, entries.entry, entries.last = write, entry, entry_last
    return made(clk, rst, start, entries, fields, m_axis, block_log2=12, directory_log2=3)


def head_writer() -> Any:
    """As a NIC has it, pairs of bytes on a stream."""
    from oscar_hdl.nic.send.head_writer import HeadFields

    return _head_writer(
        bit(), bit(), bit(), bit(), word(16), bit(), HeadFields(), Stream(16, keep=2)
    )  # fmt: skip


def raw_packer() -> Any:
    """With four places of its FIFO."""
    from oscar_hdl.nic.send.raw_packer import raw_packer as made

    return made(bit(), bit(), RawJob(), ports.SourcePort(), Stream(16, keep=2), depth_log2=4)
