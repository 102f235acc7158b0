"""Clocks of frames on a whole NIC of converted RTL, beside the time model, step by step.

Frames are of real gradients (workers' values and sums of a direct AllReduce), and of noise, whose blocks go
raw. They are sent and received, first each alone, then one right after the other. Every frame and sum is
checked. A step is a frame in a direction.

rtl: clocks alone. A sent frame takes from its command to its first word out, a received one from its last
word in to its last sum. front: of these, up to the first row. behind: from the last row to the first word.
follows: from the end of the frame before to this one's end, where frames follow each other. model_clocks and
follows_model are the time model's.

    python -m oscar_sim.step_clocks --units 1 --block-log2 11
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from oscar.errors import OscarError
from oscar.results import write_results
from oscar.tables import Row, Table
from oscar.timeline.units import received, received_front, send_front, sent
from oscar.timeline.units_head import head_reads
from oscar_hdl.coder.rows import frame_rows
from oscar_sim.frame_clocks import Given, Times, measure
from oscar_sim.results_file import prepared
from oscar_sim.whole import WholeNic
from oscar_studies.integers import pushed
from oscar_studies.workloads import WORKLOADS

MOST = 40_960  # values of a frame
MOST_FRAMES = 16  # of a model: each has a link of its own
MOST_ROWS_LOG2 = 14  # of the memory
COMMAND = 12  # clocks from a command to receive until the front of a frame in the store begins
NO_SYMBOL = 15  # the last symbol for which a sender's first tables are built
TABLE = Table(
    "model <12", "step >4", "way <7", "values >6", "live:live rows >9", "bytes >6", "front >5",
    "behind >6", "rtl:alone >6", "model_clocks:model >6", "ratio >6.3f", "follows >7",
    "follows_model:model >6", "follows_ratio:ratio >6.3f", "rate:values/clock >12.2f",
)  # fmt: skip


def frames_of(model: str, number: int, seed: int) -> list[Given]:
    """Return frames of a model's AllReduce, half of them sums; or of noise."""
    if model == "noise":
        rng = np.random.default_rng(seed)
        return [Given(rng.integers(-2048, 2048, 8192).astype(np.int16), None, n) for n in range(number)]
    every = pushed(model, 8, seed)
    chosen = every[: number // 2] + every[number // 2 - number :]
    return [Given(values[:MOST], classes[:MOST], n) for n, (values, classes) in enumerate(chosen)]


def steps(nic: WholeNic, name: str, frames: Sequence[Given]) -> Iterator[Row]:
    """Measure the frames; yield a row for each and direction."""
    log2 = nic.block_log2
    for way, model in (("send", sent), ("receive", received)):
        alone = measure(nic, frames, send=way == "send", apart=True)
        queue = measure(nic, frames, send=way == "send", apart=False)
        shape = nic.units, 1 << log2
        ends = queue.first_word if way == "send" else queue.end
        begin = float(queue.begin[0] + _front(nic, way, queue, 0, NO_SYMBOL))
        following = np.diff(model(queue.frames, *shape, begin, bus=nic.bus))
        last: int | None = NO_SYMBOL
        for n, coded in enumerate(alone.frames):
            start = float(alone.begin[n])
            front = _front(nic, way, alone, n, last)
            told = model([coded], *shape, start + front, bus=nic.bus)[0] - start
            last = coded.last
            took, first = _took(alone, n, way), int(alone.first_row[n] - alone.begin[n])
            follows, gap = (int(ends[n] - ends[n - 1]), float(following[n - 1])) if n else (0, 0.0)
            yield {
                "model": name, "step": n, "way": way, "values": coded.count,
                "live": int(np.count_nonzero(frame_rows(frames[n].values).classes)), "bytes": coded.size,
                "front": first, "behind": int(alone.first_word[n] - alone.last_row[n]), "rtl": took,
                "model_clocks": round(told),
                "ratio": told / took if n else None, "follows": follows, "follows_model": round(gap),
                "follows_ratio": gap / follows if follows else None,
                "rate": coded.count / (took - first) / nic.units,
            }  # fmt: skip


def _front(nic: WholeNic, way: str, times: Times, n: int, last: int | None) -> int:
    """Return clocks from `Times.begin` until the blocks of frame n may be dealt; no other is under way.

    last: the last symbol of the frame before. A command to receive comes when its frame does, or later; from
    then on the frame's head is read.
    """
    frame, block = times.frames[n], 1 << nic.block_log2
    if way == "send":
        return send_front(frame, nic.units, block, int(times.begin[n]), known=frame.last == last)
    read = head_reads(-(-frame.count // block), nic.bus).dealt
    waited = int(times.command[n] - times.begin[n]) + COMMAND
    return max(received_front(frame.size, nic.bus), waited + read)


def _took(times: Times, n: int, way: str) -> int:
    return int((times.first_word if way == "send" else times.end)[n] - times.begin[n])


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
    """Print the table; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m oscar_sim.step_clocks", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--units", type=int, default=1, choices=(1, 2, 4, 8), help="(%(default)s)")
    parser.add_argument(
        "--bus-bits", type=int, default=128, choices=(64, 128, 256, 512), help="(%(default)s)"
    )
    parser.add_argument("--block-log2", type=int, nargs="+", default=[11], choices=range(10, 18), help="(11)")
    add_frames(parser, usual=("numpy-lm", "noise"), frames=6)
    parser.add_argument("--json", type=Path, metavar="OUT")
    args = parser.parse_args(argv)
    check_frames(parser, args)
    try:
        prepared(args.json)
        every: list[Any] = []
        for log2 in args.block_log2:
            nic = WholeNic(
                units=args.units, bus_bits=args.bus_bits, block_log2=log2, rows_log2=MOST_ROWS_LOG2
            )
            print(f"# {args.units} units, a bus of {args.bus_bits} bits, blocks of {1 << log2} values")
            print(TABLE.heading)
            for model in args.models:
                for row in steps(nic, model, frames_of(model, args.frames, args.seed)):
                    every.append({"block": 1 << log2, **row})
                    print(TABLE.line(row), flush=True)
    except OscarError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for name in ("ratio", "follows_ratio"):
        off = np.array([abs(row[name] - 1) for row in every if row[name]])
        within = f"{np.count_nonzero(off <= 0.02)} of {off.size} within 2 %"
        print(f"# {name}: {within}, mean off {off.mean():.1%}, most {off.max():.1%}")
    if args.json:
        write_results(args.json, {"rows": every})
    return 0


if __name__ == "__main__":
    sys.exit(main())
