"""What `oscar trial mutate` attacks: intact frames of every kind, and decoders that expect them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from oscar.coding.asc import AscParams, Decoder, Encoder, make_coder
from oscar.coding.asc.link import Coder
from oscar.coding.frame import HEADER_BYTES, Header, pack_frame, peek, unpack_frame
from oscar.errors import MissingExtraError
from oscar_lab.trials._mutations import reseal

MARGIN, MARK = 64, 0x5A5A5A5A  # values beside those of a decode, and what they hold
MOST_INTO = 1 << 20  # values for which room is made


@dataclass
class FrameSubject:
    """Something to attack: two frames that are valid in the same state, their values, and two decoders.

    reseal: makes the checksum of a mutated frame right again.
    """

    name: str
    frames: tuple[bytes, bytes]
    decode: Callable[[Any], Any]
    decode_again: Callable[[Any], Any]
    expected: list[Any]
    reseal: Callable[[bytearray], None] = reseal


def same(a: Any, b: Any) -> bool:
    """Whether two decodes returned the same: arrays by type, shape and bytes."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
    return bool(a == b)


class _AscSubjects:
    """Makes subjects of ASC: a link that has coded frames before, and two frames that may come next."""

    def __init__(self, draw: np.random.Generator) -> None:
        self.draw = draw
        self.shared: dict[AscParams, Coder] = {}  # first decoders share scratch memory across subjects

    def __call__(
        self,
        name: str,
        params: AscParams,
        history: list[np.ndarray],
        pair: tuple[np.ndarray, np.ndarray],
        *,
        width: int | None = None,
        with_context: bool = False,
    ) -> FrameSubject:
        """Return a subject whose decoders have seen `history` and expect one of the frames of `pair`."""
        encoder = Encoder(params)
        first = Decoder(params, coder=self.shared.setdefault(params, make_coder(params)))
        second = Decoder(params)
        for values in history:
            frame = encoder.encode(values, step=1, width=width)
            first.decode(frame, step=1)
            second.decode(frame, step=1)
        saved = encoder.state_dict()
        frames = []
        context = self.draw.integers(0, 16, pair[0].size).astype(np.uint8) if with_context else None
        for values in pair:
            encoder.load_state_dict(saved)
            frames.append(encoder.encode(values, step=1, width=width, context=context))
        decode, decode_again = _asc_decode(first, context), _asc_decode(second, context, into=True)
        for values, frame in zip(pair, frames, strict=True):
            if not same(decode(frame), values):
                raise RuntimeError(f"{name}: an intact frame does not decode to its values")
        return FrameSubject(name, (frames[0], frames[1]), decode, decode_again, list(pair))


def _asc_decode(
    decoder: Decoder, context: np.ndarray | None, *, into: bool = False
) -> Callable[[Any], np.ndarray]:
    """Return a call of the decoder; into: its values go to the middle of an array, none beside it."""
    start = dict(decoder.states)

    def decode(frame: Any) -> np.ndarray:
        out = None
        if into and len(frame) >= HEADER_BYTES and (count := peek(frame).count) <= MOST_INTO:
            room = np.full(count + 2 * MARGIN, MARK, np.int32)
            out = room[MARGIN : MARGIN + count]
        try:
            return decoder.decode(frame, step=1, context=context, out=out)
        finally:
            decoder.states = dict(start)  # a decoder replaces a state, it never writes into one
            if out is not None and not (room[:MARGIN] == MARK).all() & (room[-MARGIN:] == MARK).all():
                raise RuntimeError("values were written beside the array that takes them")

    return decode


