"""Random pairs of tensors through oscar.delta: every bit comes back, or the bytes or the base are refused.

Each pair is drawn from a seed of its own: dtype, shape, values (normal, random bits, NaN, infinities,
denormals and both zeros), and how many of them change, from none to all, and how. uint16 and uint8 are tried
as bfloat16 and float8, too, where PyTorch is installed. The message is decoded with its base, then cut, with
a flipped bit, and with a base of which one bit differs.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from oscar import delta
from oscar.array import Array
from oscar.errors import FrameError, WrongBaseError

DTYPES = (
    "float32", "float16", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "bool",
    "complex64",
)  # fmt: skip
VIEWS = {"uint16": ("bfloat16",), "uint8": ("float8_e4m3fn", "float8_e5m2")}  # dtypes of PyTorch
SHARES = (0.0, 1e-4, 0.003, 0.02, 0.1, 0.3, 0.5, 0.8, 1.0)
SHOWN = 5


class Pair(NamedTuple):
    """Two tensors of one dtype and shape."""

    new: Array
    base: Array


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this trial."""
    parser.add_argument("--pairs", type=int, default=10_000, help="of tensors")
    parser.add_argument("--seed", type=int, default=0, help="of the first pair; the next ones follow")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Try all pairs; print and return those that failed."""
    if args.pairs < 1:
        raise ValueError(f"expected 1 pair at least, got {args.pairs}")
    print(f"# pairs of seeds {args.seed} to {args.seed + args.pairs - 1}")
    failures = trial(first=args.seed, pairs=args.pairs)
    for text in failures[:SHOWN]:
        print(text)
    print(f"{args.pairs:,} pairs, {len(failures)} failures")
    return {"pairs": args.pairs, "first_seed": args.seed, "failures": failures, "ok": not failures}


def trial(*, first: int, pairs: int) -> list[str]:
    """Return a line for each failure.

    Args:
        first: seed of the first pair.
        pairs: number of pairs.
    """
    return [text for seed in range(first, first + pairs) for text in _tried(seed)]


def drawn_pair(seed: int) -> Pair:
    """Return the pair of a seed."""
    random = np.random.default_rng(seed)
    dtype = np.dtype(str(random.choice(DTYPES)))
    shapes = (), (0,), (1,), (3, 5), (31,), (32,), (33,), (7, 11, 13), (4000,), (300, 70)
    shape = shapes[int(random.choice(len(shapes), p=np.array([1, 1, 1, 1, 1, 1, 1, 2, 3, 2]) / 14))]
    base, other = (_values(random, dtype, math.prod(shape)) for _ in range(2))
    share = float(random.choice(SHARES))
    changes = random.random(base.size) < share
    if dtype.kind != "b" and random.random() < 0.6:  # by a little
        word = base.view(f"u{min(4, dtype.itemsize)}")
        other = (word + random.integers(-3, 4, word.size).astype(word.dtype)).view(dtype)
    new = np.where(changes, other, base)
    bits = np.where(changes.repeat(dtype.itemsize), other.view(np.uint8), base.view(np.uint8))
    new = bits.view(dtype)  # np.where may quieten a NaN
    return Pair(new.reshape(shape), base.reshape(shape))


def _values(random: np.random.Generator, dtype: np.dtype[Any], count: int) -> Array:
    """Return values, flat."""
    if dtype.kind == "b":
        return random.random(count) < random.random()
    if dtype == np.uint16 and random.random() < 0.6:
        return (_values(random, np.dtype("float32"), count).view(np.uint32) >> 16).astype(np.uint16)
    if dtype.kind != "f" or random.random() < 0.3:
        return random.integers(0, 256, count * dtype.itemsize, np.uint8).view(dtype)
    values = random.normal(0, 0.02, count).astype(dtype)
    if random.random() < 0.3:
        values *= random.random(count) < 0.5
    if random.random() < 0.4:
        tiny = np.finfo(dtype).smallest_subnormal
        special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, tiny, -tiny], dtype)
        return np.where(random.random(count) < 0.2, random.choice(special, count), values).astype(dtype)
    return values


def _tried(seed: int) -> Iterator[str]:
    """Yield what is wrong with the pair of a seed."""
    pair = drawn_pair(seed)
    for name, form in _forms(pair.base.dtype.name):
        about, random = f"seed {seed}, {name} {list(pair.base.shape)}", np.random.default_rng([seed, 1])
        data = delta.encode(form(pair.new), form(pair.base))
        result = delta.decode(data, form(pair.base))
        if bits_of(result) != pair.new.tobytes() or tuple(result.shape) != pair.new.shape:
            yield f"{about}: other bits came back"
        flipped = bytearray(data)
        flipped[int(random.integers(len(data)))] ^= 1 << int(random.integers(8))
        attempts = [
            ("a flipped bit", bytes(flipped), pair.base),
            ("cut bytes", data[: int(random.integers(len(data)))], pair.base),
        ]
        if pair.base.size:
            other = pair.base.copy()
            other.reshape(-1).view(np.uint8)[int(random.integers(other.nbytes))] ^= 1
            attempts.append(("another base", data, other))
        for what, damaged, base in attempts:
            try:
                delta.decode(damaged, form(base))
                yield f"{about}: {what} was not refused"
            except (FrameError, WrongBaseError):
                pass


def _forms(dtype: str) -> Iterator[tuple[str, Callable[[Array], Any]]]:
    """Yield the dtype, and those of PyTorch that a tensor of it is tried as, with what makes the tensor."""
    yield dtype, lambda array: array
    if dtype not in VIEWS or importlib.util.find_spec("torch") is None:
        return
    for name in VIEWS[dtype]:
        yield name, partial(_of_torch, name)


def _of_torch(name: str, array: Array) -> Any:
    """Return the tensor of PyTorch, of the dtype `name`, with the bits of unsigned integers."""
    torch: Any = importlib.import_module("torch")
    return torch.from_numpy(array.view(f"i{array.itemsize}")).view(getattr(torch, name))


def bits_of(tensor: Any) -> bytes:
    """Return the bytes of a tensor of NumPy or PyTorch, on any device."""
    if isinstance(tensor, np.ndarray):
        return tensor.tobytes()
    torch: Any = importlib.import_module("torch")
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy().tobytes())
