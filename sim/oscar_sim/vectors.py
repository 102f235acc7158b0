"""What benches put into blocks and what must come out, all from the reference: no simulator is needed here.

Frames are those of one link, each with the tables that the one before left: real gradients, random ones
(others in each run: oscar_sim.seeds), and the corners of docs/format2.md. `blocks` takes a frame apart into
what the coder's core sees.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from oscar.bench._integers import integers
from oscar.errors import FrameError
from oscar.numerics.plans import block_costs, make_plan
from oscar.workloads import make_workload
from oscar_hdl.format2.params import CODED, AscParams
from oscar_hdl.format2.reference import Coded, ReferenceCoder, Session, order
from oscar_hdl.format2.state import TableState
from oscar_sim.lane_order import lane_order
from oscar_sim.seeds import dice, numbers

Table = list[list[int]]  # a row of 16 for each of 16 contexts


@dataclass(frozen=True)
class Frame:
    """A frame of a link. values, classes: in natural order; before, after: the link's tables."""

    name: str
    values: np.ndarray
    classes: np.ndarray
    width: int
    before: TableState
    after: TableState
    payload: bytes

    @property
    def words(self) -> list[int]:
        """The payload in words of 16 bits."""
        return np.frombuffer(self.payload, "<u2").tolist()

    def in_lane_order(self, params: AscParams) -> tuple[list[int], list[int]]:
        """Values (16 bits, two's complement) and classes as a lane streams them."""
        places = lane_order(self.values.size, params.block)
        return (self.values[places] & 0xFFFF).tolist(), self.classes[places].tolist()


@dataclass(frozen=True)
class Block:
    """A coded block as the coder's core sees it, in decoding order.

    table: frequencies of each context; classes: position classes; zero: neighbour states are 0 before it;
    symbols: (context, symbol); words: in reading order; states: by lane.
    """

    table: Table
    classes: list[int]
    zero: bool
    symbols: list[tuple[int, int]]
    words: list[int]
    states: list[int]


@lru_cache(maxsize=1)
def real_gradients(seed: int = 1) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Four nodes' quantised gradients of a language model after three iterations, and their classes."""
    last = list(integers(make_workload("numpy-lm", nodes=4, seed=seed), 3))[-1]
    return tuple(v.astype(np.int64) for v in last.values), last.classes


def width_of(values: np.ndarray) -> int:
    """Return the bits that all values fit, 8 at least."""
    largest = int(max(values.max(initial=0), -values.min(initial=0) - 1, 1))
    return max(8, largest.bit_length() + 1)


