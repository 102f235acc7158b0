"""oscar_nic end to end, driven through its registers, against oscar_hdl.format2.link.

The coders of a lane take thousands of clocks a frame, and MyHDL some hundred clocks a second. So all but one
test put stand-ins in their place, which send values as they are and change the tables by a rule of their own;
the host's links are given the same rule.
"""

from __future__ import annotations

import struct
from collections import deque
from functools import partial
from typing import Any

import numpy as np
import pytest
from myhdl import always, block, instance

from oscar.coding.frame import pack_frame, peek
from oscar_hdl.asc_tables import LOAD, SAVE
from oscar_hdl.format2.link import Encoder
from oscar_hdl.format2.reference import order
from oscar_hdl.format2.state import TableState
from oscar_hdl.oscar_nic import LanePorts, oscar_nic
from oscar_hdl.params import LaneParams
from oscar_hdl.registers import BY_NAME, COUNTERS, ERROR_ABORTED, ERROR_TOO_LONG, ID_VALUE, REGISTERS
from oscar_hdl.streams.bundles import AxiLite, Stream, bit
from oscar_sim.bench import clock, never, randomly, simulate, sink, source
from oscar_sim.seeds import numbers

PARAMS = LaneParams(block_log2=10)
ENCODE, HOP, LAST, ADOPT = 0b0100, 0b1111, 0b1011, 0b1001
FRESH_IN, FRESH_OUT = 0b010000, 0b100000


def decoding_order(count: int) -> np.ndarray:
    """Return the index of each value that a lane moves, block by block."""
    block_size, places = PARAMS.block, []
    for start in range(0, count, block_size):
        places += [start + j for _, _, j in order(min(block_size, count - start))]
    return np.array(places, int)


def words_of(frame: bytes) -> list[tuple[int, bool]]:
    """Return the transfers of a frame."""
    words = struct.unpack(f"<{len(frame) // 2}H", frame)
    return [(w, i == len(words) - 1) for i, w in enumerate(words)]


def advance(hist: list[int], shift: int, values: list[int]) -> tuple[list[int], int]:
    """Return what a stand-in makes of its tables after a frame."""
    total = sum(values)
    return [(h + total + i) & 1023 for i, h in enumerate(hist)], (shift + len(values)) & 15


class PlainCoder:
    """The stand-in's payload for the host: a word for each value, in decoding order, class added on top."""

    def encode(self, values: np.ndarray, classes: np.ndarray, width: int, state: TableState) -> bytes:
        """Return the payload and move `state` on."""
        taken = [int(v) & 0xFFFF for v in values[decoding_order(len(values))]]
        hist, shift = advance(state.hist.flatten().tolist(), int(state.shift[0]), taken)
        state.hist, state.shift = np.array(hist).reshape(16, 16), np.array([shift])
        state.sequence += 1
        words = zip(taken, classes[decoding_order(len(values))], strict=True)
        return b"".join(struct.pack("<H", (v + int(c)) & 0xFFFF) for v, c in words)


def plain() -> Encoder:
    """Return the host's encoder for stand-ins."""
    return Encoder(PARAMS.asc, coder=PlainCoder())


NONSENSE = 0xDEAD  # a payload that a stand-in refuses begins with it
FIRST = TableState.initial()
HISTS: dict[int, list[int]] = {}  # of a stand-in, by the identity of its request signal


@block
def plain_tables(*ports: Any) -> Any:
    """Stand in for asc_tables: only LOAD and SAVE."""
    clk, dec_req, dec_op, dec_ack, enc_req, enc_op, enc_ack = (ports[i] for i in (0, 5, 6, 9, 14, 15, 18))
    client, load, save = ports[19:22]
    load_data, load_valid, load_ready = load.tdata, load.tvalid, load.tready
    save_data, save_valid, save_ready, save_last = save.tdata, save.tvalid, save.tready, save.tlast

    @instance
    def serve():
        while True:
            yield clk.posedge
            for number, req, op, ack in ((0, dec_req, dec_op, dec_ack), (1, enc_req, enc_op, enc_ack)):
                if not req:
                    continue
                client.next = number
                hist: list[int] = []
                load_ready.next = op == LOAD
                while op == LOAD and len(hist) < 256:
                    yield clk.posedge
                    if load_valid and load_ready:
                        hist.append(int(load_data))
                load_ready.next = False
                if op == LOAD:
                    HISTS[id(req)] = hist
                for i in range(256 if op == SAVE else 0):
                    save_data.next, save_last.next, save_valid.next = HISTS[id(req)][i], i == 255, True
                    yield clk.posedge
                    while not save_ready:
                        yield clk.posedge
                save_valid.next = False
                ack.next = True
                yield clk.posedge
                ack.next = False
                yield clk.posedge

    return serve


