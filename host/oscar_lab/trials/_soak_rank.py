"""One rank of a soak: draws from the seed, reduces, compares; soak starts it, rank 0 writes JSON lines."""

from __future__ import annotations

import gc
import json
import os
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from oscar.checkpoint import digest
from oscar.coding.registry import make_codec
from oscar.collective.frames import AllReduceResult, Frames
from oscar.collective.schedules import SCHEDULES
from oscar.config import Config
from oscar.numerics.plans import PLANS
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.communicator import Communicator
from oscar.transports.base import Transport
from oscar_lab.trials._ranks import enter, leave, say

STRIDE = 5  # iterations between two samples of memory, at first
SAMPLES = 200  # with more, every other one is dropped
CAP = 1 << 16  # bytes of one rank's samples
TOUCHED, STOP = 1, 2  # flags of a verdict
DIGEST = 64  # hexadecimal digits
LOADED = 200  # configurations whose kernels are loaded before the start
KEPT = 20  # mismatches that are reported in full
DRAWN = {"seed", "method", "plan", "schedule", "quantiser", "asc"}  # of a configuration

# asc more often than all others together: it is the one with state on the links
CODECS = (*["asc"] * 9, "asc-paper", "atalanta", "rans0", "zstd", "int32", "int8", "bf16", "fp32")
Shapes = list[tuple[int, ...]]
PART_S = 10.0  # for the other ranks to end


def main() -> None:
    """Run the rank of the case in the first argument (JSON) and exit with its status."""
    case, transport = enter()
    soak = Soak(case, transport)
    try:
        soak.run()
    except BaseException as error:
        if soak.communicator is not None:
            soak.communicator.give_up(error)
        traceback.print_exc()
        sys.stderr.flush()
        leave(transport, error)
    transport.part(time.monotonic() + PART_S)
    transport.close()


# ------------------------------------------------------------------------------ what the seed decides


def draw_config(seed: int, segment: int) -> Config:
    """Return the configuration of a segment: codec, plan, schedule, quantiser and coder."""
    dice = random.Random(f"{seed} config {segment}")
    name = dice.choice(CODECS)
    codec = make_codec(name)
    exact = codec.lossless and codec.domain == "int"
    schedules = [name for name, kind in SCHEDULES.items() if exact or not kind.integers]
    return Config.model_validate(
        {
            "seed": dice.randrange(1 << 31),
            "method": name,
            "plan": {
                "name": dice.choice(list(PLANS)),
                "granule": dice.choice((1, 7, 64, 256, 4096)),
            },
            "schedule": {"name": dice.choice(schedules), "subframes": dice.choice((1, 1, 2, 3, 8))},
            "quantiser": {
                "scale": dice.choice(("sigma", "sigma", "max")),
                "coarseness": dice.choice((0.03125, 0.125, 0.5, 1.0, 3.0)),
                "bits": dice.choice(("auto", 8, 12, 16)),
                "rounding": dice.choice(("nearest", "stochastic")),
                "error_feedback": dice.random() < 0.5,
            },
            "asc": {
                "block_log2": dice.choice((0, 0, *range(10, 18))),
                "context": dice.choice(("class", "class", "none")),
                "tables": dice.choice(("step", "pooled")),
                "sent_rows": dice.random() < 0.5,
            },
        }
    )


def draw_shapes(seed: int, segment: int, *, nodes: int, values: int) -> Iterator[tuple[int, Shapes]]:
    """Yield the key and the shapes of each iteration: shapes stay while state is learnt, then change.

    The first are as large as any, so that buffers are soon as large as they get.
    """
    dice = random.Random(f"{seed} shapes {segment}")
    yield 0, [(values,)]
    shapes = [_shapes(dice, nodes, values) for _ in range(dice.randint(1, 3))]
    while True:
        key = dice.randrange(len(shapes))
        if dice.random() < 0.15:
            shapes[key] = _shapes(dice, nodes, values)
        yield key, shapes[key]


