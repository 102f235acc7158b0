"""Mutated frames: every one decodes or raises FrameError; no crash, no hang, no byte read behind the frame.

Half of the mutations get their length and CRC-32 recomputed, so that they reach the block parser. Each
mutated frame is decoded twice, with other bytes behind it in memory and by a decoder with another past;
both must agree. Workers are processes of their own, so that even a segmentation fault is counted.

`--boundscheck` makes numba check every index of the compiled kernels (NUMBA_BOUNDSCHECK=1, compiled anew
into a temporary cache) and replaces their unaligned loads and stores by checked ones; use a smaller count.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import struct
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np

from oscar.errors import FrameError, MissingExtraError
from oscar.frame import HEADER_BYTES, Header, pack_frame, unpack_frame

CHUNK = 4096  # mutations between two reports of a worker
HANG_SECONDS = 1.0  # one decode may take this long
SILENCE_SECONDS = 60.0  # a worker that reports nothing for this long has hung; at first it may be compiling
STARTUP_SECONDS = 600.0
KEPT_FAULTS = 20  # of which the frame is kept, as hex
SPARE = 64  # bytes behind each frame, different for the two decodes


@dataclass
class Subject:
    """Something to attack: two frames valid in the same state, what they hold, and a decoder to reset."""

    name: str
    frames: tuple[bytes, bytes]
    decode: Callable[[Any], Any]
    decode_again: Callable[[Any], Any]
    expected: list[Any]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
    return bool(a == b)


# ------------------------------------------------------------------------------------------------ subjects


def _asc_subjects(draw: np.random.Generator) -> Iterator[Subject]:
    """ASC frames of every block type, in states of every kind."""
    from oscar.asc import AscParams, Decoder, Encoder, make_coder
    from oscar.asc.link import Coder

    shared: dict[AscParams, Coder] = {}  # first decoders share scratch memory across subjects

    def subject(
        name: str,
        params: AscParams,
        history: list[np.ndarray],
        pair: tuple[np.ndarray, np.ndarray],
        *,
        width: int | None = None,
        with_context: bool = False,
    ) -> Subject:
        encoder = Encoder(params)
        first = Decoder(params, coder=shared.setdefault(params, make_coder(params)))
        second = Decoder(params)
        for values in history:
            frame = encoder.encode(values, step=1, width=width)
            first.decode(frame, step=1)
            second.decode(frame, step=1)
        saved = encoder.state_dict()
        frames = []
        context = draw.integers(0, 16, pair[0].size).astype(np.uint8) if with_context else None
        for values in pair:
            encoder.load_state_dict(saved)
            frames.append(encoder.encode(values, step=1, width=width, context=context))

        def make(decoder: Decoder) -> Callable[[Any], np.ndarray]:
            start = dict(decoder.states)

            def decode(frame: Any) -> np.ndarray:
                values = decoder.decode(frame, step=1, context=context)
                decoder.states = dict(start)  # a decoder replaces a state, it never writes into one
                return values

            return decode

        for values, frame in zip(pair, frames, strict=True):
            if not _same(make(first)(frame), values):
                raise RuntimeError(f"{name}: an intact frame does not decode to its values")
        return Subject(name, (frames[0], frames[1]), make(first), make(second), list(pair))

    def laplace(scale: float, count: int) -> np.ndarray:
        return np.rint(draw.laplace(0, scale, count)).astype(np.int32)

    def uniform(bits: int, count: int) -> np.ndarray:
        return draw.integers(-(1 << (bits - 1)), 1 << (bits - 1), count).astype(np.int32)

    small = AscParams(block_log2=10, interval_log2=10)
    plain = AscParams(block_log2=12, interval_log2=10, context="none")
    pooled = AscParams(block_log2=11, interval_log2=10, context="neighbour", tables="pooled", map="fixed")
    default = AscParams()
    warm = [laplace(6, 300)]
    yield subject("asc first frame", small, [], (laplace(6, 200), laplace(2, 300)))
    yield subject("asc coded", default, warm, (laplace(6, 250), laplace(9, 250)), with_context=True)
    yield subject("asc sparse", small, [laplace(0.4, 900)], (laplace(0.5, 300), laplace(0.3, 299)))
    yield subject("asc no context", plain, [laplace(20, 900)], (laplace(20, 130), laplace(9, 130)))
    yield subject("asc learnt map", small, [laplace(3, 3000), laplace(9, 2000)], (laplace(6, 280),) * 2)
    yield subject("asc pooled", pooled, warm, (laplace(15, 300), laplace(3, 20)))
    yield subject(
        "asc shift", default, [laplace(9000, 2000)], (laplace(9000, 200), laplace(4000, 90)), width=24
    )
    yield subject("asc escape", default, [laplace(200, 900)], (laplace(300, 250), laplace(150, 60)), width=16)
    wide = np.where(draw.random(300) < 0.02, laplace(1e6, 300), laplace(3, 300))
    yield subject("asc wide escape", default, warm, (wide, laplace(3, 99)), width=32)
    yield subject("asc raw", small, warm, (uniform(8, 200), uniform(8, 100)), width=8)
    yield subject("asc constant", small, warm, (np.full(300, -7, np.int32), np.zeros(11, np.int32)))
    mixed = np.concatenate([np.full(1024, 5, np.int32), laplace(5, 120)])
    yield subject("asc two blocks", small, warm, (mixed, np.roll(mixed, 60)))
    yield subject("asc tiny", small, warm, (laplace(6, 10), np.zeros(0, np.int32)))


def _frame_subject(draw: np.random.Generator) -> Subject:
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

    return Subject("frame", (pack_frame(*pair[0]), pack_frame(*pair[1])), decode, decode, list(pair))


def _baseline_subjects(draw: np.random.Generator) -> Iterator[Subject]:
    """Every baseline codec whose extra is installed."""
    from oscar.codecs.baselines import BASELINES

    for name, factory in BASELINES.items():
        codec = factory()
        drawn = [np.rint(draw.laplace(0, 12, n)) for n in (230, 300)]
        floats = codec.domain == "float"
        pair = [(v / 64).astype(np.float32) if floats else v.astype(np.int32) for v in drawn]
        try:
            frames = [codec.make_encoder().encode(values, step=1) for values in pair]
            decoders = codec.make_decoder(), codec.make_decoder()
            start = decoders[0].state_dict()

            def decode(frame: Any, decoder: Any = decoders[0], start: Any = start) -> np.ndarray:
                values: np.ndarray = decoder.decode(frame, step=1)
                decoder.load_state_dict(start)
                return values

            def decode_again(frame: Any, decoder: Any = decoders[1], start: Any = start) -> np.ndarray:
                return decode(frame, decoder, start)

            expected = [decode(frame) for frame in frames]
        except MissingExtraError:
            continue
        yield Subject(name, (frames[0], frames[1]), decode, decode_again, expected)


def _subjects(seed: int) -> list[Subject]:
    draw = np.random.default_rng(seed)
    return [*_asc_subjects(draw), _frame_subject(draw), *_baseline_subjects(draw)]


# ----------------------------------------------------------------------------------------------- mutations


def _flip_bits(r: random.Random, f: bytearray, other: bytes) -> None:
    for _ in range(r.choice((1, 1, 2, 3, 8))):
        f[r.randrange(len(f))] ^= 1 << r.randrange(8)


def _set_bytes(r: random.Random, f: bytearray, other: bytes) -> None:
    for _ in range(r.choice((1, 1, 2, 5))):
        f[r.randrange(len(f))] = r.choice((0, 1, 127, 128, 255, r.randrange(256)))


def _truncate(r: random.Random, f: bytearray, other: bytes) -> None:
    del f[r.choice((r.randrange(len(f)), max(0, len(f) - r.randrange(1, 9)))) :]


def _extend(r: random.Random, f: bytearray, other: bytes) -> None:
    f += r.choice((r.randbytes(r.randrange(1, 40)), bytes(r.randrange(1, 9)), other))


def _splice(r: random.Random, f: bytearray, other: bytes) -> None:
    cut = r.randrange(len(f))
    if r.random() < 0.5:  # the same offset, so that the second half keeps its meaning
        f[cut:] = other[cut:]
    else:
        f[cut:] = other[r.randrange(len(other)) :]


def _edit_header(r: random.Random, f: bytearray, other: bytes) -> None:
    at, size = r.choice(
        ((0, 1), (1, 1), (2, 2), (4, 2), (6, 1), (7, 1), (8, 2), (10, 2), (12, 4), (12, 4), (16, 4))
    )
    value = int.from_bytes(f[at : at + size], "little")
    top = (1 << (8 * size)) - 1
    value = r.choice(
        (
            0,
            1,
            top,
            top >> 1,
            value + 1,
            value - 1,
            value * 2,
            value ^ 8,
            r.randrange(2048),
            r.getrandbits(32),
        )
    )
    f[at : at + size] = (value & top).to_bytes(size, "little")


def _edit_block(r: random.Random, f: bytearray, other: bytes) -> None:
    """Change the first block's header or a start state, where the structure of the payload is."""
    if len(f) < HEADER_BYTES + 6:
        return _set_bytes(r, f, other)
    where = r.choice((0, 2, 24, 48 + 24 * r.randrange(12)))
    width = {0: 2, 2: 22}.get(where, 24)
    head = int.from_bytes(f[HEADER_BYTES : HEADER_BYTES + 48], "little")
    value = (head >> where) & ((1 << width) - 1)
    value = r.choice(
        (0, 1, value + 1, value - 1, value + 8, 4095, 4096, r.randrange(400), r.getrandbits(width))
    )
    head = head & ~(((1 << width) - 1) << where) | (value & ((1 << width) - 1)) << where
    end = min(len(f), HEADER_BYTES + 48)
    f[HEADER_BYTES:end] = (head & ((1 << (8 * (end - HEADER_BYTES))) - 1)).to_bytes(
        end - HEADER_BYTES, "little"
    )
    return None


