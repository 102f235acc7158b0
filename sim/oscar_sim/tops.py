"""Blocks as the C++ around them knows them: one name for each port, whatever a block calls it."""

from __future__ import annotations

from typing import Any

from myhdl import block

from oscar_hdl.coder import ports
from oscar_hdl.streams.bundles import Stream, bit, word


@block
def _decoder(clk, rst, phase, job, tables, s_axis_bytes, position, sum, count):  # type: ignore[no-untyped-def]
    from oscar_hdl.coder.decoder import decoder

    return decoder(clk, rst, phase, job, tables, s_axis_bytes, position, sum, count)


def decoder_unit() -> Any:
    """A decoder alone."""
    return _decoder(
        bit(), bit(), word(5), ports.DecoderJob(), ports.DecoderTables(), Stream(16), ports.PositionPort(),
        ports.SumPort(), ports.CountPort(),
    )  # fmt: skip


@block
def _encoder(clk, rst, phase, job, tables, source, count, m_axis_bytes):  # type: ignore[no-untyped-def]
    from oscar_hdl.coder.encoder import encoder

    return encoder(clk, rst, phase, job, tables, source, count, m_axis_bytes)


def encoder_unit() -> Any:
    """An encoder alone."""
    return _encoder(
        bit(), bit(), word(5), ports.EncoderJob(), ports.EncoderTables(), ports.SourcePort(),
        ports.CountPort(), Stream(16, keep=2),
    )  # fmt: skip
