"""What a method costs a worker of this machine: measured at first use, and kept (oscar.coding.costs)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.coding.codec import FRAME
from oscar.coding.costs import Cost, FrameCost, best, clock, kept
from oscar.config import Config
from oscar.reducers.local_wire import LocalWire
from oscar.reducers.method import make_codec_of, make_scheme_of, method_fingerprint
from oscar.reducers.reducer import advance
from oscar.schemes.base import Scheme
from oscar.timeline.link import LinkModel

SIZES = 1 << 14, 1 << 16  # values of the two gradients through which the line of a cost goes
SCALE = 0.5**0.5  # of Laplace: sigma 1, in the middle of those that take one step
COLUMNS = 128  # of the matrix that each of them is
MOST_NODES = 8  # larger rings take what was measured with so many


@dataclass(frozen=True)
class MethodCost:
    """What a gradient costs a worker.

    scheme: its messages and `finish`, without the wire. The bytes are those that cross a link while a
    gradient goes once around: 8 of them a value make one bit per value of docs/measuring.md.
    encode, decode: of the frames of coded messages, for each value of the gradient, coded or not.
    """

    scheme: Cost
    encode: Cost
    decode: Cost

    @property
    def bits_per_value(self) -> float:
        """Of a long gradient."""
        return 8 * self.scheme.per_value_bytes

    @property
    def frame(self) -> FrameCost | None:
        """Of the coded messages; None where there are none."""
        return FrameCost(self.encode, self.decode) if self.encode.per_value_s else None

    def coding_s(self, values: int, nodes: int) -> float:
        """Return the seconds for which one of `nodes` workers computes, at the least, whatever the link."""
        hops, chunk = max(0, nodes - 1), values / nodes  # of a ring: N-1 frames are coded, 2 (N-1) decoded
        frames = hops * (self.encode.seconds(chunk) + 2 * self.decode.seconds(chunk))
        return self.scheme.seconds(values) + frames


def method_cost(config: Config) -> MethodCost:
    """Return what the method of `config` costs with its options and nodes, on Laplace gradients.

    Takes about a second when it has to be measured; minutes on a simulated NIC. Raises ConfigError for
    options that do not go together.
    """
    chosen = config.variant(nodes=min(config.nodes, MOST_NODES), seed=0)  # one measurement for all seeds
    codec = make_codec_of(chosen)
    what = f"{chosen.method} on {chosen.nodes} nodes, {method_fingerprint(chosen, codec)}, "
    what += f"{codec.options}, nic {chosen.nic}"
    return MethodCost(**kept(what, ("scheme", *FRAME), lambda: _measure(chosen)))


def _measure(config: Config) -> dict[str, Cost]:
    """Run workers in lockstep over a wire of this process; time the first of them."""
    codec = make_codec_of(config)
    hops = 2 * max(1, config.nodes - 1)
    seconds, sent = [], []
    for size in SIZES:
        shape = size // COLUMNS, COLUMNS
        scheme, default = make_scheme_of(config, codec, nodes=config.nodes, shapes=[shape])
        channels = scheme.channels(default)
        lockstep = _Lockstep(scheme, LocalWire(config.nodes, channels, link=LinkModel()), size)
        seconds.append(best(lockstep.turn)[0])
        sent.append(lockstep.sent / hops)
    share = lockstep.coded / size
    frame = next(iter(channels.values())).codec.cost() if share else FrameCost(Cost(0, 0), Cost(0, 0))
    own = Cost.through(SIZES, seconds, sent)
    return {"scheme": own, "encode": frame.encode.share(share), "decode": frame.decode.share(share)}


class _Lockstep:
    """The workers of a scheme. sent: bytes of all in a turn; coded: values of the first one's frames."""

    def __init__(self, scheme: Scheme, wire: LocalWire, size: int) -> None:
        self.scheme, self.wire = scheme, wire
        self.workers = [scheme.make_worker(rank) for rank in wire.ranks]
        self.size, self.rng = size, np.random.default_rng(0)
        self.sent = self.coded = 0

    def turn(self) -> tuple[float]:
        """Reduce new gradients once; return the seconds of the first worker's messages and of `finish`."""
        draws = self.rng.laplace(0, SCALE, (len(self.workers), self.size)).astype(np.float32)
        running = [self.scheme.start(worker, [own]) for worker, own in zip(self.workers, draws, strict=True)]
        self.sent = self.coded = 0
        totals: list[Array] = []
        answer: Any = None
        took = -clock()
        while (first := advance(running[0], answer)) is not None:
            took += clock()
            others = [message for one in running[1:] if (message := advance(one, answer)) is not None]
            answer, moved = self.wire.combine([first, *others])
            self.sent += moved.sent_bytes
            self.coded += first.data.size if first.coded else 0
            totals.append(answer)
            took -= clock()
        took += clock()
        for one in running[1:]:
            advance(one, answer)  # to its end, where its worker keeps what is left over
        took -= clock()
        self.scheme.finish(totals)
        took += clock()
        self.scheme.forget()
        for worker in self.workers:
            worker.commit()
        return (took,)
