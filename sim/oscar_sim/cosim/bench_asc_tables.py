"""asc_tables: both clients at once count and ask for every operation."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb.triggers import Combine, FallingEdge

from oscar_hdl.format2.params import COUNT_STEP
from oscar_hdl.format2.reference import frequencies, update
from oscar_sim.cosim.common import high, link, rows, settled, start
from oscar_sim.seeds import dice
from oscar_sim.tables_model import (
    DROP,
    LOAD,
    MERGE,
    MERGE_ONLY,
    NAMES,
    PRIORS,
    SAVE,
    prior,
    reciprocal,
    zeros,
)
from oscar_sim.vectors import Table

INPUTS = "s_axis_state_tdata s_axis_state_tvalid s_axis_state_tlast m_axis_state_tready"
CLIENT = "cnt_valid cnt_addr cnt_bank req op bank tbank"
LIMIT = 12_000  # clocks of an operation, the other client's included


class Client:
    """One client: counts in the background, and checks what each operation does."""

    def __init__(self, dut: Any, who: str, states: States) -> None:
        self.dut, self.who, self.states = dut, who, states
        self.rng = dice(who)
        self.hist, self.counts = prior(), [zeros(), zeros()]
        self.to_count: list[tuple[int, int]] = []  # bank, address
        self.written: list[tuple[int, ...]] = []
        self.wiping = 0  # clocks in which nothing may be counted
        cocotb.start_soon(self._count())
        cocotb.start_soon(self._watch())

    def port(self, name: str) -> Any:
        """A port of this client."""
        return getattr(self.dut, f"{self.who}_{name}")

    async def _count(self) -> None:
        while True:
            await FallingEdge(self.dut.clk)
            self.port("cnt_valid").value = 0
            self.wiping = max(0, self.wiping - 1)
            if not self.to_count or self.wiping or self.rng.random() < 0.3:
                continue
            bank, address = self.to_count.pop()
            self.counts[bank][address >> 4][address & 15] += COUNT_STEP
            self.port("cnt_bank").value, self.port("cnt_addr").value = bank, address
            self.port("cnt_valid").value = 1
            await FallingEdge(self.dut.clk)
            self.port("cnt_valid").value = 0

    async def _watch(self) -> None:
        while True:
            await FallingEdge(self.dut.clk)
            if high(self.port("tw_en")):
                names = ["tw_addr", "tw_f", "tw_c", *(["tw_rcp"] if self.who == "enc" else [])]
                self.written.append(tuple(int(self.port(name).value) for name in names))

    def table(self, tbank: int) -> list[tuple[int, ...]]:
        """The table writes of a build."""
        made = rows([frequencies(row) for row in self.hist])
        extra = [(reciprocal(f),) if self.who == "enc" else () for _, f, _ in made]
        return [(tbank << 8 | addr, f, c, *e) for (addr, f, c), e in zip(made, extra, strict=True)]

    async def ask(self, op: int, bank: int = 0, tbank: int = 0, hist: Table | None = None) -> None:
        """Ask for an operation, wait for its ack and check tables and histograms."""
        self.written.clear()
        if op in (MERGE, MERGE_ONLY, SAVE):
            update(self.hist, self.counts[bank])
        elif op in (PRIORS, LOAD):
            self.hist = prior() if op == PRIORS else [row[:] for row in hist or prior()]
            self.states.give[self.who] = [h for row in self.hist for h in row] if op == LOAD else []
        self.counts[bank] = zeros()
        if op in (PRIORS, LOAD):
            self.counts = [zeros(), zeros()]
        for name, value in (("op", op), ("bank", bank), ("tbank", tbank), ("req", 1)):
            self.port(name).value = value
        for _ in range(LIMIT):
            await FallingEdge(self.dut.clk)
            if high(self.port("ack")):
                break
        else:
            raise AssertionError(f"{self.who}: no ack of {NAMES[op]}")
        self.port("req").value = 0
        await FallingEdge(self.dut.clk)
        expected = self.table(tbank) if op in (MERGE, PRIORS, LOAD) else []
        assert self.written == expected, f"{self.who}: tables of {NAMES[op]} differ"
        if op == SAVE:
            taken = self.states.taken[self.who]
            assert taken == [h for row in self.hist for h in row], f"{self.who}: saved histograms differ"
            taken.clear()

    async def live(self, hists: list[Table], length: int) -> None:
        """Count symbols and ask for operations of every kind."""
        head = 0
        await self.ask(PRIORS, tbank=1)
        for n in range(length):
            op = [LOAD, MERGE, MERGE_ONLY, SAVE, DROP, MERGE, PRIORS][n % 7]
            self.to_count = [(head, self._address()) for _ in range(self.rng.choice((0, 30, 700)))]
            while self.to_count:
                await FallingEdge(self.dut.clk)
            for _ in range(3):
                await FallingEdge(self.dut.clk)
            if self.who == "enc" and op in (MERGE, DROP):  # what a constant block left in the other bank
                symbol = self.rng.randrange(16)
                self.to_count = [(1 - head, q << 4 | symbol) for q in range(16)]
                while self.to_count:
                    await FallingEdge(self.dut.clk)
                for _ in range(8):
                    await FallingEdge(self.dut.clk)
                self.dut.enc_wipe.value = 1
                await FallingEdge(self.dut.clk)
                self.dut.enc_wipe.value = 0
                for row in self.counts[1 - head]:
                    row[symbol] = 0
                self.wiping = 40  # as the operation begins
            if op in (MERGE, MERGE_ONLY, SAVE, DROP):  # counting into the other bank goes on
                self.to_count = [(1 - head, self._address()) for _ in range(400)]
            await self.ask(op, head, n & 1, self.rng.choice(hists))
            self.to_count = []
            for _ in range(3):
                await FallingEdge(self.dut.clk)
            head ^= 1

    def _address(self) -> int:
        q = min(15, int(self.rng.expovariate(0.4)))
        return q << 4 | min(15, max(0, q + int(self.rng.gauss(0, 2))))


class States:
    """Streams of histograms of whichever client is served."""

    def __init__(self, dut: Any, share: float) -> None:
        self.dut, self.share, self.rng = dut, share, dice(7)
        self.give: dict[str, list[int]] = {"dec": [], "enc": []}
        self.taken: dict[str, list[int]] = {"dec": [], "enc": []}
        cocotb.start_soon(self._move())

    async def _move(self) -> None:
        dut, offered, ready = self.dut, False, False
        while True:
            await FallingEdge(dut.clk)
            who = "enc" if high(dut.state_client) else "dec"
            # Handshakes of the rising edge that comes: outputs hold until then.
            data = self.give[who]
            offered = bool(data) and (offered or self.rng.random() >= self.share)
            dut.s_axis_state_tvalid.value = offered
            dut.s_axis_state_tdata.value = data[0] if data else 0
            ready = self.rng.random() >= self.share
            dut.m_axis_state_tready.value = ready
            await settled()
            if offered and high(dut.s_axis_state_tready):
                data.pop(0)
                offered = False
            if ready and high(dut.m_axis_state_tvalid):
                taken = self.taken[who]
                taken.append(int(dut.m_axis_state_tdata.value))
                assert high(dut.m_axis_state_tlast) == (len(taken) == 256)


@cocotb.test()
@cocotb.parametrize(share=[0.0, 0.3])
async def two_clients(dut: Any, share: float) -> None:
    """Tables, reciprocals and histograms are the reference's for two clients at once."""
    names = [f"{who}_{name}" for who in ("dec", "enc") for name in CLIENT.split()]
    await start(dut, [*INPUTS.split(), *names, "enc_wipe"])
    states = States(dut, share)
    hists = [frame.after.hist.tolist() for frame in link()]
    clients = [Client(dut, who, states) for who in ("dec", "enc")]
    lives = [client.live(hists, length) for client, length in zip(clients, (22, 9), strict=True)]
    await Combine(*map(cocotb.start_soon, lives))
