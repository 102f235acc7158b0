"""engine_pair: two blocks are encoded while two are decoded; bytes, sums and counts are the reference's."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

import numpy as np
import pytest

from oscar.coding.asc.model import Row, class_of, count_group, frequencies
from oscar.coding.asc.params import CODED, DIRECTORY_BYTES, GROUP_ROWS, LANES, PREFIX_BYTES, AscParams
from oscar.coding.asc.reference import ReferenceCoder
from oscar.coding.asc.state import TableState
from oscar_hdl.coder.engine_pair import engine_pair
from oscar_hdl.coder.ports import (
    COUNT_BITS,
    TURN,
    CountChain,
    DecoderJob,
    EncoderJob,
    PositionPort,
    SourcePort,
    SumPort,
    TableWrites,
)
from oscar_hdl.coder.rows import FrameRows, frame_rows
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_sim.blocks import table_words
from oscar_sim.cycles import CycleSimulator
from oscar_sim.seeds import dice
from support.rtl_rows import PositionMemory, SourceMemory, SumMemory

pytestmark = pytest.mark.usefixtures("seed")

BLOCK_LOG2 = 11
FRAME_VALUES, THINNING = 1 << 16, 1  # counts are those of a frame so large
TOTAL_LATE = 5  # clocks from an address at the chain's end to its total


class Bench:
    """A pair with its memory, tables and streams of bytes."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.clk, self.rst, self.phase = bit(), bit(), word(5)
        self.tables, self.encoder_tables = TableWrites(), TableWrites()
        self.jobs = [DecoderJob() for _ in range(2)], [EncoderJob() for _ in range(2)]
        self.given, self.taken = [Stream(16) for _ in range(2)], [Stream(16, keep=2) for _ in range(2)]
        positions, sums = [PositionPort() for _ in range(2)], [SumPort() for _ in range(2)]
        sources = [SourcePort() for _ in range(2)]
        self.chains = [(CountChain(), CountChain()) for _ in range(2)]
        top = engine_pair(
            self.clk, self.rst, self.phase, self.tables, TableWrites(), self.encoder_tables,
            TableWrites(), self.jobs[0], self.given, positions, sums, *self.chains[0], self.jobs[1],
            self.taken, sources, *self.chains[1],
        )  # fmt: skip
        nothing = frame_rows(np.zeros(32))
        self.phases = self.phase, word(5, TURN)
        ports = tuple(zip(positions, sums, sources, self.phases, strict=True))
        self.positions = [PositionMemory(p, phase, nothing, rng, ok=0.9) for p, _, _, phase in ports]
        self.sums = [SumMemory(s, phase, nothing.values, 32, rng) for _, s, _, phase in ports]
        self.sources = [SourceMemory(s, phase, nothing, rng, ok=0.9) for _, _, s, phase in ports]
        self.feeds: list[deque[tuple[int, bool]]] = [deque(), deque()]
        self.coded = [bytearray(), bytearray()]
        self.ended = [False, False]
        self.dones = [[0, 0], [0, 0]]
        self.writes: deque[tuple[int, int]] = deque()
        self.seen: list[list[tuple[int, int]]] = [[], []]  # clock and address at the chains' ends
        self.totals: list[dict[int, int]] = [{}, {}]  # by clock
        self.simulator = CycleSimulator(top, self.clk, self.each)

    def each(self) -> None:
        now = self.simulator.clocks
        for phase in self.phases:
            phase.next = (int(phase) + 1) % 32
        for part in (*self.positions, *self.sums, *self.sources):
            part.step()
        for tables in (self.tables, self.encoder_tables):
            tables.enable.next = bool(self.writes)
            if self.writes:
                tables.address.next, tables.data.next = self.writes[0]
        if self.writes:
            self.writes.popleft()
        for n in range(2):
            self._bytes(n)
            for done, jobs in zip(self.dones, self.jobs, strict=True):
                done[n] += bool(jobs[n].done)
            _, after = self.chains[n]
            if after.valid:
                self.seen[n].append((now, int(after.address)))
            self.totals[n][now] = int(after.totals)

    def _bytes(self, n: int) -> None:
        stream, feed = self.given[n], self.feeds[n]
        if stream.tvalid and stream.tready:
            feed.popleft()
        keeps = stream.tvalid and not stream.tready
        shown = bool(feed) and (bool(keeps) or self.rng.random() < 0.9)
        stream.tvalid.next = shown
        stream.tdata.next, stream.tlast.next = feed[0] if shown else (self.rng.getrandbits(16), False)
        stream = self.taken[n]
        if stream.tvalid and stream.tready:
            self.coded[n] += int(stream.tdata).to_bytes(2, "little")[: 2 if stream.tkeep == 3 else 1]
            self.ended[n] = bool(stream.tlast)
        stream.tready.next = self.rng.random() < 0.9

    def load(self, freq: list[list[int]], bank: int) -> None:
        """Write the tables of both directions."""
        self.writes += table_words(freq, bank)
        self.simulator.run(len(self.writes) + 3)

    def run(self, encode: list[FrameRows], decode: list[tuple[int, bytes, FrameRows, np.ndarray]]) -> None:
        """Encode two blocks and decode two at once; entry, bytes, rows and local values of these."""
        for n in range(2):
            self.coded[n].clear()
            self.ended[n] = False
            encoder, decoder = self.jobs[1][n], self.jobs[0][n]
            self.sources[n].rows = encode[n]
            encoder.values.next, encoder.bank.next, encoder.thinning.next = encode[n].count, 1, THINNING
            entry, data, rows, local = decode[n]
            self.positions[n].rows = rows
            self.sums[n].begin(local, rows.count)
            padded = b"\0" * (len(data) & 1) + data[::-1]
            pairs = [padded[i] | padded[i + 1] << 8 for i in range(0, len(padded), 2)]
            self.feeds[n].extend((pair, i == len(pairs) - 1) for i, pair in enumerate(pairs))
            fields = {"values": rows.count, "bank": 1, "thinning": THINNING, "odd": len(data) & 1}
            fields |= {"seeds": entry >> 2 & 7, "first": entry >> 5 & 127, "last": entry >> 12 & 127}
            for name, value in fields.items():
                getattr(decoder, name).next = value
            encoder.start.next = decoder.start.next = True
        self.simulator.run(1)
        for n in range(2):
            self.jobs[0][n].start.next = self.jobs[1][n].start.next = False
        expected = [[n + 1 for n in done] for done in self.dones]
        for _ in range(200):
            self.simulator.run(50)
            if all(self.ended) and self.dones == expected:
                return
        raise AssertionError("no end")

    def drain(self, n: int) -> list[int]:
        """Take the counts of a direction out of the chain."""
        before, _ = self.chains[n]
        self.seen[n].clear()
        for address in range(256):
            before.valid.next, before.address.next, before.bank.next = True, address, True
            self.simulator.run(1)
        before.valid.next, before.address.next = False, 0
        self.simulator.run(20)
        found = {address: self.totals[n][now + TOTAL_LATE] for now, address in self.seen[n]}
        lanes = [COUNT_BITS * lane for lane in range(2)]
        return [found[at] >> low & (1 << COUNT_BITS) - 1 for at in range(256) for low in lanes]