def _edit_payload(r: random.Random, f: bytearray, other: bytes) -> None:
    if len(f) <= HEADER_BYTES:
        return _extend(r, f, other)
    start = r.randrange(HEADER_BYTES, len(f))
    end = min(len(f), start + r.randrange(1, 33))
    f[start:end] = r.choice(
        (bytes(end - start), b"\xff" * (end - start), r.randbytes(end - start), b"", f[start:end] * 2)
    )
    return None


MUTATIONS: tuple[Callable[[random.Random, bytearray, bytes], None], ...] = (
    _flip_bits, _flip_bits, _set_bytes, _truncate, _extend, _splice, _edit_header, _edit_block, _edit_payload,
)  # fmt: skip


def reseal(frame: bytearray) -> None:
    """Make length and CRC-32 of a mutated frame right again."""
    if len(frame) >= HEADER_BYTES:
        struct.pack_into("<I", frame, 16, len(frame) - HEADER_BYTES)
        crc = zlib.crc32(memoryview(frame)[HEADER_BYTES:], zlib.crc32(memoryview(frame)[:20]))
        struct.pack_into("<I", frame, 20, crc)


# ------------------------------------------------------------------------------------------------- workers


def _attempt(
    decode: Callable[[Any], Any], memory: bytearray, size: int
) -> tuple[Any, BaseException | None, float]:
    start = time.perf_counter()
    try:
        return decode(memoryview(memory)[:size]), None, time.perf_counter() - start
    except Exception as error:  # what is not a FrameError is a fault, to be reported with its frame
        return None, error, time.perf_counter() - start


