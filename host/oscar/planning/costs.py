"""What a method costs a worker of this machine: measured at first use, and kept (oscar.coding.costs)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from statistics import median
from typing import Any

import numpy as np

from oscar.array import Array, sizes_of
from oscar.coding.codec import FRAME
from oscar.coding.costs import MEASUREMENT, Cost, FrameCost, clock, kept, repeated
from oscar.config import Config
from oscar.errors import ConfigError
from oscar.reducers.local_wire import LocalWire
from oscar.reducers.method import make_codec_of, make_scheme_of, method_fingerprint
from oscar.reducers.reducer import advance
from oscar.schemes.base import Scheme
from oscar.timeline.link import LinkModel

SIZES = 1 << 14, 1 << 18  # values of the two gradients through which the line of a cost goes
SCALE = 0.5**0.5  # of Laplace: sigma 1, in the middle of those that take one step
COLUMNS = 128  # of the matrices that tensors are
TENSOR = 1 << 15  # values of a tensor, at most
# Of the logarithm of a tensor's scale from call to call: 6 % of tensors lose their step, as in mid-training.
SWING = 0.33
# Of all scales in the first calls: what new steps need is compiled before the clock counts.
JUMPS = 1.0, 64.0, 1 / 64, 1.0
SETTLE = 3  # turns after which a scheme has chosen how to exchange
MOST_NODES = 8  # larger rings take what was measured with so many


@dataclass(frozen=True)
class MethodCost:
    """What a gradient costs a worker.

    Attributes:
        scheme: Its messages and `finish`, without the wire. The bytes are those that cross a link while a
            gradient goes once around: 8 of them a value make one bit per value of
            docs/explain/measuring.md.
        encode: Cost to encode the frames of coded messages, for each value of the gradient, coded or not.
        decode: Cost to decode them, likewise.
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

    def on_shared_core(self, ranks: float) -> MethodCost:
        """Return the cost where `ranks` ranks compute on one core at the same time."""
        return MethodCost(*(cost.slower(ranks) for cost in (self.scheme, self.encode, self.decode)))

    def coding_s(self, values: int, nodes: int) -> float:
        """Return the seconds for which one of `nodes` workers computes, at the least, whatever the link."""
        hops, chunk = max(0, nodes - 1), values / nodes  # of a ring: N-1 frames are coded, 2 (N-1) decoded
        frames = hops * (self.encode.seconds(chunk) + 2 * self.decode.seconds(chunk))
        return self.scheme.seconds(values) + frames


def nics_of(config: Config, nodes: int) -> str | tuple[str | None, ...]:
    """Return the NICs of the first `nodes` ranks, where each has its own."""
    return config.nic if isinstance(config.nic, str) else config.nic[:nodes]


def method_cost(config: Config) -> MethodCost:
    """Return what the method of `config` costs with its options and nodes, on Laplace gradients.

    Takes about a second when it has to be measured; minutes on a simulated NIC. Raises ConfigError for
    options that do not go together.
    """
    nodes = min(config.nodes, MOST_NODES)
    chosen = config.variant(nodes=nodes, nic=nics_of(config, nodes), seed=0)  # one measurement for all seeds
    codec = make_codec_of(chosen)
    what = f"{chosen.method} on {chosen.nodes} nodes, {method_fingerprint(chosen, codec)}, "
    what += f"{codec.options}, nic {chosen.nic}, measurement {MEASUREMENT}"
    return MethodCost(**kept(what, ("scheme", *FRAME), lambda: _measure(chosen)))


