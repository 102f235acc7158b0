"""What a link and the codec in front of it cost, and the two bandwidths that reports quote."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from oscar.coding.costs import Cost, check_seconds, is_number
from oscar.collective.schedule import Schedule
from oscar.timeline.driver import Driver

FP32_BITS = 32
MOST_VALUES = (1 << 18) - 1  # of a NIC's frame
LEAST_RATE, MOST_RATE = 1e3, 1e18  # of bits or values a second; beyond these, times mean nothing or overflow


@dataclass(frozen=True)
class Cores:
    """What codes frames: cores of a host, each one frame at a time.

    Sub-frame k of a chunk is coded by core k mod `count`, since every core has tables of its own. Where
    a chunk has fewer sub-frames than there are cores, it is cut into more, until each has one. `hop` is a
    frame that is decoded, added to and coded again in one go; a core is free once its result is out.
    """

    encode: Cost
    hop: Cost
    decode: Cost
    count: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 1:
            raise ValueError(f"count: expected 1 core or more, got {self.count!r}")

    def without(self, part: str) -> Cores:
        """Return cores whose costs have 0 for `per_value_s` or `once_s`."""
        encode, hop, decode = (replace(c, **{part: 0.0}) for c in (self.encode, self.hop, self.decode))
        return Cores(encode, hop, decode, self.count)


class Stage(NamedTuple):
    """What a NIC's encoders or decoders take for a frame, in seconds.

    `front_s` after it is there its blocks begin (its tables are built), if the frame before lets them:
    these keep the units for `each_s` a value (`sizes.Engaged.hold`) and `between_s`, and for `least_s` at
    least. The result is there after `each_s` a value (`sizes.Engaged.work`) and `latency_s`.
    """

    each_s: float
    front_s: float
    between_s: float
    least_s: float
    latency_s: float


@dataclass(frozen=True)
class Pipeline:
    """A NIC whose units share every frame: encoders and decoders work side by side, frames in order.

    `each_s`: seconds per value with all `units` at work. block: values of a block, all coded by one unit.
    most: values of a frame at most. port_bps: bits a second of its bus each way, which frames pass.
    """

    encode: Stage
    decode: Stage
    units: int = 1
    block: int = 1 << 12
    most: int = MOST_VALUES
    port_bps: float = math.inf

    def __post_init__(self) -> None:
        for name, stage in (("encode", self.encode), ("decode", self.decode)):
            for part, seconds in stage._asdict().items():
                check_seconds(f"{name}.{part}", seconds)

    def without(self, part: str) -> Pipeline:
        """Return the NIC with 0 for `per_value_s` or `once_s`, as Cores.without does."""
        once = dict.fromkeys(("front_s", "between_s", "least_s", "latency_s"), 0.0)
        none = {"each_s": 0.0} if part == "per_value_s" else once
        return replace(self, encode=self.encode._replace(**none), decode=self.decode._replace(**none))


@dataclass(frozen=True)
class LinkModel:
    """One node's port and codec, the same on every node.

    The port is full duplex. It sends one frame at a time at `bandwidth_bps`, and a frame has arrived
    `latency_s` after its last bit left. It also receives one frame at a time, in the order in which frames
    begin to arrive: of two peers that send to one node, one waits. Software makes room for every frame that
    it will receive before it sends its first one; that takes `message_s` each.

    The codec is `coder`, a NIC's or a core's, or without them a pipeline that keeps up with its work: one
    encoder and one decoder, each of which serves in order; a sub-frame occupies it for count /
    `codec_values_per_s` (None:
    no time at all). It is ready `codec_latency_s` later, or from the encoder `encode_latency_s` later (None:
    the same). `driver` gives a NIC its commands; None: they cost nothing.

    Raises ValueError unless rates and times lie within the bounds above.
    """

    bandwidth_bps: float = 100e9
    latency_s: float = 2e-6
    codec_values_per_s: float | None = None
    codec_latency_s: float = 0.5e-6
    encode_latency_s: float | None = None
    message_s: float = 0.0
    coder: Cores | Pipeline | None = None
    driver: Driver | None = None

    def __post_init__(self) -> None:
        if self.driver is not None and not isinstance(self.coder, Pipeline):
            raise ValueError(f"driver: expected a NIC beside it, got {self.coder!r}")
        for name in ("bandwidth_bps", "codec_values_per_s"):
            rate = getattr(self, name)
            if rate is None and name == "codec_values_per_s":
                continue
            if not is_number(rate) or not LEAST_RATE <= rate <= MOST_RATE:
                hint = ", or None for a codec at line rate" if name == "codec_values_per_s" else ""
                raise ValueError(
                    f"{name}: expected a rate from {LEAST_RATE:g} to {MOST_RATE:g}{hint}, got {rate!r}"
                )
        for name in ("latency_s", "codec_latency_s", "message_s"):
            check_seconds(name, getattr(self, name))
        if self.encode_latency_s is not None:
            check_seconds("encode_latency_s", self.encode_latency_s)

    @classmethod
    def of(
        cls,
        *,
        gbps: float = 100.0,
        latency_us: float = 2.0,
        codec_gvalues: float | None = None,
        codec_latency_us: float = 0.5,
        encode_latency_us: float | None = None,
        coder: Cores | Pipeline | None = None,
        driver: Driver | None = None,
    ) -> LinkModel:
        """Build one from Gb/s, microseconds and G values/s; raises ValueError like the class."""
        rate = None if codec_gvalues is None else codec_gvalues * 1e9
        encode = None if encode_latency_us is None else encode_latency_us * 1e-6
        times = latency_us * 1e-6, rate, codec_latency_us * 1e-6, encode
        return cls(gbps * 1e9, *times, coder=coder, driver=driver)

    @property
    def seconds_per_byte(self) -> float:
        """How long a byte occupies the outgoing link."""
        return 8.0 / self.bandwidth_bps

    def wired(self, coded: bool) -> LinkModel:
        """Return the link as frames see it: what a NIC codes passes no faster than the NIC's bus."""
        if not coded or not isinstance(self.coder, Pipeline) or self.coder.port_bps >= self.bandwidth_bps:
            return self
        return replace(self, bandwidth_bps=self.coder.port_bps)

    def without_codec_rate(self) -> LinkModel:
        """Return the same link with a codec that takes no time for a value."""
        return replace(self._without("per_value_s"), codec_values_per_s=None)

    def without_latency(self) -> LinkModel:
        """Return the same link without any cost per frame, except its header."""
        none = dict.fromkeys(("latency_s", "codec_latency_s", "encode_latency_s", "message_s"), 0.0)
        return replace(self._without("once_s"), **none)  # type: ignore[arg-type]

    def _without(self, part: str) -> LinkModel:
        coder = self.coder and self.coder.without(part)
        return replace(self, coder=coder, driver=self.driver and self.driver.without(part))

    def codec(self, coded: bool) -> CodecTime:
        """Return the codec as the model counts it; raw floats (`coded` false) take it no time."""
        if not coded:
            return CodecTime()
        if isinstance(self.coder, Pipeline):
            to, back = self.coder.encode, self.coder.decode
            each, latency = to.each_s + back.each_s, to.latency_s + back.latency_s
            return CodecTime(
                encode_each=to.each_s, encode_once=to.latency_s, hop_each=each, hop_once=latency,
                decode_each=back.each_s, decode_once=back.latency_s, encode_front=to.front_s,
                encode_between=to.between_s, encode_least=to.least_s, decode_front=back.front_s,
                decode_between=back.between_s, decode_least=back.least_s, sharing=self.coder.units,
                block=self.coder.block, driver=self.driver,
            )  # fmt: skip
        if self.coder is not None:
            e = self.coder
            return CodecTime(
                busy=True, cores=e.count, encode_each=e.encode.per_value_s, encode_once=e.encode.once_s,
                hop_each=e.hop.per_value_s, hop_once=e.hop.once_s, decode_each=e.decode.per_value_s,
                decode_once=e.decode.once_s,
            )  # fmt: skip
        each = 0.0 if self.codec_values_per_s is None else 1.0 / self.codec_values_per_s
        decode = self.codec_latency_s
        encode = decode if self.encode_latency_s is None else self.encode_latency_s
        return CodecTime(
            encode_each=each, encode_once=encode, hop_each=2 * each, hop_once=decode + encode,
            decode_each=each, decode_once=decode,
        )  # fmt: skip


