"""Whether compression pays for a model size, a schedule and a link, and the reason where it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from oscar.coding.costs import Cost
from oscar.coding.frame import HEADER_BYTES
from oscar.collective.ring import Ring
from oscar.collective.schedule import Schedule
from oscar.collective.trees import Direct
from oscar.timeline.equal import equal_time
from oscar.timeline.link import FP32_BITS, LinkModel

MIN_GAIN = 1.05  # a gain under 5 % is within the error of such a model, and not worth a codec
NOTHING = Cost(0.0, 0.0)
_LOG_LARGEST = 42.0  # 2^42 values
_SLOWEST_GBPS, _FASTEST_GBPS = 1e-3, 1e6


@dataclass(frozen=True)
class Prediction:
    """What to expect of one AllReduce.

    fp32 has a time for its ring, as libraries send it, and one for the direct schedule, and a speed-up over
    each; bf16 and int8 have that of the faster one. `int8_time_s` is None where sums overflow 8 bits.
    `breakeven_values` is the smallest model for which compression pays on this schedule (None: no size does);
    `breakeven_gbps` the fastest link on which it pays for this model (None: on no link; inf: on all up to
    10^6 Gb/s).
    """

    pays: bool
    reason: str
    time_s: float
    fp32_time_s: float
    fp32_direct_time_s: float
    bf16_time_s: float
    int8_time_s: float | None
    speedup: float
    speedup_direct: float
    breakeven_values: int | None
    breakeven_gbps: float | None


@dataclass(frozen=True)
class _Case:
    """One question; `replace` asks it again for another size or link."""

    values: int
    schedule: Schedule
    link: LinkModel
    bits_per_value: float
    coded: bool
    header_bytes: int
    peak: int
    around: Cost

    @property
    def nodes(self) -> int:
        return self.schedule.nodes

    @property
    def rivals(self) -> dict[str, int]:
        """Bits per value of the formats that need no codec."""
        fits = self.peak * self.nodes <= 127
        return {"fp32": FP32_BITS, "bf16": 16} | ({"int8": 8} if fits else {})

    @property
    def rival(self) -> str:
        """Name of the cheapest of them; fewer bits are never slower."""
        return min(self.rivals, key=self.rivals.__getitem__)

    def coded_time(self) -> float:
        return equal_time(
            self.schedule,
            self.values,
            self.link,
            bits=self.bits_per_value,
            header_bytes=self.header_bytes,
            coded=self.coded,
        ) + self.around.seconds(self.values)

    def raw_time(self, name: str, *kinds: type[Schedule]) -> float:
        """Return the time of a rival by the best of `kinds`; int8, whose sums are exact, may go as coded."""
        nodes, subs = self.schedule.nodes, self.schedule.subframes
        ways = [kind(nodes, subs) for kind in kinds or (Ring, Direct)]
        ways += [self.schedule] if name == "int8" and not kinds else []
        bits = self.rivals[name]
        return min(equal_time(way, self.values, self.link, bits=bits, coded=False) for way in ways)

    def pays(self) -> bool:
        return self.coded_time() * MIN_GAIN <= self.raw_time(self.rival)


def predict(
    values: int,
    schedule: Schedule,
    link: LinkModel,
    bits_per_value: float,
    *,
    coded: bool = True,
    header_bytes: int = HEADER_BYTES,
    peak: int = 127,
    around: Cost = NOTHING,
) -> Prediction:
    """Predict one AllReduce of `values` by `schedule` with equal chunks, and judge it.

    `bits_per_value` is the codec's mean payload over all steps; `coded` tells whether the codec takes time;
    `peak` is the largest magnitude that one node contributes: int8 is a rival while peak nodes <= 127.
    `around` is what a worker computes before and after, which nothing hides. Compression pays if it is
    MIN_GAIN faster than the *best* of fp32, bf16 and int8, all sent raw with as many sub-frames and no
    headers, by a ring or direct; int8 may also take the schedule itself, floats may not where it splits sums.

    Raises ValueError for arguments out of range.
    """
    for name, given in (("values", values), ("peak", peak)):
        if given < 1:
            raise ValueError(f"{name}: expected 1 or more, got {given}")
    if not 0 < bits_per_value < 1024:
        raise ValueError(f"bits_per_value: expected more than 0 and less than 1,024, got {bits_per_value}")
    case = _Case(values, schedule, link, bits_per_value, coded, header_bytes, peak, around)
    times = {name: case.raw_time(name) for name in case.rivals}
    ring, direct = case.raw_time("fp32", Ring), case.raw_time("fp32", Direct)
    time_s = case.coded_time()
    alone = schedule.nodes == 1
    pays = not alone and case.pays()
    return Prediction(
        pays=pays,
        reason=_praise(times, time_s) if pays else _refusal(case, time_s),
        time_s=time_s,
        fp32_time_s=ring,
        fp32_direct_time_s=direct,
        bf16_time_s=times["bf16"],
        int8_time_s=times.get("int8"),
        speedup=1.0 if alone else ring / time_s,
        speedup_direct=1.0 if alone else direct / time_s,
        breakeven_values=None if alone else _breakeven_values(case),
        breakeven_gbps=None if alone else _breakeven_gbps(case),
    )


def _praise(times: dict[str, float], time_s: float) -> str:
    gains = ", ".join(f"{seconds / time_s:.2f}x over {name}" for name, seconds in times.items())
    return f"pays: {gains}"


def _refusal(case: _Case, time_s: float) -> str:
    """Name the cost that keeps compression from paying, by taking each cost away in turn."""
    link, rival = case.link, case.rival
    rival_bits = case.rivals[rival]
    if case.nodes == 1:
        return "N=1: nothing to send"
    if case.bits_per_value * MIN_GAIN > rival_bits:
        return f"too few bits saved: {case.bits_per_value:.3g} bits/value coded, {rival_bits} as {rival}"
    if replace(case, header_bytes=0).pays():
        count = max(1, case.values // (case.schedule.chunks * case.schedule.subframes))
        cure = "fewer sub-frames" if case.schedule.subframes > 1 else "larger buckets"
        return f"frames too small: {case.header_bytes} bytes of header for {count} values; use {cure}"
    if replace(case, around=NOTHING).pays():
        return f"the method computes too long: {case.around.seconds(case.values) / time_s:.1%} of the time"
    if replace(case, link=link.without_codec_rate()).pays():
        return _codec_bound(case, link.bandwidth_bps / rival_bits)
    still = replace(case, link=link.without_latency())
    share = 1.0 - still.coded_time() / time_s
    codec, count = link.codec(True), case.schedule.hops
    hops = f"{count} hops of {link.latency_s * 1e6:.3g} us"
    if codec.hop_once:
        hops += f" and {codec.hop_once * 1e6:.3g} us of codec each"
    hops += f" are {share:.1%} of the time"
    if still.pays():
        return f"latency-bound: {hops}"
    causes = [hops, f"{case.header_bytes} bytes of header per frame"]
    if case.around.seconds(case.values):
        causes.append(f"{case.around.seconds(case.values) * 1e6:.3g} us of computing before and after")
    if codec.values_per_s is not None:
        causes.insert(0, _codec_bound(case, link.bandwidth_bps / rival_bits))
    return f"several costs together: {'; '.join(causes)}"


def _codec_bound(case: _Case, rival_rate: float) -> str:
    """Say by how much the codec is too slow; `rival_rate` is in values/s."""
    rate = case.link.codec(True).values_per_s or 0.0
    gbps, made = case.link.bandwidth_bps / 1e9, f"codec makes {rate / 1e9:.3g} G"
    carried = f"{gbps:.4g} Gb/s carries {case.rival} at {rival_rate / 1e9:.3g} G values/s"
    if rate < rival_rate:
        return f"link is faster than the codec: {carried}, {made}"
    cut = f"{case.schedule.subframes} sub-frame(s) per chunk; use more"
    return f"coding is not hidden behind sending: {carried}, {made}, {cut}"


def _breakeven_values(case: _Case) -> int | None:
    """Return the smallest model that pays, to 0.1 %: whole values on a logarithmic scale."""

    def pays(log_values: float) -> bool:
        return replace(case, values=round(2.0**log_values)).pays()

    if not pays(_LOG_LARGEST):
        return None
    return 1 if pays(0.0) else round(2.0 ** _bisect(pays, _LOG_LARGEST, 0.0))


def _breakeven_gbps(case: _Case) -> float | None:
    def pays(gbps: float) -> bool:
        return replace(case, link=replace(case.link, bandwidth_bps=gbps * 1e9)).pays()

    if not pays(_SLOWEST_GBPS):
        return None
    return float("inf") if pays(_FASTEST_GBPS) else _bisect(pays, _SLOWEST_GBPS, _FASTEST_GBPS, ratio=True)


def _bisect(pays: Callable[[float], bool], good: float, bad: float, *, ratio: bool = False) -> float:
    """Return the last point that pays between `good` and `bad`; ratio: bisect on a logarithmic scale."""
    for _ in range(48):
        middle = (good * bad) ** 0.5 if ratio else (good + bad) / 2
        if pays(middle):
            good = middle
        else:
            bad = middle
        if abs(good - bad) <= 1e-3 * (max(good, bad) if ratio else 1.0):
            break
    return good
