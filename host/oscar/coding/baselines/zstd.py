"""Baseline: Zstandard at level 1, the fastest general-purpose compressor, on data prepared for it.

Values are mapped to zigzag order (0, -1, 1, -2 ...) and split into as few byte planes as hold the frame.
Measured on
Laplace and Gaussian values, 20,000 a frame: with one byte, zigzag and two's complement are within 0.5 %. With
two (sigma 30), plain little-endian int16 takes 9.7 bits a value, its two planes 8.6, and the planes of zigzag
6.96 (entropy 6.8). The plain form costs more than a bit a value, and a fair comparison should not profit from
that.

Payload: u8 number of planes (0: raw block), then one zstd frame without content size or checksum (the OSCAR
frame has both). zstd stores at best 128 KiB in 4 bytes, so count x planes is at most 32,768 per payload byte.
"""

from __future__ import annotations

import numpy as np
import zstandard

from oscar.array import Array
from oscar.coding.baselines.blocks import BlockCodec, check_range, damaged, raw_bytes

BYTES_PER_BYTE = 32768  # most bytes that a payload byte can hold: a run-length block has 4 bytes for 128 KiB
MAX_WINDOW = 1 << 27  # bytes; every zstd decoder must accept it, and level 1 needs 512 KiB


class Zstd(BlockCodec):
    """Codes byte planes with zstd level 1; lossless for any int32 values."""

    code = 10
    level = 1

    def _code(self, values: Array, width: int) -> bytes | None:
        fold = ((values << 1) ^ (values >> 31)).view(np.uint32)
        planes = max(1, (int(fold.max()).bit_length() + 7) // 8)
        source = fold.astype("<u4").view(np.uint8).reshape(-1, 4)[:, :planes].T
        compressor = zstandard.ZstdCompressor(
            level=self.level, write_content_size=False, write_checksum=False
        )
        payload = bytes([planes]) + compressor.compress(np.ascontiguousarray(source).tobytes())
        return payload if len(payload) < raw_bytes(values.size, width) else None

    def _open(self, payload: memoryview, count: int, width: int) -> Array:
        planes, size = payload[0], payload[0] * count
        if planes > 4 or not 0 < size <= BYTES_PER_BYTE * len(payload):
            raise damaged(
                f"{len(payload)} bytes carry 1 to 4 planes of at most {BYTES_PER_BYTE * len(payload)} "
                f"bytes in all, got {planes} of {count} values"
            )
        raw = np.frombuffer(inflate(payload[1:], size), np.uint8).reshape(planes, count)
        parts = np.zeros((count, 4), np.uint8)
        parts[:, :planes] = raw.T
        fold = parts.view("<u4").ravel().astype(np.uint32)
        values = (fold >> np.uint32(1)) ^ (np.uint32(0) - (fold & np.uint32(1)))
        return check_range(values.view(np.int32), width)


def inflate(data: memoryview, size: int) -> bytes:
    """Return exactly `size` bytes from one zstd frame; raises FrameError for anything else."""
    try:
        # A content size in the frame would override max_output_size, and it cannot be trusted.
        if zstandard.get_frame_parameters(data).content_size != zstandard.CONTENTSIZE_UNKNOWN:
            raise damaged("zstd frame announces its own size, OSCAR's do not")
        decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
        out: bytes = decompressor.decompress(data, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise damaged(f"zstd frame of {len(data)} bytes for {size} does not open ({error})") from None
    if len(out) != size:
        raise damaged(f"zstd frame holds {len(out)} bytes, its header announced {size}")
    return out