class CodecTime(NamedTuple):
    """Seconds of the codec per value and once.

    `busy`: it has cores, each occupied until its result is out. Otherwise a frame occupies encoder or
    decoder for its values, and as `Stage` says. sharing: so many units share a frame, cut into blocks of
    `block` values; what counts is its work. driver: what gives the commands, if that takes time.
    """

    busy: bool = False
    cores: int = 1
    encode_each: float = 0.0
    encode_once: float = 0.0
    hop_each: float = 0.0
    hop_once: float = 0.0
    decode_each: float = 0.0
    decode_once: float = 0.0
    encode_front: float = 0.0
    encode_between: float = 0.0
    encode_least: float = 0.0
    decode_front: float = 0.0
    decode_between: float = 0.0
    decode_least: float = 0.0
    sharing: int = 0
    block: int = 0
    driver: Driver | None = None

    @property
    def values_per_s(self) -> float | None:
        """How many values a node codes in a second on the way through it; None: as many as come."""
        slowest = self.hop_each / self.cores if self.busy else max(self.encode_each, self.decode_each)
        return 1 / slowest if slowest else None


def listed(schedule: Schedule, values: int, link: LinkModel, *, coded: bool = True) -> Driver | None:
    """Return the link's driver while a list gives the commands; None without a driver, list or codec."""
    if link.driver is None or not coded:
        return None
    return link.driver.listed(schedule, values)


def algbw(values: int, time_s: float) -> float:
    """Return nccl-tests' algorithm bandwidth in bytes/s, on the uncompressed bytes whatever was sent."""
    if time_s <= 0:
        raise ValueError(f"algbw: expected a time above 0 s, got {time_s!r}; one node alone has no bandwidth")
    return values * FP32_BITS / 8 / time_s


def busbw(algorithm_bandwidth: float, nodes: int) -> float:
    """Return nccl-tests' bus bandwidth, algbw 2(n-1)/n; with compression it may exceed the line rate."""
    if nodes < 1:
        raise ValueError(f"busbw: expected at least 1 node, got {nodes}")
    return algorithm_bandwidth * 2 * (nodes - 1) / nodes