def ask(clk: Any, req: Any, op: Any, ack: Any, what: int):
    """Have the tables loaded or saved."""
    req.next, op.next = True, what
    yield clk.posedge
    while not ack:
        yield clk.posedge
    req.next = False
    yield clk.posedge


@block
def plain_decoder(**p: Any) -> Any:
    """Stand in for asc_decoder."""
    clk, rst, start, idle, done = p["clk"], p["rst"], p["start"], p["idle"], p["done"]
    fresh, count, shift, words = p["fresh"], p["count"], p["shift"], p["words"]
    rd_valid, rd_ready, rd_addr = p["rd_valid"], p["rd_ready"], p["rd_addr"]
    rd_data, rd_data_valid = p["rd_data"], p["rd_data_valid"]
    cls_data, cls_valid, cls_ready = (getattr(p["s_axis_class"], n) for n in ("tdata", "tvalid", "tready"))
    data, valid, ready = (getattr(p["m_axis"], n) for n in ("tdata", "tvalid", "tready"))
    req, op, ack, error, new_shift = (p[n] for n in ("dec_req", "dec_op", "dec_ack", "error", "new_shift"))

    def decode():
        hist = FIRST.hist.flatten().tolist()
        if not fresh:
            yield from ask(clk, req, op, ack, LOAD)
            hist = HISTS[id(req)]
        values: list[int] = []
        refused = int(words) != int(count)
        for i in range(int(count)):
            word = 0
            if i < words:
                rd_valid.next, rd_addr.next = True, i
                yield clk.posedge
                while not rd_ready:
                    yield clk.posedge
                rd_valid.next = False
                while not rd_data_valid:
                    yield clk.posedge
                word = int(rd_data)
            refused |= word == NONSENSE and i == 0
            cls_ready.next = True
            yield clk.posedge
            while not cls_valid:
                yield clk.posedge
            cls_ready.next = False
            values.append(0 if refused else (word - (int(cls_data) << 4)) & 0xFFFF)
            data.next, valid.next = values[-1], True
            yield clk.posedge
            while not ready:
                yield clk.posedge
            valid.next = False
        if not refused:
            HISTS[id(req)], after = advance(hist, int(shift), values)
            new_shift.next = after
            yield from ask(clk, req, op, ack, SAVE)
        error.next, done.next = 5 if refused else 0, True
        yield clk.posedge
        done.next = False

    @instance
    def run():
        while True:
            idle.next = True
            yield clk.posedge
            if start:
                idle.next = False
                for _ in decode():
                    yield clk.posedge
                    if rst:
                        break
                for signal in (rd_valid, cls_ready, valid, req, done):
                    signal.next = False

    return run


@block
def plain_encoder(**p: Any) -> Any:
    """Stand in for asc_encoder; asks for the first value of a long frame once more."""
    clk, rst, start, done = p["clk"], p["rst"], p["start"], p["done"]
    fresh, count, shift, new_shift = p["fresh"], p["count"], p["shift"], p["new_shift"]
    code, code_valid, code_ready = (getattr(p["s_axis"], n) for n in ("tdata", "tvalid", "tready"))
    data, last, valid, ready = (getattr(p["m_axis"], n) for n in ("tdata", "tlast", "tvalid", "tready"))
    req, op, ack = p["enc_req"], p["enc_op"], p["enc_ack"]

    def encode():
        hist = FIRST.hist.flatten().tolist()
        if not fresh:
            yield from ask(clk, req, op, ack, LOAD)
            hist = HISTS[id(req)]
        values: list[int] = []
        for i in range(int(count)):
            code_ready.next = True
            yield clk.posedge
            while not code_valid:
                yield clk.posedge
            code_ready.next = False
            values.append(int(code) & 0xFFFF)
            data.next, valid.next = (values[-1] + (int(code) >> 16 << 4)) & 0xFFFF, True
            last.next = i == count - 1
            yield clk.posedge
            while not ready:
                yield clk.posedge
            valid.next = False
        HISTS[id(req)], after = advance(hist, int(shift), values)
        new_shift.next = after
        yield from ask(clk, req, op, ack, SAVE)
        done.next = True
        yield clk.posedge
        done.next = False

    @instance
    def run():
        while True:
            yield clk.posedge
            if start:
                for _ in encode():
                    yield clk.posedge
                    if rst:
                        break
                for signal in (code_ready, valid, req, done):
                    signal.next = False

    return run


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the stand-ins in the place of a lane's coders."""
    monkeypatch.setattr("oscar_hdl.nic_lane.asc_tables", plain_tables)
    monkeypatch.setattr("oscar_hdl.nic_lane.asc_decoder", plain_decoder)
    monkeypatch.setattr("oscar_hdl.nic_lane.asc_encoder", plain_encoder)