def _judge(subject: Subject, frame: bytearray, sealed: bool, tally: Counter[str]) -> tuple[str | None, float]:
    """Decode one mutated frame twice; return what is wrong with the outcome, and the slower time."""
    size = len(frame)
    first, error, seconds = _attempt(subject.decode, frame + bytes(SPARE), size)
    second, error_again, again = _attempt(subject.decode_again, frame + b"\xff" * SPARE, size)
    seconds = max(seconds, again)
    if seconds > HANG_SECONDS:
        tally["hangs"] += 1
        return f"took {seconds:.2f} s", seconds
    for problem in (error, error_again):
        if problem is not None and not isinstance(problem, FrameError):
            tally["crashes"] += 1
            return f"raised {problem!r}", seconds
    if (error is None) != (error_again is None) or not _same(first, second):
        tally["over_reads"] += 1
        return f"decodes differ: {error or 'values'} / {error_again or 'values'}", seconds
    if error is None and not sealed:
        intact = [v for f, v in zip(subject.frames, subject.expected, strict=True) if f == frame]
        intact = intact or [subject.expected[0]]
        if not any(_same(first, values) for values in intact):
            tally["wrong"] += 1
            return "returned other values under an intact CRC-32", seconds
    tally["frame_errors" if error else "returned"] += 1
    return None, seconds