def _asc_subjects(draw: np.random.Generator) -> Iterator[FrameSubject]:
    """ASC frames of every block type, in states of every kind."""
    subject = _AscSubjects(draw)

    def laplace(scale: float, count: int) -> np.ndarray:
        return np.rint(draw.laplace(0, scale, count)).astype(np.int32)

    def uniform(bits: int, count: int) -> np.ndarray:
        return draw.integers(-(1 << (bits - 1)), 1 << (bits - 1), count).astype(np.int32)

    small, default = AscParams(block_log2=10), AscParams()
    plain = AscParams(block_log2=12, context="none", sent_rows=False)
    pooled = AscParams(block_log2=11, tables="pooled")
    warm = [laplace(6, 300)]
    yield subject("asc first frame", small, [], (laplace(6, 200), laplace(2, 300)))
    yield subject("asc coded", default, warm, (laplace(6, 250), laplace(9, 250)), with_context=True)
    yield subject("asc sparse", small, [laplace(0.4, 900)], (laplace(0.5, 300), laplace(0.3, 299)))
    yield subject("asc no context", plain, [laplace(20, 900)], (laplace(20, 130), laplace(9, 130)))
    lattice = 8 * laplace(3, 1500)  # far from what tables have learnt: rows are sent
    yield subject("asc sent rows", small, [laplace(3, 3000)], (lattice, laplace(40, 1500)), with_context=True)
    late = np.concatenate([np.zeros(2100, np.int32), laplace(5, 40), np.zeros(1500, np.int32)])
    yield subject("asc zero groups", default, warm, (late, np.roll(late, 900)))
    yield subject("asc pooled", pooled, warm, (laplace(15, 300), laplace(3, 20)))
    yield subject(
        "asc shift", default, [laplace(9000, 2000)], (laplace(9000, 200), laplace(4000, 90)), width=24
    )
    yield subject("asc large", default, [laplace(200, 900)], (laplace(300, 250), laplace(150, 60)), width=16)
    wide = np.where(draw.random(300) < 0.02, laplace(1e6, 300), laplace(3, 300))
    yield subject("asc wide rows", default, warm, (wide, laplace(3, 99)), width=32)
    yield subject("asc raw", small, warm, (uniform(8, 200), uniform(8, 100)), width=8)
    yield subject("asc constant", small, warm, (np.full(300, -7, np.int32), np.zeros(11, np.int32)))
    mixed = np.concatenate([np.full(1024, 5, np.int32), laplace(5, 120)])
    yield subject("asc two blocks", small, warm, (mixed, np.roll(mixed, 60)))
    yield subject("asc tiny", small, warm, (laplace(6, 10), np.zeros(0, np.int32)))


def _frame_subject(draw: np.random.Generator) -> FrameSubject:
    """The frame alone: header and payload come back, or FrameError."""
    pair = [
        (
            Header(codec=int(draw.integers(256)), step=3, count=int(draw.integers(300)), chunk=9),
            draw.bytes(90),
        ),
        (Header(codec=2, step=65535, count=1 << 28, sub=255, width=32, sequence=65535), b""),
    ]

    def decode(frame: Any) -> tuple[Header, bytes]:
        head, payload = unpack_frame(frame)
        return head, bytes(payload)

    return FrameSubject("frame", (pack_frame(*pair[0]), pack_frame(*pair[1])), decode, decode, list(pair))


def _resetting(decoder: Any) -> Callable[[Any], np.ndarray]:
    start = decoder.state_dict()

    def decode(frame: Any) -> np.ndarray:
        values: np.ndarray = decoder.decode(frame, step=1)
        decoder.load_state_dict(start)
        return values

    return decode


def _baseline_subjects(draw: np.random.Generator) -> Iterator[FrameSubject]:
    """Every codec but ASC and the lossless codecs of floats, if its extra is installed."""
    from oscar.coding.registry import ASC, codec_names, make_codec

    for name in codec_names():
        if name in ASC or name.endswith("-lossless"):
            continue
        codec = make_codec(name)
        drawn = [np.rint(draw.laplace(0, 12, n)) for n in (230, 300)]
        floats = codec.domain == "float"
        pair = [(v / 64).astype(np.float32) if floats else v.astype(np.int32) for v in drawn]
        try:
            frames = [codec.make_encoder().encode(values, step=1) for values in pair]
            decode, decode_again = _resetting(codec.make_decoder()), _resetting(codec.make_decoder())
            expected = [decode(frame) for frame in frames]
        except MissingExtraError:
            continue
        yield FrameSubject(name, (frames[0], frames[1]), decode, decode_again, expected)


def make_subjects(seed: int) -> list[FrameSubject]:
    """Return everything to attack; the same frames for the same seed."""
    draw = np.random.default_rng(seed)
    return [*_asc_subjects(draw), _frame_subject(draw), *_baseline_subjects(draw)]
