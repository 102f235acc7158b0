"""Whole frames, one after another on a link, against the reference; and every way to damage one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from myhdl import block, instance

from oscar.errors import FrameError
from oscar_hdl.asc_decoder import asc_decoder
from oscar_hdl.asc_tables import asc_tables
from oscar_hdl.format2.reference import ReferenceCoder, order
from oscar_hdl.format2.state import TableState
from oscar_hdl.params import LaneParams
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_sim.bench import Pause, clock, never, randomly, simulate, sink, source
from oscar_sim.payload_memory import payload_memory
from oscar_sim.seeds import dice
from oscar_sim.tables_model import Tables, tables_model

LANE = LaneParams(block_log2=10)
SIZE = LANE.block


@dataclass
class Frame:
    """A frame as it goes in, and what is to come out of it."""

    payload: bytes
    classes: list[int]  # of each value, in decoding order
    width: int
    values: list[int] | None  # in decoding order; None: it is refused
    fresh: bool = False
    shift: int = 0
    new_shift: int = 0
    hist: list[list[int]] = field(default_factory=list)  # afterwards


def permuted(values: Sequence[int]) -> list[int]:
    """Values of a frame in decoding order, block by block."""
    out = []
    for first in range(0, len(values), SIZE):
        part = values[first : first + SIZE]
        out += [int(part[j]) for _, _, j in order(len(part))]
    return out


class Link:
    """The host's end of a link: makes frames, and knows what a receiver makes of them."""

    def __init__(self) -> None:
        self.coder = ReferenceCoder(LANE.asc)
        self.state = TableState.initial()
        self.fresh = True

    def frame(self, values: Sequence[int], classes: Sequence[int], width: int) -> Frame:
        """Encode a frame; the link's state moves on."""
        before = self.state.copy()
        payload = self.coder.encode(
            np.array(values, np.int32), 16 * np.array(classes, np.uint8), width, self.state
        )
        out = Frame(payload, permuted(classes), width, permuted(values), self.fresh, int(before.shift[0]))
        out.new_shift, out.hist, self.fresh = int(self.state.shift[0]), self.state.hist.tolist(), False
        return out

    def damaged(self, frame: Frame, payload: bytes) -> Frame:
        """The same frame with another payload, which the reference decodes or refuses."""
        state, width = self.before(frame), frame.width
        n = len(frame.classes)
        classes = np.zeros(n, np.uint8)
        for first in range(0, n, SIZE):
            part = min(SIZE, n - first)
            for i, (_, _, j) in enumerate(order(part)):
                classes[first + j] = 16 * frame.classes[first + i]
        out = Frame(payload, frame.classes, width, None, frame.fresh, frame.shift)
        try:
            values = self.coder.decode(memoryview(payload), n, classes, width, state)
        except FrameError:
            return out
        out.values, out.new_shift = permuted(values.tolist()), int(state.shift[0])
        out.hist = state.hist.tolist()
        return out

    def before(self, frame: Frame) -> TableState:
        """State before a frame that was this link's first."""
        if not frame.fresh:
            raise ValueError("only a link's first frame can be damaged")
        return TableState.initial()


