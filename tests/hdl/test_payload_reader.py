"""Blocks of a payload, their words and raw streams, against the reference's frames."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from myhdl import block, instance

from oscar_hdl import payload_reader as reader
from oscar_hdl.format2.params import CODED, CONSTANT, RAW, max_words, raw_bytes
from oscar_hdl.format2.reference import ReferenceCoder
from oscar_hdl.format2.state import TableState
from oscar_hdl.params import LaneParams
from oscar_hdl.payload_reader import payload_reader
from oscar_hdl.streams.bundles import bit, word
from oscar_sim.bench import Pause, clock, never, randomly, simulate
from oscar_sim.payload_memory import payload_memory
from oscar_sim.seeds import dice

LANE = LaneParams(block_log2=10)
SIZE = LANE.block


def make(blocks: list[list[int]], width: int) -> bytes:
    """The reference's payload of these values, block by block."""
    values = np.array([v for b in blocks for v in b], np.int32)
    state = TableState.initial()
    return ReferenceCoder(LANE.asc).encode(values, np.zeros(values.size, np.uint8), width, state)


def cut(payload: bytes, count: int, width: int) -> list[dict[str, Any]]:
    """What the reader is to say and deliver for an intact payload."""
    blocks, at = [], 0
    for first in range(0, count, SIZE):
        n = min(SIZE, count - first)
        head = int.from_bytes(payload[at : at + 6], "little")
        kind, used, raw = head & 3, (head >> 2) & 0x3FFFFF, head >> 24
        at += 6
        push: list[int] = []
        if kind == CODED:
            size = 36 + 2 * ((12 * used + 15) // 16)
            bits = int.from_bytes(payload[at : at + size], "little")
            push = [(bits >> (12 * i)) & 0xFFF for i in range(24 + used)]
            at += size
            words = raw
        elif kind == CONSTANT:
            words = 0
        else:
            words = raw_bytes(n, width) // 2
        stream = [int.from_bytes(payload[at + 2 * i : at + 2 * i + 2], "little") for i in range(words)]
        at += 2 * words
        if kind == CONSTANT:
            stream = [(head >> 16) & 0xFFFF]
        blocks.append(
            {"kind": kind, "size": n, "final": first + n == count, "push": push, "raw": stream,
             "code_words": used if kind == CODED else None}
        )  # fmt: skip
    return blocks


def run(
    payload: bytes,
    count: int,
    width: int,
    *,
    pause: Pause = never,
    slow: Pause = never,
    resets: int = 0,
    latency: int = 5,
) -> tuple[list[dict[str, Any]], int]:
    """Read a payload; return what was said and delivered for each block, and the fault.

    resets: begin so often anew, at some clock in the middle.
    """
    names = ["rst", "open_frame", "proceed", "fail", "described", "ended", "coded", "fixed", "final", "quiet"]
    names += ["push_valid", "push_ready", "words_end", "raw_valid", "raw_end", "raw_pop"]
    names += ["rd_valid", "rd_ready", "rd_data_valid"]
    clk, s = bit(), {name: bit() for name in names}
    words, number, bits, size, used, fault = word(19), word(19), word(5), word(13), word(11), word(4)
    push_word, raw_data, rd_addr, rd_data = word(12), word(16), word(19), word(16)
    data = [int.from_bytes(payload[i : i + 2], "little") for i in range(0, len(payload), 2)]
    said: list[dict[str, Any]] = []
    state = {"done": False, "fault": 0}

    @block
    def top():
        dut = payload_reader(
            clk, s["rst"], s["open_frame"], words, number, bits, s["proceed"], s["fail"], s["described"],
            s["ended"], s["coded"], s["fixed"], size, s["final"], used, fault, s["push_valid"],
            s["push_ready"], push_word, s["words_end"], s["raw_valid"], raw_data, s["raw_end"],
            s["raw_pop"], s["rd_valid"], s["rd_ready"], rd_addr, rd_data, s["rd_data_valid"], s["quiet"],
            LANE,
        )  # fmt: skip
        memory = payload_memory(
            clk, s["rst"], s["rd_valid"], s["rd_ready"], rd_addr, rd_data, s["rd_data_valid"], lambda: data,
            latency=latency, pause=pause,
        )  # fmt: skip
        rng = dice(len(payload))

        @instance
        def drive():
            for attempt in range(resets + 1):
                left = rng.randrange(20, 300) if attempt < resets else -1
                s["rst"].next = True
                yield clk.posedge
                s["rst"].next = False
                said.clear()
                words.next, number.next, bits.next = len(data), count, width
                s["open_frame"].next = True
                yield clk.posedge
                s["open_frame"].next = False
                while left:
                    s["proceed"].next = True
                    yield clk.posedge
                    s["proceed"].next = False
                    yield clk.posedge
                    while left and not (s["described"] or s["ended"]):
                        left -= 1
                        yield clk.posedge
                    if s["ended"] or not left:
                        break
                    kind = CODED if s["coded"] else CONSTANT if s["fixed"] else RAW
                    entry: dict[str, Any] = {"kind": kind, "size": int(size), "final": bool(s["final"])}
                    entry |= {"push": [], "raw": [], "code_words": int(used) if s["coded"] else None}
                    said.append(entry)
                    want = raw_bytes(int(size), width) // 2 if kind == RAW else 1 << 30
                    while left and not (s["words_end"] and (s["raw_end"] or len(entry["raw"]) == want)):
                        left -= 1
                        take = not slow() and len(entry["raw"]) < want
                        s["push_ready"].next, s["raw_pop"].next = not slow(), take
                        yield clk.posedge
                        if s["push_valid"] and s["push_ready"]:
                            entry["push"].append(int(push_word))
                        if s["raw_valid"] and s["raw_pop"]:
                            entry["raw"].append(int(raw_data))
                        if len(entry["raw"]) >= want - 1:
                            s["raw_pop"].next = False
                            yield clk.posedge
                            if s["push_valid"] and s["push_ready"]:
                                entry["push"].append(int(push_word))
                    s["push_ready"].next, s["raw_pop"].next = False, False
            while not s["quiet"]:
                yield clk.posedge
            state["fault"], state["done"] = int(fault), True

        return dut, memory, drive, clock(clk)

    simulate(top, clk, until=lambda: state["done"], limit=200_000)
    return said, state["fault"]


def blocks_of(rng: random.Random, width: int, tail: int) -> list[list[int]]:
    """A coded, a constant, a raw block and so on, and a shorter one at the end."""
    top = (1 << (width - 1)) - 1
    near = [max(-top - 1, min(top, round(rng.gauss(0, 3)))) for _ in range(SIZE)]
    far = [rng.randint(-top - 1, top) for _ in range(SIZE)]
    last = [rng.randint(-1, 1) for _ in range(tail)]
    return [near, [-top - 1] * SIZE, far, [0] * SIZE, near, last]


@pytest.mark.parametrize(("busy", "slow"), [(0, 0), (0.4, 0.1), (0.1, 0.5)])
@pytest.mark.parametrize("width", [9, 16])
def test_delivers_what_blocks_hold(width: int, busy: float, slow: float) -> None:
    rng = dice(width)
    for tail in (1, 13, 700):
        blocks = blocks_of(rng, width, tail)
        payload, count = make(blocks, width), 5 * SIZE + tail
        said, fault = run(payload, count, width, pause=randomly(busy, 2), slow=randomly(slow, 3))
        assert fault == 0
        expected = cut(payload, count, width)
        assert [b["kind"] for b in expected[:5]] == [CODED, CONSTANT, RAW, CONSTANT, CODED]
        assert said == expected


def test_a_slow_memory_is_not_asked_for_too_much() -> None:
    rng = dice(3)
    blocks = [[rng.randint(-32768, 32767) for _ in range(SIZE)] for _ in range(2)]
    payload = make(blocks, 16)
    assert run(payload, 2 * SIZE, 16, latency=20) == (cut(payload, 2 * SIZE, 16), 0)


def test_reset_at_any_time() -> None:
    blocks = blocks_of(dice(1), 12, 100)
    payload, count = make(blocks, 12), 5 * SIZE + 100
    said, fault = run(payload, count, 12, pause=randomly(0.2), resets=5)
    assert (said, fault) == (cut(payload, count, 12), 0)


def test_raw_block_at_the_end_and_no_values_at_all() -> None:
    rng = dice(2)
    values = [rng.randint(-128, 127) for _ in range(SIZE + 37)]
    payload = make([values], 8)
    assert run(payload, len(values), 8) == (cut(payload, len(values), 8), 0)
    assert run(b"", 0, 8) == ([], 0)
    assert run(b"\0\0", 0, 8) == ([], reader.TRAILING)


def header(kind: int, used: int = 0, raw: int = 0) -> bytes:
    """A block header."""
    return (kind | used << 2 | raw << 24).to_bytes(6, "little")


START = (4096).to_bytes(3, "little") * 12


@pytest.mark.parametrize(
    ("payload", "count", "fault"),
    [
        (b"", 1, reader.TRUNCATED),
        (header(0)[:4], 20, reader.TRUNCATED),
        (header(0) + START[:20], 20, reader.TRUNCATED),
        (header(0, 7) + START + bytes(8), 20, reader.TRUNCATED),
        (header(0, 0, 1) + START, 20, reader.TRUNCATED),
        (header(0, 0, 0xFFFFFF) + START, 20, reader.TRUNCATED),
        (header(0, 0, 1 << 19) + START, 20, reader.TRUNCATED),
        (header(3) + START, 20, reader.BAD_TYPE),
        ((1 | 0x8000 << 16).to_bytes(6, "little"), 20, reader.TOO_WIDE),
        ((1 | 1 << 32).to_bytes(6, "little"), 20, reader.TOO_WIDE),
        ((1 | 0xFFFF7FFF << 16).to_bytes(6, "little"), 20, reader.TOO_WIDE),
        (header(0, max_words(20) + 1) + START + bytes(50), 20, reader.TOO_MANY_WORDS),
        (header(0, 0x300000) + START + bytes(50), 20, reader.TOO_MANY_WORDS),
        (header(0, max_words(20)) + START + bytes(12), 20, 0),
        (header(0) + START[:9] + b"\xff\x0f\0" + START[12:], 20, reader.BAD_START),
        (header(0) + START[:-3] + b"\x01\x10\0", 12, 0),
        (header(0) + START[:-3] + b"\x01\x10\0", 11, reader.BAD_START),
        (header(0) + START[:-3] + b"\0\x20\0", 11, reader.BAD_START),
        (header(0) + START + b"\0\0", 20, reader.TRAILING),
        (header(1) + b"\0\0", 20, reader.TRAILING),
        (header(1), SIZE + 1, reader.TRUNCATED),
    ],
)
def test_refuses(payload: bytes, count: int, fault: int) -> None:
    for pause in (never, randomly(0.4)):
        said, found = run(payload, count, 16, pause=pause)
        assert found == fault
        assert sum(b["size"] for b in said) == count
        assert [b["final"] for b in said] == [False] * (len(said) - 1) + [True]