class Lane:
    """What a DMA does for one lane: queues to send from, lists to take into, values kept for a redo."""

    def __init__(self, ports: Any) -> None:
        self.ports = ports
        self.local: deque[Any] = deque()
        self.classes: deque[Any] = deque()
        self.redo: deque[Any] = deque()
        self.sums: list[Any] = []
        self.kept: list[int] = []  # class << 16 | value, by their order
        self.redos = 0


def drain(queue: deque[Any]):
    """Yield what is in a queue, for ever; None while it is empty."""
    while True:
        yield queue.popleft() if queue else None


class Nic:
    """A NIC, its memory and network, and a driver; generators for a test to `yield from`."""

    def __init__(self, lanes: int = 1, *, depth_log2: int = 9, idle: float = 0.0, busy: float = 0.0) -> None:
        self.clk, self.rst, self.irq, self.bus = bit(), bit(), bit(), AxiLite(8)
        self.rx, self.tx = Stream(16, keep=2), Stream(16, keep=2)
        self.lanes = [Lane(LanePorts()) for _ in range(lanes)]
        self.network: deque[Any] = deque()
        self.taken: list[Any] = []
        self.idle = lambda seed: randomly(idle, seed) if idle else never
        self.busy = lambda seed: randomly(busy, seed) if busy else never
        self.depth_log2 = depth_log2
        self.sets = [list(range(8)) for _ in range(lanes)]

    @block
    def top(self, steps: Any) -> Any:
        """Return the bench that runs the generator function `steps`."""
        clk, rst = self.clk, self.rst
        first = self.lanes[0].ports
        parts = [
            clock(clk),
            instance(steps),
            oscar_nic(
                clk, rst, self.bus, self.irq, self.rx, self.tx, first.s_axis_class, first.s_axis_local,
                first.m_axis_sum, first.redo_valid, first.redo_ready, first.redo_first, first.redo_count,
                first.s_axis_redo, *(lane.ports for lane in self.lanes[1:]), params=PARAMS, sets=8,
                depth_log2=self.depth_log2,
            ),
            source(clk, rst, self.rx, drain(self.network), self.idle(1)),
            sink(clk, rst, self.tx, self.taken, self.busy(2)),
        ]  # fmt: skip
        for n, lane in enumerate(self.lanes):
            parts.append(self.memory(lane, 10 * n))
        return parts

    @block
    def memory(self, lane: Lane, seed: int) -> Any:
        """Return the streams of a lane's memory."""
        clk, rst, ports = self.clk, self.rst, lane.ports
        valid, ready, first, count = ports.redo_valid, ports.redo_ready, ports.redo_first, ports.redo_count

        @always(clk.posedge)
        def again():
            ready.next = True
            if valid and ready:
                lane.redos += 1
                lane.redo.extend(lane.kept[int(first) : int(first) + int(count)])

        return (
            again,
            source(clk, rst, ports.s_axis_class, drain(lane.classes), self.idle(seed + 3)),
            source(clk, rst, ports.s_axis_local, drain(lane.local), self.idle(seed + 4)),
            source(clk, rst, ports.s_axis_redo, drain(lane.redo), self.idle(seed + 5)),
            sink(clk, rst, ports.m_axis_sum, lane.sums, self.busy(seed + 6)),
        )

    def run(self, steps: Any, limit: int = 100_000) -> None:
        """Reset, then run the generator function `steps` to its end."""
        finished = []

        def all_of():
            self.rst.next = True
            yield self.clk.posedge
            self.rst.next = False
            yield from steps()
            finished.append(True)

        simulate(partial(self.top, all_of), self.clk, until=lambda: bool(finished), limit=limit)

    def write(self, name: str, value: int):
        """Write a register."""
        bus = self.bus
        bus.awaddr.next, bus.wdata.next, bus.wstrb.next = BY_NAME[name].offset, value, 15
        bus.awvalid.next = bus.wvalid.next = bus.bready.next = True
        yield self.clk.posedge
        while not bus.awready:
            yield self.clk.posedge
        bus.awvalid.next = bus.wvalid.next = False
        while not bus.bvalid:
            yield self.clk.posedge
        assert bus.bresp == 0
        bus.bready.next = False
        yield self.clk.posedge

    def read(self, name: str):
        """Return a register."""
        bus = self.bus
        bus.araddr.next = BY_NAME[name].offset
        bus.arvalid.next = bus.rready.next = True
        yield self.clk.posedge
        while not bus.arready:
            yield self.clk.posedge
        bus.arvalid.next = False
        while not bus.rvalid:
            yield self.clk.posedge
        value = int(bus.rdata)
        assert bus.rresp == 0
        bus.rready.next = False
        yield self.clk.posedge
        return value

    def command(self, op: int, count: int, *, lane: int = 0, **fields: Any):
        """Write a command: fields as in the registers, (in, out) where there are two."""
        for name in ("STEP", "CHUNK", "SEQUENCE"):
            low, high = fields.get(name.lower(), (0, 0))
            yield from self.write(name, low | high << 16)
        subs, widths = fields.get("sub", (lane, lane)), fields.get("width", (8, 8))
        packed = BY_NAME["SUB_WIDTH"].pack(
            sub_in=subs[0], sub_out=subs[1], width_in=widths[0], width_out=widths[1]
        )
        yield from self.write("SUB_WIDTH", packed)
        yield from self.write("SETS", BY_NAME["SETS"].pack(**fields.get("sets", {})))
        yield from self.write("COUNT", count)
        yield from self.write("COMMAND", op | lane << 8)

    def feed(self, lane: int, local: np.ndarray | None, classes: np.ndarray) -> None:
        """Put the values and classes of a command, in index order, where the lane takes them."""
        port, places = self.lanes[lane], decoding_order(len(classes))
        port.classes.extend(int(c) for c in classes[places])
        if local is not None:
            port.local.extend(int(v) & 0xFFFF for v in local[places])

    def keep(self, lane: int, values: np.ndarray, classes: np.ndarray) -> None:
        """Have the values that a command will encode at hand for a redo."""
        places = decoding_order(len(values))
        pairs = zip(classes[places], values[places], strict=True)
        self.lanes[lane].kept = [int(c) << 16 | int(v) & 0xFFFF for c, v in pairs]

    def wait(self, **expected: int):
        """Wait for the interrupt, compare IRQ_STATUS with `expected`, clear it."""
        while not self.irq:
            yield self.clk.posedge
        value = yield from self.read("IRQ_STATUS")
        status = BY_NAME["IRQ_STATUS"].unpack(value)
        self.result = yield from self.read("RESULT")
        assert status == {"done": 0, "error": 0, "bad_frame": 0, "lost": 0} | expected, hex(self.result)
        yield from self.write("IRQ_STATUS", value)
        yield self.clk.posedge

    def sums(self, lane: int, count: int):
        """Return the values that came out of a lane, in index order."""
        taken = self.lanes[lane].sums
        while len(taken) < count:
            yield self.clk.posedge
        assert [last for _, last in taken] == [False] * (count - 1) + [True]
        values = np.empty(count, np.int16)
        values[decoding_order(count)] = np.array([v for v, _ in taken], np.uint16).view(np.int16)
        taken.clear()
        return values

    def frame(self):
        """Return the next frame that was sent."""
        while not any(last for _, last, _ in self.taken):
            yield self.clk.posedge
        end = next(i for i, (_, last, _) in enumerate(self.taken) if last) + 1
        frame = struct.pack(f"<{end}H", *(w for w, _, _ in self.taken[:end]))
        assert {keep for _, _, keep in self.taken[:end]} == {3}
        del self.taken[:end]
        return frame


