"""Blocks as they are converted for proofs: each alone, small, with flat ports."""

from __future__ import annotations

from typing import Any

from oscar_hdl.streams.bundles import Stream, bit, word


def pair_fifo(depth_log2: int = 2) -> Any:
    from oscar_hdl.nic.pair_fifo import pair_fifo as made

    return made(
        bit(), bit(), bit(), word(16), bit(), bit(), Stream(16, keep=2), bit(), depth_log2=depth_log2
    )


def stream_join(bits: int = 256) -> Any:
    from oscar_hdl.nic.stream_join import stream_join as made

    return made(bit(), bit(), Stream(64), Stream(bits))


def stream_split(bits: int = 256) -> Any:
    from oscar_hdl.nic.stream_split import stream_split as made

    return made(bit(), bit(), bit(), Stream(bits), Stream(64))


def byte_sink() -> Any:
    from oscar_hdl.coder.byte_sink import byte_sink as made

    return made(
        bit(), bit(), word(5), bit(), bit(), word(16), bit(), bit(), bit(), word(19), bit(),
        Stream(16, keep=2),
    )  # fmt: skip


def byte_source() -> Any:
    from oscar_hdl.coder.byte_source import byte_source as made

    return made(
        bit(), bit(), Stream(16), bit(), bit(), bit(), bit(), bit(), bit(), bit(), word(16), word(8), bit(),
        bit(), bit(),
    )  # fmt: skip
