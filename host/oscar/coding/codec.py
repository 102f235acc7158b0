"""Interfaces of codecs, and the framing that stateless codecs share.

An adaptive codec (ASC) implements `LinkEncoder` and `LinkDecoder` itself. A stateless codec implements the
methods of `PayloadCodec`; `FramedEncoder` and `FramedDecoder` add headers and sequence numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from oscar.array import Array
from oscar.coding.costs import MEASUREMENT, FrameCost, kept, measure_frames
from oscar.coding.frame import HEADER_BYTES, Header, pack_frame, unpack_frame
from oscar.errors import FrameError
from oscar.numerics.integers import extremes
from oscar.state import Reader, Saved, Stateful

Domain = Literal["int", "float"]
FRAME = "encode", "decode"  # names of FrameCost's fields


class LinkEnd(Protocol):
    """One end of a link direction, with its state."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Any) -> None: ...

    def snapshot(self) -> Any:
        """Return a cheap token of the state for `restore`; coding replaces state, it never writes to it."""

    def restore(self, token: Any) -> None: ...


class LinkEncoder(LinkEnd, Protocol):
    """The sending end: values in, frames out, in order."""

    def encode(
        self,
        values: Array,
        *,
        step: int,
        context: Array | None = None,
        width: int | None = None,
        chunk: int = 0,
        sub: int = 0,
    ) -> bytes:
        """Return the frame of `values` (1-D). context: uint8 position classes 0..15, or None."""


class LinkDecoder(LinkEnd, Protocol):
    """The receiving end: frames in, values out. A frame that raises leaves the state unchanged."""

    def decode(self, frame: bytes, *, step: int, context: Array | None = None) -> Array:
        """Return the values of `frame`, 1-D int8 to int32 or float32; raises FrameError and nothing else."""


class PayloadCodec(Protocol):
    """A stateless codec of payloads. With `narrow = True`, `pack` takes int8 and int16 as they are."""

    code: int  # codec byte of the frame header; each codec has its own
    domain: Domain

    def pack(self, values: Array, width: int) -> bytes | memoryview:
        """Return the payload of 1-D `values`: int32 that fit `width` bits, or float32."""

    def unpack(self, payload: memoryview, count: int, width: int) -> Array:
        """Return exactly `count` values, integers or float32, or raise FrameError, whatever bytes come."""

    def max_payload(self, count: int, width: int) -> int:
        """Return the most bytes that `pack` returns; equal on all nodes, so that receivers can make room."""


@dataclass(frozen=True)
class Codec:
    """A codec's entry in the registry: how to make both ends of a link, and what they can do.

    Attributes:
        name: Its name.
        domain: "int" or "float", the values it carries.
        lossless: Whether values on the wire come back exactly (quantisation comes before).
        make_encoder: Make a new end of a link.
        make_decoder: Make a new end of a link.
        max_frame: (count, width) -> most bytes of a frame, header included.
        uses_context: Whether it uses position classes.
        coded: Whether an entropy coder runs. False for codecs of fixed width: the time model charges no
            coding time.
        decodes_into: Encoders take int8, int16 and int32 as they are; decoders have `out` (int16 or
            int32), `add` and `plus`.
        max_bits: Widest integers that a frame carries.
        saturated: For codecs that clip: returns how many values an encoder has clipped so far, and the
            sum over its frames of lost share of energy times number of values.
        clocks: For a simulated NIC: returns the clocks that a link end took for its last frame.
        work: Returns the NIC's work for an encoder's last frame (`asc.turns.cells_of`), None without
            values.
        options: All that a frame's cost depends on beside the name.
        ends: The codec of each rank, where they differ; they make frames that all of them decode.
        parallel: Whether several threads may use ends at once, each another one.

    >>> from oscar.coding.registry import make_codec
    >>> codec = make_codec("int16")
    >>> frame = codec.make_encoder().encode(np.array([5, -7]), step=0)
    >>> len(frame), codec.make_decoder().decode(frame, step=0).tolist()
    (28, [5, -7])
    """

    name: str
    domain: Domain
    lossless: bool
    make_encoder: Callable[[], LinkEncoder]
    make_decoder: Callable[[], LinkDecoder]
    max_frame: Callable[[int, int], int]  # (count, width) -> bytes, header included
    uses_context: bool = False
    coded: bool = True
    decodes_into: bool = False
    max_bits: int = 32  # widest integers that frames carry
    saturated: Callable[[LinkEncoder], tuple[int, float]] | None = None
    clocks: Callable[[LinkEncoder | LinkDecoder], int] | None = None
    work: Callable[[LinkEncoder], Array | None] | None = None
    options: str = ""
    ends: tuple[Codec, ...] = ()
    parallel: bool = False

    def of(self, rank: int) -> Codec:
        """Return the codec of a rank."""
        return self.ends[rank] if self.ends else self

    def cost(self) -> FrameCost:
        """Return the cost of a frame on this machine: measured once, then kept (oscar.coding.costs)."""

        def measure() -> dict[str, Any]:
            dtype = np.float32 if self.domain == "float" else np.int16
            return vars(measure_frames(self.make_encoder, self.make_decoder, dtype))

        return FrameCost(**kept(f"frame {MEASUREMENT} of {self.name} {self.options}".strip(), FRAME, measure))


