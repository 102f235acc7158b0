"""Options of a cluster: each method on each processor by each schedule, priced by the time model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.coding.costs import Cost, FrameCost
from oscar.coding.frame import HEADER_BYTES
from oscar.collective.ring import Ring
from oscar.collective.schedule import Schedule
from oscar.collective.schedules import make_schedule
from oscar.config import Config
from oscar.errors import ConfigError
from oscar.planning.costs import cost_on, method_cost, nics_of
from oscar.planning.tuning.policy import OTHER, SAME, THREAD, Option, line, pruned
from oscar.reducers.method import make_codec_of
from oscar.schemes.registry import method_info, method_names
from oscar.timeline.engine import AFTER, BEFORE, CODEC, COMPUTE, CRYPTO, PORT, Floats, Step
from oscar.timeline.equal import equal_time
from oscar.timeline.lanes import GRID
from oscar.timeline.link import FP32_BITS, LinkModel
from oscar.timeline.nic import core

SCHEDULES = "ring", "direct"
SPARSE = ("zen",)  # exact, and priced on gradients, since what they send depends on what is zero
SPARSE_BELOW = 0.25
ALIKE = 1.1  # densities that differ by less have one price
EXACT = "fp32", "fp16", "int32", "int16"  # lose less than bf16 does
NUMBER = re.compile(r"[0-9]+(\.[0-9]+|/[1-9][0-9]*)?")
LARGEST = 2.0**32  # values that are replayed; beyond, times go on in a straight line
NOTHING = Cost(0.0, 0.0)
LANES = {SAME: COMPUTE, OTHER: CODEC, THREAD: PORT}


@dataclass(frozen=True)
class MethodPrice:
    """What a method costs: bits of payload for a value, its frames, and what a worker computes around them.

    coded: whether every hop works on its frames; else they are cast once before and once after. around_ring:
    its messages go around a ring, whatever the schedule.
    """

    name: str
    bits: float
    frame: FrameCost
    around: Cost = NOTHING
    frame_bytes: float = HEADER_BYTES
    coded: bool = True
    around_ring: bool = False

    @property
    def works(self) -> bool:
        """Whether a processor has anything to do for it."""
        return (self.frame.encode, self.frame.decode, self.around) != (NOTHING, NOTHING, NOTHING)


FP32 = MethodPrice("fp32", FP32_BITS, FrameCost(NOTHING, NOTHING), frame_bytes=0, coded=False)


def measured(choice: str, nodes: int, config: Config | None = None, *, native: bool = True) -> MethodPrice:
    """Return the estimate of this machine, measured at first use and kept (oscar.planning.costs).

    choice: a method, with the options of `config`; `asc:c=1/2` with another coarseness. native: fp32 is sent
    by a library at no cost, else by this one, which frames and adds. Raises ConfigError for another option,
    and for one of a method that does not quantise.
    """
    if choice == FP32.name and native:
        return FP32
    config = config or Config()
    config = Config().variant(nodes=nodes, nic=nics_of(config, nodes), **changes_of(choice, config))
    method, cost = config.method, method_cost(config)
    if not cost.bits_per_value:
        raise ConfigError(f"expected a method that sends something, got {choice}; take a finer coarseness")
    frame = FrameCost(cost.encode, cost.decode)
    codec, coded = method_info(method).codec, make_codec_of(config).coded
    around = NOTHING if codec and not coded else cost.scheme
    ring = not codec and cost.frame is None
    return MethodPrice(choice, cost.bits_per_value, frame, around, cost.encode.once_bytes, coded, ring)


def measured_on(
    choice: str, config: Config, gradients: Sequence[Sequence[Sequence[Array]]]
) -> tuple[MethodPrice | None, dict[int, str], tuple[int, ...]]:
    """Return the price of an exact sparse method, which tensors cannot take it, and what each counts as.

    gradients: [iteration][node][tensor]. The price is of all tensors together in which less than SPARSE_BELOW
    of the values are not zero; None without any. The others are refused, by number, with the reason. A tensor
    that is sparser than all together counts as fewer values than it has, as `_counts` says.
    """
    sizes = [tensor.size for tensor in gradients[0][0]]
    shares = [
        float(np.mean([np.count_nonzero(tensor) / max(1, tensor.size) for tensor in nodes]))
        for nodes in zip(*gradients[0], strict=True)
    ]
    refused = {
        at: f"{share:.0%} of it is not zero" for at, share in enumerate(shares) if share >= SPARSE_BELOW
    }
    if len(refused) == len(shares):
        return None, refused, tuple(sizes)
    able = sorted(refused.keys() ^ range(len(shares)), key=lambda at: shares[at])
    nodes = len(gradients[0])
    chosen = Config().variant(nodes=nodes, nic=nics_of(config, nodes), **changes_of(choice, config))
    cost = cost_on(chosen, _only(gradients, able))
    around = Cost(cost.per_value_s, cost.once_s)
    free = FrameCost(NOTHING, NOTHING)
    price = MethodPrice(choice, 8 * cost.per_value_bytes, free, around, 0, around_ring=True)
    return price, refused, _counts(chosen, gradients, able, sizes, shares)


def _counts(
    config: Config,
    gradients: Sequence[Sequence[Sequence[Array]]],
    able: Sequence[int],
    sizes: Sequence[int],
    shares: Sequence[float],
) -> tuple[int, ...]:
    """Return the values that each tensor counts as: as many together as they are, by what each sends.

    able: tensors that are sparse, the sparsest first. What a value sends is measured on the sparser
    and on the denser half of them, and is a straight line of the share that is not zero.
    """
    counts = list(sizes)
    ends = np.cumsum([sizes[at] for at in able])
    cut = max(1, int(np.searchsorted(ends, ends[-1] / 2)))
    halves = [half for half in (able[:cut], able[cut:]) if sum(sizes[at] for at in half)]
    if len(halves) < 2:
        return tuple(counts)
    shares_able = np.array([shares[at] for at in able])
    at_share = [
        np.average([shares[at] for at in half], weights=[sizes[at] for at in half]) for half in halves
    ]
    sent = [cost_on(config, _only(gradients, half)).per_value_bytes for half in halves]
    if at_share[1] < ALIKE * at_share[0] or sent[1] <= sent[0]:
        return tuple(counts)
    slope = (sent[1] - sent[0]) / (at_share[1] - at_share[0])
    each = np.maximum(sent[0] + slope * (shares_able - at_share[0]), 0.0) * [sizes[at] for at in able]
    for at, count in zip(able, np.rint(each * (ends[-1] / each.sum())).astype(int).tolist(), strict=True):
        counts[at] = count
    return tuple(counts)


def _only(gradients: Sequence[Sequence[Sequence[Array]]], tensors: Sequence[int]) -> list[list[list[Array]]]:
    """Return the gradients of some tensors."""
    return [[[own[at] for at in tensors] for own in one] for one in gradients]


def changes_of(choice: str, config: Config) -> dict[str, Any]:
    """Return the sections in which a choice differs from `config`: `asc`, or `asc:c=1/2`.

    Raises ConfigError for what is no method, for another option, and for one of a method that does not
    quantise.
    """
    method, _, option = choice.partition(":")
    sections = {name: getattr(config, name).model_dump() for name in ("quantiser", "asc")}
    named = method in method_names()
    if option and (named or "=" in option):  # else module:Class
        key, _, value = option.partition("=")
        codec = method_info(method).codec if named else None
        if key != "c" or not NUMBER.fullmatch(value) or codec is None or codec.domain != "int":
            raise ConfigError(
                f"expected a method, or one that quantises with a coarseness (asc:c=1/2), got {choice}"
            )
        sections["quantiser"]["coarseness"] = float(Fraction(value))
    elif option:
        method = choice
    return {"method": method, "scheme": config.scheme if method == config.method else {}, **sections}


def default_choices(method: str) -> list[str]:
    """Return what is chosen from where nothing is said: `method`, and what loses no more than it does."""
    return list(dict.fromkeys(["fp32", *(() if method in EXACT else ("bf16",)), method]))


def check_processors(names: Sequence[str]) -> tuple[str, ...]:
    """Return processors, each once; raises ConfigError for other names and for none."""
    result = tuple(dict.fromkeys(names))
    if not result or set(result) - LANES.keys():
        raise ConfigError(f"expected processors of {', '.join(LANES)}, got {', '.join(result) or 'none'}")
    return result


def options(
    prices: Iterable[MethodPrice], nodes: int, link: LinkModel, schedules: Sequence[str] = SCHEDULES,
    *, processors: Sequence[str] = (SAME, OTHER), crypto: Cost | None = None, dominated: bool = False,
) -> list[Option]:  # fmt: skip
    """Return all combinations of methods, processors and schedules.

    Args:
        link: The link of one node, whose codec does not count.
        processors: Processors that may work for methods.
        crypto: Seconds to encrypt or decrypt one coded byte, on a lane of its own.
        dominated: Keep options that another one is never slower than.
    """
    result: list[Option] = []
    for name in schedules:
        for price in (one for one in prices if not one.around_ring or name == Ring.name):
            result += _priced(price, make_schedule(name, nodes), link, processors, crypto)
    return result if dominated else pruned(result)


def _priced(
    price: MethodPrice,
    schedule: Schedule,
    link: LinkModel,
    processors: Sequence[str],
    crypto: Cost | None,
) -> Iterable[Option]:
    port = _curve(schedule, link, price, coded=False)
    seal = []
    if crypto is not None:  # a rank's own frames go out, and as many come in
        sent = GRID * (price.bits / 8 * 2 * (schedule.nodes - 1) / schedule.nodes)
        seal = [crypto.per_value_s * sent + crypto.once_s]
    if not price.works:
        steps, curves = [Step(PORT, BEFORE, 0)], [port]
        yield Option(f"{price.name} {schedule.name}", *_sealed(steps, curves, seal))
        return
    before, after = _work(price, schedule, link, port)
    if price.name == FP32.name:  # it has no choice of names
        processors = [next(one for one in (THREAD, SAME, OTHER) if one in processors)]
    for processor in processors:
        lane = LANES[processor]
        name = f"{price.name} {processor} {schedule.name}"
        if price.name == FP32.name:
            name = f"{price.name} {schedule.name}"
        if processor == THREAD:
            yield Option(name, *_sealed([Step(PORT, BEFORE, 0)], [before + port + after], seal))
            continue
        steps = [Step(lane, BEFORE, 0), Step(PORT, BEFORE, 0), Step(lane, AFTER, 0)]
        yield Option(name, *_sealed(steps, [before, port, after], seal))


def _sealed(
    steps: list[Step], curves: list[Floats], seal: list[Floats]
) -> tuple[tuple[Step, ...], tuple[Floats, ...]]:
    """Encrypt right before the port and decrypt right after it."""
    if seal:
        at = next(k for k, step in enumerate(steps) if step.lane == PORT)
        steps = [*steps[:at], Step(CRYPTO, BEFORE, 0), steps[at], Step(CRYPTO, AFTER, 0), *steps[at + 1 :]]
        curves = [*curves[:at], *seal, curves[at], *seal, *curves[at + 1 :]]
    return tuple(steps), tuple(curves)


def _work(price: MethodPrice, schedule: Schedule, link: LinkModel, port: Floats) -> tuple[Floats, Floats]:
    """Return a processor's seconds before the network and after it.

    Of a method that works on every hop: what its AllReduce alone takes beyond the same frames without a
    codec, shared out by the frames that are coded until the sums are there, and those decoded after.
    """
    encode, decode = price.frame.encode, price.frame.decode
    if not price.coded:
        return line(encode.per_value_s, encode.once_s), line(decode.per_value_s, decode.once_s)
    coder = core(price.name, price.frame).model()
    alone = _curve(schedule, LinkModel(link.bandwidth_bps, link.latency_s, coder=coder), price, coded=True)
    hops = schedule.nodes - 1
    chunk = GRID / schedule.nodes
    encode_s = hops * (encode.per_value_s * chunk + encode.once_s)
    decode_s = hops * (decode.per_value_s * chunk + decode.once_s)
    share = decode_s / np.maximum(2 * decode_s + encode_s, 1e-30)
    around = (price.around.per_value_s * GRID + price.around.once_s) / 2
    codec = np.maximum(alone - port, 0.0)
    return codec * (1 - share) + around, codec * share + around


def _curve(schedule: Schedule, link: LinkModel, price: MethodPrice, *, coded: bool) -> Floats:
    """Return the seconds of one AllReduce, of `link` alone unless coded."""
    least = schedule.chunks  # fewer values leave frames out, and others could not be smaller
    known = [
        equal_time(
            schedule,
            max(int(n), least),
            link,
            bits=price.bits,
            header_bytes=round(price.frame_bytes),
            coded=coded,
        )
        for n in GRID[GRID <= LARGEST]
    ]
    slope = (known[-1] - known[-2]) / (GRID[len(known) - 1] - GRID[len(known) - 2])
    return np.array(known + [known[-1] + slope * (n - GRID[len(known) - 1]) for n in GRID[len(known) :]])
