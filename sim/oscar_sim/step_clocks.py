"""Measures the clocks of frames on whole NICs of converted RTL, and writes coefficients into the NICs' files.

Frames are of real gradients (workers' values and sums of a direct AllReduce, in several sizes, as they are
and coarser), and of noise, whose blocks go raw. They are sent and received, first each alone, then one right
after the other. Every frame and sum is checked. Coefficients are fitted so that relative errors are small.

    python -m oscar_sim.step_clocks host/oscar/timeline/nics/*.json --write

A sent frame takes from its command to its first word out, a received one from its last word in until it is
reported.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from oscar.errors import ConfigError, OscarError
from oscar.provenance import provenance
from oscar.results import write_results
from oscar.tables import Table
from oscar.timeline.nic import NIC, NicFile, load_nic
from oscar_sim.fit_clocks import Queue, fit_nic
from oscar_sim.frame_clocks import Given, measure
from oscar_sim.results_file import prepared
from oscar_sim.whole import WholeNic
from oscar_studies.integers import pushed
from oscar_studies.workloads import WORKLOADS

MOST = 40_960  # values of a frame
MOST_FRAMES = 16  # of a model: each has a link of its own
ROWS_LOG2 = 14  # of the memory
PARTS = 1, 2, 8, 32  # of a frame's values: the first part is taken
COARSER = 1, 8  # divisors of values
JOINED, JOINED_FRAMES = 1 << 16, 3  # values of frames that are made of several, and how many there are
NOISE = (2048, 4096), (2048, 2048), (2, 4096)  # largest magnitude and number of values: raw blocks are slow
NOISY = 3  # frames of each kind of noise
RECORDED = 4  # every so many queues, one is recorded
TABLE = Table(
    "nic <12", "way <7", "frames >6", "clocks <15", "median:alone, median >13.1%", "worst >7.1%",
    "queues >6", "queue_median:queues, median >14.1%", "queue_worst:worst >7.1%",
)  # fmt: skip


def frames_of(model: str, number: int, seed: int) -> list[Given]:
    """Return frames of a model's AllReduce, half of them sums; or of noise."""
    if model == "noise":
        rng = np.random.default_rng(seed)
        return [Given(rng.integers(-2048, 2048, 8192).astype(np.int16), None, n) for n in range(number)]
    every = pushed(model, 8, seed)
    chosen = every[: number // 2] + every[number // 2 - number :]
    return [Given(values[:MOST], classes[:MOST], n) for n, (values, classes) in enumerate(chosen)]


def queues_of(model: str, number: int, seed: int) -> Iterator[list[Given]]:
    """Yield lists of frames: of a model's AllReduce in several sizes, or of several kinds of noise."""
    if model == "noise":
        rng = np.random.default_rng(seed)
        for most, size in NOISE:
            yield [Given(rng.integers(-most, most, size).astype(np.int16), None, n) for n in range(NOISY)]
        return
    frames = frames_of(model, number, seed)
    yield [_joined(frames[n % len(frames) % 2 :], n) for n in range(JOINED_FRAMES)]
    sizes = dict.fromkeys(max(1024, frames[0].values.size // parts) for parts in PARTS)
    for size, coarser in ((size, coarser) for size in sizes for coarser in COARSER):
        yield [
            Given(np.rint(one.values[:size] / coarser).astype(np.int16), one.positions[:size], one.link)
            for one in frames
            if one.positions is not None
        ]


def _joined(frames: Sequence[Given], link: int) -> Given:
    """Return a frame of JOINED values: those of all frames, again and again."""
    values, positions = (
        np.concatenate([getattr(one, name) for one in frames]) for name in ("values", "positions")
    )
    return Given(np.resize(values, JOINED), np.resize(positions, JOINED), link)


def measured(nic: WholeNic, model: str, number: int, seed: int) -> Iterator[Queue]:
    """Measure a model's frames; yield a queue for each list of them and each direction."""
    for frames in queues_of(model, number, seed):
        for way in NIC:
            alone, queue = (
                measure(nic, frames, send=way == "encode", apart=apart) for apart in (True, False)
            )
            yield Queue(
                model, seed, way, [frame.values.size for frame in frames],
                [cells.tolist() for cells in alone.cells], (alone.end - alone.begin).tolist(),
                (alone.first_row - alone.begin).tolist(), (queue.begin - queue.begin[0]).tolist(),
                (queue.end - queue.begin[0]).tolist(),
            )  # fmt: skip


def add_frames(parser: argparse.ArgumentParser, *own: str, usual: Sequence[str], frames: int) -> None:
    """Add the options that say of which models frames are, how many, of which seed.

    own: models besides workloads. usual, frames: defaults.
    """
    parser.add_argument(
        "--models",
        nargs="+",
        choices=(*WORKLOADS, "noise", *own),
        default=usual,
        help=f"({' '.join(usual)}); cnn, transformer and embedding need torch",
    )
    parser.add_argument(
        "--frames", type=int, default=frames, help=f"of a model, 1 to {MOST_FRAMES} (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")


def check_frames(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """End the program where an option of add_frames is out of range."""
    if not 1 <= args.frames <= MOST_FRAMES or args.seed < 0:
        told = f"--frames {args.frames} --seed {args.seed}"
        parser.error(f"expected 1 to {MOST_FRAMES} frames and a seed of 0 or more, got {told}")


def main(argv: list[str] | None = None) -> int:
    """Measure, fit, print the errors; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m oscar_sim.step_clocks", description=__doc__.split("\n")[0]
    )
    parser.add_argument("nic", type=Path, nargs="+", help="files of NICs: units, bus and block are theirs")
    add_frames(parser, usual=("numpy-lm", "numpy-digits", "logistic", "noise"), frames=6)
    parser.add_argument("--seeds", type=int, default=2, help="trainings of a model (%(default)s)")
    parser.add_argument("--write", action="store_true", help="write the coefficients into the files")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write what was measured")
    parser.add_argument("--from-json", type=Path, metavar="IN", help="fit to what --json wrote")
    parser.add_argument("--record", type=Path, metavar="OUT", help="write a few frames, for the tests")
    args = parser.parse_args(argv)
    check_frames(parser, args)
    every: dict[str, list[Queue]] = {}
    try:
        prepared(args.json)
        known = _read(args.from_json) if args.from_json else {}
        print(TABLE.heading)
        for path in args.nic:
            nic = load_nic(str(path))
            every[path.stem] = queues = known.get(path.stem) or list(_measured(nic, args))
            nic = fit_nic(nic, queues, source=_source(nic, queues), revision=provenance()["revision"])
            print("\n".join(_lines(path.stem, nic, queues)), flush=True)
            if args.write:
                nic.write(path)
    except OscarError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if args.json:
        write_results(args.json, {name: [asdict(queue) for queue in own] for name, own in every.items()})
    if args.record:
        write_results(args.record, {name: list(_recorded(own)) for name, own in every.items()})
    return 0


def _measured(nic: NicFile, args: argparse.Namespace) -> Iterator[Queue]:
    """Measure the frames that the options ask for, on a NIC as its file describes it."""
    whole = WholeNic(
        units=nic.units, bus_bits=nic.bus_bits or 64 * nic.units, block_log2=nic.block.bit_length() - 1,
        rows_log2=ROWS_LOG2,
    )  # fmt: skip
    for model in args.models:
        for seed in range(args.seed, args.seed + args.seeds):
            print(f"# {nic.units} units: frames of {model}, seed {seed}", file=sys.stderr, flush=True)
            yield from measured(whole, model, args.frames, seed)


def _read(path: Path) -> dict[str, list[Queue]]:
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        return {
            name: [Queue(**queue) for queue in queues]
            for name, queues in tree.items()
            if isinstance(queues, list)
        }
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"{path}: expected what --json of this command wrote, got: {error}") from None


def _source(nic: NicFile, queues: Sequence[Queue]) -> str:
    models = ", ".join(dict.fromkeys(queue.model for queue in queues))
    seeds = len({queue.seed for queue in queues})
    frames = sum(len(queue.values) for queue in queues) // len(NIC)
    return (
        f"python -m oscar_sim.step_clocks: {frames} frames of {models}, {seeds} seeds, alone and in queues, "
        f"both ways through a NIC of converted RTL (Verilator, units: {nic.units})"
    )


def _lines(name: str, nic: NicFile, queues: Sequence[Queue]) -> Iterator[str]:
    """Yield the lines of the table for a NIC."""
    for way in NIC:
        own, stage = [queue for queue in queues if queue.way == way], nic.stage(way)
        alone = [clocks for queue in own for clocks in queue.alone]
        yield TABLE.line({
            "nic": name, "way": way, "frames": len(alone), "queues": len(own),
            "clocks": f"{min(alone):,} .. {max(alone):,}", **stage.error,
        })  # fmt: skip


def _recorded(queues: Sequence[Queue]) -> Iterator[dict[str, object]]:
    """Yield the first and the last frame of some queues, with their clocks alone."""
    for way in NIC:
        for queue in [queue for queue in queues if queue.way == way][::RECORDED]:
            for at in (0, -1):
                frame = {"values": queue.values[at], "cells": queue.cells[at], "clocks": queue.alone[at]}
                yield {"way": way, "model": queue.model, **frame}


if __name__ == "__main__":
    sys.exit(main())
