"""The codec of a piece: its words as the difference from those of the base (delta.md, "Pieces")."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from oscar.array import Array
from oscar.coding.asc import AscParams, make_coder
from oscar.coding.asc.compiled.coder import address
from oscar.coding.asc.state import TableState
from oscar.coding.delta import kernels
from oscar.coding.delta.layout import (
    DENSE,
    FLOATS,
    PIECE_HEAD,
    RAW,
    SAME,
    SPARSE,
    SPARSE_HEAD,
    XOR,
    damaged,
)
from oscar.coding.floats.codec import FloatCoder
from oscar.coding.floats.layout import HEAD as FLOATS_HEAD
from oscar.coding.floats.layout import packed_bytes
from oscar.errors import MissingExtraError, WrongBaseError, lacking
from oscar.numerics.integers import extremes

MOST_SPARSE = 2  # sparse is tried where at most a half of the words changed
LEAST_DENSE = 3  # dense and xor are tried where more than a third changed,
LEAST_XOR = 2  # and xor, which is slow, where the others leave more than a half of the bytes
NARROW, WIDE = 16, 32  # bits of raw gaps
FAULTS = {
    kernels.BAD_POSITION: "positions inside the piece",
    kernels.BAD_CHANGE: "changes other than 0 that fit a word",
}


class DeltaCoder:
    """Codes pieces, given as words: uint8, uint16 or uint32, contiguous.

    The coder keeps its memory from call to call, so only one thread may use it at a time.
    """

    def __init__(self) -> None:
        self.asc = make_coder(AscParams())
        self.floats = FloatCoder()
        self._room: dict[str, Array] = {}

    def encode(self, new: Array, base: Array, *, floats: bool) -> bytes:
        """Return the payload of a piece.

        Args:
            new: words of the new values, at least one.
            base: as many words of the base.
            floats: True if words are float32 or bfloat16.
        """
        count, size = new.size, new.itemsize
        digest, changed, filled = self._scan(new, base)
        mode, body, most = RAW, b"", new.nbytes
        if not changed:
            mode, most = SAME, 0
        dense = LEAST_DENSE * changed > count
        trials: tuple[tuple[int, bool, Callable[[], bytes | memoryview | None]], ...] = (
            (SPARSE, MOST_SPARSE * changed <= count, lambda: self._sparse(changed, size)),
            (DENSE, dense, lambda: self._dense(new, base)),
            (FLOATS, floats, lambda: self.floats.encode(new)),
            (XOR, dense, lambda: _xor(new, base)),
        )
        least = {FLOATS: _least_floats(filled, size), XOR: new.nbytes // LEAST_XOR}
        for other, possible, trial in trials:
            if not possible or most <= least.get(other, 0):
                continue
            coded = trial()
            if coded is not None and len(coded) < most:
                mode, body, most = other, bytes(coded), len(coded)
        return b"".join((PIECE_HEAD.pack(digest, mode), _little(new) if mode == RAW else body))

    def decode(self, payload: memoryview, base: Array, out: Array, *, floats: bool) -> None:
        """Write the words of a piece to `out`, an array like `base`.

        Raises:
            WrongBaseError: the digest is of other words than the base's.
            FrameError: no encoder writes this payload.
        """
        if len(payload) < PIECE_HEAD.size:
            raise damaged(f"a piece of at least {PIECE_HEAD.size} bytes", f"{len(payload)}")
        wanted, mode = PIECE_HEAD.unpack_from(payload)
        if mode in (SAME, SPARSE):
            digest = int(kernels.copy_and_hash(address(base), address(out), base.nbytes))
        else:
            digest = kernels.hash_of(base)
        if wanted != digest:
            raise WrongBaseError(
                f"expected a base of digest {wanted:016x}, got {digest:016x}; give decode the base that "
                "encode had, or send all weights anew"
            )
        readers = {
            SAME: self._read_same, RAW: _read_raw, SPARSE: self._read_sparse, DENSE: self._read_dense,
            XOR: _read_xor,
        }  # fmt: skip
        body = payload[PIECE_HEAD.size :]
        if mode == FLOATS and floats:
            self.floats.decode(body, out.size, out.dtype.type, out)
        elif mode in readers:
            readers[mode](body, base, out)
        else:
            raise damaged("a mode of 0 to 5 that the dtype has", f"{mode}")

    def _memory(self, name: str, dtype: type, size: int) -> Array:
        """Return an array of `size` items, kept from call to call."""
        array = self._room.get(name)
        if array is None or array.size < size or array.dtype != dtype:
            array = self._room[name] = np.empty(size, dtype)
        return array[:size]

    def _scan(self, new: Array, base: Array) -> tuple[int, int, int]:
        """Return the base's digest, the changed words and the new ones that are not 0; keep the changes."""
        most = new.size // MOST_SPARSE
        gaps, changes = (self._memory(name, np.int32, most + 1) for name in ("gaps", "changes"))
        scratch = self._memory("scratch", np.uint8, kernels.SCRATCH)
        counts = kernels.scan(
            address(new), address(base), new.itemsize, new.size, most, address(gaps), address(changes),
            address(scratch),
        )  # fmt: skip
        digest, changed, filled = map(int, counts)
        return digest, changed, filled

    def _asc(self, integers: Array, width: int) -> bytes | memoryview:
        return self.asc.encode(integers, None, width, TableState.initial())

    def _open(self, payload: memoryview, count: int, width: int, name: str) -> Array:
        """Return the int32 integers of a payload of ASC; raises FrameError."""
        out = self._memory(name, np.int32, count)
        self.asc.decode(payload, count, None, width, TableState.initial(), out, None)
        return out

    def _sparse(self, changed: int, size: int) -> bytes:
        """Return the body with the changes that the last scan found."""
        gaps, changes = self._memory("gaps", np.int32, changed), self._memory("changes", np.int32, changed)
        low, high = extremes(gaps)
        width = NARROW if low >= -(1 << NARROW - 1) and high < 1 << NARROW - 1 else WIDE
        coded = bytes(self._asc(gaps, width))
        return b"".join((SPARSE_HEAD.pack(changed, len(coded), width), coded, self._asc(changes, 8 * size)))

    def _read_sparse(self, body: memoryview, base: Array, out: Array) -> None:
        """Change the copy of the base that `out` has."""
        if len(body) < SPARSE_HEAD.size:
            raise damaged(f"at least {SPARSE_HEAD.size} bytes of changes", f"{len(body)}")
        changed, length, width = SPARSE_HEAD.unpack_from(body)
        end = SPARSE_HEAD.size + length
        if not 0 < changed <= out.size or width not in (NARROW, WIDE) or end > len(body):
            raise damaged(f"a head of changes of {out.size} words", bytes(body[: SPARSE_HEAD.size]).hex())
        gaps = self._open(body[SPARSE_HEAD.size : end], changed, width, "gaps")
        changes = self._open(body[end:], changed, 8 * out.itemsize, "changes")
        fault = kernels.change(address(out), out.itemsize, out.size, address(gaps), address(changes), changed)
        if fault:
            raise damaged(FAULTS[fault], "others")

    def _dense(self, new: Array, base: Array) -> bytes | memoryview:
        """Return the changes of all words, coded."""
        changes = (new - base).view(f"i{new.itemsize}")
        return self._asc(changes, 8 * new.itemsize)

    def _read_dense(self, body: memoryview, base: Array, out: Array) -> None:
        changes = self._open(body, out.size, 8 * out.itemsize, "changes")
        np.add(base, changes.astype(out.dtype), out=out)

    def _read_same(self, body: memoryview, base: Array, out: Array) -> None:
        if len(body):
            raise damaged("no bytes of a piece without changes", f"{len(body)}")