def run(
    frames: Sequence[Frame],
    *,
    idle: float = 0,
    busy: float = 0,
    resets: Sequence[int] = (),
    seed: int = 1,
    real_tables: bool = False,
) -> list[tuple[int, int]]:
    """Decode frames and check all that comes; return (error, clocks) of each.

    idle, busy: share of clocks without class or answer, and without tready. resets: begin each frame so
    often, and reset so many clocks later. real_tables: with asc_tables, not with its stand-in.
    """
    names = ["clk", "rst", "start", "fresh", "idle", "rd_valid", "rd_ready", "rd_data_valid", "done"]
    names += ["cnt_valid", "cnt_bank", "req", "bank", "tbank", "ack", "tw_en"]
    s = {name: bit() for name in names}
    clk, rst = s["clk"], s["rst"]
    count, width, shift, words = word(19), word(5), word(4), word(19)
    rd_addr, rd_data, cnt_addr, op = word(19), word(16), word(8), word(3)
    tw_addr, tw_f, tw_c, error, new_shift = word(9), word(12), word(12), word(4), word(4)
    s_class, m_axis = Stream(4), Stream(16)
    tables = Tables(pace=lambda: 1)
    s_state, m_state, state_in = Stream(10), Stream(10), Feed()
    state_out: list[tuple[int, bool]] = []
    unused = {name: bit() for name in ("valid", "bank", "wipe", "req", "tbank", "ack", "client", "en")}
    wide = [word(bits) for bits in (8, 3, 9, 12, 12, 18)]
    payload: list[int] = []
    feed = Feed()
    taken: list[tuple[int, bool]] = []
    results: list[tuple[int, int]] = []

    @block
    def top():
        dut = asc_decoder(
            clk, rst, s["start"], s["fresh"], count, width, shift, words, s["idle"], s["rd_valid"],
            s["rd_ready"], rd_addr, rd_data, s["rd_data_valid"], s_class, m_axis, s["cnt_valid"], cnt_addr,
            s["cnt_bank"], s["req"], op, s["bank"], s["tbank"], s["ack"], s["tw_en"], tw_addr, tw_f, tw_c,
            s["done"], error, new_shift, LANE,
        )  # fmt: skip
        if real_tables:
            model = (
                asc_tables(
                    clk, rst, s["cnt_valid"], cnt_addr, s["cnt_bank"], s["req"], op, s["bank"], s["tbank"],
                    s["ack"], unused["valid"], wide[0], unused["bank"], unused["wipe"], unused["req"],
                    wide[1], unused["bank"], unused["tbank"], unused["ack"], unused["client"], s_state,
                    m_state, s["tw_en"], tw_addr, tw_f, tw_c, unused["en"], *wide[2:],
                ),
                source(clk, rst, s_state, state_in, randomly(idle, seed + 3) if idle else never),
                sink(clk, rst, m_state, state_out),
            )  # fmt: skip
        else:
            model = tables_model(
                clk, rst, tables, s["cnt_valid"], cnt_addr, s["cnt_bank"], s["req"], op, s["bank"],
                s["tbank"], s["ack"], s["tw_en"], tw_addr, tw_f, tw_c,
            )  # fmt: skip
        pause = randomly(idle, seed) if idle else never
        memory = payload_memory(
            clk, rst, s["rd_valid"], s["rd_ready"], rd_addr, rd_data, s["rd_data_valid"], lambda: payload,
            pause=pause,
        )  # fmt: skip
        stall: Pause = randomly(busy, seed + 1) if busy else never
        more = source(clk, rst, s_class, feed, randomly(idle, seed + 2) if idle else never)
        drain = sink(clk, rst, m_axis, taken, stall)

        @instance
        def drive():
            for frame in frames:
                for attempt, end in enumerate([*resets, -1]):
                    rst.next = attempt > 0 or not results
                    yield clk.posedge
                    rst.next = False
                    feed.items[:] = frame.classes
                    taken.clear()
                    data = frame.payload
                    payload[:] = [int.from_bytes(data[i : i + 2], "little") for i in range(0, len(data), 2)]
                    state_in.items[:] = [] if frame.fresh else [h for row in tables.stored for h in row]
                    state_out.clear()
                    saved = [row[:] for row in tables.stored]
                    count.next, width.next, words.next = len(frame.classes), frame.width, len(payload)
                    s["fresh"].next, shift.next, s["start"].next = frame.fresh, frame.shift, True
                    yield clk.posedge
                    s["start"].next = False
                    clocks = 0
                    while not s["done"] and clocks != end:
                        clocks += 1
                        yield clk.posedge
                    if s["done"]:
                        break
                yield clk.posedge
                if real_tables and state_out:
                    words_out = [h for h, _ in state_out]
                    tables.stored = [words_out[i : i + 16] for i in range(0, 256, 16)]
                    assert len(words_out) == 256
                got, n = [v for v, _ in taken], len(frame.classes)
                assert (len(got), len(feed.items), bool(s_class.tvalid)) == (n, 0, False)
                assert [last for _, last in taken] == [False] * (n - 1) + [True] * (n > 0)
                if frame.values is None:
                    assert error != 0
                    assert tables.stored == saved
                else:
                    assert error == 0
                    assert got == [v & 0xFFFF for v in frame.values]
                    assert int(new_shift) == frame.new_shift
                    assert tables.stored == frame.hist
                results.append((int(error), clocks))

        return dut, model, memory, more, drain, drive, clock(clk)

    simulate(top, clk, until=lambda: len(results) == len(frames), limit=len(frames) * 40_000)
    return results


class Feed:
    """An iterator that may have something later."""

    def __init__(self) -> None:
        self.items: list[Any] = []

    def __iter__(self) -> Feed:
        return self

    def __next__(self) -> Any:
        if not self.items:
            raise StopIteration
        return self.items.pop(0)


