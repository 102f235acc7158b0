"""The receiver with its tables and real barrel decoders; memory is a model."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from myhdl import block

from oscar_hdl.coder.decode.barrel_decoder import barrel_decoder
from oscar_hdl.coder.decode.ports import CodedPosition, CodedSums
from oscar_hdl.coder.ports import CountChain, TableWrites
from oscar_hdl.coder.rows import FrameRows
from oscar_hdl.coder.tables.link_tables import link_tables
from oscar_hdl.coder.unit.ports import BEATS, THREADS, WIDTH, CountedLanes
from oscar_hdl.nic.memory.ports import WINDOW
from oscar_hdl.nic.receive.ports import DecodeUnits
from oscar_hdl.streams.bundles import word
from support.barrel_decoder_bench import DATA_AT, LAST_LANES
from support.frame_receiver_bench import Doer, ReceivedBlock, ReceiverBench

LANES, ROWS = 32, 1 << 11  # of memory


class BankUnit:
    """The memory of a decoder: answers in any order, and gives a row again when its sums have come."""

    def __init__(self, bench: ReceiverSumsBench, number: int, job: Any, place: Any) -> None:
        self.bench, self.number, self.job, self.place = bench, number, job, place
        self.position, self.sums = CodedPosition(), CodedSums()
        self.threads = [Doer(bench) for _ in range(THREADS)]
        self.reset()

    def reset(self) -> None:
        """Forget what is under way."""
        self.requests: list[tuple[int, bool, bool, int]] = []
        self.answers: list[tuple[int, FrameRows, bool, int, int]] = []
        self.given: dict[int, int] = {}  # when rows of memory were
        self.position.given.next = False
        for thread in self.threads:
            thread.block = None

    def rows(self, thread: int) -> tuple[FrameRows, int]:
        """Return what is known of the thread's block, and its first row in memory."""
        block, bench = self.threads[thread].block, self.bench
        assert block is not None
        return bench.known[block.frame].part(block.base, block.values), bench.first_rows[
            block.frame
        ] + block.base

    def clock(self) -> None:
        """Do what memory does at a rising edge."""
        job, place, bench = self.job, self.place, self.bench
        if job.done:
            bench.refused += bool(job.bad)
            self.threads[int(job.done_thread)].end()
        self.serve(bench.sim.clocks)
        self.add()
        assert bool(job.start) == bool(place.start)
        if job.start:
            frame, low, first = bench.frame_of(int(job.bank)), bench.block_rows_log2, int(place.first)
            row = (first >> low) * bench.units + self.number << low | first & (1 << low) - 1
            block = ReceivedBlock(bool(job.raw), int(job.values), row - bench.first_rows[frame], frame=frame)
            self.threads[int(job.thread)].begin(block, int(job.bank))

    def serve(self, now: int) -> None:
        """Keep a request, answer one."""
        bench, position, rng = self.bench, self.position, self.bench.dice
        if position.take:
            self.requests.append(
                (int(position.thread), bool(position.header), bool(position.read), int(position.row))
            )
        position.given.next = False
        position.given_thread.next, position.mean.next = rng.randrange(THREADS), rng.randrange(16)
        position.data.next = rng.getrandbits(4 * WIDTH)
        position.local.next = rng.getrandbits(16 * WIDTH)
        if int(bench.phase) % BEATS == BEATS - 1 and self.requests and not bench.jam():
            self.answer(now + 1, self.requests.pop(rng.randrange(min(3, len(self.requests)))))
        self.answers = [a for a in self.answers if now + 1 - a[0] - DATA_AT < BEATS]
        for begin, rows, header, row, first in self.answers:
            beat = now + 1 - begin - DATA_AT
            if beat >= 0:
                self.give(rows, header, row, first, LAST_LANES - WIDTH * beat)

    def answer(self, begin: int, request: tuple[int, bool, bool, int]) -> None:
        """Answer a request, or put it back."""
        thread, header, read, row = request
        rows, first = self.rows(thread)
        if read and not header:
            if begin - self.given.get(first + row, -99) < BEATS * (WINDOW + 1):
                self.requests.append(request)
                self.bench.rows_waited += 1
                return
            self.given[first + row] = begin
            self.position.mean.next = int(rows.means[row])
        self.position.given.next, self.position.given_thread.next = True, thread
        if read:
            self.answers.append((begin, rows, header, row, first))

    def give(self, rows: FrameRows, header: bool, row: int, first: int, lane: int) -> None:
        """Give eight lanes."""
        data = local = 0
        for i in range(WIDTH):
            if header:
                at = row + lane + i
                data |= int(rows.means[at] if at < rows.means.size else 0) << 4 * i
            else:
                data |= int(rows.distances[row, lane + i]) << 4 * i
                local |= (int(self.bench.memory[first + row, lane + i]) & 0xFFFF) << 16 * i
        self.position.data.next, self.position.local.next = data, local

    def add(self) -> None:
        """Write sums."""
        sums = self.sums
        if sums.valid:
            _, first = self.rows(int(sums.thread))
            lane = LAST_LANES - WIDTH * ((int(self.bench.phase) - 2) % BEATS)
            total = [int(sums.total) >> 16 * i & 0xFFFF for i in range(WIDTH)]
            self.bench.memory[first + int(sums.row), lane : lane + WIDTH] = np.array(total, np.uint16).view(
                np.int16
            )


@block
def receiving(bench: ReceiverSumsBench, made: Callable[[], Any], units: DecodeUnits) -> Any:
    """The receiver, the tables, which learn nothing, and the decoders."""
    writes, chain = TableWrites(), CountChain()
    tables = link_tables(bench.clk, bench.rst, bench.tables, writes, chain, chain, encoding=False, sets=4)
    decoders = [
        barrel_decoder(
            bench.clk, bench.rst, bench.phase, units.jobs[n], writes, units.feeds[n],
            bench.models[n].position, bench.models[n].sums, CountedLanes(),
        )
        for n in range(len(units.jobs))
    ]  # fmt: skip
    receiver = made()
    return receiver, tables, decoders


class ReceiverSumsBench(ReceiverBench):
    """See ReceiverBench; what a frame's rows are is known before its command."""

    def __init__(self, dice: random.Random, **shape: Any) -> None:
        self.phase, self.memory = word(4), np.zeros((ROWS, LANES), np.int16)
        self.known: list[FrameRows] = []  # of commands since a reset
        self.rows_waited = self.refused = 0  # for the sums of another frame; bad blocks
        super().__init__(dice, **shape)

    def build(self, made: Callable[[], Any], units: DecodeUnits) -> tuple[Callable[[], Any], Any]:
        """See ReceiverBench."""
        each = list(zip(units.jobs, units.places, strict=True))
        self.models = [BankUnit(self, n, *bundles) for n, bundles in enumerate(each)]
        ports = [each, self.phase, [(unit.position, unit.sums) for unit in self.models]]
        return partial(receiving, self, made, units), ports

    def clock(self) -> None:
        """See ReceiverBench."""
        self.phase.next = (int(self.phase) + 1) % 16
        super().clock()

    def _tables(self) -> None:
        """They are there."""

    def _clear(self) -> None:
        super()._clear()
        if self.cleared.next:
            rows = self.rows_of(len(self.first_rows) - 1)
            self.memory[rows.start : rows.stop] = 0

    def forget(self) -> None:
        """See ReceiverBench."""
        super().forget()
        self.known.clear()
