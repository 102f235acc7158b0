"""The lane's MyHDL description itself, clock by clock: slow, and what all else must equal."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import numpy as np

from oscar_hdl.nic_lane import nic_lane
from oscar_hdl.params import COUNT_BITS, LaneParams
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_sim.bench import chance
from oscar_sim.cycles import CycleSimulator
from oscar_sim.ends import Collector, Feeder
from oscar_sim.lane import NO_STRESS, LinkTables, Outcome, RtlError, Stress, check_width

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
    """One nic_lane, reset before its first run and after one that failed.

    every: run all processes in every clock, as MyHDL's own simulator does (see cycles.py); for tests.
    """

    def __init__(self, params: LaneParams, *, every: bool = False) -> None:
        self.params = params
        self.ports = lane_signals()
        self.run_: _Run | None = None
        self.sound = False  # the run before left nothing behind
        self.simulator = CycleSimulator(
            nic_lane(**self.ports, params=params), self.ports["clk"], self._edge, every=every
        )

    def _edge(self) -> None:
        if self.run_ is not None:
            self.run_.tick()

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
        check_width(self.params, encoder, enc_width)
        run = self.run_ = _Run(self.ports, classes, local, payload, decoder, encoder, stress)
        first = 0 if self.sound else -2
        self.sound = False
        for clock in range(first, 200 * classes.size + 50_000):
            run.control(clock, first, (dec_width, enc_width))
            self.simulator.run(1)
            struck = clock == stress.reset_at
            self.sound = struck or run.finished()
            if self.sound:
                return Outcome("reset", clock) if struck else run.outcome(clock)
        raise RtlError(
            f"lane did not finish: {classes.size} values, {len(run.sums.words)} out, "
            f"{len(run.words.words)} words of payload out"
        )


class _Run:
    """What surrounds the lane during one command."""

    def __init__(
        self,
        ports: dict[str, Any],
        classes: np.ndarray,
        local: np.ndarray | None,
        payload: bytes | None,
        decoder: LinkTables | None,
        encoder: LinkTables | None,
        stress: Stress,
    ) -> None:
        self.ports, self.stress = ports, stress
        self.classes = [int(c) for c in classes]
        self.local = None if local is None else [int(v) & 0xFFFF for v in local]
        self.payload = [] if payload is None else np.frombuffer(payload, np.uint16).tolist()
        self.decoder, self.encoder = decoder, encoder
        idle = [chance(stress.idle, random.Random(stress.seed + i)) for i in range(3)]
        busy = [chance(stress.busy, random.Random(stress.seed + 3 + i)) for i in range(3)]
        self.class_in = Feeder(ports["s_axis_class"], idle[0])
        self.local_in = Feeder(ports["s_axis_local"], idle[1])
        self.redo_in = Feeder(ports["s_axis_redo"], idle[2])
        self.sums = Collector(ports["m_axis_sum"], busy[0])
        self.words = Collector(ports["m_axis_payload"], busy[1])
        self.read_pause = busy[2]
        self.class_in.put(self.classes)
        self.local_in.put(self.local or [])
        self.answers: deque[int | None] = deque([None] * (READ_LATENCY - 1))
        ends = (decoder, encoder)
        self.hists = [[] if end is None or end.fresh else [int(h) for h in end.hist] for end in ends]
        self.states: list[list[int]] = [[], []]
        self.offered = -1
        self.redos = 0
        self.done: dict[str, tuple[int, int]] = {}  # by end: error, new shift
        self.active = False

    def control(self, clock: int, first: int, widths: tuple[int, int]) -> None:
        """Set the command ports: reset before clock 0, start in it."""
        p = self.ports
        p["rst"].next = clock < 0 or clock == self.stress.reset_at
        p["start"].next = clock == 0
        self.active = clock >= 0
        if clock != first:
            return
        for name in ("s_axis_class", "s_axis_local", "s_axis_redo", "s_axis_state"):
            p[name].tvalid.next = False
        p["m_axis_sum"].tready.next = p["m_axis_payload"].tready.next = p["rd_data_valid"].next = False
        decode, encode = self.decoder, self.encoder
        p["count"].next, p["dec_words"].next = len(self.classes), len(self.payload)
        p["dec_width"].next, p["enc_width"].next = widths
        p["op_decode"].next, p["op_encode"].next = decode is not None, encode is not None
        p["op_add"].next = decode is not None and self.local is not None
        p["op_keep"].next = decode is not None
        p["dec_fresh"].next = decode is not None and decode.fresh
        p["enc_fresh"].next = encode is not None and encode.fresh
        p["dec_shift"].next = 0 if decode is None else decode.shift
        p["enc_shift"].next = 0 if encode is None else encode.shift

    def tick(self) -> None:
        """One rising edge. At a reset's nothing moves: what the lane still offers is of the run before."""
        if not self.active or self.ports["rst"]:
            return
        for end in (self.class_in, self.local_in, self.redo_in, self.sums, self.words):
            end.tick()
        self._memory()
        self._tables()
        self._requests()

    def _memory(self) -> None:
        """Answer reads of the payload after READ_LATENCY clocks."""
        p = self.ports
        taken = int(p["rd_addr"]) if p["rd_valid"] and p["rd_ready"] else None
        if taken is not None and taken >= len(self.payload):
            raise RtlError(f"the lane reads word {taken} of a payload of {len(self.payload)}")
        self.answers.append(taken)
        now = self.answers.popleft()
        p["rd_data_valid"].next = now is not None
        p["rd_data"].next = 0 if now is None else self.payload[now]
        p["rd_ready"].next = not self.read_pause()

    def _tables(self) -> None:
        """Load and save histograms of whichever end asks; nothing is on offer when that changes."""
        p = self.ports
        who, give, take = int(p["state_client"]), p["s_axis_state"], p["m_axis_state"]
        if take.tvalid and take.tready:
            self.states[who].append(int(take.tdata))
        take.tready.next = True
        if self.offered >= 0 and give.tvalid and give.tready:
            self.hists[self.offered].pop(0)
            self.offered = -1
        if self.offered < 0 and self.hists[who]:
            self.offered = who
        elif self.offered >= 0 and self.offered != who:
            self.offered = -1
        more = self.offered >= 0 and bool(self.hists[self.offered])
        give.tvalid.next = more
        give.tdata.next = self.hists[self.offered][0] if more else 0

    def _requests(self) -> None:
        """Take redo requests, and note what is done."""
        p = self.ports
        if p["redo_valid"] and p["redo_ready"]:
            self.redos += 1
            values = (self.local or []) if self.decoder is None else self.sums.words
            first, count = int(p["redo_first"]), int(p["redo_count"])
            kept = list(zip(values, self.classes, strict=False))[first : first + count]
            self.redo_in.put(v | c << 16 for v, c in kept)
        p["redo_ready"].next = True
        if p["dec_done"]:
            self.done["dec"] = (int(p["dec_error"]), int(p["dec_new_shift"]))
        if p["enc_done"]:
            self.done["enc"] = (0, int(p["enc_new_shift"]))

    def finished(self) -> bool:
        """Whether everything that was asked for has come out."""
        ends = {name for name, end in (("dec", self.decoder), ("enc", self.encoder)) if end is not None}
        kept = self.decoder is None or len(self.sums.words) == len(self.classes)
        return kept and ends <= self.done.keys()

    def outcome(self, clocks: int) -> Outcome:
        """Return what came out."""
        outcome = Outcome("done", clocks, redos=self.redos)
        if self.decoder is not None:
            outcome.error, shift = self.done["dec"]
            outcome.values = np.array(self.sums.words, np.uint16).view(np.int16)
            outcome.decoder = LinkTables(np.array(self.states[0], np.uint16), shift)
        if self.encoder is not None:
            outcome.payload = np.array(self.words.words, np.uint16).tobytes()
            outcome.encoder = LinkTables(np.array(self.states[1], np.uint16), self.done["enc"][1])
        return outcome