def gradient(rng: random.Random, n: int, scale: float, width: int) -> list[int]:
    """Values of a peaked distribution, with runs of larger and smaller ones."""
    top = (1 << (width - 1)) - 1
    sizes = [scale * 4 ** rng.uniform(-1, 1) for _ in range(n // 50 + 1)]
    return [max(-top - 1, min(top, round(rng.gauss(0, sizes[i // 50])))) for i in range(n)]


@pytest.mark.parametrize("real_tables", [False, True])
def test_frames_of_a_link(real_tables: bool) -> None:
    rng, link, frames = dice(3), Link(), []
    for n, scale, width in [
        (2 * SIZE + 300, 5, 8),
        (SIZE, 300, 12),
        (13, 2, 8),
        (1, 1, 8),
        (SIZE + 1, 9000, 16),
    ]:
        frames.append(link.frame(gradient(rng, n, scale, width), rng.choices(range(16), k=n), width))
    frames.append(link.frame([], [], 8))
    run(frames, real_tables=real_tables)


def test_clocks_lost_between_blocks() -> None:
    rng = dice(8)
    clocks = []
    for blocks in (1, 3):
        n = blocks * SIZE
        clocks += [c for _, c in run([Link().frame(gradient(rng, n, 5, 8), [4] * n, 8)])]
    assert (clocks[1] - clocks[0]) / 2 - SIZE < 100  # of 4,096 in a product


@pytest.mark.parametrize(("idle", "busy"), [(0.3, 0), (0, 0.4), (0.2, 0.2)])
def test_all_kinds_of_blocks_with_gaps_and_stalls(idle: float, busy: float) -> None:
    rng, link, frames = dice(4), Link(), []
    for width in (9, 16):
        top = (1 << (width - 1)) - 1
        near = gradient(rng, SIZE, 3, width)
        far = [rng.randint(-top - 1, top) for _ in range(SIZE)]
        blocks = near + [7] * SIZE + [0] * SIZE + near + far + near[::-1] + far[:50]
        frames.append(link.frame(blocks, rng.choices(range(16), k=len(blocks)), width))
    run(frames, idle=idle, busy=busy)


def test_reset_in_the_middle() -> None:
    rng, link = dice(5), Link()
    frames = [link.frame(gradient(rng, 2 * SIZE + 10, 4, 8), [3] * (2 * SIZE + 10), 8) for _ in range(2)]
    run(frames, resets=[rng.randrange(1, 3 * SIZE) for _ in range(4)], idle=0.1)


def test_vector_a_reset_in_the_first_clocks_of_a_frame() -> None:
    """Nothing is left of the frame: `proceed` outlived a reset, and the payload's reader ran."""
    frame = Link().frame(gradient(random.Random(4183), 23, 4, 8), [3] * 23, 8)
    for clocks in range(2):
        run([frame], resets=[clocks])


def forge(rng: random.Random, payload: bytes, kind: int) -> bytes:
    """Damage a payload that begins with a coded block."""
    data = bytearray(payload)
    words = int.from_bytes(data[:3], "little") >> 2
    if kind == 0:  # cut off anywhere
        return bytes(data[: 2 * rng.randrange(len(data) // 2)])
    if kind == 1:  # goes on
        return bytes(data) + bytes(2 * rng.randrange(1, 4))
    if kind == 2:  # one bit
        at = rng.randrange(len(data))
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 3:  # fewer or more words than there are
        data[:3] = ((words + rng.choice([-1, 1, 4])) << 2).to_bytes(3, "little")
    elif kind == 4:  # fewer or more raw words
        data[3] = (data[3] + rng.choice([-1, 1])) & 255
    elif kind == 5:  # a start state
        at = 6 + 3 * rng.randrange(12)
        data[at : at + 3] = rng.choice([5, 4095, 0xFFFFFF]).to_bytes(3, "little")
    else:  # anything
        data[6:] = rng.randbytes(len(data) - 6)
    return bytes(data)


@pytest.mark.parametrize("kind", range(7))
def test_damaged_payloads(kind: int) -> None:
    rng, frames = dice(kind), []
    while len(frames) < 6:
        link, n = Link(), rng.choice([11, 13, 40, 100, SIZE + 30])
        frame = link.frame(gradient(rng, n, 3, 8), rng.choices(range(16), k=n), 8)
        if frame.payload[0] & 3 == 0:
            frames += [link.damaged(frame, forge(rng, frame.payload, kind)), frame]
    run(frames, idle=0.05 * (kind & 1), seed=kind)
