"""Table and JSON of placed blocks, beside published coders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from oscar_hdl.flow.placement.nextpnr import Part, Placed
from oscar_hdl.flow.tools import write_json as write

HEADER = (
    "# MHz is what nextpnr's timing model says: worst, median, best of the seeds. Above 300 MHz take it for",
    "# the model's output, not for a promise.",
)
# Published FPGA coders: Mb/s of uncompressed 8-bit data for each LUT (6 inputs), and bits a value of what
# they make of our sums (the last line of `oscar bench speed --model transformer`; None: not measured).
# The fair peer of a lane, which decodes, adds and encodes, is a pair of decoder and encoder.
ANCHORS = (
    ("Vitis LZ4 decode, 8-bit", 2.9, 6.28),
    ("Vitis LZ4 decode, 64-bit", 2.0, 6.28),
    ("Vitis Snappy decode, 64-bit", 1.8, 6.66),
    ("Vitis LZ4 encode, streaming", 0.73, 6.28),
    ("Vitis gzip decode", 0.68, 4.17),
    ("LOCO-ANS4-LS encode, 2 lanes", 0.64, None),
    ("Vitis LZ4 decode + encode", 0.58, 6.28),
    ("Vitis zstd decode", 0.35, 3.93),
    ("Vitis gzip encode, 8 engines", 0.19, 4.17),
)
OURS = 3.58  # bits a value of the same sums by ASC
WHOLE = ("oscar_nic", "nic_array")  # units with all they share: nothing is left out
VALUES_PER_CLOCK = 6.6  # of a barrel unit that decodes dense rows; it encodes a little faster
VALUE_BITS = 8  # of a gradient value as it is stored; partial sums have more, so this understates


@dataclass(frozen=True)
class Result:
    """A placed design, its cells on UltraScale+ if asked for, and how many lanes it holds."""

    placed: Placed
    ultrascale: dict[str, float] | None = None
    lanes: int = 1

    @property
    def gb_s(self) -> float:
        """Gb/s of dense values of 8 bits at the worst clock: so many in, and beside them as many out."""
        return self.placed.worst * VALUE_BITS * VALUES_PER_CLOCK * self.lanes / 1000

    @property
    def mb_per_lut(self) -> float:
        """Mb/s of values for each LUT site."""
        return 1000 * self.gb_s / max(1, self.placed.luts)


def table(results: Sequence[Result], part: Part) -> str:
    """Return one line for each design on a part."""
    kinds = " ".join(f"{name:>7}" for name in part.cells)
    lines = [
        *HEADER,
        *part.notes,
        f"{'block':<18} {kinds}   MHz worst median best    Gb/s Mb/s/LUT",
    ]
    for result in results:
        placed = result.placed
        cells = " ".join(f"{placed.cells[name]:>7,}" for name in part.cells)
        rates = f"{placed.worst:>9.0f} {placed.median:>6.0f} {placed.best:>4.0f}"
        whole = f"{result.gb_s:>9.1f}{result.mb_per_lut:>9.2f}" if placed.top in WHOLE else ""
        lines.append(f"{placed.name:<18} {cells} {rates} {whole}".rstrip())
    if any(result.ultrascale for result in results):
        lines += ["", "# UltraScale+ (synthesised, not placed)"]
        lines.append(f"{'block':<18} {'LUT':>7} {'FF':>7} {'CARRY8':>7} {'DSP':>7} {'RAMB36':>7}")
        for result in results:
            if result.ultrascale:
                cells = " ".join(f"{n:>7,g}" for n in result.ultrascale.values())
                lines.append(f"{result.placed.name:<18} {cells}")
    return "\n".join([*lines, *peers(results)])


def peers(results: Sequence[Result]) -> list[str]:
    """Return lines that compare ours (LUT4, worst seed) with published designs (LUT6).

    The best comes first; none where no NIC was placed: a part of one has no rate of its own.
    """
    ours = [
        (f"OSCAR {r.placed.name}: decode, add, encode", r.mb_per_lut, OURS)
        for r in results
        if r.placed.top in WHOLE
    ]
    if not ours:
        return []
    rows = sorted([*ours, *ANCHORS], key=lambda row: -row[1])
    return [
        "",
        "# Uncompressed Mb/s for each LUT (8 bits a value), and bits a value of our sums of 4 workers",
        *(
            f"{name:<40} {rate:>5.2f} {'' if bits is None else f'{bits:.2f}':>5}".rstrip()
            for name, rate, bits in rows
        ),
    ]


def write_json(results: Sequence[Result], part: Part, tools: dict[str, str], path: Path) -> None:
    """Write everything that was measured."""
    rows = [
        {
            **asdict(r.placed),
            "ultrascale": r.ultrascale,
            "lanes": r.lanes,
            "gb_s": round(r.gb_s, 2),
            "mb_per_lut": round(r.mb_per_lut, 3),
        }
        for r in results
    ]
    write(path, {"notes": [*HEADER, *part.notes], "tools": tools, "results": rows})