def _measure(config: Config) -> dict[str, Cost]:
    """Run workers in lockstep over a wire of this process; time the first of them."""
    codec = make_codec_of(config)
    hops = 2 * max(1, config.nodes - 1)
    seconds, sent = [], []
    for size in SIZES:
        shapes = [(min(size, TENSOR) // COLUMNS, COLUMNS)] * -(-size // TENSOR)
        scheme, default = make_scheme_of(config, codec, nodes=config.nodes, shapes=shapes)
        channels = scheme.channels(default)
        wire, rng = LocalWire(config.nodes, channels, link=LinkModel()), np.random.default_rng(0)
        draw = partial(_gradients, rng, config.nodes, shapes)
        lockstep = _Lockstep(scheme, wire, draw)
        for jump in JUMPS if size == SIZES[0] else ():
            lockstep.draw = partial(draw, jump=jump)
            lockstep.turn()
        lockstep.draw = draw
        lockstep.turn()  # with the one that `repeated` drops: a scheme may choose anew in its second call
        took, moved = repeated(lambda: (*lockstep.turn(), lockstep.sent), median)  # noqa: B023
        seconds.append(took)
        sent.append(moved / hops)
    share = lockstep.coded / size
    frame = next(iter(channels.values())).codec.cost() if share else FrameCost(Cost(0, 0), Cost(0, 0))
    own = Cost.through(SIZES, seconds, sent)
    return {"scheme": own, "encode": frame.encode.share(share), "decode": frame.decode.share(share)}


def cost_on(config: Config, gradients: Sequence[Sequence[Sequence[Array]]]) -> Cost:
    """Return what a method costs on gradients [iteration][node][tensor], all in proportion to their values.

    For methods whose bytes depend on what is zero. Measured at every call. Raises ConfigError for a method
    that codes what it sends, whose coding is not counted here.
    """
    nodes, shapes = len(gradients[0]), [tensor.shape for tensor in gradients[0][0]]
    codec = make_codec_of(config)
    scheme, default = make_scheme_of(config, codec, nodes=nodes, shapes=shapes)
    wire = LocalWire(nodes, scheme.channels(default), link=LinkModel())
    lockstep = _Lockstep(scheme, wire, cycle(gradients).__next__)
    for _ in range(SETTLE):
        lockstep.turn()
    size = sum(sizes_of(shapes))
    if lockstep.coded:
        raise ConfigError(
            f"expected {config.method} with exact values, got coded ones; set scheme.values: fp32"
        )
    seconds = repeated(lockstep.turn)[0]
    return Cost(seconds / size, 0.0, lockstep.sent / (2 * max(1, nodes - 1)) / size)


def _gradients(
    rng: np.random.Generator, nodes: int, shapes: Sequence[tuple[int, int]], *, jump: float = 1.0
) -> list[list[Array]]:
    """Return Laplace gradients [worker][tensor], in tensors whose scales vary from call to call."""
    scales = jump * SCALE * np.exp(SWING * rng.standard_normal(len(shapes)))
    return [
        [rng.laplace(0, scale, shape).astype(np.float32) for scale, shape in zip(scales, shapes, strict=True)]
        for _ in range(nodes)
    ]


class _Lockstep:
    """The workers of a scheme. sent: bytes of all in a turn; coded: values of the first one's frames.

    draw: gradients [worker][tensor] of the next turn.
    """

    def __init__(
        self, scheme: Scheme, wire: LocalWire, draw: Callable[[], Sequence[Sequence[Array]]]
    ) -> None:
        self.scheme, self.wire, self.draw = scheme, wire, draw
        self.workers = [scheme.make_worker(rank) for rank in wire.ranks]
        self.sent = self.coded = 0

    def turn(self) -> tuple[float]:
        """Reduce new gradients once; return the seconds of the first worker's messages and of `finish`."""
        draws = [[tensor.copy().ravel() for tensor in own] for own in self.draw()]
        running = [self.scheme.start(worker, own) for worker, own in zip(self.workers, draws, strict=True)]
        self.sent = self.coded = 0
        totals: list[Array] = []
        answers: list[Any] = [None] * len(running)
        took = -clock()
        while (first := advance(running[0], answers[0])) is not None:
            took += clock()
            pairs = zip(running[1:], answers[1:], strict=True)
            others = [message for one, answer in pairs if (message := advance(one, answer)) is not None]
            answer, moved = self.wire.combine([first, *others])
            self.sent += moved.sent_bytes
            self.coded += first.data.size if first.coded else 0
            if first.op == "exchange":
                answers = answer
            else:
                totals.append(answer)
                answers = [answer] * len(running)
            took -= clock()
        took += clock()
        for one, answer in zip(running[1:], answers[1:], strict=True):
            advance(one, answer)  # to its end, where its worker keeps what is left over
        took -= clock()
        self.scheme.finish(totals)
        took += clock()
        self.scheme.forget()
        for worker in self.workers:
            worker.commit()
        return (took,)
