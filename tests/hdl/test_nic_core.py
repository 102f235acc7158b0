"""nic_core through its registers: frames and sums are the host's, damage is refused, reset at any clock."""

from __future__ import annotations

import numpy as np
import pytest

from oscar.coding.asc import Decoder, Encoder
from oscar_hdl.coder.rows import frame_rows
from oscar_hdl.nic.control.registers import BY_NAME, ERROR_ABORTED, ID_VALUE, VERSION
from oscar_sim.driver.nic_driver import Script
from support.nic_bench import (
    ASC,
    BUS,
    ROWS_LOG2,
    STORE_LOG2,
    UNITS,
    Bench,
    gradient,
    header_fields,
)

pytestmark = pytest.mark.usefixtures("seed")


def test_registers_tell_what_it_is() -> None:
    bench = Bench("registers")
    assert bench.run(bench.read("ID")) == {"value": ID_VALUE}
    assert bench.run(bench.read("CONFIG")) == {
        "units": UNITS, "bus_bytes": BUS // 8, "store_log2": STORE_LOG2, "sets_log2": 4,
        "version": VERSION,
    }  # fmt: skip
    assert bench.run(bench.read("STATUS"))["rows_log2"] == ROWS_LOG2


def test_a_wait_is_aborted_and_the_next_command_works() -> None:
    bench = Bench("abort")
    values, positions = gradient(bench.rng, 700, "normal")
    frame = Encoder(ASC).encode(values, step=0, context=positions, width=12)
    order = {**header_fields(frame), "save": 1, "fresh": 1, "row": 0, "adopt": 1}
    bench.run(bench.load(0, frame_rows(values * 0, positions)))
    bench.run(bench.give("RECEIVE", **order))
    bench.simulator.run(bench.rng.randrange(300))
    bench.run(bench.bus.write(BY_NAME["ABORT"].offset, 1))
    assert bench.run(bench.ended("RECEIVE", 1))["error"] == ERROR_ABORTED
    bench.put(frame)
    bench.run(bench.give("RECEIVE", **order))
    assert bench.run(bench.ended("RECEIVE", 2))["error"] == 0
    np.testing.assert_array_equal(bench.run(bench.fetch(0, 700))[0], values)


def test_damage_is_dropped_and_counted() -> None:
    """A flipped bit, a frame of another chunk, then the right one."""
    bench = Bench("damage")
    values, positions = gradient(bench.rng, 900, "normal")
    frame = Encoder(ASC).encode(values, step=1, context=positions, width=12, chunk=7)
    other = Encoder(ASC).encode(values, step=1, context=positions, width=12, chunk=8)
    flipped = bytearray(frame)
    flipped[bench.rng.randrange(24, len(frame))] ^= 1 << bench.rng.randrange(8)
    bench.run(bench.load(0, frame_rows(values, positions)))
    bench.run(bench.give("RECEIVE", **header_fields(frame), load=0, save=0, fresh=1, row=0, add=1))
    for bad, reason in ((bytes(flipped), 4), (other, 7)):
        bench.put(bad)
        bench.run(bench.raised("bad_frame"))
        bench.run(bench.bus.write(BY_NAME["IRQ_STATUS"].offset, 0x7F))
        assert bench.run(bench.read("RECEIVE_RESULT"))["reason"] == reason
    bench.put(frame)
    assert bench.run(bench.ended("RECEIVE", 1))["error"] == 0
    np.testing.assert_array_equal(bench.run(bench.fetch(0, 900))[0], 2 * values)
    assert bench.run(bench.read("FRAMES_BAD")) == {"value": 2}


def test_a_driver_learns_which_frame_came_and_from_whom() -> None:
    """Frames of one name from three peers: a command for one drops another's; and to whom frames go."""
    bench = Bench("peers")
    values, positions = gradient(bench.rng, 300, "normal")
    frame = Encoder(ASC).encode(values, step=2, context=positions, width=12, chunk=7, sub=3)
    order = {**header_fields(frame), "load": 0, "save": 0, "fresh": 1, "row": 0, "adopt": 1}
    assert not bench.run(bench.read("OLDEST_NAME"))["there"]
    for peer in (200, 31, 8):
        bench.put(frame, peer)
    for number, (peer, wanted) in enumerate([(200, 200), (31, 8), (8, 8)]):
        bench.run(bench.arrived())
        assert bench.run(bench.read("OLDEST_FRAME")) == {"step": 2, "chunk": 7}
        name = {"peer": peer, "sub": 3, "number": number, "there": 1}
        assert bench.run(bench.read("OLDEST_NAME")) == name
        if number < 2:
            bench.run(bench.give("RECEIVE", **order, peer=wanted))
    assert bench.run(bench.ended("RECEIVE", 2))["reason"] == 12
    for n, peer in enumerate((255, 17)):
        where = {"step": 3, "chunk": n, "sub": 1, "width": 16, "sequence": n, "load": 5, "save": 5}
        bench.run(bench.send(values, positions, row=32 * n, peer=peer, fresh=int(n == 0), **where))
    assert bench.run(bench.ended("SEND", 2))["error"] == 0
    bench.simulator.run(2000)
    assert bench.peers == [255, 17]


def test_both_directions_at_once_and_reset_at_any_clock() -> None:
    """A reset in the middle of whatever goes on; then frames both ways, commands queued."""
    bench = Bench("reset")
    rng = bench.rng
    data = [gradient(rng, rng.randrange(1200, 2500), "normal") for _ in range(3)]
    for again in range(3):
        encoder, decoder = Encoder(ASC), Decoder(ASC)
        frames = [encoder.encode(v, step=0, context=p, width=16, chunk=n) for n, (v, p) in enumerate(data)]
        for frame in frames:
            bench.put(frame)

        def work(frames: list[bytes] = frames) -> Script:
            for n, (values, positions) in enumerate(data):
                while (yield from bench.read("STATUS"))["receive_pending"]:
                    yield
                yield from bench.load(96 * n, frame_rows(values, positions))
                yield from bench.give(
                    "RECEIVE", **header_fields(frames[n]), load=3, save=3, fresh=int(n == 0), row=96 * n,
                    add=1,
                )  # fmt: skip
                while (yield from bench.read("STATUS"))["send_pending"]:
                    yield
                where = {"step": 0, "chunk": n, "width": 16, "sequence": n, "load": 1, "save": 1}
                yield from bench.send(values, positions, row=288 + 96 * (n % 2), fresh=int(n == 0), **where)
                yield from bench.ended("SEND", n + 1)
            yield from bench.ended("RECEIVE", 3)
            return (yield from bench.read("RECEIVE_RESULT"))

        if again < 2:
            bench.script = work()
            bench.simulator.run(rng.randrange(6000))
            bench.script = iter(())
            bench.reset()
        else:
            result = bench.run(work(), limit=100_000)
            assert result["error"] == 0
            bench.simulator.run(3000)
            assert bench.frames == frames
            for n, (values, positions) in enumerate(data):
                sums = decoder.decode(frames[n], step=0, context=positions) * 2
                np.testing.assert_array_equal(bench.run(bench.fetch(96 * n, values.size))[0], sums)
