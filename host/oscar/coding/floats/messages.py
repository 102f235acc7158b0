"""Lossless floats as bytes that describe themselves: `encode` and `decode` (docs/reference/floats.md)."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from oscar.coding.codec import check_header
from oscar.coding.floats.codec import Bf16Lossless, FloatCoder, Fp32Lossless
from oscar.coding.floats.layout import MOST_IN_BYTE
from oscar.coding.frame import Header, pack_frame, unpack_frame
from oscar.coding.message import LOSSLESS, MessageHead, damaged, flat_bits, frames_of, from_bits, read_head

PIECE = 1 << 22  # values of a frame: what a thread keeps in memory between calls
CARRIED: dict[str, tuple[type[np.unsignedinteger], int]] = {  # dtype of the bits, codec byte of the frames
    "float32": (np.uint32, Fp32Lossless.code),
    "bfloat16": (np.uint16, Bf16Lossless.code),
}
_threads = threading.local()


def _coder() -> FloatCoder:
    """Return this thread's coder, which keeps its memory."""
    if not hasattr(_threads, "coder"):
        _threads.coder = FloatCoder()
    return _threads.coder


def encode(tensor: Any) -> bytes:
    """Return floats as fewer bytes, from which `decode` makes the same tensor, bit for bit.

    tensor: float32 or bfloat16, array of NumPy or tensor of PyTorch; NaN, Inf and both zeros included. The
    bytes are at most one for each 2^22 values more than the tensor's own, and 24 for them, beside the head.
    Raises TypeError for another dtype.

    >>> weights = np.linspace(-1, 1, 10_000, dtype=np.float32)
    >>> data = encode(weights)
    >>> len(data) < 0.9 * weights.nbytes, decode(data).tobytes() == weights.tobytes()
    (True, True)
    """
    flat, name, shape = flat_bits(tensor)
    if name not in CARRIED:
        raise TypeError(
            f"expected a tensor of {' or '.join(CARRIED)}, got {name}; oscar.pseudo carries others"
        )
    dtype, code = CARRIED[name]
    bits, coder = flat.view(dtype), _coder()
    parts = [MessageHead(LOSSLESS, name, shape).pack()]
    for number, at in enumerate(range(0, bits.size, PIECE)):
        piece = bits[at : at + PIECE]
        head = Header(code, 0, piece.size, width=8 * bits.itemsize, sequence=number)
        parts.append(pack_frame(head, coder.encode(piece)))
    return b"".join(parts)


def decode(data: bytes, *, as_torch: bool = False) -> Any:
    """Return the tensor that `encode` was given.

    as_torch: as a tensor of PyTorch, on the CPU; else an array of NumPy, where bfloat16 becomes float32,
    which holds every one of its values. Raises FrameError for damaged bytes, and for those that a
    receiver refuses (docs/reference/floats.md).

    >>> decode(encode(np.array([[1.5, -0.0]], np.float32)))
    array([[ 1.5, -0. ]], dtype=float32)
    """
    head, rest = read_head(data, LOSSLESS)
    if head.dtype not in CARRIED or head.exponent or head.bits or head.index:
        raise damaged("a head of lossless floats", f"{head}")
    dtype, code = CARRIED[head.dtype]
    frames = frames_of(rest, head.size, MOST_IN_BYTE)
    bits, coder = np.empty(head.size, dtype), _coder()
    for number, (frame, here, _) in enumerate(frames):
        header, payload = unpack_frame(frame)
        check_header(header, codec=code, step=0, sequence=number & 0xFFFF)
        coder.decode(payload, header.count, dtype, bits[here])
    flat = bits if head.dtype == "bfloat16" else bits.view(np.float32)
    return from_bits(flat, head.dtype, head.shape, as_torch=as_torch)