def _little(words: Array) -> bytes:
    return words.astype(words.dtype.newbyteorder("<"), copy=False).tobytes()


def _least_floats(filled: int, size: int) -> int:
    """Return fewer bytes than the floats' codec has for that many values other than 0."""
    return FLOATS_HEAD.size + packed_bytes(filled) + (size - 2) * filled


def _read_raw(body: memoryview, base: Array, out: Array) -> None:
    if len(body) != out.nbytes:
        raise damaged(f"{out.nbytes} bytes of raw words", f"{len(body)}")
    out[:] = np.frombuffer(body, out.dtype.newbyteorder("<"))


def _xor(new: Array, base: Array) -> bytes | None:
    """Return the byte planes of the XOR by zstd level 1; None without that package."""
    try:
        import zstandard
    except ImportError:
        return None
    planes = (new ^ base).view(np.uint8).reshape(new.size, -1).T
    compressor = zstandard.ZstdCompressor(level=1, write_content_size=False, write_checksum=False)
    packed: bytes = compressor.compress(np.ascontiguousarray(planes).data)
    return packed


def _read_xor(body: memoryview, base: Array, out: Array) -> None:
    try:
        from oscar.coding.plain import inflate
    except ImportError:
        raise MissingExtraError(lacking("zstandard")) from None
    planes = np.frombuffer(inflate(body, out.nbytes), np.uint8).reshape(-1, out.size)
    parts = np.ascontiguousarray(planes.T).view(out.dtype).ravel()
    np.bitwise_xor(base, parts, out=out)