def gradients(rng: np.random.Generator, count: int, spread: float = 6.0) -> tuple[np.ndarray, np.ndarray]:
    """Return values of 8 bits with the classes of their scales."""
    scales = rng.integers(0, 12, count)
    values = np.clip(rng.normal(0, spread * 2.0 ** (scales / 4 - 2)), -127, 127).round().astype(np.int64)
    return values, scales.astype(np.int64)


def test_registers_say_what_was_built(stand_ins: None):
    nic = Nic()

    def steps():
        assert (yield from nic.read("ID")) == ID_VALUE
        config = BY_NAME["CONFIG"].unpack((yield from nic.read("CONFIG")))
        assert config == {
            "lanes": 1, "block_log2": 10, "sets_log2": 3, "depth_log2": 9, "width_max": 16, "version": 1,
        }  # fmt: skip
        assert (yield from nic.read("STATUS")) == 0

    nic.run(steps)


def hops(nic: Nic, upstream: Encoder, downstream: Encoder, counts: list[int]):
    """Have frames come, values be added, and frames go; compare everything."""
    rng = numbers(1)
    yield from nic.write("IRQ_ENABLE", 0xFFFFFFFF)
    for n, count in enumerate(counts):
        mine, classes = gradients(rng, count)
        theirs, _ = gradients(rng, count)
        come = upstream.encode(theirs, step=3, context=classes, width=8, chunk=5, sub=n)
        nic.network.extend(words_of(come))
        nic.feed(0, mine, classes)
        nic.keep(0, mine + theirs, classes)
        yield from nic.command(
            HOP | (FRESH_IN | FRESH_OUT) * (n == 0), count, step=(3, 4), chunk=(5, 6), sub=(n, n + 1),
            width=(8, 9), sequence=(n, n),
            sets={"load_in": n, "save_in": n + 1, "load_out": 7 - n, "save_out": 6 - n},
        )  # fmt: skip
        yield from nic.wait(done=1)
        assert np.array_equal((yield from nic.sums(0, count)), mine + theirs)
        gone = downstream.encode(mine + theirs, step=4, context=classes, width=9, chunk=6, sub=n + 1)
        assert (yield from nic.frame()) == gone


