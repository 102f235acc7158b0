"""Table, JSON and chart of placed blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from oscar import files
from oscar_hdl.fpga.flow import CELLS, LEAST_SHARED, Placed

HEADER = (
    "# COMB: LUT4 sites, carries and distributed RAM included. Out of context: pins cost nothing.",
    "# MHz is what nextpnr's timing model says: worst, median, best of the seeds. Above 300 MHz take it for",
    "# the model's output, not for a promise. In the 5G model a block RAM without output register answers in",
    "# 1.4 ns, a third of the plain part's 4.3 ns, more than its higher voltage explains: --device u asks",
    "# the plain part's model. Paths inside a multiplier between its own registers are not in either model.",
    f"# In an array (x N) clock enables and resets of fewer than {LEAST_SHARED} flip-flops are made logic.",
)
# Published throughput and area of other lossless coders, in Mb/s of uncompressed data and LUTs (6 inputs).
ANCHORS = (
    ("LOCO-ANS4-LS, tANS, 2 lanes", 3_000, 4_706),
    ("Vitis gzip static", 16_000, 35_000),
    ("Vitis zlib, Huffman kernel", 16_000, 38_800),
    ("Vitis zstd compress, 4 cores", 9_360, 40_000),
    ("Vitis zstd decompress", 3_704, 28_000),
)
CHARTED = ("nic_lane",)  # a decoder, an adder and an encoder with their tables: nothing is left out
VALUE_BITS = 8  # of a gradient value as it is stored; partial sums have more, so this understates


@dataclass(frozen=True)
class Result:
    """A placed design, its cells on UltraScale+ if asked for, and how many lanes it holds."""

    placed: Placed
    ultrascale: dict[str, float] | None = None
    lanes: int = 1

    @property
    def mb_per_lut(self) -> float:
        """Mb/s of values of 8 bits, one a clock and lane at the worst seed's clock, for each COMB."""
        return self.placed.worst * VALUE_BITS * self.lanes / max(1, self.placed.cells["COMB"])


def table(results: Sequence[Result]) -> str:
    """Return one line for each design."""
    lines = [
        *HEADER,
        f"{'block':<18} {' '.join(f'{name:>7}' for name in CELLS)}   MHz worst median best  Mb/s/LUT",
    ]
    for result in results:
        placed = result.placed
        cells = " ".join(f"{placed.cells[name]:>7,}" for name in CELLS)
        rates = f"{placed.worst:>9.0f} {placed.median:>6.0f} {placed.best:>4.0f}"
        whole = f"{result.mb_per_lut:>9.2f}" if placed.top in CHARTED else ""
        lines.append(f"{placed.name:<18} {cells} {rates} {whole}".rstrip())
    if any(result.ultrascale for result in results):
        lines += ["", "# UltraScale+ (synthesised, not placed)"]
        lines.append(f"{'block':<18} {'LUT':>7} {'FF':>7} {'DSP':>7} {'RAMB36':>7}")
        for result in results:
            if result.ultrascale:
                cells = " ".join(f"{n:>7,g}" for n in result.ultrascale.values())
                lines.append(f"{result.placed.name:<18} {cells}")
    return "\n".join(lines)


def write_json(results: Sequence[Result], tools: dict[str, str], path: Path) -> None:
    """Write everything that was measured."""
    rows = [
        {
            **asdict(r.placed),
            "ultrascale": r.ultrascale,
            "lanes": r.lanes,
            "least_shared": LEAST_SHARED if r.lanes > 1 else 1,
            "mb_per_lut": round(r.mb_per_lut, 3),
        }
        for r in results
    ]
    files.write_json(path, {"notes": HEADER, "tools": tools, "results": rows})


def chart(results: Sequence[Result], path: Path) -> bool:
    """Draw throughput per LUT, ours (LUT4 of an ECP5, worst seed) and published designs (LUT6).

    Returns False, and draws nothing, when no lane was placed.
    """
    lanes = [r for r in results if r.placed.top in CHARTED]
    if not lanes:
        return False
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    ours = [(f"OSCAR {r.placed.name}", r.mb_per_lut, "#0b6e99") for r in lanes]
    others = [(name, rate / luts, "#b8bec4") for name, rate, luts in ANCHORS]
    bars = sorted([*ours, *others], key=lambda bar: bar[1])
    figure, axes = pyplot.subplots(figsize=(7, 0.9 + 0.33 * len(bars)), layout="constrained")
    drawn = axes.barh([b[0] for b in bars], [b[1] for b in bars], color=[b[2] for b in bars])
    axes.bar_label(drawn, fmt="%.2f", padding=3)
    axes.set_xlabel("uncompressed Mb/s for each LUT (8 bits a value)")
    axes.margins(x=0.12)
    axes.spines[["top", "right"]].set_visible(False)
    files.save_figure(figure, path, dpi=150)
    pyplot.close(figure)
    return True
