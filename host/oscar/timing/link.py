"""What a link and the codec in front of it cost, and the two bandwidths that reports quote."""

from __future__ import annotations

import math
from dataclasses import dataclass

FP32_BITS = 32
LEAST_RATE, MOST_RATE = 1e3, 1e18  # of bits or values a second; beyond these, times are of no use,
MOST_SECONDS = 1e3  # and further out they are no numbers any more


@dataclass(frozen=True)
class LinkModel:
    """One node's NIC port and codec, the same on every node.

    The port is full duplex with one outgoing direction that sends one frame at a time; a frame arrives
    `latency_s` after its last bit left. The codec has one encode and one decode-add engine, each of which
    serves in order; a sub-frame occupies an engine for count / `codec_values_per_s` (None: no time at all,
    a codec at line rate) and is ready `codec_latency_s` (the depth of its pipeline) after that, from the
    encoder `encode_latency_s` (None: the same): it codes blocks backwards, so its last one comes late.
    Incoming frames do not contend: in a ring only one peer sends to a node at a time.

    Raises ValueError unless rates and latencies lie within the bounds above.
    """

    bandwidth_bps: float = 100e9
    latency_s: float = 2e-6
    codec_values_per_s: float | None = None
    codec_latency_s: float = 0.5e-6
    encode_latency_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("bandwidth_bps", "codec_values_per_s"):
            rate = getattr(self, name)
            if rate is None and name == "codec_values_per_s":
                continue
            if not _is_number(rate) or not LEAST_RATE <= rate <= MOST_RATE:
                hint = ", or None for a codec at line rate" if name == "codec_values_per_s" else ""
                raise ValueError(
                    f"{name}: expected a finite rate above 0, from {LEAST_RATE:g} to {MOST_RATE:g}{hint}, "
                    f"got {rate!r}"
                )
        for name in ("latency_s", "codec_latency_s", "encode_latency_s"):
            seconds = getattr(self, name)
            if seconds is None:
                continue
            if not _is_number(seconds) or not 0 <= seconds <= MOST_SECONDS:
                raise ValueError(
                    f"{name}: expected finite seconds, 0 or more, to {MOST_SECONDS:g}, got {seconds!r}"
                )

    @classmethod
    def of(
        cls,
        *,
        gbps: float = 100.0,
        latency_us: float = 2.0,
        codec_gvalues: float | None = None,
        codec_latency_us: float = 0.5,
        encode_latency_us: float | None = None,
    ) -> LinkModel:
        """Build one from Gb/s, microseconds and G values/s; raises ValueError like the class."""
        rate = None if codec_gvalues is None else codec_gvalues * 1e9
        encode = None if encode_latency_us is None else encode_latency_us * 1e-6
        return cls(gbps * 1e9, latency_us * 1e-6, rate, codec_latency_us * 1e-6, encode)

    @property
    def seconds_per_byte(self) -> float:
        """How long a byte occupies the outgoing link."""
        return 8.0 / self.bandwidth_bps

    def codec_cost(self, coded: bool) -> tuple[float, float, float]:
        """Return engine seconds per value, and the latency of encoder and decoder; 0 for raw floats."""
        if not coded:
            return 0.0, 0.0, 0.0
        per_value = 0.0 if self.codec_values_per_s is None else 1.0 / self.codec_values_per_s
        decode = self.codec_latency_s
        return per_value, decode if self.encode_latency_s is None else self.encode_latency_s, decode


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def algbw(values: int, time_s: float, *, bits: int = FP32_BITS) -> float:
    """Return nccl-tests' algorithm bandwidth in bytes/s, on the uncompressed bytes whatever was sent."""
    if time_s <= 0:
        raise ValueError(f"algbw: expected a time above 0 s, got {time_s!r}; one node alone has no bandwidth")
    return values * bits / 8 / time_s


def busbw(algorithm_bandwidth: float, nodes: int) -> float:
    """Return nccl-tests' bus bandwidth, algbw 2(n-1)/n; with compression it may exceed the line rate."""
    if nodes < 1:
        raise ValueError(f"busbw: expected at least 1 node, got {nodes}")
    return algorithm_bandwidth * 2 * (nodes - 1) / nodes
