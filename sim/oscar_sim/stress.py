"""Random frames through converted RTL: stalls, resets and damage, against the host's coder.

Every command is checked whole: payload, values, sums, tables and shifts are the compiled coder's, bit for
bit; a payload that the coder refuses is refused, and nothing is lost or comes twice. After a reset in
mid-frame the same command runs again, and must be right.

    python -m oscar_sim.stress --clocks 10M
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from oscar.asc.compiled import CompiledCoder
from oscar.asc.state import TableState
from oscar.bench._integers import integers
from oscar.errors import FrameError, OscarError
from oscar.files import write_json
from oscar.workloads import make_workload
from oscar_hdl.params import LaneParams
from oscar_sim.lane import Lane, LinkTables, Outcome, RtlError, Stress
from oscar_sim.lane_order import lane_order
from oscar_sim.nics import MAX_COUNT
from oscar_sim.results_file import prepared
from oscar_sim.vectors import width_of

OPS = ("encode", "hop", "last hop", "adopt", "damaged")
KINDS = ("real", "laplace", "wide", "sparse", "constant", "mixed")


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


class Generator:
    """Random commands, repeatable; real gradients come from the NumPy language model."""

    def __init__(self, seed: int, *, largest: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.largest = largest
        workload = make_workload("numpy-lm", nodes=4, seed=seed)
        last = list(integers(workload, 3))[-1]
        self.real, self.real_classes = last.values, last.classes

    def __call__(self) -> Command:
        rng = self.rng
        count = int(rng.choice([rng.integers(1, 40), rng.integers(1, 5000), rng.integers(1, self.largest)]))
        kind = str(rng.choice(KINDS))
        values, local, classes = self._data(kind, count)
        stress = Stress(
            idle=float(rng.choice([0, 0, 0.1, 0.5])),
            busy=float(rng.choice([0, 0, 0.1, 0.5])),
            seed=int(rng.integers(1, 1 << 40)),
            reset_at=int(rng.integers(1, 2 * count + 2000)) if rng.random() < 0.2 else 0,
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
            return (
                self.real[0][piece].astype(np.int64),
                self.real[1][piece].astype(np.int64),
                self.real_classes[piece],
            )
        if kind == "mixed":
            parts = [self._data(str(rng.choice(KINDS[1:5])), 1 + count // 3)[:2] for _ in range(3)]
            return (
                np.concatenate([p[0] for p in parts])[:count],
                np.concatenate([p[1] for p in parts])[:count],
                classes,
            )
        scale = {"laplace": float(rng.choice([0.3, 3, 30])), "wide": 3000.0, "sparse": 5.0, "constant": 9.0}[
            kind
        ]

        def draw() -> np.ndarray:
            values = np.clip(np.rint(rng.laplace(0, scale, count)), -16000, 16000).astype(np.int64)
            if kind == "sparse":
                values *= rng.random(count) < 0.02
            return np.full(count, values[0]) if kind == "constant" else values

        return draw(), draw(), classes


class Checker:
    """Runs commands on a lane and compares with the host's coder."""

    def __init__(self, lane: Lane, params: LaneParams, *, seed: int) -> None:
        self.lane, self.asc = lane, params.asc
        self.coder = CompiledCoder(self.asc)
        self.rng = np.random.default_rng(seed + 1)
        self.states = [TableState.initial(self.asc) for _ in range(2)]
        self.tally: Counter[str] = Counter()
        self.faults: list[str] = []

    def check(self, command: Command) -> None:
        """Run one command; note what is wrong with the outcome."""
        if self.rng.random() < 0.1:
            self.states = [TableState.initial(self.asc) for _ in range(2)]
        decoding, encoding = command.op != "encode", command.op in ("encode", "hop")
        adding = command.op in ("hop", "last hop")
        order = lane_order(command.values.size, self.asc.block)
        scaled = np.multiply(command.classes, 16, dtype=np.uint8)
        dec, enc = (state.copy() for state in self.states)
        given: dict[str, Any] = {"dec_width": command.widths[0], "stress": command.stress}
        expected, refused, payload = command.values, False, None
        if decoding:
            given["decoder"] = LinkTables.of(dec)
            payload = self.coder.encode(_int32(command.values), scaled, command.widths[0], dec.copy())
            if command.op == "damaged":
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
            expected = expected + command.local if decoding else expected
        wanted = None
        if encoding:
            given["encoder"] = LinkTables.of(enc)
            given["enc_width"] = command.widths[1] if decoding else command.widths[0]
            wanted = self.coder.encode(_int32(expected), scaled, given["enc_width"], enc)
        outcome = self.lane.run(command.classes[order], **given)
        self.tally["clocks"] += outcome.clocks
        if outcome.status == "reset":
            self.tally["resets"] += 1
            given["stress"] = Stress(command.stress.idle, command.stress.busy, command.stress.seed)
            outcome = self.lane.run(command.classes[order], **given)
            self.tally["clocks"] += outcome.clocks
        self._compare(command, outcome, refused, expected[order], wanted, dec, enc)

    def _compare(
        self, command: Command, outcome: Outcome, refused: bool, sums: np.ndarray, wanted: bytes | None,
        dec: TableState, enc: TableState,
    ) -> None:  # fmt: skip
        self.tally["frames"] += 1
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
            self.faults.append(
                f"{command.op}, {command.kind}, {command.values.size} values, widths {command.widths}, "
                f"{command.stress}: {', '.join(problems)}"
            )
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


