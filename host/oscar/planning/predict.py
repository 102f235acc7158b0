"""Whether compression pays for a model size, a schedule and a link, and the reason where it does not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from oscar.coding.costs import Cost
from oscar.coding.frame import HEADER_BYTES
from oscar.collective.actions import MAX_SUBFRAMES
from oscar.collective.ring import Ring
from oscar.collective.schedule import Schedule
from oscar.collective.trees import Direct
from oscar.timeline.equal import equal_time
from oscar.timeline.link import FP32_BITS, MOST_VALUES, LinkModel, Pipeline
from oscar.timeline.topology import MissingLinkError, Topology

MIN_GAIN = 1.05  # a gain under 5 % is within the error of such a model, and not worth a codec
NOTHING = Cost(0.0, 0.0)
_LOG_LARGEST = 42  # 2^42 values
_SLOWEST_GBPS, FASTEST_GBPS = 1e-3, 1e4  # no port of today is faster
_RATES = 15  # that are tried between these, two a decade; then the last one that pays is narrowed down
SEARCHED = 64  # ranks: a search plays a schedule that is not alike some fifty times
_CUT_IN_REPLAYS = 16  # ranks up to which sub-frames are chosen where each number of them takes a replay


@dataclass(frozen=True)
class Prediction:
    """What to expect of one AllReduce.

    fp32 has a time for its ring, as libraries send it, and one for the direct schedule, and a speed-up over
    each; bf16 and int8 have that of the faster one. `int8_time_s` is None where sums overflow 8 bits.
    rival: which of these coding has to beat, bf16 or int8, the one with fewer bytes. subframes: of a chunk.
    `breakeven_values` is the smallest model for which compression pays on this schedule (None: no size does);
    `breakeven_gbps` the fastest link on which it pays for this model (None: on no link; inf: on all up to
    FASTEST_GBPS); `pays_below`: whether it pays on all that are slower. searched: whether these were looked
    for: not with a topology, whose ports have rates of their own, nor where each time takes seconds.
    """

    pays: bool
    reason: str
    time_s: float
    fp32_time_s: float
    fp32_direct_time_s: float
    bf16_time_s: float
    int8_time_s: float | None
    rival: str
    subframes: int
    speedup: float
    speedup_direct: float
    breakeven_values: int | None
    breakeven_gbps: float | None
    pays_below: bool = True
    searched: bool = True


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
    topology: Topology | None = None
    any_subframes: bool = False

    @property
    def searched(self) -> bool:
        """Whether times take little enough to look for the rate and the size at which coding pays."""
        return self.topology is None and (self.nodes <= SEARCHED or self.schedule.alike)

    @property
    def nodes(self) -> int:
        return self.schedule.nodes

    @property
    def largest(self) -> int:
        """The most values that all frames together may have: a NIC's frames have a limit."""
        most = 1 << _LOG_LARGEST
        if not self.coded or not isinstance(self.link.coder, Pipeline):
            return most
        subframes = MAX_SUBFRAMES if self.any_subframes else self.schedule.subframes
        return min(most, self.link.coder.most * self.schedule.chunks * subframes)

    @property
    def rivals(self) -> dict[str, int]:
        """Bits per value of the formats that need no codec."""
        fits = self.peak * self.nodes <= 127
        return {"fp32": FP32_BITS, "bf16": 16} | ({"int8": 8} if fits else {})

    @property
    def rival(self) -> str:
        """Name of the cheapest of them; fewer bits are never slower."""
        return min(self.rivals, key=self.rivals.__getitem__)

    @cached_property
    def fastest(self) -> tuple[float, int]:
        """Seconds of the coded AllReduce, and its sub-frames a chunk: those given, or the fastest number."""
        times: list[tuple[float, int]] = []
        for subframes in self._numbers_of_subframes():
            times.append((self._coded_time(subframes), subframes))
            if len(times) > 2 and min(times[-2:]) > min(times):
                break  # two in a row were slower: more are slower still
        return min(times)

    def _numbers_of_subframes(self) -> list[int]:
        if not self.any_subframes:
            return [self.schedule.subframes]
        nic = self.coded and isinstance(self.link.coder, Pipeline)
        least = max(1, -(-self.values * MAX_SUBFRAMES // self.largest)) if nic else 1
        if not self.schedule.alike and self.nodes > _CUT_IN_REPLAYS:
            return [least]
        return [least << i for i in range(MAX_SUBFRAMES.bit_length()) if least << i <= MAX_SUBFRAMES]

    @property
    def subframes(self) -> int:
        return self.fastest[1]

    def coded_time(self) -> float:
        return self.fastest[0]

    def _coded_time(self, subframes: int) -> float:
        return equal_time(
            replace(self.schedule, subframes=subframes),
            self.values,
            self.link,
            self.topology,
            bits=self.bits_per_value,
            header_bytes=self.header_bytes,
            coded=self.coded,
        ) + self.around.seconds(self.values)

    def raw_time(self, name: str, *kinds: type[Schedule]) -> float:
        """Return the time of a rival by the best of `kinds`; int8, whose sums are exact, may go as coded.

        So may all where there is a topology, unless ranks add in orders of their own. inf: without links.
        """
        nodes, subs = self.schedule.nodes, self.subframes
        ways = [kind(nodes, subs) for kind in kinds or (Ring, Direct)]
        own = name == "int8" or (self.topology is not None and not self.schedule.integers)
        ways += [replace(self.schedule, subframes=subs)] if own and not kinds else []
        return min(self._raw_time(way, self.rivals[name]) for way in ways)

    def _raw_time(self, way: Schedule, bits: int) -> float:
        try:
            return equal_time(way, self.values, self.link, self.topology, bits=bits, coded=False)
        except MissingLinkError:
            return math.inf

    def pays(self) -> bool:
        return self.coded_time() * MIN_GAIN <= self.raw_time(self.rival)


def predict(
    values: int,
    schedule: Schedule,
    link: LinkModel,
    bits_per_value: float,
    *,
    coded: bool = True,
    peak: int = 127,
    around: Cost = NOTHING,
    topology: Topology | None = None,
    any_subframes: bool = False,
) -> Prediction:
    """Predict one AllReduce of `values` by `schedule` with equal chunks, and judge it.

    `bits_per_value` is the codec's mean payload over all steps; `coded` tells whether the codec takes time;
    `peak` is the largest magnitude that one node contributes: int8 is a rival while peak nodes <= 127.
    `around` is what a worker computes before and after, which nothing hides. Compression pays if it is
    MIN_GAIN faster than the *best* of fp32, bf16 and int8, all sent raw with as many sub-frames and no
    headers, by a ring or direct; int8 may also take the schedule itself, floats may not where it splits sums.

    topology: ports and latencies other than the link's, which rivals use, too. any_subframes: takes the
    number of sub-frames with which the coded AllReduce is fastest, not that of `schedule`.

    Raises ValueError for arguments out of range, frames that a NIC does not take, and a topology without the
    schedule's links.
    """
    if not 1 <= values <= 2**_LOG_LARGEST or peak < 1:
        raise ValueError(
            f"expected 1 to {2**_LOG_LARGEST:,} values and a peak of 1 or more, got {values} and {peak}"
        )
    if not 0 < bits_per_value < 1024:
        raise ValueError(f"bits_per_value: expected more than 0 and less than 1,024, got {bits_per_value}")
    header = HEADER_BYTES
    case = _Case(values, schedule, link, bits_per_value, coded, header, peak, around, topology, any_subframes)
    if values > case.largest:
        raise ValueError(_too_large(case))
    times = {name: case.raw_time(name) for name in case.rivals}
    ring, direct = case.raw_time("fp32", Ring), case.raw_time("fp32", Direct)
    time_s = case.coded_time()
    alone = schedule.nodes == 1
    pays = not alone and time_s * MIN_GAIN <= times[case.rival]
    search = case.searched and not alone
    gbps, below = _breakeven_gbps(case) if search else (None, True)
    return Prediction(
        pays=pays,
        reason=_praise(times, time_s) if pays else _refusal(case, time_s),
        time_s=time_s,
        fp32_time_s=ring,
        fp32_direct_time_s=direct,
        bf16_time_s=times["bf16"],
        int8_time_s=times.get("int8"),
        rival=case.rival,
        subframes=case.subframes,
        speedup=1.0 if alone else ring / time_s,
        speedup_direct=1.0 if alone else direct / time_s,
        breakeven_values=_breakeven_values(case) if search else None,
        breakeven_gbps=gbps,
        pays_below=below,
        searched=search,
    )


def _too_large(case: _Case) -> str:
    """Say that frames are larger than the NIC takes, and how many sub-frames or values would do."""
    coder, schedule = case.link.coder, case.schedule
    assert isinstance(coder, Pipeline)
    has = math.ceil(case.values / schedule.chunks / schedule.subframes)
    needed = math.ceil(case.values / schedule.chunks / coder.most)
    cure = f"add --subframes {needed}"
    if needed > MAX_SUBFRAMES:
        fits = coder.most * schedule.chunks * MAX_SUBFRAMES
        cure = (
            f"that takes {needed} sub-frames a chunk, and {MAX_SUBFRAMES} is the most: take buckets of up to "
            f"{fits:,} values with --subframes {MAX_SUBFRAMES}, or another --nic-file"
        )
    where = "a NIC's frame" if coder.most == MOST_VALUES else "this NIC's memory"
    return f"a frame has {has:,} values, {where} holds {coder.most:,}: {cure}"


def _praise(times: dict[str, float], time_s: float) -> str:
    gained = ((name, seconds / time_s) for name, seconds in times.items() if seconds < math.inf)
    gains = ", ".join(f"{gain:.2f}x over {name}" for name, gain in gained)
    return f"pays: {gains}"


def _refusal(case: _Case, time_s: float) -> str:
    """Name the cost that keeps compression from paying, by taking each cost away in turn."""
    link, rival = case.link, case.rival
    rival_bits = case.rivals[rival]
    if case.nodes == 1:
        return "N=1: nothing to send"
    if case.bits_per_value * MIN_GAIN > rival_bits:
        return f"too few bits saved: {case.bits_per_value:.3g} bits/value coded, {rival_bits} as {rival}"
    if not case.searched:
        return f"{case.raw_time(rival) / time_s:.2f}x over {rival}; what holds it back was not looked for"
    if replace(case, header_bytes=0).pays():
        count = max(1, case.values // (case.schedule.chunks * case.subframes))
        return f"frames too small: {case.header_bytes} bytes of header for {count} values; {_larger(case)}"
    if replace(case, around=NOTHING).pays():
        return f"the method computes too long: {case.around.seconds(case.values) / time_s:.1%} of the time"
    if link.driver is not None and replace(case, link=replace(link, driver=None)).pays():
        return _driver_bound(case, time_s)
    if replace(case, link=link.without_codec_rate()).pays():
        return _codec_bound(case, time_s)
    still = replace(case, link=link.without_latency())
    share = 1.0 - still.coded_time() / time_s
    codec, count = link.codec(coded=True), case.schedule.hops
    hops = f"{count} hops of {link.latency_s * 1e6:.3g} us"
    if codec.hop_once:
        hops += f" and {codec.hop_once * 1e6:.3g} us of codec each"
    hops += f" are {share:.1%} of the time"
    if still.pays():
        return f"latency-bound: {hops}"
    causes = [hops, f"{case.header_bytes} bytes of header per frame"]
    if case.around.seconds(case.values):
        causes.append(f"{case.around.seconds(case.values) * 1e3:.3g} ms of computing before and after")
    if link.driver is not None:
        causes.insert(0, _driver_bound(case, time_s))
    elif codec.values_per_s is not None:
        causes.insert(0, _codec_bound(case, time_s))
    return f"several costs together: {'; '.join(causes)}"


def _larger(case: _Case) -> str:
    """Say how frames become larger; a NIC may not hold those of fewer sub-frames."""
    subs = case.schedule.subframes - 1
    fewer = not case.any_subframes and subs > 0 and case.values <= case.largest // (subs + 1) * subs
    return "use fewer sub-frames" if fewer else "use larger buckets"


def _driver_bound(case: _Case, time_s: float) -> str:
    """Say what the NIC's driver costs: its commands, or that it moves rows into the NIC and out."""
    link, driver = case.link, case.link.driver
    alone = replace(case, link=replace(link, driver=None)).coded_time()
    text = f"the NIC's driver takes its time: {time_s * 1e6:.4g} us, {alone * 1e6:.4g} without it"
    if driver is not None and replace(case, link=replace(link, driver=driver.without("once_s"))).pays():
        return f"{text}; commands are what costs: {_larger(case)}"
    return f"{text}; commands are not all of it: rows are moved into the NIC and out"


def _codec_bound(case: _Case, time_s: float) -> str:
    """Say by how much the codec is too slow, or what to do where it is not hidden; time_s: coded."""
    rate = case.link.codec(coded=True).values_per_s or 0.0
    rival_rate = case.link.bandwidth_bps / case.rivals[case.rival]
    gbps, made = case.link.bandwidth_bps / 1e9, f"codec makes {rate / 1e9:.3g} G"
    carried = f"{gbps:.4g} Gb/s carries {case.rival} at {rival_rate / 1e9:.3g} G values/s"
    if rate < rival_rate:
        return f"link is faster than the codec: {carried}, {made}"
    return f"coding is not hidden behind sending: {carried}, {made}; {_cut(case, time_s)}"


def _cut(case: _Case, time_s: float) -> str:
    """Say how many sub-frames a chunk are faster, or what else takes the time where none are."""
    subs, best, best_s = case.subframes, case.subframes, time_s
    while subs < MAX_SUBFRAMES and not case.any_subframes:
        subs = min(2 * subs, MAX_SUBFRAMES)
        cut_s = replace(case, schedule=replace(case.schedule, subframes=subs)).coded_time()
        if cut_s >= best_s:
            break
        best, best_s = subs, cut_s
    if best_s < time_s:
        return f"use more sub-frames per chunk: {best} take {best_s * 1e6:.4g} us, not {time_s * 1e6:.4g}"
    parts, without = [], case.link.without_latency()
    if (driver := case.link.driver) is not None:
        without = replace(without, driver=driver)
        alone_s = replace(case, link=replace(case.link, driver=None)).coded_time()
        parts.append(f"the NIC's driver takes {1 - alone_s / time_s:.1%} of the time")
    share = 1 - replace(case, link=without).coded_time() / time_s
    parts.append(f"latency of links and codec in {case.schedule.hops} hops takes {share:.1%}")
    return f"more sub-frames are no faster: {', '.join(parts)}"


def _breakeven_values(case: _Case) -> int | None:
    """Return the smallest model that pays, to 0.1 %: whole values on a logarithmic scale."""

    if isinstance(case.link.coder, Pipeline):  # each size of a frame takes a NIC's model some time
        case = replace(case, any_subframes=False, schedule=replace(case.schedule, subframes=case.subframes))

    def pays(log_values: float) -> bool:
        return replace(case, values=round(2.0**log_values)).pays()

    largest = math.log2(case.largest)
    if not pays(largest):
        return None
    return 1 if pays(0.0) else round(2.0 ** _bisect(pays, largest, 0.0))


def _breakeven_gbps(case: _Case) -> tuple[float | None, bool]:
    def pays(gbps: float) -> bool:
        return replace(case, link=replace(case.link, bandwidth_bps=gbps * 1e9)).pays()

    return last_rate(pays)


def last_rate(pays: Callable[[float], bool]) -> tuple[float | None, bool]:
    """Return the highest link rate in Gb/s that pays, to .1 %, and whether all lower ones that are tried do.

    Rates are tried from 10^-3 to FASTEST_GBPS, two a decade. None: none of them pays; inf: the last one does.
    """
    rates = np.geomspace(_SLOWEST_GBPS, FASTEST_GBPS, _RATES).tolist()
    good = [pays(rate) for rate in rates]
    if not any(good):
        return None, True
    last = _RATES - 1 - good[::-1].index(True)
    below = all(good[:last])
    if last == _RATES - 1:
        return math.inf, below
    return _bisect(pays, rates[last], rates[last + 1], ratio=True), below


def last_text(gbps: float | None) -> str:
    """Return what `last_rate` found, for a reader."""
    if gbps is None:
        return "no rate"
    return rate_text(min(gbps, FASTEST_GBPS))


def rate_text(gbps: float) -> str:
    """Return a rate in the unit in which it is read: Mb/s, Gb/s, Tb/s, Pb/s."""
    for unit, scale in (("Mb/s", 1e-3), ("Gb/s", 1.0), ("Tb/s", 1e3)):
        if float(f"{gbps / scale:.3g}") < 1000:
            return f"{gbps / scale:.3g} {unit}"
    return f"{gbps / 1e6:.3g} Pb/s"


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
