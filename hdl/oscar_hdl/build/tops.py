"""Blocks that are converted on their own, with the ports and parameters they are converted for."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from oscar_hdl.coder import ports
from oscar_hdl.streams.bundles import Stream, bit, word

Value = int | str | bool
Top = Callable[..., Any]  # of parameters, given by name


def _decoder(early: bool = False) -> Any:
    from oscar_hdl.coder.decoder import decoder

    return decoder(
        bit(), bit(), word(5), ports.DecoderJob(), ports.DecoderTables(), Stream(16), ports.PositionPort(),
        ports.SumPort(), ports.CountPort(), early=early,
    )  # fmt: skip


def _encoder() -> Any:
    from oscar_hdl.coder.encoder import encoder

    return encoder(
        bit(), bit(), word(5), ports.EncoderJob(), ports.EncoderTables(), ports.SourcePort(),
        ports.CountPort(), Stream(16, keep=2),
    )  # fmt: skip


# From small to large: the last one is what a project takes.
TOPS: dict[str, Top] = {"decoder": _decoder, "encoder": _encoder}

TOP_HELP = f"of {', '.join(TOPS)}; or module:function, which returns a block (all)"


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
