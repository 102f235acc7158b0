"""What a lane of the converted RTL takes for a frame, written as the file that `link.codec: rtl` reads.

Clocks are counted under Verilator; how fast they tick and how many lanes go on one part are what `make fpga`
placed and routed, if its report is there, or else what the file that comes with the package says.

    python -m oscar_sim.clock --json build/rtl/nic.json
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from oscar.errors import ConfigError, OscarError
from oscar.provenance import revision
from oscar.timeline.nic import NicFile, load_nic
from oscar_hdl.params import LaneParams
from oscar_sim.lane import Lane
from oscar_sim.results_file import prepared
from oscar_sim.throughput import BLOCKS, command_clocks

TOP = "nic_lane"


def placed(report: Path) -> tuple[int, float, str]:
    """Return how many lanes `make fpga` placed together, their MHz, and where that is from."""
    try:
        found = json.loads(report.read_text(encoding="utf-8"))
        rows = [row for row in found["results"] if row["top"] == TOP]
        best = max(rows, key=lambda row: row["lanes"], default=None)
        if best is not None:
            mhz = min(best["mhz"].values())
            seeds = f"worst of {len(best['mhz'])} seeds"
            return int(best["lanes"]), round(float(mhz), 1), f"{report}: {best['name']}, {seeds}"
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{report}: expected the report of `make fpga`, got {error!r}") from None
    shipped = load_nic()
    return shipped.engines, shipped.mhz, shipped.mhz_from


def measure(lane: Lane, params: LaneParams, *, engines: int, mhz: float, mhz_from: str) -> NicFile:
    """Return the NIC of `engines` such lanes."""
    first, last = BLOCKS
    clocks = command_clocks(lane, params)
    return NicFile(
        name="ASC lane",
        revision=revision(),
        measured_by=f"make rtl: converted RTL of {params}, Verilator, frames of {first} and {last} blocks",
        engines=engines,
        mhz=mhz,
        mhz_from=mhz_from,
        clocks={op: (round(each, 5), round(once, 1)) for op, (each, once) in clocks.items()},
    )


def main(argv: list[str] | None = None) -> int:
    """Measure and write; return 1 when the lane does what it must not, 2 if it cannot run."""
    parser = argparse.ArgumentParser(prog="python -m oscar_sim.clock", description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, default=Path("build/rtl/nic.json"), metavar="OUT")
    parser.add_argument("--fpga", type=Path, default=Path("build/fpga/report.json"), metavar="REPORT")
    args = parser.parse_args(argv)
    from oscar_sim.verilator.lane import VerilatedLane

    try:
        prepared(args.json)
        engines, mhz, mhz_from = placed(args.fpga)
        lane = VerilatedLane(LaneParams())
    except OscarError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    try:
        nic = measure(lane, LaneParams(), engines=engines, mhz=mhz, mhz_from=mhz_from)
    except OscarError as error:  # the lane hangs, or says something it must not
        print(f"error: {error}", file=sys.stderr)
        return 1
    nic.write(args.json)
    for op, (each, once) in nic.clocks.items():
        print(f"# {op}: {each:.4f} clocks a value and {once:.0f} a frame")
    print(f"# {nic.text()}")
    print(f"# wrote {args.json}; `--set link.codec=rtl --set link.nic_file={args.json}` models times with it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
