"""Random frames through converted RTL: stalls, resets and damage, against format 4 in software.

Barrel decoders and encoders get blocks of real and random frames; every bit that they give is compared:
values, sums, descriptors, bytes, directory entries and counts. Memory and bytes are not always ready, resets
strike in any clock, after which the block runs again, and damaged blocks are refused exactly where the
software refuses them. A whole NIC (receiver, sender, link_tables and raw_packer with it) gets
commands and frames, right and wrong ones (whole_stress.py); an attention unit gets heads
(attention_stress.py); a switch's slice, whose frames come at four ports, a list (switch_stress.py). The
unit "floats" is a NIC with a quantiser, to which values of lists come as floats.
Each seed shows the same again, whatever ran before it.

    python -m oscar_sim.stress --seeds 20 --clocks 1G --share
    python -m oscar_sim.stress --seed 991 --unit barrel_decoder
    python -m oscar_sim.stress --day --seeds 1 --clocks 20M --share   # what CI runs
"""

from __future__ import annotations

import argparse
import datetime
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from oscar.errors import OscarError
from oscar.results import write_results
from oscar_sim.attention_stress import AttentionUnit, attended
from oscar_sim.batches import DecoderBatch, EncoderBatch, run
from oscar_sim.blocks import Coder
from oscar_sim.frames import Generator
from oscar_sim.list_stress import floated, listed
from oscar_sim.results_file import prepared
from oscar_sim.seeds import fresh
from oscar_sim.switch_stress import switched
from oscar_sim.units import Unit
from oscar_sim.whole import WholeNic, WholeSwitch
from oscar_sim.whole_stress import whole

# Of clocks, about as long for each: NICs are slow.
SHARE = {
    "barrel_encoder": 8,
    "barrel_decoder": 8,
    "nic": 3,
    "list": 1,
    "floats": 1,
    "switch": 1,
    "attention": 1,
}
BATCH_CLOCKS = 400_000  # about; a batch is checked when it is over
RESETS, DAMAGE = 0.1, 0.2  # shares of blocks
MOST_FAULTS = 20
Check = Callable[[Any, Generator, int, Counter[str]], list[str]]


def _frames(generate: Generator, *, software: bool) -> list[Any]:
    frames, rows = [], 0
    while rows * 40 < BATCH_CLOCKS:
        frames.append(generate(software=software))
        rows += frames[-1].rows.means.size
    return frames


def decode(unit: Unit, generate: Generator, seed: int, tally: Counter[str]) -> list[str]:
    """Run a batch of frames through a decoder; return what was wrong."""
    frames = _frames(generate, software=True)
    batch = DecoderBatch(frames, Coder(), generate.rng, damage=DAMAGE, resets=RESETS)
    return _run(unit, batch, frames, seed, tally)


def encode(unit: Unit, generate: Generator, seed: int, tally: Counter[str]) -> list[str]:
    """Run a batch of frames through an encoder; return what was wrong."""
    frames = _frames(generate, software=False)
    return _run(unit, EncoderBatch(frames, generate.rng, resets=RESETS), frames, seed, tally)


def _run(
    unit: Unit, batch: DecoderBatch | EncoderBatch, frames: list[Any], seed: int, tally: Counter[str]
) -> list[str]:
    clocks, done, result = run(unit, batch, seed)
    blocks = batch.batch.blocks
    tally["clocks"] += clocks
    tally["frames"] += len(frames)
    tally["blocks"] += done
    tally["values"] += int(blocks["count"][:done].sum())
    tally["resets"] += int(blocks["resets"].sum())
    tally["refused"] += int(np.count_nonzero(blocks["bad"]))
    tally["hangs"] += sum("hangs" in fault for fault in result)
    tally["mismatches"] += len(result)
    return result


def converted(kind: str, units: int = 1) -> Any:
    """Return the converted RTL of one of CHECKS under Verilator, compiled unless it is as it was.

    units: of a NIC or a switch's slice, whose bus is as wide as they need.
    """
    if kind == "attention":
        return AttentionUnit()
    if kind == "switch":
        return WholeSwitch(units=units, bus_bits=64 * units, store_log2=13)
    if kind == "floats":
        return WholeNic(units=units, bus_bits=64 * units, floats=True)
    return WholeNic(units=units, bus_bits=64 * units) if kind in ("nic", "list") else Unit(kind)


CHECKS: dict[str, Check] = {
    "barrel_encoder": encode,
    "barrel_decoder": decode,
    "nic": whole,
    "list": listed,
    "floats": floated,
    "switch": switched,
    "attention": attended,
}
USUAL = [kind for kind in CHECKS if kind not in ("floats", "switch")]  # these take minutes more to compile
COLUMNS = ("clocks", "frames", "blocks", "values", "resets", "refused", "hangs", "mismatches")


