"""Whether compression pays for a model size, a ring and a link, and the reason where it does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from oscar.coding.costs import Cost
from oscar.coding.frame import HEADER_BYTES
from oscar.collective.gather import FORWARD, RAW, Gather
from oscar.timeline.link import FP32_BITS, LinkModel
from oscar.timeline.recurrence import equal_ring_time

MIN_GAIN = 1.05  # under 5 % is within the error of any such model, and not worth a codec
NOTHING = Cost(0.0, 0.0)
_LOG_LARGEST = 42.0  # 2^42 values
_SLOWEST_GBPS, _FASTEST_GBPS = 1e-3, 1e6


@dataclass(frozen=True)
class Prediction:
    """What to expect of one AllReduce.

    `int8_time_s` is None where sums overflow 8 bits. `speedup` is against fp32. `breakeven_values` is the
    smallest model for which compression pays on this ring (None: no size does); `breakeven_gbps` the
    fastest link on which it pays for this model (None: on no link; inf: on all up to 10^6 Gb/s).
    """

    pays: bool
    reason: str
    time_s: float
    fp32_time_s: float
    bf16_time_s: float
    int8_time_s: float | None
    speedup: float
    breakeven_values: int | None
    breakeven_gbps: float | None


@dataclass(frozen=True)
class _Case:
    """One question; `replace` asks it again for another size or link."""

    values: int
    nodes: int
    link: LinkModel
    bits_per_value: float
    gather: Gather
    subframes: int
    header_bytes: int
    peak: int
    around: Cost

    @property
    def rivals(self) -> dict[str, int]:
        """Bits per value of what needs no codec."""
        fits = self.peak * self.nodes <= 127
        return {"fp32": FP32_BITS, "bf16": 16} | ({"int8": 8} if fits else {})

    @property
    def rival(self) -> str:
        """Name of the cheapest of them; fewer bits are never slower."""
        return min(self.rivals, key=self.rivals.__getitem__)

    def coded_time(self) -> float:
        return equal_ring_time(
            self.values,
            self.nodes,
            self.link,
            self.gather,
            bits_per_value=self.bits_per_value,
            subframes=self.subframes,
            header_bytes=self.header_bytes,
        ) + self.around.seconds(self.values)

    def raw_time(self, name: str) -> float:
        """Return the time of a rival; int8 sums are exact, so it may run duplex where the codec does."""
        gather = replace(self.gather, coded=False) if self.gather.duplex and name == "int8" else RAW
        return equal_ring_time(
            self.values,
            self.nodes,
            self.link,
            gather,
            bits_per_value=self.rivals[name],
            subframes=self.subframes,
        )

    def pays(self) -> bool:
        return self.coded_time() * MIN_GAIN <= self.raw_time(self.rival)


def predict(
    values: int,
    nodes: int,
    link: LinkModel,
    bits_per_value: float,
    gather: Gather = FORWARD,
    *,
    subframes: int = 1,
    header_bytes: int = HEADER_BYTES,
    peak: int = 127,
    around: Cost = NOTHING,
) -> Prediction:
    """Predict one AllReduce of `values` over `nodes` with equal chunks, and judge it.

    `bits_per_value` is the codec's mean payload over all steps; `peak` the largest magnitude that one node
    contributes, so that int8 is a rival while peak nodes <= 127. `around` is what a worker computes before
    and after the ring, which nothing hides. Compression pays if it is MIN_GAIN faster
    than the *best* of fp32, bf16 and int8, all sent raw with as many sub-frames and no headers. With
    duplex, int8 runs duplex too; floats cannot, since their sums would differ between nodes.

    Raises ValueError for arguments out of range.
    """
    if values < 1 or not 1 <= nodes <= 1024 or not 0 < bits_per_value < 1024 or subframes < 1 or peak < 1:
        raise ValueError(
            "expected values, subframes and peak of 1 or more, 1 to 1024 nodes and bits_per_value above 0, "
            f"got {values}, {subframes}, {peak}, {nodes} and {bits_per_value}"
        )
    case = _Case(values, nodes, link, bits_per_value, gather, subframes, header_bytes, peak, around)
    times = {name: case.raw_time(name) for name in case.rivals}
    time_s = case.coded_time()
    alone = nodes == 1
    pays = not alone and case.pays()
    return Prediction(
        pays=pays,
        reason=_praise(case, times, time_s) if pays else _refusal(case, time_s),
        time_s=time_s,
        fp32_time_s=times["fp32"],
        bf16_time_s=times["bf16"],
        int8_time_s=times.get("int8"),
        speedup=1.0 if alone else times["fp32"] / time_s,
        breakeven_values=None if alone else _breakeven_values(case),
        breakeven_gbps=None if alone else _breakeven_gbps(case),
    )


def _praise(case: _Case, times: dict[str, float], time_s: float) -> str:
    gains = ", ".join(f"{seconds / time_s:.2f}x over {name}" for name, seconds in times.items())
    return f"pays: {gains}"


def _refusal(case: _Case, time_s: float) -> str:
    """Name what would have to go for compression to pay, by taking each cost away in turn."""
    link, rival = case.link, case.rival
    rival_bits = case.rivals[rival]
    if case.nodes == 1:
        return "N=1: nothing to send"
    if case.bits_per_value * MIN_GAIN > rival_bits:
        return f"too few bits saved: {case.bits_per_value:.3g} bits/value coded, {rival_bits} as {rival}"
    if replace(case, header_bytes=0).pays():
        count = max(1, case.values // (case.nodes * case.subframes))
        cure = "fewer sub-frames" if case.subframes > 1 else "larger buckets"
        return f"frames too small: {case.header_bytes} bytes of header for {count} values; use {cure}"
    if replace(case, around=NOTHING).pays():
        return f"the method computes too long: {case.around.seconds(case.values) / time_s:.1%} of the time"
    if replace(case, link=link.without_codec_rate()).pays():
        return _codec_bound(case, link.bandwidth_bps / rival_bits)
    still = replace(case, link=link.without_latency())
    share = 1.0 - still.coded_time() / time_s
    way, count = ("N-1", case.nodes - 1) if case.gather.duplex else ("2(N-1)", 2 * (case.nodes - 1))
    codec = link.codec(True)
    hops = f"{way} = {count} hops of {link.latency_s * 1e6:.3g} us"
    if codec.hop_once:
        hops += f" and {codec.hop_once * 1e6:.3g} us of codec each"
    hops += f" are {share:.1%} of the time"
    if still.pays():
        return f"latency-bound: {hops}"
    causes = [hops, f"{case.header_bytes} bytes of header per frame"]
    if case.around.seconds(case.values):
        causes.append(f"{case.around.seconds(case.values) * 1e6:.3g} us of computing around the ring")
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
    cut = f"{case.subframes} sub-frame(s) per chunk; use more"
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
    """Return the last point that pays on the way from `good` to `bad`, halving logs if `ratio`."""
    for _ in range(48):
        middle = (good * bad) ** 0.5 if ratio else (good + bad) / 2
        if pays(middle):
            good = middle
        else:
            bad = middle
        if abs(good - bad) <= 1e-3 * (max(good, bad) if ratio else 1.0):
            break
    return good