@pytest.mark.parametrize(("idle", "busy"), [(0.0, 0.0), (0.2, 0.2)])
def test_hops_add_and_count(stand_ins: None, idle: float, busy: float):
    nic = Nic(idle=idle, busy=busy)
    counts = [90, 70, 1]

    def steps():
        yield from hops(nic, plain(), plain(), counts)
        found = {}
        for register in REGISTERS:
            if register.offset >= COUNTERS:
                found[register.name] = yield from nic.read(register.name)
        total, frames = sum(counts), len(counts)
        assert (found["VALUES_IN"], found["VALUES_OUT"]) == (total, total)
        assert (found["WORDS_IN"], found["WORDS_OUT"]) == (total + 12 * frames, total + 12 * frames)
        assert (found["FRAMES_IN"], found["FRAMES_OUT"], found["FRAMES_BAD"]) == (frames, frames, 0)
        assert found["CYCLES"] > total

    nic.run(steps)


def test_a_lane_codes_what_the_host_codes():
    nic = Nic(idle=0.1, busy=0.1)

    def steps():
        yield from hops(nic, Encoder(PARAMS.asc), Encoder(PARAMS.asc), [150, 60])

    nic.run(steps)


def test_encode_adopt_and_last_hop_in_a_row(stand_ins: None):
    rng = numbers(2)
    nic = Nic()
    encoder, upstream = plain(), plain()

    def steps():
        yield from nic.write("IRQ_ENABLE", 0xFFFFFFFF)
        values, classes = gradients(rng, 90)
        nic.feed(0, values, classes)
        yield from nic.command(ENCODE | FRESH_OUT, 90, step=(0, 7), sets={"save_out": 3})
        yield from nic.wait(done=1)
        assert (yield from nic.frame()) == encoder.encode(values, step=7, context=classes, width=8)

        theirs, classes = gradients(rng, 80)
        nic.network.extend(words_of(upstream.encode(theirs, step=2, context=classes, width=8)))
        nic.feed(0, None, classes)
        yield from nic.command(ADOPT | FRESH_IN, 80, step=(2, 0), sets={"save_in": 4})
        yield from nic.wait(done=1)
        assert np.array_equal((yield from nic.sums(0, 80)), theirs)

        theirs, classes = gradients(rng, 70)
        mine, _ = gradients(rng, 70)
        nic.network.extend(words_of(upstream.encode(theirs, step=2, context=classes, width=8)))
        nic.feed(0, mine, classes)
        yield from nic.command(LAST, 70, step=(2, 0), sequence=(1, 0), sets={"load_in": 4, "save_in": 5})
        yield from nic.wait(done=1)
        assert np.array_equal((yield from nic.sums(0, 70)), mine + theirs)

        # Another step starts from the tables of this one; frames may be empty.
        for n in range(2):
            frame = upstream.encode(np.zeros(0, int), step=3, width=8)
            nic.network.extend(words_of(frame))
            yield from nic.command(
                HOP, 0, step=(3, 7), sequence=(n, n + 1), sets={"load_in": 5 + n, "save_in": 6 + n,
                "load_out": 3 - n, "save_out": 2 - n},
            )  # fmt: skip
            yield from nic.wait(done=1)
            assert (yield from nic.frame()) == encoder.encode(np.zeros(0, int), step=7, width=8)
        assert not nic.taken
        assert not nic.lanes[0].sums

    nic.run(steps)


