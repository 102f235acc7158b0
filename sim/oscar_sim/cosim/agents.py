"""Drivers of the interfaces that are not AXI4-Stream: asc_tables' clients, payload reads, table sets."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import cocotb
from cocotb.triggers import FallingEdge
from cocotbext.axi import AxiStreamBus, AxiStreamFrame, AxiStreamSink, AxiStreamSource

from oscar_hdl.format2.params import COUNT_STEP
from oscar_hdl.format2.reference import frequencies, update
from oscar_sim.cosim.common import high, number, rows
from oscar_sim.seeds import dice
from oscar_sim.tables_model import (
    LOAD,
    MERGE,
    MERGE_ONLY,
    PRIORS,
    SAVE,
    Tables,
    prior,
    reciprocal,
    zeros,
)


def pauses(share: float, seed: int) -> Iterator[bool]:
    """Yield True in a share of the clocks: a pause generator of cocotbext-axi."""
    rng = dice(seed)
    return iter(lambda: rng.random() < share, None) if share else repeat(False)


def source(dut: Any, prefix: str, share: float, seed: int = 1) -> AxiStreamSource:
    """Return a source of whole words for a stream."""
    made = AxiStreamSource(AxiStreamBus.from_prefix(dut, prefix), dut.clk, dut.rst, byte_lanes=1)
    made.log.setLevel("WARNING")
    made.set_pause_generator(pauses(share, seed))
    return made


def sink(dut: Any, prefix: str, share: float, seed: int = 1) -> AxiStreamSink:
    """Return a sink of whole words for a stream."""
    made = AxiStreamSink(AxiStreamBus.from_prefix(dut, prefix), dut.clk, dut.rst, byte_lanes=1)
    made.log.setLevel("WARNING")
    made.set_pause_generator(pauses(share, seed))
    return made


def words(data: list[int]) -> AxiStreamFrame:
    """Return a frame of whole words for a source."""
    return AxiStreamFrame(tdata=list(data))


class TableService:
    """asc_tables for one client, with the reference's arithmetic: ports `who`_* and *tw_*.

    tables: histograms kept and in use (oscar_sim.tables_model.Tables).
    """

    def __init__(self, dut: Any, who: str, tables: Tables) -> None:
        self.dut, self.who, self.tables = dut, who, tables
        self.rcp, self.wipes = hasattr(dut, "tw_rcp"), hasattr(dut, f"{who}_wipe")
        cocotb.start_soon(self._count())
        cocotb.start_soon(self._serve())

    def _port(self, name: str) -> Any:
        return getattr(self.dut, f"{self.who}_{name}")

    async def _count(self) -> None:
        before, address = False, 0
        while True:
            await FallingEdge(self.dut.clk)
            now = not int(self.dut.rst.value) and high(self._port("cnt_valid"))
            if now:
                assert not before, "counts in two clocks running"
                address, bank = int(self._port("cnt_addr").value), int(self._port("cnt_bank").value)
                self.tables.counts[bank][address >> 4][address & 15] += COUNT_STEP
            if self.wipes and not int(self.dut.rst.value) and high(self._port("wipe")):
                for row in self.tables.counts[int(self._port("cnt_bank").value)]:
                    row[address & 15] = 0
            before = now

    async def _serve(self) -> None:
        dut, tables = self.dut, self.tables
        while True:
            self._port("ack").value, dut.tw_en.value = 0, 0
            await FallingEdge(dut.clk)
            if int(dut.rst.value) or not high(self._port("req")):
                continue
            op, bank, tbank = (number(self._port(name)) for name in ("op", "bank", "tbank"))
            if op in (MERGE, MERGE_ONLY, SAVE):
                update(tables.hist, tables.counts[bank])
            elif op in (PRIORS, LOAD):
                tables.hist = prior() if op == PRIORS else [row[:] for row in tables.stored]
            if op == SAVE:
                tables.stored = [row[:] for row in tables.hist]
            tables.counts[bank] = zeros()
            if op in (PRIORS, LOAD):
                tables.counts = [zeros(), zeros()]
            table = [frequencies(row) for row in tables.hist]
            writes = rows(table) if op in (MERGE, PRIORS, LOAD) else []
            aborted = False
            for addr, f, c in writes:
                dut.tw_addr.value, dut.tw_f.value, dut.tw_c.value, dut.tw_en.value = (
                    tbank << 8 | addr,
                    f,
                    c,
                    1,
                )
                if self.rcp:
                    dut.tw_rcp.value = reciprocal(f)
                await FallingEdge(dut.clk)
                dut.tw_en.value = 0
                await FallingEdge(dut.clk)
                if aborted := bool(int(dut.rst.value)):
                    break
                assert high(self._port("req")), "a request was withdrawn before its ack"
            if not aborted:
                self._port("ack").value = 1
                await FallingEdge(dut.clk)


class PayloadMemory:
    """Answers reads of a payload's words in order, some clocks later, sometimes busy."""

    def __init__(self, dut: Any, busy: float, seed: int = 1) -> None:
        self.dut, self.busy, self.rng = dut, busy, dice(seed)
        self.words: list[int] = []
        cocotb.start_soon(self._serve())

    async def _serve(self) -> None:
        dut = self.dut
        waiting: deque[tuple[int, int]] = deque()
        clock, ready = 0, False
        while True:
            await FallingEdge(dut.clk)
            clock += 1
            if int(dut.rst.value):
                waiting.clear()
            elif ready and self.asked is not None:
                assert self.asked < len(self.words), f"read of word {self.asked} of {len(self.words)}"
                due = max(clock + 2 + (self.rng.random() < self.busy), waiting[-1][0] + 1 if waiting else 0)
                waiting.append((due, self.words[self.asked]))
            answer = waiting.popleft()[1] if waiting and waiting[0][0] <= clock else None
            dut.rd_data_valid.value = answer is not None
            dut.rd_data.value = 0 if answer is None else answer
            ready = self.rng.random() >= self.busy
            dut.rd_ready.value = ready
            self.asked = int(dut.rd_addr.value) if high(dut.rd_valid) else None