def _chunk(subjects: list[Subject], seed: int, index: int, count: int) -> dict[str, Any]:
    """Judge `count` mutations, the same for the same seed and index."""
    r = random.Random(f"{seed}/{index}")
    tally: Counter[str] = Counter()
    per: Counter[str] = Counter()
    faults: list[dict[str, str]] = []
    slowest = 0.0
    for _ in range(count):
        subject = subjects[r.randrange(len(subjects))]
        frame, other = bytearray(subject.frames[0]), subject.frames[1]
        for _ in range(r.choice((1, 1, 1, 2, 3))):
            if frame:
                MUTATIONS[r.randrange(len(MUTATIONS))](r, frame, other)
        sealed = r.random() < 0.5
        if sealed:
            reseal(frame)
            tally["sealed"] += 1
        fault, seconds = _judge(subject, frame, sealed, tally)
        slowest = max(slowest, seconds)
        per[subject.name] += 1
        if fault and len(faults) < KEPT_FAULTS:
            faults.append({"subject": subject.name, "fault": fault, "frame": frame.hex()})
    for subject in subjects:  # no mutated frame may have moved a decoder's state
        for decode in (subject.decode, subject.decode_again):
            if not _same(decode(subject.frames[0]), subject.expected[0]):
                tally["wrong"] += 1
                faults.append({"subject": subject.name, "fault": "state moved", "frame": ""})
    return {"tally": dict(tally), "per": dict(per), "faults": faults, "slowest": slowest}


def _check_loads() -> int:
    """Replace the kernels' unaligned loads and stores by index-checked ones; return how many."""
    from numba import njit

    import oscar.asc.kernels as kernels

    @njit
    def load64(array: Any, offset: Any) -> Any:
        value = np.uint64(0)
        for i in range(8):
            value |= np.uint64(array[np.int64(offset) + i]) << np.uint64(8 * i)
        return value

    @njit
    def store64(array: Any, offset: Any, value: Any) -> None:
        for i in range(8):
            array[np.int64(offset) + i] = np.uint8((value >> np.uint64(8 * i)) & np.uint64(255))

    # Kernels look these up when they are first compiled, and the modules that import them load later.
    replaced = 0
    for name, checked in (("load64", load64), ("store64", store64)):
        if hasattr(kernels, name):
            setattr(kernels, name, checked)
            replaced += 1
    return replaced


def _work(pipe: Connection, seed: int, boundscheck: bool) -> None:
    """Take (index, count) from the pipe, send back the result of that chunk; None ends."""
    try:
        checked = _check_loads() if boundscheck else 0
        subjects = _subjects(seed)
    except Exception as error:
        pipe.send(error)
        return
    pipe.send({"subjects": [s.name for s in subjects], "checked": checked})
    while (task := pipe.recv()) is not None:
        pipe.send(_chunk(subjects, seed, *task))


class _Worker:
    """One process and the chunk it is at."""

    def __init__(self, seed: int, boundscheck: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, seed, boundscheck), daemon=True)
        self.process.start()
        theirs.close()
        self.task: tuple[int, int] | None = None
        self.deadline = time.monotonic() + STARTUP_SECONDS

    def assign(self, task: tuple[int, int] | None) -> None:
        """Send the next chunk, or None to end."""
        self.task, self.deadline = task, time.monotonic() + SILENCE_SECONDS
        self.pipe.send(task)

    def close(self) -> None:
        """End the process, whatever it does."""
        self.process.terminate()
        self.process.join()
        self.pipe.close()


