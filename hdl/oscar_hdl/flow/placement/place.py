"""Convert, synthesise, pack, place and report blocks; fail when one is slower than its floor."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from oscar_hdl.flow.convert import ConvertError, block_name, check_vhdl, convert_all, convert_top
from oscar_hdl.flow.placement import ecp5, gowin, report
from oscar_hdl.flow.placement.nextpnr import place
from oscar_hdl.flow.placement.packing import Packed
from oscar_hdl.flow.placement.ultrascale import cells_of
from oscar_hdl.flow.tools import FlowError, find, version, write_text
from oscar_hdl.flow.tops import TOP_HELP, TOPS, WITH_HELP, parameter
from oscar_hdl.flow.tops import find as find_top

ARRAY = "oscar_hdl.flow.placement.pins:nic_array"
FLOWS = {name: flow for flow in (ecp5, gowin) for name in flow.PARTS}


def floor(text: str) -> tuple[str, float]:
    """Parse NAME=MHZ."""
    name, equals, mhz = text.partition("=")
    try:
        if equals and float(mhz) > 0:
            return name, float(mhz)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"expected NAME=MHZ, a top and a number above 0, got {text!r}")


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    p = argparse.ArgumentParser(prog="python -m oscar_hdl.flow.placement.place", description=__doc__)
    p.add_argument("--out", type=Path, default=Path("build/fpga"), help="folder for results (%(default)s)")
    p.add_argument("--top", nargs="+", metavar="NAME", help=TOP_HELP)
    p.add_argument("--seeds", type=int, default=4, help="seeds of the placer, from 1 (%(default)s)")
    p.add_argument("--lanes", type=int, default=1, help="place N copies of each top together (%(default)s)")
    p.add_argument(
        "--array", type=int, nargs="+", default=[], metavar="U",
        help="place whole NICs of U barrel units, their memory with them; no tops unless --top",
    )  # fmt: skip
    p.add_argument("--part", choices=tuple(FLOWS), default="lfe5um5g_85f", help="to place on (%(default)s)")
    p.add_argument("--source", choices=("verilog", "vhdl"), default="verilog", help="vhdl: by way of GHDL")
    p.add_argument(
        "--floor", type=floor, nargs="+", default=[], metavar="NAME=MHZ", help="fail if the worst is lower"
    )
    p.add_argument(
        "--no-packing", action="store_true", help="leave flip-flops of an ECP5 where yosys put them"
    )
    p.add_argument("--no-ultrascale", action="store_true", help="do not count cells on UltraScale+")
    p.add_argument("--path", action="store_true", help="print the slowest path of the worst seed")
    p.add_argument(
        "--with", type=parameter, nargs="+", default=[], metavar="NAME=VALUE", dest="parameters",
        help=WITH_HELP,
    )  # fmt: skip
    return p


def measure(name: str, args: argparse.Namespace) -> report.Result:
    """Take one top through the flow."""
    block = block_name(name)
    print(f"{block}: synthesis", flush=True)
    folder = args.out / block
    folder.mkdir(exist_ok=True)
    hdl = args.out / "hdl" / ("synth" if args.source == "vhdl" else "verilog") / f"{block}.v"
    flow, part = FLOWS[args.part], FLOWS[args.part].PARTS[args.part]
    shown = block if args.lanes == 1 else f"{block} x {args.lanes}"
    if args.lanes == 1 and part.pinless:
        top = block
        packed = flow.synthesise([hdl], block, folder, packing=not args.no_packing)
    else:
        top = f"{block}_x{args.lanes}"
        packed = flow.synthesise_array(hdl, block, top, args.lanes, folder, packing=not args.no_packing)
    if packed != Packed():
        print(
            f"{block}: packed {packed.factors} pairs of factors, {packed.products} products and "
            f"{packed.reads} reads, {packed.flip_flops} flip-flops fewer",
            flush=True,
        )
    netlist, seeds = folder / f"{top}.netlist.json", range(1, args.seeds + 1)
    placed = place(
        shown, block, netlist, seeds, part, packed, note=lambda line: print(f"{shown}: {line}", flush=True)
    )
    if args.path:
        print("\n".join(placed.slowest))
    counted = None if args.no_ultrascale or args.lanes > 1 else cells_of([hdl], block, folder)
    return report.Result(placed, counted, args.lanes)


def measure_array(units: int, args: argparse.Namespace) -> report.Result:
    """Place a NIC of so many units behind four pins."""
    shown, began = f"NIC of {units}", time.monotonic()

    def note(line: str) -> None:
        print(f"{shown}: {line} ({time.monotonic() - began:.0f} s)", flush=True)

    folder = args.out / f"array_{units}"
    shutil.rmtree(folder, ignore_errors=True)
    whole = convert_top(ARRAY, "verilog", folder, {**dict(args.parameters), "units": units})
    note("converted")
    flow, part = FLOWS[args.part], FLOWS[args.part].PARTS[args.part]
    top, seeds = block_name(ARRAY), range(1, args.seeds + 1)
    packed = flow.synthesise([whole], top, folder, packing=not args.no_packing, least=ecp5.LEAST_SHARED)
    note("synthesised")
    netlist = folder / f"{top}.netlist.json"
    placed = place(shown, top, netlist, seeds, part, packed, placer=part.array_placer, note=note)
    if args.path:
        print("\n".join(placed.slowest))
    return report.Result(placed, None, units)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status: 1 for an error, 2 for a block below its floor."""
    args = parser().parse_args(argv)
    if args.seeds < 1 or args.lanes < 1:
        parser().error(f"expected at least one seed and one lane, got {args.seeds} and {args.lanes}")
    names = args.top or ([] if args.array else list(TOPS))
    floors, part = dict(args.floor), FLOWS[args.part].PARTS[args.part]
    try:
        for name in names:
            find_top(name)
        unknown = set(floors) - {block_name(name) for name in names}
        if unknown:
            raise ValueError(f"a floor for {', '.join(sorted(unknown))}, which is not placed")
        tools = {tool: version(find(tool)) for tool in ("yosys", part.tool)}
        for old in ("hdl", *map(block_name, names)):
            shutil.rmtree(args.out / old, ignore_errors=True)
        for old in ("report.txt", "report.json"):
            (args.out / old).unlink(missing_ok=True)
        args.out.mkdir(parents=True, exist_ok=True)
        if names:
            hdl = args.out / "hdl"
            if args.source == "vhdl":
                convert_all(names, hdl, dict(args.parameters), languages=["vhdl"])
                check_vhdl(names, hdl)
            else:
                for name in names:
                    convert_top(name, "verilog", hdl, dict(args.parameters))
        results = [measure(name, args) for name in names]
        results += [measure_array(units, args) for units in args.array]
    except (ConvertError, FlowError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    text = report.table(results, part)
    print(f"\n{text}")
    write_text(args.out / "report.txt", text + "\n")
    tools |= {"part": args.part, "source": args.source}
    report.write_json(results, part, tools, args.out / "report.json")
    print(f"\nreport.txt and report.json in {args.out}")
    slow = [r.placed for r in results if r.placed.worst < floors.get(r.placed.top, 0)]
    for placed in slow:
        wanted = f"its floor is {floors[placed.top]:.0f}"
        print(f"error: {placed.name} reaches {placed.worst:.0f} MHz, {wanted}", file=sys.stderr)
    return 2 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
