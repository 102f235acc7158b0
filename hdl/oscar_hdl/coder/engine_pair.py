"""Two engines, and the counts of their units (docs/engine.md)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from myhdl import always, block

from oscar_hdl.coder.decode.decoder import decoder
from oscar_hdl.coder.encode.encoder import encoder
from oscar_hdl.coder.ports import (
    TURN,
    CountChain,
    CountPort,
    DecoderJob,
    EncoderJob,
    PositionPort,
    SourcePort,
    SumPort,
    TableWrites,
)
from oscar_hdl.coder.tables.symbol_counts import symbol_counts
from oscar_hdl.streams.bundles import Stream, word
from oscar_hdl.streams.next_phase import next_phase


@block
def engine_pair(
    clk: Any, rst: Any, phase: Any, decoder_tables: TableWrites, decoder_passed: TableWrites,
    encoder_tables: TableWrites, encoder_passed: TableWrites, decoder_jobs: Sequence[DecoderJob],
    decoder_bytes: Sequence[Stream], positions: Sequence[PositionPort], sums: Sequence[SumPort],
    decoder_before: CountChain, decoder_after: CountChain, encoder_jobs: Sequence[EncoderJob],
    encoder_bytes: Sequence[Stream], sources: Sequence[SourcePort], encoder_before: CountChain,
    encoder_after: CountChain,
) -> Any:  # fmt: skip
    """Decode two blocks and encode two, side by side; of each sequence the first is the first engine's.

    The second engine's phase is TURN clocks ahead of the first one's. Tables are passed on a clock later, and
    kept then. The chains pass from before to after.
    """
    phases = [word(5) for _ in range(4)]
    decoder_counts, encoder_counts = [CountPort(), CountPort()], [CountPort(), CountPort()]
    decoder_chain = [decoder_before, CountChain(), decoder_after]
    encoder_chain = [encoder_before, CountChain(), encoder_after]

    @always(clk.posedge)
    def pass_on() -> None:
        decoder_passed.enable.next = decoder_tables.enable
        decoder_passed.address.next = decoder_tables.address
        decoder_passed.data.next = decoder_tables.data
        encoder_passed.enable.next = encoder_tables.enable
        encoder_passed.address.next = encoder_tables.address
        encoder_passed.data.next = encoder_tables.data

    ahead = (0, 0, TURN, 0)
    parts = [
        next_phase(clk, before, after, ahead=more)
        for (before, after), more in zip(pairwise([phase, *phases]), ahead, strict=True)
    ]
    for n in range(2):
        parts += [
            decoder(
                clk, rst, phases[2 * n], decoder_jobs[n], decoder_passed, decoder_bytes[n], positions[n],
                sums[n], decoder_counts[n],
            ),
            symbol_counts(clk, rst, decoder_counts[n], decoder_jobs[n].bank, *decoder_chain[n : n + 2]),
            encoder(
                clk, rst, phases[2 * n + 1], encoder_jobs[n], encoder_passed, sources[n], encoder_counts[n],
                encoder_bytes[n],
            ),
            symbol_counts(clk, rst, encoder_counts[n], encoder_jobs[n].bank, *encoder_chain[n : n + 2]),
        ]  # fmt: skip
    return pass_on, parts
