"""A pair of engines as a module of its own, so that the netlist of many pairs is made from one.

`pair_module` is converted; `pair_cell` stands for it where it is used (nic_core, `pair`). MyHDL writes one
flat module, so after elaboration `instantiate` tells it what to write for each cell: an instance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from myhdl import block
from myhdl._extractHierarchy import _UserVerilogCode  # what MyHDL makes of a block's `verilog_code`

from oscar_hdl.coder import ports
from oscar_hdl.coder.engine_pair import engine_pair
from oscar_hdl.coder.ports import CountChain
from oscar_hdl.streams.bundles import Stream, bit, word

# Bundles in the order of engine_pair, those of lists with a number; and what the pair drives of each.
RESULTS = ("constant", "value", "bits", "seeds", "first", "last", "bytes")
ENDS = ("idle", "done", "bad")
CHAIN = ("valid", "address", "bank", "totals")
SUMS = ("take", "row", "valid", "total", "described", "described_row", "row_class", "row_size", "row_top")
DRIVEN: dict[str, tuple[str, ...]] = {
    "decoder_tables": (), "decoder_passed": ("enable", "address", "data"),
    "encoder_tables": (), "encoder_passed": ("enable", "address", "data"),
    "decoder_job": ENDS, "decoder_bytes": ("tready",), "position": ("take", "header", "row"), "sums": SUMS,
    "decoder_before": (), "decoder_after": CHAIN,
    "encoder_job": (*ENDS, *RESULTS), "encoder_bytes": ("tdata", "tvalid", "tlast", "tkeep"),
    "source": ("take", "header", "row"), "encoder_before": (), "encoder_after": CHAIN,
}  # fmt: skip


@block
def _pair(
    clk: Any, rst: Any, phase: Any, decoder_tables: Any, decoder_passed: Any, encoder_tables: Any,
    encoder_passed: Any, decoder_job0: Any, decoder_job1: Any, decoder_bytes0: Any, decoder_bytes1: Any,
    position0: Any, position1: Any, sums0: Any, sums1: Any, decoder_before: Any, decoder_after: Any,
    encoder_job0: Any, encoder_job1: Any, encoder_bytes0: Any, encoder_bytes1: Any, source0: Any,
    source1: Any, encoder_before: Any, encoder_after: Any,
) -> Any:  # fmt: skip
    """engine_pair without lists, which cannot be ports."""
    pair = engine_pair(
        clk, rst, phase, decoder_tables, decoder_passed, encoder_tables, encoder_passed,
        [decoder_job0, decoder_job1], [decoder_bytes0, decoder_bytes1], [position0, position1],
        [sums0, sums1], decoder_before, decoder_after, [encoder_job0, encoder_job1],
        [encoder_bytes0, encoder_bytes1], [source0, source1], encoder_before, encoder_after,
    )  # fmt: skip
    return pair


def pair_module() -> Any:
    """Return the module of a pair, to be converted on its own."""

    def two(make: Callable[[], Any]) -> tuple[Any, Any]:
        return make(), make()

    decoders = (*two(ports.DecoderJob), *two(_bytes_in), *two(ports.PositionPort), *two(ports.SumPort))
    encoders = (*two(ports.EncoderJob), *two(_bytes_out), *two(ports.SourcePort))
    return _pair(
        bit(), bit(), word(5), *two(ports.TableWrites), *two(ports.TableWrites), *decoders, CountChain(),
        CountChain(), *encoders, CountChain(), CountChain(),
    )  # fmt: skip


def _bytes_in() -> Stream:
    return Stream(16)


def _bytes_out() -> Stream:
    return Stream(16, keep=2)


@block
def pair_cell(clk: Any, rst: Any, phase: Any, *bundles: Any) -> Any:
    """Nothing, with the arguments of engine_pair; see `instantiate`."""
    return ()


def _signals(clk: Any, rst: Any, phase: Any, *bundles: Any) -> Iterator[tuple[str, Any, bool]]:
    """Name and signal of each port of a pair_module, and whether the pair drives it."""
    yield from (("clk", clk, False), ("rst", rst, False), ("phase", phase, False))
    for (name, driven), given in zip(DRIVEN.items(), bundles, strict=True):
        many = isinstance(given, list)
        for n, bundle in enumerate(given if many else [given]):
            for part, signal in vars(bundle).items():
                yield f"{name}{n if many else ''}_{part}", signal, part in driven


def instantiate(top: Any) -> Any:
    """Have each pair_cell of a design converted to an instance of pair_module; return the design."""
    for part in top.subs:
        if getattr(part, "func", None) is not None and part.func.__name__ == "pair_cell":
            signals = {}
            for name, signal, driven in _signals(*part.args):
                signals[name] = signal
                signal._markUsed()
                if driven:
                    signal.driven = "wire"
                else:
                    signal.read = True
            text = ", ".join(f".{name}(${name})" for name in signals)
            part.sigdict = dict(signals)
            part.verilog_code = _UserVerilogCode(
                f"pair_module {part.name}({text});", signals, "pair_cell", part.func, __file__, 0
            )
        elif hasattr(part, "subs"):
            instantiate(part)
    return top
