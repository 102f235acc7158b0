"""DynamiQ (Han et al., arXiv 2602.08923): partial sums are quantised again at each hop of a ring.

Super-groups of 256 values are centred at their mean. Workers agree on means and energies in bfloat16. From
the summed energies follow the bits of each super-group: 8, 4 or 2, as many as the budget bears. In the
super-group every 16 values share a scale of 8 bits, which is a part of the super-group's scale in bfloat16.
Levels grow by a factor and a constant, so that small values keep fine ones. Rounding is random, and
correlated: of N workers that quantise a value one after the other, each draws from another Nth of the unit
interval.

The paper's abstract and its authors' artifact were read. Inferred: energies are those of centred values; the
budget counts scales and statistics in full; bits follow from energies of the same iteration, not of the last.
Error feedback is not in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from oscar.array import Array
from oscar.coding.plain import Bf16
from oscar.numerics.tensors import pack_bits, packed_size, unpack_bits
from oscar.schemes.base import Message, Messages, Scheme, Worker, check_bytes, handed

GROUP, SUPER = 16, 256  # values that share a scale, and a width
ERRORS = {8: 0.1, 4: 0.25, 2: 0.25}  # by width: how fast levels grow, of the authors' artifact
SCALE_LEVELS = 255
OVERHEAD = 8 / GROUP + 16 / SUPER + 2 * 16 / SUPER  # bits a value: scales, statistics
RATIO = 2.0 ** (512 / 17)  # between the energies from which 4 and 8 bits are given
MOST_ENERGY = 1e37  # of a sum, within bfloat16
FEEDBACK_BITS = 5.0  # from which feedback is kept within bounds
TAG = 0xD17A


def levels_of(width: int) -> Array:
    """Return the 2^(width - 1) magnitudes from 0 to 1, float32, for values of `width` bits with a sign."""
    error, result = ERRORS[width] ** 2, [0.0]
    for _ in range((1 << (width - 1)) - 1):
        result.append(result[-1] * (1 + 2 * error) + 1 + error)
    return (np.array(result) / result[-1]).astype(np.float32)


LEVELS = {width: levels_of(width) for width in ERRORS}


def choose_widths(energies: Array, budget: float) -> Array:
    """Return the bits of each super-group, int64: 8 from an energy on, 4 down to a RATIO of it, 2 below.

    energies: float32. budget: mean bits of a value. The threshold is the lowest one that keeps to it.
    """
    wide = np.sort(energies.astype(np.float64))
    thresholds = np.append(np.unique(np.concatenate([wide, wide * RATIO])), np.inf)
    four, eight = np.searchsorted(wide, [thresholds / RATIO, thresholds])
    kept = np.flatnonzero(8 * (wide.size - eight) + 4 * (eight - four) + 2 * four <= budget * wide.size)
    threshold = thresholds[kept[0]] if kept.size else np.inf
    return np.where(energies >= threshold, 8, np.where(energies >= threshold / RATIO, 4, 2))


@dataclass(frozen=True)
class DynamiqOptions:
    """Options of the scheme `dynamiq`.

    bits: budget of a value with scales and statistics. Raise it for less noise; lower it for fewer bytes.
    correlated: draw the workers' roundings of a value apart from each other. Switch it off to compare.
    error_feedback: a worker keeps what it lost whenever it quantised; what the sum of means loses to
        bfloat16 stays lost. Not part of the published method.
        Leave it off below 5 bits: values of 2 bits are rounded by more than they are worth, and what waits
        grows without bound.
    """

    bits: float = 5.0
    correlated: bool = True
    error_feedback: bool = False

    def __post_init__(self) -> None:
        if not 2 + OVERHEAD <= self.bits <= 8 + OVERHEAD:
            raise ValueError(f"bits is {2 + OVERHEAD} to {8 + OVERHEAD}, got {self.bits}")


@dataclass(frozen=True)
class _Draws:
    """Random numbers of a worker. own: by super-group and place; scales: by super-group and group."""

    own: Array = field(repr=False)
    scales: Array = field(repr=False)


class Dynamiq(Scheme):
    """Sum around a ring, at each hop from and to few bits."""

    name: ClassVar[str] = "dynamiq"
    Options: ClassVar[type[Any]] = DynamiqOptions

    def _setup(self) -> None:
        self.supers = -(-self.values // SUPER)
        self.counts = np.full((self.supers, 1), SUPER, np.float32)
        self.counts[-1:] = self.values - SUPER * (self.supers - 1)

    def caution(self) -> str | None:
        """See Scheme.caution."""
        if not self.options.error_feedback or self.options.bits >= FEEDBACK_BITS:
            return None
        return (
            f"error feedback with {self.options.bits:g} bits may diverge: values of 2 bits are rounded by "
            f"more than they are worth, and what waits grows; give {FEEDBACK_BITS:g} bits, or leave it out"
        )

    def messages(self, worker: Worker, values: Array) -> Messages:
        corrected, nodes = worker.corrected(values), self.nodes
        own = np.zeros((self.supers, SUPER), np.float32)
        own.ravel()[: self.values] = corrected * np.float32(1 / nodes)
        sums = own.sum(axis=1, keepdims=True, dtype=np.float64)  # of float32, which may overflow in float32
        means = _rounded((sums / self.counts).astype(np.float32))  # as they are sent, so that nothing is lost
        own -= means
        own.ravel()[self.values :] = 0
        energies = np.square(own, dtype=np.float64).sum(axis=1, keepdims=True)
        statistics = np.hstack([means, np.minimum(energies, MOST_ENERGY / nodes)]).astype(np.float32)
        came = yield handed("statistics", [_halves(part) for part in np.array_split(statistics, nodes)])
        agreed = sum(_floats(data, came[worker.rank].size, source) for source, data in enumerate(came))
        every = yield Message("agreed", _halves(np.asarray(agreed, np.float32)), "gather", bits=8)
        chunks = self.once("chunks", lambda: self._chunks(self._statistics(every)))
        draws, lost = self._draws(worker.rank), np.zeros_like(own)
        to, chunk = (worker.rank + 1) % nodes, worker.rank
        nothing = np.zeros(0, np.uint8)
        for hop in range(nodes - 1):
            parts = [nothing] * nodes
            parts[to] = self._pack(own, chunks[chunk], draws, lost)
            came = yield handed(f"hop {hop}", parts)
            chunk = (chunk - 1) % nodes
            self._add(own, chunks[chunk], came[(worker.rank - 1) % nodes], (worker.rank - 1) % nodes)
        packed = self._pack(own, chunks[chunk], draws, lost)
        if self.options.error_feedback:
            worker.pending = lost.ravel()[: self.values] * np.float32(nodes)
        yield Message("sums", packed, "gather", bits=8)

    def _statistics(self, every: Sequence[Array]) -> Array:
        """Return mean and energy of each super-group, float32 [super-groups, 2]."""
        sizes = [4 * len(part) for part in np.array_split(np.empty(self.supers), self.nodes)]
        result = [
            _floats(data, size, rank) for rank, (data, size) in enumerate(zip(every, sizes, strict=True))
        ]
        return np.concatenate(result).reshape(-1, 2)

    def _chunks(self, statistics: Array) -> list[list[tuple[int, Array]]]:
        """Return for each chunk its super-groups by width: every chunk has equally many of each."""
        widths = choose_widths(statistics[:, 1], self.options.bits - OVERHEAD)
        groups = {width: np.flatnonzero(widths == width) for width in ERRORS}
        return [
            [
                (width, rows[rows.size * chunk // self.nodes : rows.size * (chunk + 1) // self.nodes])
                for width, rows in groups.items()
            ]
            for chunk in range(self.nodes)
        ]

    def _draws(self, rank: int) -> _Draws:
        def random(*key: int) -> Any:
            words = [self.seed ^ TAG << 32, *key]
            return np.random.Generator(np.random.Philox(key=words, counter=[0, 0, 0, self.iteration]))

        mine, shape = random(rank), (self.supers, SUPER)
        own = mine.random(shape, dtype=np.float32)
        if self.options.correlated:
            turns = self.once("turns", lambda: random(self.nodes).integers(self.nodes, size=shape))
            own = ((turns + rank) % self.nodes + own).astype(np.float32) * np.float32(1 / self.nodes)
        return _Draws(own, mine.random((self.supers, SUPER // GROUP), dtype=np.float32))

    def _pack(self, own: Array, chunk: Sequence[tuple[int, Array]], draws: _Draws, lost: Array) -> Array:
        """Return a chunk of partial sums in few bits; adds to `lost` what they lack."""
        parts = []
        for width, rows in chunk:
            values = own[rows].reshape(-1, SUPER // GROUP, GROUP)
            units = np.abs(values).max(axis=2)
            tops = _up(units.max(axis=1, initial=0))
            with np.errstate(divide="ignore", invalid="ignore"):
                shares = np.nan_to_num(units / tops[:, None]) * np.float32(SCALE_LEVELS)
                sizes = np.nan_to_num(np.abs(values) / units[:, :, None])
            scales = np.minimum(np.floor(shares + draws.scales[rows]), SCALE_LEVELS).astype(np.uint8)
            levels = LEVELS[width]
            upper = np.searchsorted(levels[:-1], sizes, side="right")
            low, high = levels[upper - 1], levels[upper]
            drawn = draws.own[rows].reshape(values.shape) * (high - low) < sizes - low
            codes = upper - 1 + drawn | (values < 0).astype(np.int64) << (width - 1)
            packed = pack_bits(codes.ravel(), width)
            parts += [packed, scales.ravel(), (tops.view(np.uint32) >> 16).astype("<u2").view(np.uint8)]
            lost[rows] += own[rows] - _values(width, codes, scales, tops)
        return np.concatenate(parts)

    def _add(self, sums: Array, chunk: Sequence[tuple[int, Array]], data: Array, source: int) -> None:
        """Add a chunk that came to the rows of `sums` that it has."""
        check_bytes(data, sum(_packed_size(width, rows.size) for width, rows in chunk), source)
        for width, rows in chunk:
            codes, at = packed_size(rows.size * SUPER, width), rows.size * (SUPER // GROUP)
            result = unpack_bits(data[:codes], rows.size * SUPER, width).reshape(-1, SUPER // GROUP, GROUP)
            scales = data[codes : codes + at].reshape(-1, SUPER // GROUP)
            halves = data[codes + at : codes + at + 2 * rows.size].copy().view("<u2")
            sums[rows] += _values(width, result, scales, (halves.astype(np.uint32) << 16).view(np.float32))
            data = data[_packed_size(width, rows.size) :]

    def finish(self, totals: Sequence[Any]) -> Array:
        agreed, every = totals
        statistics = self._statistics(agreed)
        chunks = self.once("chunks", lambda: self._chunks(statistics))
        mean = np.repeat(statistics[:, :1], SUPER, axis=1)
        for rank, data in enumerate(every):
            self._add(mean, chunks[(rank + 1) % self.nodes], data, rank)
        self.iteration += 1
        return mean.ravel()[: self.values]


def _up(values: Array) -> Array:
    """Return the bfloat16 at or above each magnitude, as float32."""
    return ((values.view(np.uint32) + np.uint32(0xFFFF)) & np.uint32(0xFFFF0000)).view(np.float32)


def _halves(values: Array) -> Array:
    """Return float32 values as bytes of bfloat16."""
    return np.frombuffer(Bf16().pack(values.ravel(), 16), np.uint8)


def _floats(data: Array, size: int, source: int) -> Array:
    check_bytes(data, size, source)
    return Bf16().unpack(memoryview(data.tobytes()), size // 2, 16)


def _rounded(values: Array) -> Array:
    """Return float32 values rounded to bfloat16, in their shape."""
    return _floats(_halves(values), 2 * values.size, 0).reshape(values.shape)


def _packed_size(width: int, rows: int) -> int:
    return packed_size(rows * SUPER, width) + rows * (SUPER // GROUP + 2)


def _values(width: int, codes: Array, scales: Array, tops: Array) -> Array:
    """Return what codes [rows, groups, 16] stand for, float32 [rows, 256]."""
    sign = 1 << (width - 1)
    sizes = LEVELS[width][codes & (sign - 1)]
    units = scales.astype(np.float32) * (tops * np.float32(1 / SCALE_LEVELS))[:, None]
    result: Array = np.where(codes & sign, -sizes, sizes) * units[:, :, None]
    return result.reshape(-1, SUPER)
