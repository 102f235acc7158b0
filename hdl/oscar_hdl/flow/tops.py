"""Blocks that are converted on their own, with the ports and parameters they are converted for."""

from __future__ import annotations

import importlib
import inspect
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping
from typing import Any

from oscar_hdl.coder import ports
from oscar_hdl.streams.bundles import AxiLite, PortFrames, Stream, bit, word

Value = int | str | bool
Top = Callable[..., Any]  # of parameters, given by name


def _barrel_encoder() -> Any:
    from oscar_hdl.coder.encode import ports as bundles
    from oscar_hdl.coder.encode.barrel_encoder import barrel_encoder
    from oscar_hdl.coder.unit.ports import WORD_BYTES, CountedLanes

    return barrel_encoder(
        bit(), bit(), word(4), bundles.EncoderJob(), ports.TableWrites(), bundles.CodedSource(),
        CountedLanes(), bundles.DrainPort(), Stream(128, keep=WORD_BYTES),
    )  # fmt: skip


def _barrel_decoder() -> Any:
    from oscar_hdl.coder.decode import ports as bundles
    from oscar_hdl.coder.decode.barrel_decoder import barrel_decoder
    from oscar_hdl.coder.unit.ports import CountedLanes

    return barrel_decoder(
        bit(), bit(), word(4), bundles.DecoderJob(), ports.TableWrites(), bundles.FeedPort(),
        bundles.CodedPosition(), bundles.CodedSums(), CountedLanes(),
    )  # fmt: skip


def _splitter(granule_log2: int = 8) -> Any:
    from oscar_hdl.nic.memory.splitter import splitter

    return splitter(
        bit(), bit(), bit(), word(5), word(10), word(17), Stream(16), bit(), Stream(16), bit(), bit(),
        granule_log2=granule_log2,
    )  # fmt: skip


def _frame_crc(size: int = 8, lead: int = 0) -> Any:
    from oscar_hdl.nic.crc.frame_crc import frame_crc

    missing = word((size - 1).bit_length())
    return frame_crc(bit(), bit(), bit(), word(8 * size), bit(), missing, bit(), word(32), lead=lead)


def _port_merge(ports: int = 4, bus_bits: int = 64) -> Any:
    from oscar_hdl.streams.port_merge import port_merge

    keep = bus_bits // 8
    return port_merge(bit(), bit(), PortFrames(ports, bus_bits), Stream(bus_bits, keep=keep, id=8))


def _port_copy(ports: int = 4, bus_bits: int = 64) -> Any:
    from oscar_hdl.streams.port_copy import port_copy

    keep = bus_bits // 8
    return port_copy(bit(), bit(), Stream(bus_bits, keep=keep, dest=8), PortFrames(ports, bus_bits))


def _attention_unit() -> Any:
    from oscar_hdl.attention.attention_unit import attention_unit

    return attention_unit(bit(), bit(), Stream(64), Stream(64), Stream(64), word(16))


def _oscar_nic(
    units: int = 1, bus_bits: int = 64, sets: int = 16, store_log2: int = 12, rows_log2: int = 10,
    block_log2: int = 12, granule_log2: int = 8, adds: int = 1, floats: int = 0,
) -> Any:  # fmt: skip
    from oscar_hdl.nic.oscar_nic import oscar_nic
    from oscar_hdl.nic.ports import ROW_BITS, frames_in, frames_out, row_streams

    if units not in (1, 2, 4, 8):
        raise ValueError(f"oscar_nic has 1, 2, 4 or 8 barrel units, got {units}")
    for name, value, least, most in (
        ("store_log2", store_log2, 6, 16), ("rows_log2", rows_log2, 6, ROW_BITS), ("adds", adds, 0, 1),
        ("floats", floats, 0, 1),
    ):  # fmt: skip
        if value not in range(least, most + 1):
            raise ValueError(f"oscar_nic: {name} is {least} to {most}, got {value}")
    if floats and not adds:
        raise ValueError("oscar_nic: floats=1 needs adds=1, got adds=0")
    rx, tx = frames_in(bus_bits), frames_out(bus_bits)
    return oscar_nic(
        bit(), bit(), AxiLite(8), bit(), rx, tx, *row_streams(units).values(), Stream(64), units=units,
        bus_bits=bus_bits, sets=sets, store_log2=store_log2, rows_log2=rows_log2, block_log2=block_log2,
        granule_log2=granule_log2, adds=bool(adds), floats=bool(floats),
    )  # fmt: skip


def _switch_slice(
    ports: int = 4, units: int = 1, bus_bits: int = 64, sets: int = 16, store_log2: int = 12,
    rows_log2: int = 10, block_log2: int = 12, granule_log2: int = 8,
) -> Any:  # fmt: skip
    from oscar_hdl.nic.ports import row_streams
    from oscar_hdl.nic.switch_slice import switch_slice

    return switch_slice(
        bit(), bit(), AxiLite(8), bit(), PortFrames(ports, bus_bits), PortFrames(ports, bus_bits),
        *row_streams(units).values(), Stream(64), units=units, bus_bits=bus_bits, sets=sets,
        store_log2=store_log2, rows_log2=rows_log2, block_log2=block_log2, granule_log2=granule_log2,
    )  # fmt: skip


# From small to large: the last one is what a project takes.
TOPS: dict[str, Top] = {
    "frame_crc": _frame_crc,
    "port_merge": _port_merge,
    "port_copy": _port_copy,
    "barrel_encoder": _barrel_encoder,
    "barrel_decoder": _barrel_decoder,
    "splitter": _splitter,
    "attention_unit": _attention_unit,
    "switch_slice": _switch_slice,
    "oscar_nic": _oscar_nic,
}

WITH_HELP = "parameters of the tops, instead of their own: units=2 bus_bits=128"
TOP_HELP = f"of {', '.join(TOPS)}; or module:function, which returns a block (all)"


def parameter(text: str) -> tuple[str, int | bool | str]:
    """Return name and value of "NAME=VALUE": a number, true, false or a word; for argparse."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier() or not value:
        raise ArgumentTypeError(f"expected NAME=VALUE, such as units=2, got {text!r}")
    if value in ("true", "false"):
        return name, value == "true"
    return name, int(value) if value.lstrip("-").isdigit() else value


def check_parameters(name: str, parameters: Mapping[str, Any]) -> None:
    """Raise ValueError where a top has no parameter of one of these names, with those that it has."""
    known = list(inspect.signature(find(name)).parameters)
    if unknown := [each for each in parameters if each not in known]:
        raise ValueError(f"{name} has no parameter {unknown[0]}; it has {', '.join(known) or 'none'}")


def shape(name: str, parameters: Mapping[str, Any]) -> str:
    """Return the parameters that a top is made with, its own defaults included: "units=2, bus_bits=64".

    Of a "module:function" those that are given: this process may not be able to import it.
    """
    own = (
        {}
        if ":" in name
        else {each: about.default for each, about in inspect.signature(find(name)).parameters.items()}
    )
    return ", ".join(f"{each}={value}" for each, value in (own | dict(parameters)).items())


def find(name: str) -> Top:
    """Return a registered top, or the function of "module:function". Raises ValueError when there is none."""
    if name in TOPS:
        return TOPS[name]
    module, colon, function = name.partition(":")
    if not colon:
        raise ValueError(f"no top called {name!r}; there are {', '.join(TOPS)} (or module:function)")
    try:
        found: Top = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"no top {name!r}: expected module:function of a module that can be imported ({error})"
        ) from None
    return found