def run(
    lane: Lane, params: LaneParams, *, clocks: int, seed: int, largest: int, show: bool
) -> dict[str, Any]:
    """Run random commands until the lane has seen `clocks` clocks; return what happened."""
    generate, checker = Generator(seed, largest=largest), Checker(lane, params, seed=seed)
    start, shown = time.perf_counter(), 0.0
    while checker.tally["clocks"] < clocks and len(checker.faults) < 20:
        try:
            checker.check(generate())
        except RtlError as error:
            checker.faults.append(str(error))
        elapsed = time.perf_counter() - start
        if show and sys.stderr.isatty() and elapsed - shown > 0.5:
            shown = elapsed
            print(f"\r{checker.tally['clocks'] / clocks:6.1%}", end="", file=sys.stderr, flush=True)
    if shown:
        print("\r", end="", file=sys.stderr)
    seconds = time.perf_counter() - start
    return {"ok": not checker.faults, "faults": checker.faults, "seconds": seconds, **checker.tally}


def _clocks(text: str) -> int:
    scale = {"k": 1000, "M": 1_000_000}.get(text[-1:], 1)
    try:
        return int(float(text[:-1] if scale > 1 else text) * scale)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"expected a number such as 10M or 200k, got {text!r}") from None


def main(argv: list[str] | None = None) -> int:
    """Run the stress test; return the exit status (1: something differed, 2: it cannot run)."""
    parser = argparse.ArgumentParser(prog="python -m oscar_sim.stress", description=__doc__.split("\n")[0])
    parser.add_argument("--clocks", type=_clocks, default=10_000_000, help="to simulate, 10M or 200k (10M)")
    parser.add_argument("--largest", type=int, default=20_000, help="values in a frame (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="OUT")
    args = parser.parse_args(argv)
    if args.clocks < 1 or not 2 <= args.largest <= MAX_COUNT or args.seed < 0:
        parser.error(
            f"expected at least one clock, 2 to {MAX_COUNT:,} values in a frame, a seed of 0 or more"
        )
    from oscar_sim.verilator.lane import VerilatedLane

    try:
        prepared(args.json)
        print("# compiling the lane, unless it is as it was (a minute or two)", file=sys.stderr)
        lane = VerilatedLane()
    except OscarError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    found = run(lane, LaneParams(), clocks=args.clocks, seed=args.seed, largest=args.largest, show=True)
    print("# converted RTL of a lane under Verilator against the compiled coder; seed", args.seed)
    print(
        "# random idle gaps, back-pressure, resets in mid-frame, damaged payloads; raw blocks ask for redos"
    )
    names = ("clocks", "frames", "values", *OPS, "refused", "resets", "redos")
    print(" ".join(f"{name:>10}" for name in names))
    print(" ".join(f"{found.get(name, 0):>10}" for name in names))
    print(f"# {found['seconds']:.1f} s, mismatches: {len(found['faults'])}")
    for fault in found["faults"]:
        print(f"  {fault}")
    if args.json:
        write_json(args.json, found)
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
