"""The lane's MyHDL description itself, simulated clock by clock: slow, and what all else must equal."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from myhdl import block, instance
from oscar_hdl.nic_lane import nic_lane

from oscar_hdl.params import COUNT_BITS, LaneParams
from oscar_hdl.streams import Stream, bit, word
from oscar_sim.bench import clock, randomly, simulate, sink, source
from oscar_sim.lane import NO_STRESS, LinkTables, Outcome, RtlError, Stress

READ_LATENCY = 3  # clocks from a read request to its answer


def lane_signals() -> dict[str, Any]:
    """Return fresh signals for all ports of nic_lane, by name."""
    bits = ("clk", "rst", "start", "op_decode", "op_add", "op_encode", "op_keep", "dec_fresh", "enc_fresh")
    ports: dict[str, Any] = {name: bit() for name in bits}
    ports |= {name: bit() for name in ("idle", "rd_valid", "rd_ready", "rd_data_valid")}
    ports |= {name: bit() for name in ("redo_valid", "redo_ready", "state_client", "dec_done", "enc_done")}
    ports |= {
        name: word(COUNT_BITS) for name in ("count", "dec_words", "rd_addr", "redo_first", "redo_count")
    }
    ports |= {name: word(5) for name in ("dec_width", "enc_width")}
    four = ("dec_shift", "enc_shift", "dec_error", "dec_new_shift", "enc_new_shift")
    ports |= {name: word(4) for name in four}
    ports["rd_data"] = word(16)
    ports |= {name: Stream(16) for name in ("s_axis_local", "m_axis_sum", "m_axis_payload")}
    ports |= {"s_axis_class": Stream(4), "s_axis_redo": Stream(20)}
    ports |= {"s_axis_state": Stream(10), "m_axis_state": Stream(10)}
    return ports


class MyhdlLane:
    """One nic_lane under the MyHDL simulator, elaborated anew for every run."""

    def __init__(self, params: LaneParams) -> None:
        self.params = params

    def run(
        self,
        classes: np.ndarray,
        *,
        local: np.ndarray | None = None,
        payload: bytes | None = None,
        decoder: LinkTables | None = None,
        encoder: LinkTables | None = None,
        dec_width: int = 16,
        enc_width: int = 16,
        stress: Stress = NO_STRESS,
    ) -> Outcome:
        """See oscar_sim.lane.Lane."""
        run = _Run(self.params, classes, local, payload, decoder, encoder, stress)
        run.set_command(dec_width, enc_width)
        limit = 200 * classes.size + 50_000
        try:
            clocks = simulate(run.bench, run.ports["clk"], until=run.finished, limit=limit)
        except TimeoutError as error:
            raise RtlError(
                f"{error}: {classes.size} values, {len(run.sums)} out, {len(run.words)} words of payload out"
            ) from None
        return run.outcome(clocks)


class _Run:
    """The bench of one command."""

    def __init__(
        self,
        params: LaneParams,
        classes: np.ndarray,
        local: np.ndarray | None,
        payload: bytes | None,
        decoder: LinkTables | None,
        encoder: LinkTables | None,
        stress: Stress,
    ) -> None:
        self.params, self.stress = params, stress
        self.classes = [int(c) for c in classes]
        self.local = None if local is None else [int(v) & 0xFFFF for v in local]
        self.payload = [] if payload is None else np.frombuffer(payload, np.uint16).tolist()
        self.decoder, self.encoder = decoder, encoder
        self.ports = lane_signals()
        self.sums: list[Any] = []
        self.words: list[Any] = []
        self.states: dict[int, list[int]] = {0: [], 1: []}
        self.redo: deque[tuple[int, bool]] = deque()
        self.redos = 0
        self.done: dict[str, tuple[int, int]] = {}  # by end: error, new shift

    def set_command(self, dec_width: int, enc_width: int) -> None:
        """Put the command on its ports before the clock starts."""

        p = self.ports
        decode, encode = self.decoder, self.encoder
        p["count"], p["dec_words"] = word(COUNT_BITS, len(self.classes)), word(COUNT_BITS, len(self.payload))
        p["dec_width"], p["enc_width"] = word(5, dec_width), word(5, enc_width)
        p["op_decode"], p["op_encode"] = bit(decode is not None), bit(encode is not None)
        p["op_add"] = bit(decode is not None and self.local is not None)
        p["op_keep"] = bit(decode is not None)
        if decode is not None:
            p["dec_fresh"], p["dec_shift"] = bit(decode.fresh), word(4, decode.shift)
        if encode is not None:
            p["enc_fresh"], p["enc_shift"] = bit(encode.fresh), word(4, encode.shift)

    def finished(self) -> bool:
        """Whether everything that was asked for has come out."""
        ends = {name for name, end in (("dec", self.decoder), ("enc", self.encoder)) if end is not None}
        kept = self.decoder is None or len(self.sums) == len(self.classes)
        return kept and ends <= self.done.keys()

    def outcome(self, clocks: int) -> Outcome:
        """Return what came out."""
        outcome = Outcome("done", clocks, redos=self.redos)
        if self.decoder is not None:
            outcome.error, shift = self.done["dec"]
            outcome.values = np.array([value for value, _ in self.sums], np.uint16).view(np.int16)
            outcome.decoder = LinkTables(np.array(self.states[0], np.uint16), shift)
        if self.encoder is not None:
            outcome.payload = np.array([value for value, _ in self.words], np.uint16).tobytes()
            outcome.encoder = LinkTables(np.array(self.states[1], np.uint16), self.done["enc"][1])
        return outcome

    def _redo_items(self) -> Any:
        while True:
            yield self.redo.popleft() if self.redo else None

    @block
    def bench(self) -> Any:
        """Build the bench: sources, sinks, memory, tables."""
        p, stress = self.ports, self.stress
        clk, rst = p["clk"], p["rst"]
        last = len(self.classes) - 1
        local = self.local or []
        parts = [
            clock(clk),
            nic_lane(**p, params=self.params),
            source(
                clk, rst, p["s_axis_class"], [(c, i == last) for i, c in enumerate(self.classes)],
                randomly(stress.idle, stress.seed),
            ),
            source(
                clk, rst, p["s_axis_local"], [(v, i == last) for i, v in enumerate(local)],
                randomly(stress.idle, stress.seed + 1),
            ),
            source(clk, rst, p["s_axis_redo"], self._redo_items(), randomly(stress.idle, stress.seed + 2)),
            sink(clk, rst, p["m_axis_sum"], self.sums, randomly(stress.busy, stress.seed + 3)),
            sink(clk, rst, p["m_axis_payload"], self.words, randomly(stress.busy, stress.seed + 4)),
            self.memory(),
            self.tables(),
            self.control(),
        ]  # fmt: skip
        return parts

    @block
    def memory(self) -> Any:
        """Answer reads of the payload after READ_LATENCY clocks."""
        p, words = self.ports, self.payload
        clk, valid, ready, addr = p["clk"], p["rd_valid"], p["rd_ready"], p["rd_addr"]
        data, data_valid = p["rd_data"], p["rd_data_valid"]
        busy = randomly(self.stress.busy, self.stress.seed + 5)

        @instance
        def serve():
            answers = deque([None] * READ_LATENCY)
            while True:
                yield clk.posedge
                taken = int(addr) if valid and ready else None
                if taken is not None and taken >= len(words):
                    raise RtlError(f"the lane reads word {taken} of a payload of {len(words)}")
                answers.append(taken)
                now = answers.popleft()
                data_valid.next = now is not None
                data.next = 0 if now is None else words[now]
                ready.next = not busy()

        return serve

    @block
    def tables(self) -> Any:
        """Load and save histograms of whichever end asks."""
        p = self.ports
        clk, client, give, take = p["clk"], p["state_client"], p["s_axis_state"], p["m_axis_state"]
        give_data, give_valid, give_ready = give.tdata, give.tvalid, give.tready
        take_data, take_valid, take_ready = take.tdata, take.tvalid, take.tready
        ends = (self.decoder, self.encoder)
        hists = [[] if end is None or end.fresh else [int(h) for h in end.hist] for end in ends]
        states, at, moved = self.states, [0, 0], bit()

        @instance
        def step():
            while True:
                yield clk.posedge
                if give_valid and give_ready:
                    at[int(client)] += 1
                if take_valid and take_ready:
                    states[int(client)].append(int(take_data))
                take_ready.next = True
                moved.next = not moved

        @instance
        def offer():
            while True:
                yield moved, client  # tvalid follows state_client within the clock
                who = int(client)
                more = at[who] < len(hists[who])
                give_valid.next = more
                give_data.next = hists[who][at[who]] if more else 0

        return step, offer

    @block
    def control(self) -> Any:
        """Reset, start once, take redo requests and note what is done."""
        p, total = self.ports, [v | c << 16 for v, c in zip(self.local or [], self.classes, strict=False)]
        clk, rst, start, idle = p["clk"], p["rst"], p["start"], p["idle"]
        valid, ready, first, count = p["redo_valid"], p["redo_ready"], p["redo_first"], p["redo_count"]
        dec_done, dec_error, dec_shift = p["dec_done"], p["dec_error"], p["dec_new_shift"]
        enc_done, enc_shift = p["enc_done"], p["enc_new_shift"]
        redo, sums, done, classes, decoding = self.redo, self.sums, self.done, self.classes, self.decoder

        @instance
        def drive():
            rst.next = True
            yield clk.posedge
            yield clk.posedge
            rst.next = False
            yield clk.posedge
            while not idle:
                yield clk.posedge
            start.next = True
            yield clk.posedge
            start.next = False
            ready.next = True
            while True:
                yield clk.posedge
                if valid and ready:
                    self.redos += 1
                    kept = [v | c << 16 for (v, _), c in zip(sums, classes, strict=False)]
                    values = total if decoding is None else kept
                    end = int(first) + int(count)
                    redo.extend((values[i], i + 1 == end) for i in range(int(first), end))
                if dec_done:
                    done["dec"] = (int(dec_error), int(dec_shift))
                if enc_done:
                    done["enc"] = (0, int(enc_shift))

        return drive