def _shapes(dice: random.Random, nodes: int, values: int) -> Shapes:
    if dice.random() < 0.15:  # fewer values than ranks, or just as many
        return [(dice.randint(1, nodes),)]
    count = dice.randint(1, 4)
    return [_shape(dice, max(1, values // count)) for _ in range(count)]


def _shape(dice: random.Random, most: int) -> tuple[int, ...]:
    size = int(most ** dice.random())
    kind = dice.random()
    if kind < 0.1:
        return (0,) if kind < 0.05 else ()
    rows = dice.randint(1, 30)
    return (rows, size // rows) if kind < 0.4 and size >= rows else (size,)


def _laplace(dice: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return dice.laplace(0, 0.02, shape)


KINDS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Any]] = {
    "laplace": _laplace,
    "other scale": lambda dice, shape: _laplace(dice, shape) * 10.0 ** dice.integers(-6, 6),
    "sparse": lambda dice, shape: _laplace(dice, shape) * (dice.random(shape) < 0.02),
    "spikes": lambda dice, shape: _laplace(dice, shape) * np.where(dice.random(shape) < 0.001, 1e6, 1.0),
    "constant": lambda dice, shape: np.full(shape, dice.normal()),
    "zeros": lambda dice, shape: np.zeros(shape),
    "huge": lambda dice, shape: dice.normal(0, 1e30, shape),
    "denormal": lambda dice, shape: dice.normal(0, 1e-40, shape),
}
OFTEN = ("laplace",) * 8 + tuple(KINDS)


def draw_gradient(seed: int, iteration: int, rank: int, shapes: Shapes) -> list[np.ndarray]:
    """Return a rank's gradient [tensor] (float32): of the kinds all ranks have, at times of its own."""
    common, own = random.Random(f"{seed} kinds {iteration}"), random.Random(f"{seed} {iteration} {rank}")
    values = np.random.default_rng([seed, iteration, rank])
    tensors = []
    for shape in shapes:
        kind = common.choice(OFTEN)
        if own.random() < 0.1:
            kind = own.choice(OFTEN)
        tensors.append(np.asarray(KINDS[kind](values, shape), np.float32))
    return tensors


# ---------------------------------------------------------------------------------------- the soak itself


class Soak:
    """This rank's way through all segments.

    Every rank reduces and tells the others a digest of what it got. Rank 0 runs a LocalCluster over all
    ranks' gradients alongside, a cluster for each key, and compares: a mismatch on any rank is found there.
    """

    def __init__(self, case: dict[str, Any], transport: Transport) -> None:
        self.case, self.transport = case, transport
        self.seed, self.rank, self.nodes = case["seed"], transport.rank, transport.nodes
        self.communicator: Communicator | None = None
        self.clusters: dict[int, LocalCluster] = {}
        self.samples: list[tuple[int, int]] = []  # iterations done, KiB
        self.stride = STRIDE
        self.mismatches = 0
        self.begin = time.monotonic()

    def run(self) -> None:
        """Reduce until all iterations are done or rank 0 finds the time is up; rank 0 tells the outcome."""
        self._load_kernels()
        self.begin = time.monotonic()
        done, total, going = 0, self.case["iterations"], True
        while going and done < total:
            count = min(self.case["segment"], total - done)
            reduced = self._segment(done // self.case["segment"], done, count)
            done, going = done + reduced, reduced == count
        assert self.communicator is not None
        self._sample(done)
        mine = json.dumps(self.samples).encode()
        memory = [json.loads(theirs) for theirs in self.communicator.gather(mine, CAP)]
        seconds = time.monotonic() - self.begin
        self._tell({"done": done, "seconds": seconds, "mismatches": self.mismatches, "memory": memory})

    def _load_kernels(self) -> None:
        """Use each configuration once, so that loading kernels counts neither as time nor as memory."""
        segments = -(-self.case["iterations"] // self.case["segment"])
        for segment in range(min(segments, LOADED)):
            cluster = LocalCluster(draw_config(self.seed, segment))
            for _ in range(2):
                cluster.allreduce([draw_gradient(0, 0, rank, [(self.case["values"],)]) for rank in range(2)])

    def _segment(self, segment: int, first: int, count: int) -> int:
        """Run up to `count` iterations under one new communicator; return how many."""
        config = draw_config(self.seed, segment)
        self.communicator = Communicator(config, self.transport, timeout_s=self.case["timeout_s"])
        self.clusters = {}
        shapes = draw_shapes(self.seed, segment, nodes=self.nodes, values=self.case["values"])
        row: dict[str, Any] = {"codec": config.method, "schedule": config.schedule.name}
        row |= {"values": 0, "resets": 0, "sent_bytes": 0}
        wrong, going, done = self.mismatches, True, 0
        while going and done < count:
            going = self._iteration(first + done, *next(shapes), config, row)
            done += 1
            if (first + done) % self.stride == 0:
                self._sample(first + done)
        own = {"iterations": done, "mismatches": self.mismatches - wrong, "done": first + done}
        self._tell({"segment": segment, **row, **own})
        return done

    def _iteration(
        self, iteration: int, key: int, shapes: Shapes, config: Config, row: dict[str, Any]
    ) -> bool:
        """Reduce once and compare; return whether to go on."""
        assert self.communicator is not None
        given = draw_gradient(self.seed, iteration, self.rank, shapes)
        before = digest(given)
        result = self.communicator.allreduce(given, key=key)
        sums = self._spoiled(iteration, result.sums)
        over = time.monotonic() - self.begin > self.case["seconds_limit"]
        flags = TOUCHED * (digest(given) != before) | STOP * over
        frames = result.stats.frames.tree()
        verdict = verdict_of(result.mean, sums, frames, flags)
        verdicts = self.communicator.gather(verdict, len(verdict))
        if self.rank == 0:
            row["values"] += result.stats.values
            row["resets"] += result.stats.reset
            row["sent_bytes"] += result.stats.sent_bytes
            expected = self._expected(iteration, key, shapes, config)
            for rank, theirs in enumerate(verdicts):
                if why := differs(theirs, expected, rank, lossless=self.communicator.codec.lossless):
                    self._mismatch(iteration, rank, why, {"key": key, "shapes": shapes}, config)
        return not verdicts[0][-1] & STOP

    def _expected(self, iteration: int, key: int, shapes: Shapes, config: Config) -> AllReduceResult:
        if key not in self.clusters:
            self.clusters[key] = LocalCluster(config)
        return self.clusters[key].allreduce(
            [draw_gradient(self.seed, iteration, rank, shapes) for rank in range(self.nodes)]
        )

    def _spoiled(self, iteration: int, sums: np.ndarray) -> np.ndarray:
        """Return `sums`, on the last rank with a bit flipped where that was asked for, once."""
        asked = self.case["spoil"]
        if asked is not None and iteration >= asked and sums.size and self.rank == self.nodes - 1:
            self.case["spoil"], sums = None, sums.copy()
            sums.view(np.uint8)[-1] ^= 1
        return sums

    def _mismatch(self, iteration: int, rank: int, why: str, where: dict[str, Any], config: Config) -> None:
        self.mismatches += 1
        if self.mismatches <= KEPT:
            drawn = config.model_dump(mode="json", include=DRAWN)
            self._tell({"mismatch": why, "iteration": iteration, "rank": rank, **where, "config": drawn})

    def _sample(self, done: int) -> None:
        """Collect garbage and note the resident memory; in longer runs less often."""
        gc.collect()
        self.samples.append((done, resident_kib()))
        if len(self.samples) > SAMPLES:
            self.samples, self.stride = self.samples[1::2], 2 * self.stride

    def _tell(self, line: dict[str, Any]) -> None:
        if self.rank == 0:
            say(line)


def verdict_of(mean: list[np.ndarray], sums: np.ndarray, frames: dict[str, list[int]], flags: int) -> bytes:
    """Return what a rank tells the others: digests of its values and of its frame sizes, and flags."""
    return digest([*mean, sums]).encode() + digest(frames).encode() + bytes([flags])


def differs(verdict: bytes, expected: AllReduceResult, rank: int, *, lossless: bool) -> str:
    """Say in what a rank's verdict differs from the in-process cluster, or nothing."""
    stats, why = expected.stats, []
    if verdict[:DIGEST].decode() != digest([*expected.mean, expected.sums]):
        why.append("mean or sums")
    frames = Frames.of(stats.frames.of_sender(rank).rows).tree()  # a rank counts no NIC's work
    if verdict[DIGEST : 2 * DIGEST].decode() != digest(frames):
        why.append("sizes of frames")
    if verdict[-1] & TOUCHED:
        why.append("inputs were written to")
    if not (stats.exact if lossless else stats.identical):
        why.append("the in-process cluster itself is not exact")
    return ", ".join(why)


def resident_kib() -> int:
    """Return the memory of this process that is resident, in KiB (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


if __name__ == "__main__":
    main()