@contextlib.contextmanager
def _environment(boundscheck: bool) -> Iterator[None]:
    """Give workers NUMBA_BOUNDSCHECK=1 and a cache of their own: numba would reuse unchecked code."""
    if not boundscheck:
        yield
        return
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="oscar-mutate-") as cache:
        os.environ.update(NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=cache)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def _gather(
    count: int, seed: int, jobs: int, boundscheck: bool, progress: Callable[[int], None]
) -> dict[str, Any]:
    """Hand chunks to workers until all are judged; a worker that dies or falls silent is replaced."""
    tasks = iter([(i, min(CHUNK, count - i * CHUNK)) for i in range(-(-count // CHUNK))])
    tally: Counter[str] = Counter()
    per: Counter[str] = Counter()
    faults: list[dict[str, str]] = []
    slowest, done, checked, started = 0.0, 0, 0, 0.0
    workers = [_Worker(seed, boundscheck) for _ in range(jobs)]

    def lost(worker: _Worker, how: str) -> None:
        tally["hangs" if "silent" in how else "crashes"] += 1
        faults.append(
            {"subject": "worker", "fault": f"{how} in chunk {worker.task} of seed {seed}", "frame": ""}
        )
        worker.close()
        workers.remove(worker)
        if worker.task is None:
            raise RuntimeError(f"a worker {how} before its first frame")
        workers.append(_Worker(seed, boundscheck))

    try:
        while workers:
            ready = wait([w.pipe for w in workers], timeout=1.0)
            for worker in list(workers):
                if worker.pipe not in ready:
                    if time.monotonic() > worker.deadline:
                        lost(worker, f"was silent for over {SILENCE_SECONDS:.0f} s")
                    continue
                try:
                    result = worker.pipe.recv()
                except EOFError:
                    worker.process.join()
                    lost(worker, f"died with exit status {worker.process.exitcode}")
                    continue
                if isinstance(result, Exception):
                    raise result
                if worker.task is None:
                    started, checked = started or time.perf_counter(), result["checked"]
                else:
                    tally.update(result["tally"])
                    per.update(result["per"])
                    faults += result["faults"]
                    slowest = max(slowest, result["slowest"])
                    done += worker.task[1]
                    progress(done)
                task = next(tasks, None)
                worker.assign(task)
                if task is None:
                    worker.process.join()
                    worker.close()
                    workers.remove(worker)
    finally:
        for worker in workers:
            worker.close()
    seconds = time.perf_counter() - started
    return {
        "mutations": done,
        "seconds": round(seconds, 3),
        "per_second": round(done / seconds, 1) if seconds else 0.0,
        **{
            k: tally[k]
            for k in ("sealed", "returned", "frame_errors", "crashes", "hangs", "over_reads", "wrong")
        },
        "slowest_ms": round(slowest * 1000, 3),
        "subjects": dict(sorted(per.items())),
        "checked_accesses": checked,
        "faults": faults[:KEPT_FAULTS],
    }


def _whole(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"expected at least {least}, got {value}")
        return value

    return number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `run` reads to a parser."""
    parser.add_argument(
        "--count", type=_whole(1), default=200_000, help="mutated frames (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=_whole(0), default=0, help="same seed, same mutations (default: %(default)s)"
    )
    parser.add_argument(
        "--jobs", type=_whole(1), default=os.cpu_count() or 1, help="processes (default: all cores)"
    )
    parser.add_argument(
        "--boundscheck",
        action="store_true",
        help="check every index of the kernels; compiles for minutes first",
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Judge `args.count` mutated frames and print a table; "ok" tells whether nothing was wrong."""
    print(f"# mutate: count {args.count}, seed {args.seed}, jobs {args.jobs}, boundscheck {args.boundscheck}")
    shown = time.monotonic()

    def progress(done: int) -> None:
        nonlocal shown
        if sys.stderr.isatty() and time.monotonic() - shown > 1:
            shown = time.monotonic()
            print(f"\r{done} of {args.count}", end="", file=sys.stderr, flush=True)

    with _environment(args.boundscheck):
        result = _gather(args.count, args.seed, args.jobs, args.boundscheck, progress)
    keys = ("mutations", "sealed", "returned", "frame_errors", "crashes", "hangs", "over_reads", "wrong")
    print("".join(f"{key:>13}" for key in (*keys, "slowest_ms", "per_second")))
    print("".join(f"{result[key]:>13}" for key in (*keys, "slowest_ms", "per_second")))
    for fault in result["faults"]:
        print(f"# {fault['subject']}: {fault['fault']}: {fault['frame']}")
    result["ok"] = not any(result[key] for key in ("crashes", "hangs", "over_reads", "wrong"))
    return {"seed": args.seed, "jobs": args.jobs, "boundscheck": args.boundscheck, **result}
