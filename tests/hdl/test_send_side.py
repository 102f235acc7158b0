"""The send side of barrel units: sender, encoders, counts and tables give the frames of the host."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from myhdl import always, block

from oscar.coding.asc.link import ASC_CODE
from oscar.coding.asc.params import CONSTANT, RAW
from oscar.coding.asc.state import TableState
from oscar.coding.frame import HEADER_BYTES, Header
from oscar_hdl.coder.encode.barrel_encoder import barrel_encoder
from oscar_hdl.coder.encode.ports import CodedSource, DrainPort, EncoderJob
from oscar_hdl.coder.ports import CountChain, TableWrites
from oscar_hdl.coder.rows import LANES, FrameRows
from oscar_hdl.coder.tables.link_tables import link_tables
from oscar_hdl.coder.unit.ports import BEATS, WIDTH, WORD_BYTES, CountedLanes
from oscar_hdl.coder.unit.unit_counts import unit_counts
from oscar_hdl.nic.ports import BankBlock
from oscar_hdl.nic.send.frame_sender import EncodeUnits, frame_sender
from oscar_hdl.streams.bundles import Stream, word
from oscar_hdl.streams.reset_hold import CLOCKS
from oscar_sim.blocks import CodedFrame, Coder
from oscar_sim.seeds import dice
from support.nic_bench import KINDS, gradient
from support.sender_bench import SenderBench
from support.sent_frames import ROW_BITS, Frame, Part

pytestmark = pytest.mark.usefixtures("seed")

LOG2 = 10  # of a block's values
DATA_AT = 2  # clocks from an answer to its first lanes
SETS = 4


class Bank:
    """Memory of one unit: it answers in a later turn, in any order of threads."""

    def __init__(self, number: int, source: Any, blocks: Any, rng: random.Random, late: float) -> None:
        self.number, self.source, self.blocks, self.rng, self.late = number, source, blocks, rng, late
        self.first: dict[int, int] = {}
        self.requests: list[tuple[int, int, bool, bool]] = []
        self.answers: list[tuple[int, list[int]]] = []
        self.clocks = 0

    def clock(self, bench: SendBench) -> None:
        """Do what is done in a clock."""
        source, blocks = self.source, self.blocks
        self.clocks += 1
        if source.take:
            self.requests.append(
                (int(source.thread), int(source.row), bool(source.header), bool(source.read))
            )
        if blocks.start:
            self.first[int(blocks.thread)] = bench.row_of(self.number, int(blocks.first))
        source.given.next = False
        source.data.next = self.rng.getrandbits(19 * WIDTH)
        if int(bench.phase) % BEATS == BEATS - 1 and self.requests and self.rng.random() >= self.late:
            thread, row, header, read = self.requests.pop(self.rng.randrange(len(self.requests)))
            source.given.next, source.given_thread.next = True, thread
            at = self.first[thread] + row
            if read:
                self.answers.append((self.clocks + 1, bench.lanes(at, header)))
            if read and not header:
                source.row_class.next = int(bench.headers[at]) & 15
                source.mean.next = int(bench.headers[at]) >> 7 & 15
        self.answers = [answer for answer in self.answers if self.clocks + 1 - answer[0] - DATA_AT < BEATS]
        for begin, lanes in self.answers:
            beat = self.clocks + 1 - begin - DATA_AT
            if 0 <= beat < BEATS:
                part = lanes[WIDTH * beat : WIDTH * beat + WIDTH]
                source.data.next = sum(value << 19 * lane for lane, value in enumerate(part))

    def busy(self, bank: int) -> bool:
        """Memory holds up no frame."""
        return False

    def reset(self) -> None:
        """Forget requests."""
        self.requests.clear(), self.answers.clear()
        self.source.given.next = False


@block
def send_side(bench: SendBench, *, bus_bits: int, store_log2: int) -> Any:
    """Sender, units, tables."""
    clk, rst, phase, count = bench.clk, bench.rst, bench.phase, len(bench.banks)
    jobs, drains = [EncoderJob() for _ in range(count)], [DrainPort() for _ in range(count)]
    streams = [Stream(8 * WORD_BYTES, keep=WORD_BYTES) for _ in range(count)]
    quads = TableWrites()
    counts, chain = [CountedLanes() for _ in range(count)], [CountChain() for _ in range(count + 1)]
    units = EncodeUnits(
        jobs, drains, streams, [bank.blocks for bank in bench.banks], bench.source, bench.raw_row
    )

    @always(clk.posedge)
    def turn() -> None:
        phase.next = phase + 1

    return [
        turn,
        link_tables(clk, rst, bench.tables, quads, chain[0], chain[count], encoding=True, sets=SETS),
        frame_sender(
            clk, rst, bench.tx, bench.command, bench.row, bench.top, bench.tables, units, bus_bits=bus_bits,
            store_log2=store_log2, block_log2=LOG2,
        ),
        [
            barrel_encoder(
                clk, rst, phase, jobs[n], quads, bench.banks[n].source, counts[n], drains[n], streams[n]
            )
            for n in range(count)
        ],
        [unit_counts(clk, rst, one, *link) for one, link in zip(counts, pairwise(chain), strict=True)],
    ]  # fmt: skip


class SendBench(SenderBench):
    """The send side, and frames of a link."""

    def __init__(
        self, rng: random.Random, units: int, *, bus_bits: int = 64, pressure: float = 0.0, late: float = 0.0
    ) -> None:  # fmt: skip
        self.phase, self.bits = word(4), units.bit_length() - 1
        self.coder, self.states = Coder(log2=LOG2), [TableState.initial() for _ in range(SETS)]
        self.banks = [
            Bank(n, CodedSource(), BankBlock(ROW_BITS - self.bits), rng, late) for n in range(units)
        ]
        self.units = self.banks
        self.values = np.zeros((1 << ROW_BITS, LANES), np.int32)
        self.distances = np.zeros((1 << ROW_BITS, LANES), np.uint8)
        self.headers = np.zeros(1 << ROW_BITS, np.uint16)

        def make(bench: SenderBench) -> Callable[[], Any]:
            return partial(send_side, self, bus_bits=bus_bits, store_log2=11)

        ports = [self.phase, *(one for bank in self.banks for one in (bank.source, bank.blocks))]
        key = "send side", units, bus_bits
        super().__init__(rng, key, make, ports, bus_bits=bus_bits, pressure=pressure)
        self.restart()

    def restart(self) -> None:
        """Reset all; tables begin anew."""
        self.rst.next = True
        self.simulator.run(CLOCKS)
        self.rst.next = False
        self.simulator.run(2)
        self.fresh = [True] * SETS
        self.frames.clear(), self.errors.clear(), self.goes.clear(), self.taken.clear()

    def row_of(self, unit: int, first: int) -> int:
        """Return the row of memory of a row of a unit's bank."""
        low = LOG2 - 5
        return (first >> low << self.bits | unit) << low | first & (1 << low) - 1

    def lanes(self, row: int, header: bool) -> list[int]:
        """Return what memory gives of a row, or of the headers of a group."""
        if header:
            return [int(one) for one in self.headers[row : row + LANES]]
        pairs = zip(self.values[row].tolist(), self.distances[row].tolist(), strict=True)
        return [value & 0xFFFF | distance << 16 for value, distance in pairs]

    def _tables(self) -> None:
        """Tables are real ones."""

    def frame_at(self, row: int, values: np.ndarray, positions: np.ndarray, load: int, save: int) -> Frame:
        """Put values into memory, and return the host's frame of them."""
        state = TableState.initial() if self.fresh[load] else self.states[load].copy()
        fresh, last = self.fresh[load], self.coder.encode(values, positions, state)
        self.states[save], self.fresh[save] = state, False
        self._keep(row, last.rows)
        header = Header(
            ASC_CODE, self.rng.getrandbits(16), values.size, self.rng.getrandbits(16),
            self.rng.getrandbits(8), 16, self.rng.getrandbits(16), last.before.checksum(self.coder.params),
        )  # fmt: skip
        frame = Frame(header, parts_of(last), last.last, LOG2, row, load, save, fresh)
        assert frame.bytes()[HEADER_BYTES:] == last.payload.tobytes()
        return frame

    def _keep(self, row: int, rows: FrameRows) -> None:
        place = slice(row, row + rows.means.size)
        self.values[place], self.distances[place] = rows.values, rows.distances
        self.headers[row : row + -(-rows.means.size // LANES) * LANES] = 0
        self.headers[place] = rows.headers

    def send(self, frames: list[Frame]) -> None:
        """Send frames and compare them."""
        for frame in frames:
            self.until(lambda: bool(self.command.idle))
            self.start(frame)
        self.until(lambda: not self.under_way and len(self.frames) >= len(frames))
        assert self.errors == [0] * len(frames)
        assert self.frames == [frame.bytes() for frame in frames]


def parts_of(coded: CodedFrame) -> list[Part]:
    """Return the blocks of a frame."""
    flat, parts = coded.rows.values.reshape(-1)[: coded.rows.count].tolist(), []
    for n, entry in enumerate(coded.entries):
        at = n << coded.log2
        part = Part(flat[at : at + int(entry["count"])], b"", alone=len(coded.entries) == 1)
        if entry["kind"] == RAW:
            part.data = bytes(part.limit)
        elif entry["kind"] != CONSTANT:
            part.data = coded.bytes_of(n).tobytes()
            part.seeds, part.first, part.last = (int(entry[name]) for name in ("seeds", "first", "last"))
        parts.append(part)
    return parts


@pytest.mark.parametrize(("units", "bus_bits"), [(1, 64), (2, 128)])
def test_frames_equal_the_host_s(units: int, bus_bits: int) -> None:
    rng = dice(units)
    bench = SendBench(rng, units, bus_bits=bus_bits, pressure=rng.choice((0, 0.3)), late=rng.choice((0, 0.5)))
    frames, row = [], 0
    for kind in rng.sample(KINDS, len(KINDS)):
        count = rng.choice((1, 33, 1024, rng.randrange(1, 3000)))
        values, positions = gradient(rng, count, kind)
        load = rng.randrange(2)
        frames.append(bench.frame_at(row, values, positions, load, rng.choice((load, 1 - load))))
        row += 32 * rng.randrange(-(-count // 1024), 4)
    bench.send(frames)