def test_bad_frames_are_reported_and_the_right_one_still_counts(stand_ins: None):
    rng = numbers(3)
    nic = Nic(depth_log2=10)
    upstream = plain()
    values, classes = gradients(rng, 100)
    frame = upstream.encode(values, step=1, context=classes, width=8, chunk=9)
    flipped = bytearray(frame)
    flipped[100] ^= 4
    other = plain().encode(values, step=1, context=classes, width=8, chunk=8)

    def steps():
        yield from nic.write("IRQ_ENABLE", 0xFFFFFFFF)
        yield from nic.command(ADOPT | FRESH_IN, 100, step=(1, 0), chunk=(9, 0), sets={"save_in": 0})
        nic.feed(0, None, classes)
        for bad, reason in ((bytes(flipped), 4), (frame[:-2], 1), (other, 7)):
            nic.network.extend(words_of(bad))
            yield from nic.wait(bad_frame=1)
            assert BY_NAME["RESULT"].unpack(nic.result) == {"error": 0, "reason": reason}
            assert (yield from nic.read("STATUS")) == BY_NAME["STATUS"].pack(busy=1, frame=1)
        assert not nic.lanes[0].sums
        nic.network.extend(words_of(frame))
        yield from nic.wait(done=1)
        assert np.array_equal((yield from nic.sums(0, 100)), values)
        assert (yield from nic.read("FRAMES_BAD")) == 3

        # A command whose frame never comes is ended by hand; one that is not taken is reported.
        yield from nic.command(ADOPT, 100, step=(1, 0), sets={"load_in": 0, "save_in": 1})
        yield from nic.write("COMMAND", ADOPT)
        yield from nic.write("COMMAND", ADOPT)
        yield from nic.wait(lost=1)
        for _ in range(2):
            yield from nic.write("ABORT", 1)
            yield from nic.wait(done=1, error=1)
            assert BY_NAME["RESULT"].unpack(nic.result)["error"] == ERROR_ABORTED
        assert (yield from nic.read("STATUS")) == 0

    nic.run(steps)


def test_a_payload_without_sense_ends_with_an_error_and_sends_nothing(stand_ins: None):
    rng = numbers(4)
    nic = Nic()
    values, classes = gradients(rng, 100)
    good = plain().encode(values, step=0, context=classes, width=8)
    bad = pack_frame(peek(good), struct.pack("<H", NONSENSE) + good[26:])

    def steps():
        yield from nic.write("IRQ_ENABLE", 0xFFFFFFFF)
        for frame in (bad, good):
            nic.network.extend(words_of(frame))
            nic.feed(0, values, classes)
            sets = {"save_in": 1, "save_out": 2}
            yield from nic.command(HOP | FRESH_IN | FRESH_OUT, 100, width=(8, 9), sets=sets)
            if frame is bad:
                yield from nic.wait(done=1, error=1)
                assert nic.result == 5
                yield from nic.sums(0, 100)
                assert not nic.taken
        yield from nic.wait(done=1)
        assert np.array_equal((yield from nic.sums(0, 100)), 2 * values)
        assert (yield from nic.frame()) == plain().encode(2 * values, step=0, context=classes, width=9)

    nic.run(steps)


