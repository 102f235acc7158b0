"""What a frame takes at either end, by its length, and what threads gain over several links.

First, one link: frames of drawn integers, encoded and decoded in turn by one thread. Second, one rank of a
schedule, alone, with the frames of a run before: with one thread and with several, in turn. Third, whole
calls of a cluster in one process. The fastest turn counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.coding.codec import Codec
from oscar.coding.registry import make_codec
from oscar.collective import threaded
from oscar.collective.actions import Action
from oscar.collective.executor import drive, execute
from oscar.collective.frames import FrameLog
from oscar.collective.local import LocalRun
from oscar.collective.node import ChunkLayout, Node
from oscar.collective.schedule import Schedule
from oscar.collective.schedules import make_schedule
from oscar.config import Config
from oscar.cores import at_most
from oscar.reducers.cluster import LocalCluster
from oscar.tables import Table

ENDS = Table("values:values of a frame >17,", "encode_us:encode us >10.1f", "decode_us:decode us >10.1f")
RANKS = Table(
    "schedule <9", "nodes >5", "subframes:K >3", "values:values of a frame >17,", "one_ms:1 thread ms >11.2f",
    "many_ms:threads ms >11.2f", "share:share >6.2f",
)  # fmt: skip
CALLS = Table("nodes >5", "values >7,", "call_ms:call ms >8.2f")
# schedule, ranks, sub-frames, values of a frame
CASES = (
    ("direct", 4, 1, 800_000), ("direct", 8, 1, 100_000), ("direct", 8, 2, 100_000), ("ring", 4, 4, 100_000),
)  # fmt: skip
POSITION, WIDTH = 5, 16  # class of all positions, bits of a value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    turns = "of each row (a link: 100 or more, 64 ranks: at most 5); the fastest counts"
    parser.add_argument("--turns", type=int, default=15, help=turns)
    parser.add_argument("--threads", type=int, default=2, help="of a rank, beside one")
    parser.add_argument("--values", type=int, nargs="+", default=[1000, 10_000, 100_000], help="of a frame")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Print the three tables, and return them."""
    if min(args.turns, args.threads, *args.values) < 1:
        raise ValueError(f"expected 1 turn, thread and value at least, got {vars(args)}")
    codec, tables = make_codec("asc"), {}
    print(f"# fastest of {args.turns} turns; threads: {args.threads}")
    for name, table, rows in (
        ("ends", ENDS, [_ends(codec, values, args.turns) for values in args.values]),
        ("ranks", RANKS, [_rank(codec, case, args) for case in CASES]),
        ("calls", CALLS, [_call(nodes, args.turns) for nodes in (4, 64)]),
    ):
        print("\n".join([table.heading, *map(table.line, rows)]))
        tables[name] = rows
    return {"options": {key: value for key, value in vars(args).items() if key != "json"}, **tables}


def _fastest(turns: int, work: Callable[[], object]) -> float:
    """Return the seconds of the fastest turn, after one that is not timed."""
    work()
    seconds = []
    for _ in range(turns):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def _drawn(values: int, seed: int = 0) -> Array:
    return np.rint(np.random.default_rng(seed).laplace(size=values) * 9).astype(np.int16)


def _ends(codec: Codec, values: int, turns: int) -> dict[str, Any]:
    encoder, decoder, drawn = codec.make_encoder(), codec.make_decoder(), _drawn(values)
    known: dict[str, Any] = {"step": 0, "context": np.full(values, POSITION, np.uint8)}
    out: Any = {"out": np.empty(values, np.int16)}
    times = []
    with at_most(1):
        for _ in range(max(100, turns)):
            begin = time.perf_counter()
            frame = encoder.encode(drawn, width=WIDTH, **known)
            middle = time.perf_counter()
            decoder.decode(frame, **known, **out)
            times.append((middle - begin, time.perf_counter() - middle))
    if not np.array_equal(out["out"], drawn):
        raise AssertionError("a frame decodes to other values")
    encode, decode = (1e6 * min(part) for part in zip(*times, strict=True))
    return {"values": values, "encode_us": encode, "decode_us": decode}


class _Port:
    """An end of a transport that sends nothing, and has all frames that rank 0 receives."""

    def __init__(self, make: Callable[[int], Node], schedule: Schedule) -> None:
        self.frames: dict[tuple[int, int], bytes] = {}
        run = LocalRun(
            [make(rank) for rank in range(schedule.nodes)], list(map(schedule.actions, range(schedule.nodes)))
        )
        deliver = run.ranks[0].deliver

        def kept(sender: int, tag: int, frame: bytes) -> None:
            self.frames[sender, tag] = bytes(frame)
            deliver(sender, tag, frame)

        run.ranks[0].deliver = kept  # type: ignore[method-assign]
        run.run()

    def wait(self, action: Action, work: Any = None) -> bytes:
        return self.frames[action.peer, action.tag]

    def post_recv(self, peer: int, tag: int, cap: int) -> None: ...

    def post_send(self, peer: int, tag: int, frame: Any) -> None: ...


def _rank(codec: Codec, case: tuple[str, int, int, int], args: argparse.Namespace) -> dict[str, Any]:
    name, nodes, subframes, values = case
    schedule = make_schedule(name, nodes, subframes=subframes)
    bounds = tuple(values * subframes * chunk for chunk in range(schedule.chunks + 1))
    layout, classes = ChunkLayout(bounds, subframes), np.full(bounds[-1], POSITION, np.uint8)
    drawn = [_drawn(bounds[-1], rank) for rank in range(nodes)]

    def make(rank: int) -> Node:
        node = Node(rank, nodes, codec, apart=schedule.apart, width=lambda _: WIDTH, weighs=False)
        node.begin(drawn[rank], classes, layout)
        return node

    port, actions = _Port(make, schedule), tuple(schedule.actions(0))

    def call(threads: int) -> Array:
        node = make(0)
        with at_most(threads):
            if threaded.worthwhile(node, threads):
                threaded.perform(node, actions, port, FrameLog(), port.wait, threads)
            else:
                drive(execute(node, actions, port, FrameLog()), port.wait)
        return node.result()

    if not np.array_equal(call(1), call(args.threads)):
        raise AssertionError(f"{args.threads} threads get other sums than one")
    one, many = (1e3 * _fastest(args.turns, partial(call, threads)) for threads in (1, args.threads))
    return {
        "schedule": name, "nodes": nodes, "subframes": subframes, "values": values, "one_ms": one,
        "many_ms": many, "share": many / one,
    }  # fmt: skip


def _call(nodes: int, turns: int, values: int = 10_000) -> dict[str, Any]:
    cluster = LocalCluster(Config.model_validate({"nodes": nodes, "schedule": {"name": "direct"}}))
    random = np.random.default_rng(0)
    gradients = [[random.standard_normal(values).astype(np.float32)] for _ in range(nodes)]
    seconds = _fastest(min(turns, 5) if nodes > 4 else turns, lambda: cluster.allreduce(gradients))
    return {"nodes": nodes, "values": values, "call_ms": 1e3 * seconds}
