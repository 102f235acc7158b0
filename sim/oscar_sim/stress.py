"""Random frames through converted RTL: stalls, resets and damage, against format 2 in plain integers.

Every command is checked whole: payload, values, sums, tables and shifts are the reference's, bit for bit;
a payload that the reference refuses is refused, and nothing is lost or comes twice. After a reset, in any
clock of a frame, the same command runs again, and must be right. Each seed has a lane of its own, so it shows
the same again, whatever ran before it.

    python -m oscar_sim.stress --seeds 8 --clocks 10M
    python -m oscar_sim.stress --seed 991 --clocks 100M
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from oscar.errors import FrameError, OscarError
from oscar.files import write_json
from oscar_hdl.format2.reference import ReferenceCoder
from oscar_hdl.format2.state import TableState
from oscar_hdl.params import LaneParams
from oscar_sim.lane import Lane, LinkTables, Outcome, RtlError, Stress
from oscar_sim.lane_order import lane_order
from oscar_sim.nics import MAX_COUNT
from oscar_sim.results_file import prepared
from oscar_sim.seeds import fresh
from oscar_sim.vectors import real_gradients, width_of

OPS = ("encode", "hop", "last hop", "adopt", "recode", "damaged", "broken hop")
KINDS = ("real", "laplace", "wide", "sparse", "constant", "corners", "mixed")
PURE = KINDS[1:-1]


@dataclass
class Command:
    """One random frame: values in natural order, and what the lane is asked to do with them."""

    op: str
    kind: str
    values: np.ndarray
    local: np.ndarray
    classes: np.ndarray
    widths: tuple[int, int]
    stress: Stress

    def __str__(self) -> str:
        return f"{self.op}, {self.kind}, {self.values.size} values, widths {self.widths}, {self.stress}"


class Generator:
    """Random commands, repeatable; real gradients come from the NumPy language model.

    largest: values of the largest frame; width: bits that every sum fits.
    """

    def __init__(self, seed: int, *, largest: int, width: int = 16) -> None:
        self.rng = np.random.default_rng(seed)
        self.largest, self.top = largest, 1 << (width - 2)
        self.real, self.real_classes = real_gradients()

    def __call__(self) -> Command:
        rng = self.rng
        count = int(rng.choice([rng.integers(1, 40), rng.integers(1, 5000), rng.integers(1, self.largest)]))
        kind = str(rng.choice(KINDS))
        values, local, classes = self._data(kind, count)
        stress = Stress(
            idle=float(rng.choice([0, 0, 0.1, 0.5])),
            busy=float(rng.choice([0, 0, 0.1, 0.5])),
            seed=int(rng.integers(1, 1 << 40)),
            reset_at=int(rng.integers(rng.choice([40, 2 * count + 2000]))) if rng.random() < 0.2 else None,
        )
        width = width_of(values)
        return Command(
            str(rng.choice(OPS)), kind, values, local, classes, (width, width_of(values + local)), stress
        )

    def _data(self, kind: str, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rng = self.rng
        classes = rng.integers(0, 16, count).astype(np.uint8)
        if kind == "real":
            at = int(rng.integers(0, max(1, self.real[0].size - count)))
            count = min(count, self.real[0].size)
            piece = slice(at, at + count)
            return self.real[0][piece], self.real[1][piece], self.real_classes[piece]
        if kind == "mixed":
            parts = [self._data(str(rng.choice(PURE)), 1 + count // 3)[:2] for _ in range(3)]
            return (
                np.concatenate([p[0] for p in parts])[:count],
                np.concatenate([p[1] for p in parts])[:count],
                classes,
            )
        return self._draw(kind, count), self._draw(kind, count), classes

    def _draw(self, kind: str, count: int) -> np.ndarray:
        rng = self.rng
        if kind == "corners":  # zeros and the largest values of some width: any length of raw stream
            top = min(self.top, 1 << int(rng.integers(3, 15)))
            ends = rng.choice([-top, 1 - top, top - 1, rng.integers(-top, top)], count)
            return np.asarray(ends * (rng.random(count) < rng.random()))
        scale = {"laplace": float(rng.choice([0.3, 3, 30])), "wide": 3000.0, "sparse": 5.0, "constant": 9.0}
        values = np.rint(rng.laplace(0, scale[kind], count)).clip(-self.top, self.top - 1).astype(np.int64)
        if kind == "sparse":
            values *= rng.random(count) < 0.02
        return np.full(count, values[0]) if kind == "constant" else values


class Checker:
    """Runs commands on a lane and compares with the reference."""

    def __init__(self, lane: Lane, params: LaneParams, *, seed: int) -> None:
        self.lane, self.asc = lane, params.asc
        self.coder = ReferenceCoder(self.asc)
        self.rng = np.random.default_rng(seed + 1)
        self.states = [TableState.initial() for _ in range(2)]
        self.tally: Counter[str] = Counter()
        self.faults: list[str] = []

    def check(self, command: Command) -> None:
        """Run one command; note what is wrong with the outcome."""
        if self.rng.random() < 0.1:
            self.states = [TableState.initial() for _ in range(2)]
        decoding, adding = command.op != "encode", command.op.endswith("hop")
        encoding = command.op in ("encode", "hop", "recode", "broken hop")
        order = lane_order(command.values.size, self.asc.block)
        scaled = np.multiply(command.classes, 16, dtype=np.uint8)
        dec, enc = (state.copy() for state in self.states)
        given: dict[str, Any] = {"dec_width": command.widths[0], "stress": command.stress}
        expected, refused, payload = command.values, False, None
        if decoding:
            given["decoder"] = LinkTables.of(dec)
            payload = self.coder.encode(_int32(command.values), scaled, command.widths[0], dec.copy())
            if command.op in ("damaged", "broken hop"):
                payload = _damage(payload, self.rng)
            given["payload"] = payload
            after = dec.copy()
            try:
                expected = self.coder.decode(
                    memoryview(payload), expected.size, scaled, command.widths[0], after
                ).astype(np.int64)
                dec = after
            except FrameError:
                refused = True
        if adding or not decoding:
            local = command.local if decoding else command.values
            given["local"] = local.astype(np.int16)[order]
            expected = expected + command.local if adding else expected
        wanted = None
        if encoding:
            given["encoder"] = LinkTables.of(enc)
            given["enc_width"] = command.widths[adding]
            if command.op != "broken hop":  # its payload is not asked for: the sums may not fit
                wanted = self.coder.encode(_int32(expected), scaled, given["enc_width"], enc)
        self.tally["frames"] += 1
        try:
            outcome = self._outcome(command.classes[order], given)
        except RtlError as error:
            self.faults.append(f"frame {self.tally['frames']}: {command}: {error}")
        else:
            self._compare(command, outcome, refused, expected[order], wanted, dec, enc)

    def _outcome(self, classes: np.ndarray, given: dict[str, Any]) -> Outcome:
        """Run a command; after a reset once more, with a reset perhaps, until it is done."""
        while True:
            outcome = self.lane.run(classes, **given)
            self.tally["clocks"] += outcome.clocks
            if outcome.status != "reset":
                return outcome
            self.tally["resets"] += 1
            again = int(self.rng.integers(40)) if self.rng.random() < 0.3 else None
            given["stress"] = replace(given["stress"], reset_at=again)

    def _compare(
        self, command: Command, outcome: Outcome, refused: bool, sums: np.ndarray, wanted: bytes | None,
        dec: TableState, enc: TableState,
    ) -> None:  # fmt: skip
        self.tally[command.op] += 1
        self.tally["values"] += command.values.size
        self.tally["redos"] += outcome.redos
        problems = []
        if outcome.strobes:
            ends = (outcome.decoder, outcome.encoder)
            moved = [0 if end is None else command.values.size for end in ends]
            if outcome.strobes[:2] != moved:
                problems.append(f"value_in, value_out counted {outcome.strobes[:2]}, not {moved}")
        if outcome.decoder is not None:
            if refused != bool(outcome.error):
                problems.append(f"error {outcome.error}, the coder {'refuses' if refused else 'accepts'} it")
            elif not refused:
                if not np.array_equal(outcome.values, sums.astype(np.int16)):
                    problems.append("values differ")
                problems += _differences("decoder", outcome.decoder, dec)
        self.tally["refused"] += refused
        if wanted is not None and outcome.encoder is not None:
            if outcome.payload != wanted:
                problems.append("payload differs")
            problems += _differences("encoder", outcome.encoder, enc)
        if problems:
            self.faults.append(f"frame {self.tally['frames']}: {command}: {', '.join(problems)}")
        elif not refused:
            self.states = [dec if outcome.decoder else self.states[0], enc if wanted else self.states[1]]


def _int32(values: np.ndarray) -> np.ndarray:
    return values.astype(np.int32)


def _differences(end: str, after: LinkTables, state: TableState) -> list[str]:
    found = []
    if not np.array_equal(after.hist, state.hist.reshape(-1)):
        found.append(f"{end}'s histograms differ")
    if after.shift != int(state.shift[0]):
        found.append(f"{end}'s shift is {after.shift}, not {int(state.shift[0])}")
    return found


def _damage(payload: bytes, rng: np.random.Generator) -> bytes:
    data = bytearray(payload)
    kind = rng.integers(0, 4)
    if kind == 0 and len(data) > 2:  # cut off
        del data[2 * int(rng.integers(0, len(data) // 2)) :]
    elif kind == 1:  # more than there was
        data += rng.bytes(2 * int(rng.integers(1, 5)))
    else:
        for _ in range(int(rng.integers(1, 5))):
            at = int(rng.integers(0, min(len(data), 64) if kind == 2 else len(data)))
            data[at] ^= 1 << int(rng.integers(0, 8))
    return bytes(data)


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


def run(
    lane: Lane, params: LaneParams, *, clocks: int, seed: int, largest: int, progress: Progress
) -> dict[str, Any]:
    """Run random commands until the lane has seen `clocks` clocks; return what happened."""
    generate = Generator(seed, largest=largest, width=params.width_max)
    checker = Checker(lane, params, seed=seed)
    start = time.perf_counter()
    while checker.tally["clocks"] < clocks and len(checker.faults) < 20:
        checker.check(generate())
        done = checker.tally["clocks"] / clocks
        progress(f"seed {seed}: {done:6.1%}, mismatches: {len(checker.faults)}")
    seconds = time.perf_counter() - start
    return {"seed": seed, "seconds": seconds, "faults": checker.faults, **checker.tally}


def _clocks(text: str) -> int:
    scale = {"k": 1000, "M": 1_000_000}.get(text[-1:], 1)
    try:
        return int(float(text[:-1] if scale > 1 else text) * scale)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"expected a number such as 10M or 200k, got {text!r}") from None


def _parser() -> argparse.ArgumentParser:
    lane = LaneParams()
    parser = argparse.ArgumentParser(prog="python -m oscar_sim.stress", description=__doc__.split("\n")[0])
    parser.add_argument(
        "--clocks", type=_clocks, default=5_000_000, help="to simulate with each seed, 10M or 200k (5M)"
    )
    parser.add_argument("--seeds", type=int, default=4, help="how many new seeds (%(default)s)")
    parser.add_argument("--seed", type=int, nargs="+", help="these seeds instead, as an earlier run had them")
    parser.add_argument("--largest", type=int, default=20_000, help="values in a frame (%(default)s)")
    parser.add_argument("--block-log2", type=int, default=lane.block_log2, help="of the lane (%(default)s)")
    parser.add_argument("--width-max", type=int, default=lane.width_max, help="of the lane (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="OUT")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the stress test; return the exit status (1: something differed, 2: it cannot run)."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.clocks < 1 or not 2 <= args.largest <= MAX_COUNT or args.seeds < 1 or min(args.seed or [0]) < 0:
        parser.error(
            f"expected at least one clock and seed, 2 to {MAX_COUNT:,} values in a frame, seeds of 0 or more"
        )
    try:
        params = LaneParams(block_log2=args.block_log2, width_max=args.width_max)
    except ValueError as error:
        parser.error(str(error))
    from oscar_sim.verilator.lane import VerilatedLane

    try:
        prepared(args.json)
        print("# compiling the lane, unless it is as it was (a minute or two)", file=sys.stderr)
        VerilatedLane(params)
    except OscarError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"# converted RTL of a lane under Verilator against the reference; {params}")
    print(
        "# random idle gaps, back-pressure, resets in any clock, damaged payloads; raw blocks ask for redos"
    )
    names = ("clocks", "frames", "values", *OPS, "refused", "resets", "redos")
    print(" ".join(f"{name:>10}" for name in ("seed", *names, "mismatches")))
    progress, runs = Progress(), []
    for seed in args.seed or [fresh() for _ in range(args.seeds)]:
        found = run(
            VerilatedLane(params), params, clocks=args.clocks, seed=seed, largest=args.largest,
            progress=progress,
        )  # fmt: skip
        runs.append(found)
        progress.clear()
        cells = (seed, *(found.get(name, 0) for name in names), len(found["faults"]))
        print(" ".join(f"{cell:>10}" for cell in cells), flush=True)
        for fault in found["faults"]:
            print(f"  {fault}", flush=True)
    faults = sum(len(found["faults"]) for found in runs)
    print(
        f"# {len(runs)} seeds, {sum(found['clocks'] for found in runs)} clocks, "
        f"{sum(found['seconds'] for found in runs):.1f} s, mismatches: {faults}"
    )
    if args.json:
        write_json(args.json, {"ok": not faults, "runs": runs})
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