def test_a_frame_too_long_for_the_store_is_an_error(stand_ins: None):
    rng = numbers(5)
    nic = Nic(depth_log2=6)

    def steps():
        yield from nic.write("IRQ_ENABLE", 0xFFFFFFFF)
        for count in (52, 51):
            values, classes = gradients(rng, count)
            nic.feed(0, values, classes)
            yield from nic.command(ENCODE | FRESH_OUT, count, sets={"save_out": 1})
            if count == 52:
                yield from nic.wait(done=1, error=1)
                assert nic.result == ERROR_TOO_LONG
        yield from nic.wait(done=1)
        assert (yield from nic.frame()) == plain().encode(values, step=0, context=classes, width=8)

    nic.run(steps)


@pytest.mark.parametrize("lanes", [2])
def test_lanes_share_the_network_frame_by_frame(stand_ins: None, lanes: int):
    rng = numbers(6)
    nic = Nic(lanes, idle=0.1, busy=0.1)
    count = 60

    def steps():
        expected, sums = [], []
        for lane in range(lanes):
            mine, classes = gradients(rng, count)
            theirs, _ = gradients(rng, count)
            come = plain().encode(theirs, step=1, context=classes, width=8, sub=lane + 2 * lanes)
            nic.network.extend(words_of(come))
            nic.feed(lane, mine, classes)
            sums.append(mine + theirs)
            expected.append(plain().encode(mine + theirs, step=2, context=classes, width=9, sub=lane))
            yield from nic.command(
                HOP | FRESH_IN | FRESH_OUT, count, lane=lane, step=(1, 2), sub=(lane + 2 * lanes, lane),
                width=(8, 9), sets={"save_in": 1, "save_out": 2},
            )  # fmt: skip
            while (yield from nic.read("STATUS")) & BY_NAME["STATUS"].field("pending").mask:
                pass
        for lane in range(lanes):
            assert np.array_equal((yield from nic.sums(lane, count)), sums[lane])
        frames = []
        for _ in range(lanes):
            frames.append((yield from nic.frame()))
        assert sorted(frames) == sorted(expected)
        while (yield from nic.read("STATUS")) != 0:
            pass
        for lane in range(lanes):
            yield from nic.write("LANE", lane)
            assert (yield from nic.read("VALUES_OUT")) == count
            assert (yield from nic.read("FRAMES_BAD")) == 0
        yield from nic.write("IRQ_ENABLE", 0xFFFFFFFF)
        yield from nic.wait(done=(1 << lanes) - 1)

    nic.run(steps)


def test_reset_in_the_middle_of_a_hop(stand_ins: None):
    rng = numbers(7)
    nic = Nic()
    values, classes = gradients(rng, 100)
    frame = plain().encode(values, step=0, context=classes, width=8)

    def steps():
        lane = nic.lanes[0]
        for last in (False, True):
            yield from nic.write("IRQ_ENABLE", 1)
            nic.network.extend(words_of(frame))
            nic.feed(0, values, classes)
            sets = {"save_in": 1, "save_out": 2}
            yield from nic.command(HOP | FRESH_IN | FRESH_OUT, 100, width=(8, 9), sets=sets)
            if last:
                break
            while len(lane.sums) < 50:
                yield nic.clk.posedge
            for queue in (lane.local, lane.classes, nic.network):
                queue.clear()
            nic.rst.next = True
            yield nic.clk.posedge
            nic.rst.next = False
            for _ in range(20):
                yield nic.clk.posedge
            lane.sums.clear()
            nic.taken.clear()
        yield from nic.wait(done=1)
        assert np.array_equal((yield from nic.sums(0, 100)), 2 * values)
        assert (yield from nic.frame()) == plain().encode(2 * values, step=0, context=classes, width=9)

    nic.run(steps)