def contents(
    params: AscParams, stream: int = 1, width_max: int = 12
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Yield the name, values and classes of each frame of a link that meets every rule of the coder."""
    rng = numbers(stream)
    block = params.block
    nodes, classes = real_gradients()
    dense = np.convolve(nodes[0] != 0, np.ones(2 * block + 100), "valid")
    at = int(np.argmax(dense))
    top = 1 << (width_max - 1)

    def real(count: int, terms: int) -> tuple[np.ndarray, np.ndarray]:
        piece = slice(at, at + count)
        return sum((node[piece] for node in nodes[:terms]), np.zeros(count, np.int64)), classes[piece]

    def laplace(scale: float, count: int) -> np.ndarray:
        return np.clip(np.rint(rng.laplace(0, scale, count)), -top, top - 1).astype(np.int64)

    def any_class(count: int) -> np.ndarray:
        return rng.integers(0, 16, count).astype(np.uint8)

    yield "real", *real(2 * block + 100, 1)
    yield "real sums", *real(2 * block + 100, 4)
    for count in (1, 2, 11, 12, 13, 25):
        yield f"{count} values", np.arange(count) - 3, any_class(count)
    yield "one value in three blocks", np.full(2 * block + 5, -7), any_class(2 * block + 5)
    yield "zeros but one", np.eye(1, block + 30, 17, dtype=np.int64)[0], any_class(block + 30)
    wide = np.concatenate([laplace(3, block), rng.integers(-top, top, block), laplace(3, block + 40)])
    yield "a raw block between coded ones", wide, any_class(wide.size)
    uniform = rng.integers(-128, 128, 2 * block)
    yield "raw blocks only", uniform, any_class(uniform.size)
    escapes = laplace(2, block)
    escapes[: 8 * 12 : 12] = [-top, top - 1, 255, -256, 257, 1000, -1, 0]
    yield "escapes", escapes, any_class(block)
    yield "a larger shift is due", laplace(120, block), any_class(block)  # raw or not, its end says so
    yield "with the larger shift", laplace(120, block + 12), any_class(block + 12)
    yield "a smaller one is due", laplace(4, block + 11), any_class(block + 11)
    yield "random", laplace(4, 2 * block + 341), any_class(2 * block + 341)


def frames(params: AscParams, stream: int = 1, width_max: int = 12) -> Iterator[Frame]:
    """Yield the frames of a link with their payloads."""
    coder, state = ReferenceCoder(params), TableState.initial()
    for name, values, classes in contents(params, stream, width_max):
        before, width = state.copy(), width_of(values)
        payload = coder.encode(values, classes << 4, width, state)
        yield Frame(name, values, classes, width, before, state.copy(), payload)


def damaged(frame: Frame, params: AscParams, stream: int = 1) -> Iterator[tuple[str, bytes]]:
    """Yield payloads made from a frame's that the reference refuses: cut, extended, bits turned over."""
    rng = dice(stream)
    data = frame.payload
    candidates = [("without its last word", data[:-2]), ("with a word more", data + b"\0\0"), ("empty", b"")]
    candidates.append(("of type 3", bytes([data[0] | 3]) + data[1:]))
    candidates.append(("with more words than there can be", bytes([data[0], 0xFF, 0xFF]) + data[3:]))
    for at in (0, 3, 5, 7, 40, *(rng.randrange(len(data)) for _ in range(12))):
        if at < len(data):
            turned = bytearray(data)
            turned[at] ^= 1 << rng.randrange(8)
            candidates.append((f"with byte {at} turned", bytes(turned)))
    for name, payload in candidates:
        try:
            ReferenceCoder(params).decode(
                memoryview(payload), frame.values.size, frame.classes << 4, frame.width, frame.before.copy()
            )
        except FrameError:
            yield name, payload


class _Recorder(ReferenceCoder):
    """The reference, noting the tables and symbols of every block that it codes."""

    def __init__(self, params: AscParams) -> None:
        super().__init__(params)
        self.blocks: list[Block] = []

    def encode_block(self, run: Session, block: list[int], position: list[int], width: int) -> bytes:
        """See ReferenceCoder.encode_block."""
        made = len(self.blocks)
        body = super().encode_block(run, block, position, width)
        if body[0] & 3 != CODED:
            del self.blocks[made:]  # coded, but sent raw
        return body

    def code(self, run: Session, block: list[int], position: list[int]) -> Coded:
        """See ReferenceCoder.code."""
        zero, classes = not any(run.neighbour), [position[j] for _, _, j in order(len(block))]
        coded = super().code(run, block, position)
        self.blocks.append(Block(coded.freq, classes, zero, coded.symbols, coded.words, coded.states))
        return coded


def blocks(frame: Frame, params: AscParams) -> list[Block]:
    """Return the coded blocks of a frame, for block_log2 = interval_log2: a block has one set of tables."""
    recorder = _Recorder(params)
    payload = recorder.encode(frame.values, frame.classes << 4, frame.width, frame.before.copy())
    if payload != frame.payload:
        raise ValueError(f"frame {frame.name!r} is not of these parameters")
    return recorder.blocks


@dataclass(frozen=True)
class Sums:
    """One iteration of the splitter: sums, and the boundaries the host plans, in blocks; None if equal."""

    nodes: int
    values: np.ndarray
    edges: list[int] | None


def plans(granule: int, stream: int = 1) -> Iterator[Sums]:
    """Yield iterations of one gradient: real sums, then layers of other scale, then nothing at all.

    Costs are smoothed over the iterations as the host does it; the first begins without any.
    """
    rng = numbers(stream)
    real, _ = real_gradients()
    size = 18 * granule - 77
    at = int(np.argmax(np.convolve(real[0] != 0, np.ones(size), "valid")))
    sums = [node[at : at + size] + other[at : at + size] for node, other in pairwise(real)]
    scale = np.repeat(np.exp(rng.normal(3, 2, size // 500 + 1)), 500)[:size]
    sums += [np.clip(np.rint(rng.laplace(0, scale)), -32768, 32767).astype(np.int64)]
    costs = np.zeros(-(-size // granule), np.int64)
    for n, values in enumerate([np.zeros(size, np.int64), *sums]):
        fresh = block_costs(values, granule) << 8
        costs = fresh if n == 0 else costs + ((fresh - costs) >> 1)
        nodes = (4, 8, 16, 3, 1)[n % 5]
        bounds = make_plan("splitter", size, nodes, granule=granule, costs=costs).bounds[1:-1]
        yield Sums(nodes, values, [-(-b // granule) for b in bounds] if costs.sum() else None)