class Progress:
    """Says how far a long run is: in place on a terminal, otherwise in a line every 30 seconds."""

    def __init__(self) -> None:
        self.terminal = sys.stderr.isatty()
        self.shown = time.perf_counter()

    def __call__(self, text: str) -> None:
        if time.perf_counter() - self.shown > (0.5 if self.terminal else 30):
            self.shown = time.perf_counter()
            print(f"\r{text}" if self.terminal else f"# {text}", end="" if self.terminal else "\n",
                  file=sys.stderr, flush=True)  # fmt: skip

    def clear(self) -> None:
        """Begin a line for something else."""
        if self.terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def stress(
    kind: str,
    unit: Unit | WholeNic | AttentionUnit,
    *,
    clocks: int,
    seed: int,
    largest: int,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Run random batches until the unit has seen `clocks` clocks; return what happened."""
    generate, tally, result = Generator(seed, largest=largest), Counter[str](), list[str]()
    start, number = time.perf_counter(), 0
    while tally["clocks"] < clocks and len(result) < MOST_FAULTS:
        number += 1
        result += CHECKS[kind](unit, generate, seed * 1000 + number, tally)
        if progress is not None:
            progress(f"{kind}, seed {seed}: {tally['clocks'] / clocks:6.1%}, mismatches: {len(result)}")
    seconds = time.perf_counter() - start
    counted = {name: tally[name] for name in COLUMNS}
    return {"unit": kind, "seed": seed, "seconds": seconds, "faults": result[:MOST_FAULTS], **counted}


def _clocks(text: str) -> int:
    scale = {"k": 1000, "M": 1_000_000, "G": 1_000_000_000}.get(text[-1:], 1)
    try:
        return int(float(text[:-1] if scale > 1 else text) * scale)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"expected a number such as 10M or 200k, got {text!r}") from None


def of_the_day() -> int:
    """Return the seed that all runs of a day share, so that CI tries new ones and can be followed."""
    return int(datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%d"))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m oscar_sim.stress", description=__doc__.split("\n")[0])
    parser.add_argument("--clocks", type=_clocks, default=20_000_000, help="with each seed and unit (20M)")
    parser.add_argument(
        "--share",
        action="store_true",
        help="all seeds and units share the clocks; a NIC, as it is slow, gets 4 %%",
    )
    parser.add_argument("--seeds", type=int, default=4, help="how many new seeds (%(default)s)")
    seeds = parser.add_mutually_exclusive_group()
    seeds.add_argument("--seed", type=int, nargs="+", help="these seeds instead, as an earlier run had them")
    seeds.add_argument("--day", action="store_true", help="the seed of the day instead, and those after it")
    parser.add_argument(
        "--unit", nargs="+", choices=tuple(CHECKS), default=USUAL, help="(all but floats and switch)"
    )
    parser.add_argument("--units", type=int, choices=(1, 2, 4, 8), default=1, help="of a NIC (%(default)s)")
    parser.add_argument("--largest", type=int, default=30_000, help="values in a frame (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="OUT")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the stress test; return the exit status (1: something differed, 2: it cannot run)."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.clocks < 1 or not 2 <= args.largest < 1 << 18 or args.seeds < 1 or min(args.seed or [0]) < 0:
        parser.error(
            "expected at least one clock and seed, 2 to 2^18 - 1 values in a frame, seeds of 0 or more"
        )
    seeds = args.seed or [of_the_day() + n if args.day else fresh() for n in range(args.seeds)]
    try:
        prepared(args.json)
        units = {}
        for kind in args.unit:
            print(
                f"# {kind}: converted and compiled, unless it is as it was (up to a minute)", file=sys.stderr
            )
            units[kind] = converted(kind, args.units)
    except OscarError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("# converted RTL under Verilator against the software; stalls, resets in any clock, damaged blocks")
    print(" ".join(f"{name:>10}" for name in ("unit", "seed", *COLUMNS, "Mclocks/s")))
    progress, runs = Progress(), []
    for seed in seeds:
        for kind, unit in units.items():
            clocks = args.clocks
            if args.share:
                clocks = -(-clocks * SHARE[kind] // sum(SHARE[k] for k in units) // len(seeds))
            result = stress(kind, unit, clocks=clocks, seed=seed, largest=args.largest, progress=progress)
            runs.append(result)
            progress.clear()
            speed = f"{result['clocks'] / result['seconds'] / 1e6:.2f}"
            cells = (kind, seed, *(result[name] for name in COLUMNS), speed)
            print(" ".join(f"{cell:>10}" for cell in cells), flush=True)
            for fault in result["faults"]:
                print(f"  {fault}", flush=True)
            if result["faults"]:
                again = f"--unit {kind} --units {args.units} --seed {seed} --clocks {clocks}"
                again += f" --largest {args.largest}"
                print(f'  WRONG with seed {seed}; to see it again: make stress ARGS="{again}"', flush=True)
            total = {name: sum(result[name] for result in runs) for name in COLUMNS}
            if args.json:  # each time: a run of hours may be stopped
                write_results(args.json, {"ok": not total["mismatches"], "total": total, "runs": runs})
    seconds = sum(result["seconds"] for result in runs)
    said = ", ".join(f"{total[name]:,} {name}" for name in COLUMNS)
    print(f"# {len(seeds)} seeds, {seconds:.1f} s: {said}")
    return 1 if total["mismatches"] else 0


if __name__ == "__main__":
    sys.exit(main())
