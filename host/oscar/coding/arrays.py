"""One array through one codec: load, quantise, code, check, time.

The file of `oscar codec -o` holds one coded array and all it takes to have the array back: a line of text,
the length of a JSON header (u32), its CRC-32 (u32), the header, the frame; little-endian. The header holds
codec, context mode, step, shape and dtype of the array, the exponent of the quantiser's step (null: the
values went over as they were) and whether position classes are needed.
"""

from __future__ import annotations

import json
import math
import struct
import time
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from tokenize import TokenError
from typing import Any, get_args

import numpy as np

from oscar.coding.asc import AscParams, Encoder
from oscar.coding.asc.params import ContextMode
from oscar.coding.codec import Codec
from oscar.errors import ConfigError, MissingExtraError
from oscar.files import replacing
from oscar.numerics.quantiser import QuantiserParams, WorkerQuantiser
from oscar.numerics.steps import StepTracker
from oscar.numerics.summaries import summarise
from oscar.numerics.tensors import check_tensors
from oscar.tables import Table

REFERENCE_LIMIT = 1 << 17  # values; the plain-integer reference codes some 10^5 a second
ROUNDS = 3  # the best of which is the time
TABLE = Table(
    "codec:#codec <16", "bytes >10", "bits:bits/val >9.3f", "ratio >8.2f", "encode:enc MB/s >9.1f",
    "decode:dec MB/s >9.1f", "exact: exact <",
)  # fmt: skip
MAGIC = b"OSCAR array 1\n"
_HEAD = struct.Struct("<II")
_TYPES = {"codec": str, "context": str, "step": int, "shape": list, "dtype": str, "classes": bool}


def load_array(path: Path) -> np.ndarray:
    """Return the array in an .npy file; raises ConfigError on anything but one of numbers."""
    try:
        with open(path, "rb") as file:
            # NumPy reads a negative size as "what is left of the file".
            version = np.lib.format.read_magic(file)
            if version == (1, 0):
                shape = np.lib.format.read_array_header_1_0(file)[0]
            else:
                shape = np.lib.format.read_array_header_2_0(file)[0]
            file.seek(0)
            if min(shape, default=0) < 0:
                raise ValueError(f"the shape {list(shape)}")
            array = np.lib.format.read_array(file, allow_pickle=False)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; np.save('{path}', array) writes one") from None
    except Exception as error:  # what NumPy raises for a foreign header is wide and undocumented
        broken = "a broken header" if isinstance(error, TokenError) else error
        raise ConfigError(f"{path}: expected an array written by np.save, got {broken}") from error
    if array.dtype.kind not in "iuf":
        raise ConfigError(f"{path}: expected integers or floats, got {array.dtype}; convert it first")
    return array


def load_classes(path: Path | None) -> np.ndarray | None:
    """Return position classes as both ends of a link take them: flat, uint8; None without a file.

    Raises ConfigError on anything but integers from 0 to 15.
    """
    if path is None:
        return None
    array = load_array(path)
    if array.dtype.kind not in "iu" or (array.size and not 0 <= array.min() <= array.max() <= 15):
        raise ConfigError(f"{path}: expected position classes, integers from 0 to 15; got others")
    return array.reshape(-1).astype(np.uint8)


def as_float32(flat: np.ndarray) -> tuple[np.ndarray, str, bool]:
    """Return floats as a link carries them, in words what changed, and whether values did."""
    values = flat.astype(np.float32, copy=False)
    rounded = not np.array_equal(values, flat, equal_nan=True)
    how = "rounded" if rounded else "converted"
    text = "" if flat.dtype == np.float32 else f"float codecs take float32: {how} from {flat.dtype}"
    return values, text, rounded


def save_array(path: Path, array: np.ndarray) -> None:
    """Write `array` to `path`; no suffix is added."""
    with replacing(path) as file:
        np.save(file, array)


def quantise(
    flat: np.ndarray, scale: Any, coarseness: float, bits: Any
) -> tuple[np.ndarray, int | None, str]:
    """Return `flat` quantised as the one tensor of one node, log2 of its step, and in words how.

    The step is None where all values are zero. Raises GradientError.
    """
    params = QuantiserParams(scale=scale, coarseness=coarseness, bits=bits)
    tensors = check_tensors([flat], 0, remedy="replace them before coding")
    tracker, worker = StepTracker(params, [flat.size], 1), WorkerQuantiser(params, 0)
    tracker.agree([summarise(tensors, params)])
    values = worker.quantise(tensors, tracker.exponents)
    exponent = tracker.exponents[0]
    step = "no step: all zeros" if exponent is None else f"step 2^{exponent}"
    lost = worker.saturation
    text = f"quantised as one tensor: {params.name}, {step}, {lost.values} of {flat.size} values clipped"
    if lost.energy:
        text += f", {lost.energy:.2g} of the energy"
    return values, exponent, text


@dataclass(frozen=True)
class CodedArray:
    """What a codec made of an array. exact: decoding gave the values back; missing: why it did not."""

    name: str
    lossless: bool
    frame: bytes
    values: int
    stored: int
    encode_s: float
    decode_s: float
    exact: bool
    missing: str = ""

    def line(self) -> str:
        """Return the row of the table."""
        if self.missing:
            return f"{self.name:16} {self.missing}"
        size = len(self.frame)
        return TABLE.line(
            {
                "codec": self.name,
                "bytes": size,
                "bits": 8 * size / max(1, self.values),
                "ratio": self.stored / size,
                "encode": self.stored / self.encode_s / 1e6,
                "decode": self.stored / self.decode_s / 1e6,
                "exact": " yes" if self.exact else " NO" if self.lossless else " lossy",
            }
        )


