"""What a link and the codec in front of it cost, and the two bandwidths that reports quote."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from oscar.array import Array
from oscar.coding.costs import Cost, check_seconds, is_number
from oscar.collective.schedule import Schedule
from oscar.timeline.clocks import Engaged, Stage, dense_cells, engaged, frame_terms
from oscar.timeline.driver import Driver

FP32_BITS = 32
MOST_VALUES = (1 << 18) - 1  # of a NIC's frame
DENSE_BLOCKS = 16  # of a unit, in the frames by which a NIC's rate is told
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


@dataclass(frozen=True)
class Pipeline:
    """A NIC whose units share every frame: encoders and decoders work side by side, frames in order.

    Attributes:
        encode: Clocks of the encoders.
        decode: Clocks of the decoders.
        clock_s: Seconds of a clock.
        units: How many units share a frame.
        block: Values of a block, all coded by one unit.
        most: Values of a frame at most.
        port_bps: Bits a second of the NIC's bus each way, which frames pass.
    """

    encode: Stage
    decode: Stage
    clock_s: float = 1e-9
    units: int = 1
    block: int = 1 << 12
    most: int = MOST_VALUES
    port_bps: float = math.inf

    def __post_init__(self) -> None:
        check_seconds("clock_s", self.clock_s)
        self.encode.check("encode")
        self.decode.check("decode")

    def without(self, part: str) -> Pipeline:
        """Return the NIC with 0 for `per_value_s` or `once_s`, as Cores.without does."""
        rows = part == "per_value_s"
        return replace(self, encode=self.encode.without(rows=rows), decode=self.decode.without(rows=rows))

    def engaged(self, cells: Array, count: int) -> tuple[Engaged, Engaged]:
        """Return how long a frame engages the encoders, and the decoders.

        cells: Of the frame, as `asc.turns.cells_of` returns them. count: Its values.
        """
        encode, decode = frame_terms(cells, count, self.units, self.block)
        return engaged(encode, self.encode), engaged(decode, self.decode)

    @property
    def values_per_s(self) -> float:
        """Values that a node codes in a second on the way through it, in dense frames one after another."""
        count = DENSE_BLOCKS * self.units * self.block
        hold = max(each.hold for each in self.engaged(dense_cells(count), count))
        return count / (hold * self.clock_s) if hold else math.inf


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
            nic = self.coder
            return CodecTime(
                encode_each=nic.clock_s, hop_each=nic.clock_s, decode_each=nic.clock_s,
                encode_front=nic.encode.front * nic.clock_s, decode_front=nic.decode.front * nic.clock_s,
                nic=nic, driver=self.driver,
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
    """Seconds of the codec, for each value (of a NIC for each clock) and once.

    Attributes:
        busy: The codec has cores, each occupied until its result is out. Otherwise a frame occupies encoder
            or decoder for its values, or for its clocks of a NIC.
        cores: How many cores there are.
        encode_each, encode_once: To encode a frame.
        hop_each, hop_once: To decode a frame, add to it and encode the sum.
        decode_each, decode_once: To decode a frame.
        encode_front, decode_front: From a frame until its blocks begin.
        nic: The NIC, which says how many clocks a frame takes.
        driver: What gives the commands, if that takes time.
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
    decode_front: float = 0.0
    nic: Pipeline | None = None
    driver: Driver | None = None

    @property
    def values_per_s(self) -> float | None:
        """How many values a node codes in a second on the way through it; None: as many as come."""
        if self.nic is not None:
            return self.nic.values_per_s
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