def counted(blocks: list[tuple[np.ndarray, np.ndarray]]) -> list[int]:
    """Return what the reference counts in blocks."""
    counts = [[0] * 16 for _ in range(32)]
    for values, positions in blocks:
        lines = [slice(at, at + LANES) for at in range(0, values.size, LANES)]
        rows = [
            Row(values[x].tolist(), positions[x].tolist(), class_of(values[x].tolist(), 0, 0)) for x in lines
        ]
        for at in range(0, len(rows), GROUP_ROWS):
            count_group(rows[at : at + GROUP_ROWS], FRAME_VALUES, 0, counts)
    return [n for row in counts for n in row]


def gradient(rng: Random, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return values whose size changes slowly, with rows of zeros, and position classes that follow it."""
    r = np.random.default_rng(rng.getrandbits(32))
    rows = -(-count // LANES)
    scale = np.repeat(np.exp(np.cumsum(r.normal(0, 0.4, rows)) % 6 - 2), LANES)[:count]
    own = scale * r.choice([0.3, 1, 3], count)
    values = np.clip(np.rint(r.laplace(0, own)), -2000, 2000).astype(int)
    values *= np.repeat(r.random(rows) < 0.5, LANES)[:count]
    return values, np.clip(np.rint(2 * np.log2(own) + 6), 0, 15).astype(int)


def blocks_of(payload: bytes, count: int) -> list[tuple[int, bytes]]:
    """Return entry and bytes of each block of a payload without sent rows."""
    found, blocks = [], -(-count >> BLOCK_LOG2)
    at = PREFIX_BYTES + DIRECTORY_BYTES * blocks
    for b in range(blocks):
        begin = PREFIX_BYTES + DIRECTORY_BYTES * b
        entry = int.from_bytes(payload[begin : begin + DIRECTORY_BYTES], "little")
        assert entry & 3 == CODED
        found.append((entry, payload[at : at + (entry >> 24)]))
        at += entry >> 24
    return found


def test_two_engines_code_and_decode_side_by_side():
    rng = dice("pair")
    count = (3 << BLOCK_LOG2) + rng.randrange(1500, 1 << BLOCK_LOG2)
    values, positions = gradient(rng, count)
    params = AscParams(sent_rows=False, block_log2=BLOCK_LOG2)
    state, rows = TableState.initial(), frame_rows(values, positions)
    freq = [frequencies(row, q, int(rows.tops.max())) for q, row in enumerate(state.hist.tolist())]
    reference = blocks_of(ReferenceCoder(params).encode(values, positions, 12, state), count)
    size = 1 << BLOCK_LOG2
    parts = [rows.part(b * size // LANES, min(size, count - b * size)) for b in range(4)]
    cut = [(values[b * size : (b + 1) * size], positions[b * size : (b + 1) * size]) for b in range(4)]
    local = [frame_rows(gradient(rng, part.count)[0]).values for part in parts]

    bench = Bench(rng)
    bench.rst.next = True
    bench.simulator.run(1)
    bench.rst.next = False
    bench.simulator.run(1)
    for n in range(2):  # what counts hold after a reset is not said
        bench.drain(n)
    bench.load(freq, 1)
    done: list[tuple[int, bytes]] = list(reference)
    for encode, decode in (((0, 1), (2, 3)), ((2, 3), (0, 1))):
        bench.run([parts[b] for b in encode], [(*done[b], parts[b], local[b]) for b in decode])
        for n, b in enumerate(encode):
            job: Any = bench.jobs[1][n]
            entry = int(job.seeds) << 2 | int(job.first) << 5 | int(job.last) << 12 | int(job.bytes) << 24
            done[b] = entry, bytes(bench.coded[n])
            assert (hex(entry), done[b][1].hex()) == (hex(reference[b][0]), reference[b][1].hex())
            assert not job.bad
            assert not job.constant
        for n, b in enumerate(decode):
            assert not bench.jobs[0][n].bad
            assert bench.sums[n].complete
            assert not bench.feeds[n]
            assert np.array_equal(bench.sums[n].values, parts[b].values + local[b])
    for n in range(2):
        assert bench.drain(n) == counted(cut)