def code(
    name: str,
    codec: Codec,
    values: np.ndarray,
    *,
    step: int,
    context: np.ndarray | None,
    width: int | None,
    stored: int,
    lenient: bool = False,
    rounded: bool = False,
) -> CodedArray:
    """Encode and decode `values` on a fresh link; times are the best of a few rounds, compilation excluded.

    stored: bytes of the array as it was given. lenient: a codec that cannot take these values says so in its
    line, as does one whose package is missing. rounded: `values` are not the array's own any more.
    """
    lossless = codec.lossless and not rounded
    used = context if codec.uses_context else None

    def encode() -> bytes:
        return codec.make_encoder().encode(values, step=step, context=used, width=width)

    try:
        frame, encode_s = _timed(encode)
    except (MissingExtraError, ValueError) as error:
        if not (lenient or isinstance(error, MissingExtraError)):
            raise
        return CodedArray(name, lossless, b"", values.size, stored, 0.0, 0.0, not lossless, str(error))
    back, decode_s = _timed(lambda: codec.make_decoder().decode(frame, step=step, context=used))
    exact = not rounded and bool(np.array_equal(back, values, equal_nan=back.dtype.kind == "f"))
    return CodedArray(name, lossless, frame, values.size, stored, encode_s, decode_s, exact)


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    result, best = call(), np.inf
    for _ in range(ROUNDS):
        began = time.perf_counter()
        result = call()
        best = min(best, time.perf_counter() - began)
    return result, best


def same_as_reference(
    params: AscParams, values: np.ndarray, context: np.ndarray | None, *, step: int, width: int | None
) -> tuple[bool, str]:
    """Compare ASC's compiled coder with the plain-integer reference, on the first values; say the outcome."""
    part = values[:REFERENCE_LIMIT]
    classes = None if context is None or not params.uses_position else context[:REFERENCE_LIMIT]
    frames = [
        Encoder(params, implementation=kind).encode(part, step=step, context=classes, width=width)
        for kind in ("compiled", "reference")
    ]
    same = frames[0] == frames[1]
    verdict = "the same bytes as" if same else "OTHER BYTES THAN"
    return same, f"on {part.size} of {values.size} values asc makes {verdict} its plain-integer reference"


@dataclass(frozen=True)
class ArrayFile:
    """What goes before the frame. exponent: log2 of the quantiser's step; None: nothing was quantised."""

    codec: str
    context: str
    step: int
    shape: list[int]
    dtype: str
    classes: bool
    exponent: int | None

    def pack(self, frame: bytes) -> bytes:
        """Return the file's content."""
        header = json.dumps(asdict(self)).encode()
        return b"".join((MAGIC, _HEAD.pack(len(header), zlib.crc32(header)), header, frame))

    def restore(self, values: np.ndarray) -> np.ndarray:
        """Return decoded `values` in the array's own shape and dtype, quantised floats times their step.

        Raises ConfigError where there are not as many values as the shape says.
        """
        if math.prod(self.shape) != values.size:
            raise ConfigError(
                f"expected {math.prod(self.shape)} values of shape {self.shape}, got {values.size}"
            )
        if self.exponent is not None:
            values = np.ldexp(values.astype(np.float64), self.exponent)
        return values.astype(self.dtype, copy=False).reshape(self.shape)


def read_array_file(path: Path) -> tuple[ArrayFile, bytes]:
    """Return header and frame of a file; raises ConfigError on anything that `pack` did not write."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; `oscar codec ARRAY.npy -o {path}` writes one") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None
    wanted = f"{path}: expected a file written by `oscar codec ARRAY.npy -o FILE`"
    start = len(MAGIC) + _HEAD.size
    if not content.startswith(MAGIC) or len(content) < start:
        raise ConfigError(f"{wanted}, got one that begins with {content[:16]!r}")
    length, crc = _HEAD.unpack_from(content, len(MAGIC))
    header = content[start : start + length]
    if len(header) < length or zlib.crc32(header) != crc:
        raise ConfigError(f"{wanted}; this one's header is damaged: copy the file again")
    # The header is as it was packed, as its CRC is right: only another release could differ.
    pairs = json.loads(header)
    names = [field.name for field in fields(ArrayFile)]
    if not isinstance(pairs, dict) or sorted(pairs) != sorted(names):
        raise ConfigError(f"{wanted} of this release, with {', '.join(names)}; code the array again")
    about = ArrayFile(**pairs)
    wrong = [name for name, kind in _TYPES.items() if not isinstance(pairs[name], kind)]
    wrong += [] if isinstance(about.exponent, int | None) else ["exponent"]
    wrong += [] if about.context in get_args(ContextMode) else ["context"]
    wrong += [] if wrong or all(type(n) is int and n >= 0 for n in about.shape) else ["shape"]
    wrong += [] if wrong or about.dtype[1:2] in ("i", "u", "f") else ["dtype"]
    if wrong:
        raise ConfigError(f"{wanted} of this release; {', '.join(wrong)} is something else here")
    return about, content[start + length :]
