"""Tensors and state dicts as the difference from a base: `encode` and `decode` (docs/delta.md)."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from oscar.coding.codec import check_header
from oscar.coding.delta.codec import DeltaCoder
from oscar.coding.delta.layout import CODE, PIECE, damaged, differences, pack_head, read_head
from oscar.coding.delta.sources import Run, runs_of, sources_of
from oscar.coding.frame import HEADER_BYTES, Header, pack_frame, unpack_frame
from oscar.errors import WrongBaseError

FLOATS = ("float32", "bfloat16")  # dtypes that oscar.floats codes
_threads = threading.local()


def _coder() -> DeltaCoder:
    """Return this thread's coder, which keeps its memory."""
    if not hasattr(_threads, "coder"):
        _threads.coder = DeltaCoder()
    return _threads.coder


def encode(new: Any, base: Any) -> bytes:
    """Return the bytes from which `decode` makes `new`, bit for bit, where `base` is.

    Args:
        new: tensor of NumPy or PyTorch, of any dtype and shape, on any device; or a mapping of names to
            tensors, such as a state dict.
        base: what the receiver has already: of the same names, shapes and dtypes.

    Returns:
        The message. Beside its head, which lists the tensors, it has at most 9 bytes for each 2^22 values
        more than that of `oscar.floats`, or 33 more than the values themselves for other dtypes.

    Raises:
        WrongBaseError: names, shapes or dtypes differ; the text names them.
        TypeError: what is not a tensor with plain numbers.
        ValueError: a name or a number of dimensions is too large for the format.

    >>> import numpy as np
    >>> base = np.linspace(-1, 1, 10_000, dtype=np.float32)
    >>> new = base.copy()
    >>> new[::50] *= np.float32(1.0001)
    >>> data = encode(new, base)
    >>> len(data) < 0.02 * new.nbytes, decode(data, base).tobytes() == new.tobytes()
    (True, True)
    """
    return b"".join(encode_pieces(new, base))


def encode_pieces(new: Any, base: Any) -> Iterator[bytes]:
    """Yield the message of `encode` in parts, of up to 16 MiB, for a file or a socket.

    Args:
        new: as for `encode`; nothing may change it until the last part is there.
        base: as for `encode`, too.

    Returns:
        An iterator over the parts, each made when it is asked for. Tensors on a device are copied to the host
        in pieces of 2^22 values.

    Raises:
        WrongBaseError: as `encode`, and TypeError and ValueError; at the first part.

    >>> import numpy as np
    >>> base = np.zeros(3, np.int16)
    >>> data = b"".join(encode_pieces(base + np.int16(1), base))
    >>> decode(data, base).tolist()
    [1, 1, 1]
    """
    kind, sources = sources_of(new)
    base_kind, base_sources = sources_of(base)
    if kind != base_kind:
        names = type(new).__name__, type(base).__name__
        raise WrongBaseError(f"expected two tensors, or two mappings of them, got {names[0]} and {names[1]}")
    entries, base_entries = ([one.entry for one in each] for each in (sources, base_sources))
    if entries != base_entries:
        raise WrongBaseError(differences(entries, base_entries, "the new tensors", "the base"))
    yield pack_head(kind, entries)
    for run, base_run in zip(runs_of(sources), runs_of(base_sources), strict=True):
        for number, low in enumerate(range(0, run.words, PIECE)):
            high = min(low + PIECE, run.words)
            here = run.read(low, high), base_run.read(low, high)
            payload = _coder().encode(*here, floats=run.dtype in FLOATS)
            width = 8 * run.word.itemsize
            yield pack_frame(Header(CODE, 0, high - low, width=width, sequence=number), payload)


def decode(data: bytes, base: Any) -> Any:
    """Return the tensor or the state dict that `encode` was given.

    Args:
        data: the message, bytes-like.
        base: the same values as the base that `encode` had. It is not changed.

    Returns:
        New tensors of the base's kind, NumPy's or PyTorch's, on its device; for a mapping a dict in its
        order.

    Raises:
        WrongBaseError: the base has other names, shapes, dtypes or values.
        FrameError: the bytes are damaged, or no encoder writes them.
        TypeError: the base is not of tensors with plain numbers.

    >>> import numpy as np
    >>> base = {"weight": np.ones((2, 2), np.float16), "steps": np.array(7)}
    >>> new = {"weight": base["weight"] / 2, "steps": np.array(8)}
    >>> decode(encode(new, base), base)["steps"]
    array(8)
    """
    kind, sources = sources_of(base)
    entries = [source.entry for source in sources]
    rest = read_head(data, pack_head(kind, entries), kind, entries)
    results = {source.entry.name: source.like() for source in sources}
    for run in runs_of(sources):
        rest = _read_run(rest, run, Run([results[source.entry.name] for source in run.sources]))
    if len(rest):
        raise damaged("no bytes after the last piece", f"{len(rest)}")
    if isinstance(base, Mapping):
        return {name: results[name].tensor() for name in base}
    (result,) = results.values()
    return result.tensor()


def _read_run(rest: memoryview, base: Run, out: Run) -> memoryview:
    """Fill the tensors of one dtype; return the bytes after their pieces."""
    for number, low in enumerate(range(0, base.words, PIECE)):
        high = min(low + PIECE, base.words)
        length = struct.unpack_from("<I", rest, 16)[0] if len(rest) >= HEADER_BYTES else 0
        end = HEADER_BYTES + length
        if len(rest) < end:
            raise damaged(f"a piece of {end} bytes", f"{len(rest)}")
        header, payload = unpack_frame(rest[:end])
        check_header(header, codec=CODE, step=0, sequence=number & 0xFFFF)
        size, sent = (high - low, 8 * base.word.itemsize), (header.count, header.width)
        if sent != size:
            raise damaged("a piece of {} words of {} bits".format(*size), "{} of {}".format(*sent))
        target = out.target(low, high)
        _coder().decode(payload, base.read(low, high), target, floats=base.dtype in FLOATS)
        out.store(low, high, target)
        rest = rest[end:]
    return rest
