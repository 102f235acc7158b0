"""Count the NIC's cells on UltraScale+, block by block, and say how many units a card holds by sums.

yosys synthesises; nothing is placed, since there is no free tool for it, so there is no clock rate either.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from oscar_hdl.flow.convert import ConvertError, block_name, convert_top
from oscar_hdl.flow.tools import FlowError, find, read_verilog, version, write_json, yosys
from oscar_hdl.flow.tops import TOPS

Cells = dict[str, float]
# The LUT sites of a distributed RAM or shift register.
SITES = {"RAM32M16": 8, "RAM32M": 4, "RAM64M8": 8, "RAM64M": 4, "RAM32X1D": 2, "RAM64X1D": 2}
SHARED = (
    "decoder_tables",
    "encoder_tables",
    "frame_receiver",
    "frame_sender",
    "row_memory",
)
UNIT = {"barrel_decoder": 1, "barrel_encoder": 1, "symbol_counts": 4}  # blocks of a barrel unit
CARD, THERE = "Alveo U55C", {"LUT": 1_304_000, "FF": 2_607_000, "DSP": 9_024, "RAMB36": 2_016}
FILL = 0.7  # of a card that a design can use and still be routed
MHZ, VALUES_A_CLOCK, VALUE_BITS = 250, 6.6, 8  # the clock is assumed; of a unit that decodes dense rows


def cells_of(verilog: Sequence[Path], top: str, out: Path) -> Cells:
    """Synthesise a block for UltraScale+ and return its cells.

    LUT counts distributed RAM and shift registers too; RAMB36 is in units of 36 kbit.
    """
    stat = out / f"{top}.xcup.json"
    script = read_verilog(verilog, out)
    script += f"synth_xilinx -family xcup -noiopad -noclkbuf -flatten -top {top}; "
    script += f"tee -q -o {stat.name} stat -json"
    yosys(out, script, makes=[stat.name], log=f"{top}.xcup.log")
    text = stat.read_text()
    counted = Counter(json.loads(text[text.index("{") :])["design"]["num_cells_by_type"])

    def total(*prefixes: str) -> int:
        return sum(n for kind, n in counted.items() if kind.startswith(prefixes))

    memory = sum(
        SITES.get(kind, 1) * n for kind, n in counted.items() if kind.startswith(("RAM32", "RAM64", "SRL"))
    )
    return {
        "LUT": total("LUT", "INV") + memory,
        "FF": total("FD"),
        "CARRY8": total("CARRY8") + math.ceil(total("CARRY4") / 2),
        "DSP": total("DSP48"),
        "RAMB36": total("RAMB36") + total("RAMB18") / 2,
    }


def added(parts: Mapping[str, Cells], numbers: Mapping[str, float]) -> Cells:
    """Return the cells of so many of each block."""
    names = next(iter(parts.values()))
    return {name: sum(parts[part][name] * n for part, n in numbers.items()) for name in names}


def card_lines(parts: Mapping[str, Cells], units: int) -> list[str]:
    """Return how many NICs of so many units a card holds, registers left out."""
    unit = added(parts, UNIT)
    nic = added({"unit": unit, **parts}, {"unit": units, **dict.fromkeys(SHARED, 1)})
    nics = {name: int(FILL * there / nic[name]) for name, there in THERE.items()}
    least = min(nics, key=lambda name: nics[name])
    whole = nics[least] * units
    rate = VALUE_BITS * VALUES_A_CLOCK * MHZ / 1000
    return [
        line("unit", unit),
        line(f"NIC of {units}", nic),
        f"# {CARD}, {FILL:.0%} full: {nics[least]} NICs, {whole} units; of {least} there is least.",
        f"# At {MHZ} MHz (assumed), {VALUES_A_CLOCK} values of {VALUE_BITS} bits: {rate * whole:,.0f} Gb/s",
    ]


def line(name: str, cells: Cells) -> str:
    """Return a line of the table."""
    return f"{name:<16} " + " ".join(f"{n:>8,g}" for n in cells.values())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    p = argparse.ArgumentParser(prog="python -m oscar_hdl.flow.placement.ultrascale", description=__doc__)
    p.add_argument("--out", type=Path, default=Path("build/ultrascale"), help="(%(default)s)")
    p.add_argument("--top", nargs="+", metavar="NAME", help="only these, no sums")
    p.add_argument("--units", type=int, default=2, choices=(1, 2, 4, 8), help="of a NIC (%(default)s)")
    p.add_argument(
        "--bus", type=int, default=128, choices=(64, 128, 256, 512), help="bits of its words (%(default)s)"
    )
    args = p.parse_args(argv)
    names = args.top or [*UNIT, *SHARED]
    found: dict[str, Cells] = {}
    try:
        tool = version(find("yosys"))
        print(f"# {tool.split(' (')[0]}, synth_xilinx -family xcup; {args.units} units, {args.bus} bits")
        print(f"{'block':<16} {'LUT':>8} {'FF':>8} {'CARRY8':>8} {'DSP':>8} {'RAMB36':>8}", flush=True)
        for name in names:
            top = name if name in TOPS or ":" in name else f"oscar_hdl.flow.placement.parts:{name}"
            block = block_name(top)
            folder = args.out / block
            sizes = {"units": args.units} if block in SHARED[3:] else {}
            if block in SHARED[3:5]:
                sizes["bus_bits"] = args.bus
            verilog = convert_top(top, "verilog", folder, sizes)
            found[block] = cells_of([verilog], block, folder)
            print(line(block, found[block]), flush=True)
    except (ConvertError, FlowError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    card = [] if args.top else card_lines(found, args.units)
    print("\n".join(card))
    write_json(args.out / "ultrascale.json", {"tool": tool, "blocks": found, "card": card})
    return 0


if __name__ == "__main__":
    sys.exit(main())