def fit_width(values: Array, width: int | None) -> int:
    """Return the width in bits for integer `values`: `width` itself, or the least of 8, 16, 24, 32 that fits.

    Raises ValueError if the values do not fit, or if `width` is not 1 to 32.
    """
    if width is None:
        low, high = extremes(values)
        width = next((w for w in (8, 16, 24) if -(1 << (w - 1)) <= low and high < 1 << (w - 1)), 32)
        check_range(low, high, width)
    elif values.dtype.kind != "i" or 8 * values.dtype.itemsize > check_width(width):
        check_range(*extremes(values), width)
    return width


def check_width(width: int) -> int:
    """Return `width`; raises ValueError unless it is 1 to 32."""
    if not 1 <= width <= 32:
        raise ValueError(f"width is 1 to 32 bits, got {width}")
    return width


def check_range(low: int, high: int, width: int) -> None:
    """Raise ValueError unless values from `low` to `high` fit `width` signed bits."""
    if low < -(1 << (width - 1)) or high >= 1 << (width - 1):
        raise ValueError(f"values reach from {low} to {high}: they need more than {width} signed bits")


def as_values(values: Array, domain: Domain, *, narrow: bool = False) -> Array:
    """Return `values` as contiguous 1-D int32 or float32.

    narrow: int8 and int16 stay as they are. Raises ValueError unless they are 1-D and fit 32 bits, TypeError
    for values of the other domain.
    """
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"a link carries 1-D arrays, got shape {array.shape}; use .ravel()")
    if domain == "float":
        if array.dtype.kind != "f":
            raise TypeError(f"this codec carries float32 values, got {array.dtype}")
        return np.ascontiguousarray(array, dtype=np.float32)
    if array.dtype.kind not in "iu":
        raise TypeError(f"this codec carries integers, got {array.dtype}; quantise the tensor first")
    if array.dtype.itemsize > 4 or array.dtype == np.uint32:
        fit_width(array, None)
    if narrow and array.dtype in (np.int8, np.int16):
        return np.ascontiguousarray(array)
    return np.ascontiguousarray(array, dtype=np.int32)


def _read_sequences(end: Any, saved: Saved) -> dict[int, int]:
    keys = saved.keys(lambda key: type(key) is int and 0 <= key <= 0xFFFF, "steps of 0 to 65535")
    return {key: saved[key].integer(0, 0xFFFF) for key in keys}


class _Framed(Stateful):
    """The state of one end of a stateless link: the number of frames of each step."""

    STATE: ClassVar[dict[str, Reader]] = {"sequences": _read_sequences}

    def __init__(self, codec: PayloadCodec) -> None:
        self.codec = codec
        self.sequences: dict[int, int] = {}


class FramedEncoder(_Framed):
    """Makes frames of a stateless codec's payloads."""

    def encode(
        self,
        values: Array,
        *,
        step: int,
        context: Array | None = None,
        width: int | None = None,
        chunk: int = 0,
        sub: int = 0,
    ) -> bytes:
        """See LinkEncoder.encode; `context` is ignored."""
        array = as_values(values, self.codec.domain, narrow=getattr(self.codec, "narrow", False))
        bits = fit_width(array, width) if self.codec.domain == "int" else 32
        sequence = self.sequences.get(step, 0)
        head = Header(self.codec.code, step, array.size, chunk, sub, bits, sequence)
        frame = pack_frame(head, self.codec.pack(array, bits))
        self.sequences[step] = (sequence + 1) & 0xFFFF
        return frame


class FramedDecoder(_Framed):
    """Checks frames of a `FramedEncoder` and decodes their payloads."""

    def decode(self, frame: bytes, *, step: int, context: Array | None = None) -> Array:
        """See LinkDecoder.decode; `context` is ignored."""
        head, payload = unpack_frame(frame)
        sequence = self.sequences.get(step, 0)
        check_header(head, codec=self.codec.code, step=step, sequence=sequence)
        values = self.codec.unpack(payload, head.count, head.width)
        self.sequences[step] = (sequence + 1) & 0xFFFF
        return values


def check_header(head: Header, *, codec: int, step: int, sequence: int) -> None:
    """Raise FrameError unless a frame has this codec, step and sequence number."""
    for what, actual, expected in (
        ("codec", head.codec, codec),
        ("step", head.step, step),
        ("sequence", head.sequence, sequence),
    ):
        if actual != expected:
            raise FrameError(
                f"frame has {what} {actual}, expected {expected}: lost, repeated or sent to the wrong place"
            )
    if not 1 <= head.width <= 32:
        raise FrameError(f"frame has values of {head.width} bits, expected 1 to 32")


def framed(
    name: str, payload: PayloadCodec, *, lossless: bool, coded: bool = True, max_bits: int = 32
) -> Codec:
    """Return the registry entry of a stateless codec."""
    return Codec(
        name=name,
        domain=payload.domain,
        lossless=lossless,
        make_encoder=lambda: FramedEncoder(payload),
        make_decoder=lambda: FramedDecoder(payload),
        max_frame=lambda count, width: HEADER_BYTES + payload.max_payload(count, width),
        coded=coded,
        max_bits=max_bits,
    )
