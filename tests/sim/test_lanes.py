"""Simulated lanes and the NICs made of them against format 2 in plain integers.

The vectors at the end are frames that a lane once got wrong: every lane that is to come must get them right.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from needs import needs
from oscar.config import Config
from oscar.config.explain import validated
from oscar.errors import ConfigError, FrameError
from oscar.reducers.cluster import LocalCluster
from oscar_hdl.format2.link import Encoder
from oscar_hdl.format2.params import CODED
from oscar_hdl.format2.reference import ReferenceCoder
from oscar_hdl.format2.state import TableState
from oscar_hdl.params import LaneParams
from oscar_sim import stress
from oscar_sim.lane import LinkTables, Stress, check_width
from oscar_sim.lane_order import lane_order
from oscar_sim.nics import reference_codec, rtl_codec
from oscar_sim.stress import Checker, Command, Generator
from oscar_sim.verilator import build
from oscar_sim.verilator.lane import VerilatedLane


@pytest.fixture(scope="module")
def myhdl_lane():
    from oscar_sim.myhdl_lane import MyhdlLane

    return MyhdlLane(LaneParams(block_log2=10))


@pytest.fixture(scope="module")
def verilated_lane():
    needs("verilator", "g++", "make")
    return VerilatedLane(LaneParams())


def load(tree: dict[str, Any]) -> Config:
    return validated(Config, tree)


def check(lane, params: LaneParams, *, frames: int, largest: int, seed: int) -> Checker:
    generate, checker = Generator(seed, largest=largest), Checker(lane, params, seed=seed)
    for _ in range(frames):
        checker.check(generate())
    assert checker.faults == []
    return checker


def test_the_description_itself_under_stalls_resets_and_damage(myhdl_lane, seed: int) -> None:
    checker = check(myhdl_lane, LaneParams(block_log2=10), frames=6, largest=400, seed=seed)
    assert checker.tally["frames"] == 6


def test_converted_rtl_under_stalls_resets_and_damage(verilated_lane, seed: int) -> None:
    tally = check(verilated_lane, LaneParams(), frames=150, largest=9000, seed=seed).tally
    assert min(tally[k] for k in (*stress.OPS, "refused", "resets", "redos")) > 3


def test_a_seed_of_the_stress_test_shows_the_same_again(capsys) -> None:
    needs("verilator", "g++", "make")
    shown = []
    for seeds in (["7", "8"], ["8"]):
        assert stress.main(["--clocks", "60k", "--seed", *seeds]) == 0
        lines = capsys.readouterr().out.splitlines()
        shown.append([line for line in lines if line.split()[0] == "8"])
    assert shown[0] == shown[1] != []


def test_a_cluster_on_converted_rtl_is_one_on_the_reference(verilated_lane) -> None:
    rng = np.random.default_rng(1)
    gradients = [[rng.laplace(0, 1e-3, 9001).astype(np.float32)] for _ in range(3)]
    config = Config.model_validate({"nodes": 3, "schedule": {"name": "boomerang"}, "nic": "verilator"})
    in_integers = LocalCluster(config, codec=reference_codec(verilated_lane.params.asc))
    on_rtl = LocalCluster(config, codec=rtl_codec(verilated_lane))
    for _ in range(2):
        a, b = in_integers.allreduce(gradients), on_rtl.allreduce(gradients)
        assert a.stats.frames == b.stats.frames
        assert all(np.array_equal(x, y) for x, y in zip(a.mean, b.mean, strict=True))
        assert b.stats.exact
        assert b.stats.clocks is not None
        assert (b.stats.clocks["clocks"] > 3000).any()


def test_a_refused_payload_changes_nothing(verilated_lane) -> None:
    params = LaneParams().asc
    codec = rtl_codec(verilated_lane)
    encoder, decoder = Encoder(params), codec.make_decoder()
    values = np.arange(-700, 700) // 9
    first, second = (encoder.encode(values, step=0) for _ in range(2))
    from oscar.coding.frame import pack_frame, unpack_frame

    head, payload = unpack_frame(first)
    with pytest.raises(FrameError, match="frame damaged"):
        decoder.decode(pack_frame(head, bytes(payload[:-2])), step=0)
    assert np.array_equal(decoder.decode(first, step=0), values)
    assert np.array_equal(decoder.decode(second, step=0), values)


@pytest.mark.parametrize("nic", ["verilator", "myhdl"])
def test_a_simulated_nic_takes_no_parameters_of_the_software(nic: str) -> None:
    with pytest.raises(ConfigError, match=rf"nic '{nic}' has parameters of its own.*leave .* asc out"):
        load({"nic": nic, "asc": {"context": "none"}})
    assert load({"nic": nic, "asc": {"context": "none"}, "method": "int8"}).nic == nic
    compared = load({"nic": nic, "methods": [{"name": "a", "method": "asc", "asc": {"context": "none"}}]})
    with pytest.raises(ConfigError, match=rf"method 'a': .*nic '{nic}' has parameters of its own"):
        list(compared.compared())


def test_a_verilator_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation that cannot say where it is: its words and the log, not a CalledProcessError."""
    tool = tmp_path / "verilator"
    tool.write_text("#!/bin/sh\necho no root here; exit 3\n")
    tool.chmod(0o755)
    monkeypatch.setattr(build, "require", lambda name, package: str(tool))
    monkeypatch.setattr(build, "verilog_of", lambda top, params, folder: folder / f"{top}.v")
    with pytest.raises(build.ToolError, match=r"verilator failed \(status 3\).*\n.*no root here"):
        build.build("nic_lane", LaneParams(), harness=build.HERE / "lane.cpp", cache=tmp_path)


def test_vector_a_raw_stream_three_quarters_of_a_block_long(verilated_lane) -> None:
    """Its block is coded; a lane for 12 bits, which stood in for one of 16, sent it raw for want of room."""
    size = verilated_lane.params.block
    rng = np.random.default_rng(991)
    values = rng.integers(-16000, 16000, 2 * size)
    values[:size] *= rng.random(size) < 0.6  # tables learn that large values are many
    values[size + size * 3 // 4 :] = 0
    params = verilated_lane.params.asc
    state = TableState.initial()
    before = LinkTables.of(state)
    payload = ReferenceCoder(params).encode(
        values.astype(np.int32), np.zeros(values.size, np.uint8), 16, state
    )
    second = _blocks(payload)[1]
    assert second[0] == CODED
    assert size * 3 // 4 < second[1] < size
    local = values.astype(np.int16)[lane_order(values.size, size)]
    out = verilated_lane.run(np.zeros(values.size, np.uint8), local=local, encoder=before)
    assert out.payload == payload
    assert out.encoder.shift == int(state.shift[0])
    assert out.redos == 0


def _blocks(payload: bytes) -> list[tuple[int, int]]:
    """Type and raw words of the first two blocks of a payload, both coded."""
    found, at = [], 0
    for _ in range(2):
        head = int.from_bytes(payload[at : at + 6], "little")
        found.append((head & 3, head >> 24))
        at += 6 + 36 + 2 * -(-12 * (head >> 2 & 0x3FFFFF) // 16) + 2 * (head >> 24)
    return found


@pytest.mark.parametrize("op", stress.OPS)
def test_vector_a_reset_in_the_first_clocks_of_a_frame(verilated_lane, op: str) -> None:
    """Nothing is left of the frame: `proceed` of asc_decoder outlived a reset in clock 1, and a hop that was
    told to start in the clock of a reset was never idle again.
    """
    rng = np.random.default_rng(4183)
    values, local = rng.integers(-40, 40, (2, 23))
    classes = rng.integers(0, 16, 23).astype(np.uint8)
    checker = Checker(verilated_lane, verilated_lane.params, seed=1)
    for clock in range(12):
        for seed in range(1, 9):  # with 0 to 3 clocks from the reset to the next frame
            stalls = Stress(seed=seed, reset_at=clock)
            checker.check(Command(op, "vector", values, local, classes, (8, 8), stalls))
    assert checker.faults == []


@pytest.mark.parametrize(
    ("op", "events"),
    [("adopt", ("rd_valid", "m_axis_state", "dec_done")), ("encode", ("redo_valid", "enc_done"))],
)
def test_vector_a_reset_in_the_clock_of_a_transfer(myhdl_lane, op: str, events: tuple[str, ...]) -> None:
    """What surrounds the description took it for one of the next run: a read's answer came unasked, and the
    decoder waited for ever for one more; a table's word, a redo or an end counted for the next frame.
    """
    rng = np.random.default_rng(3873708578)
    values, local = rng.integers(-16000, 16000, (2, 23))
    classes = rng.integers(0, 16, 23).astype(np.uint8)
    checker = Checker(myhdl_lane, myhdl_lane.params, seed=1)
    simulator, edge = myhdl_lane.simulator, myhdl_lane.simulator.each
    start = simulator.clocks + (0 if myhdl_lane.sound else 2)
    seen: dict[str, int] = {}

    def watched() -> None:
        for name in events:
            port = myhdl_lane.ports[name]
            if getattr(port, "tvalid", port):
                seen.setdefault(name, simulator.clocks - start)
        edge()

    simulator.each = watched
    try:
        checker.check(Command(op, "vector", values, local, classes, (16, 16), Stress()))
    finally:
        simulator.each = edge
    assert seen.keys() == set(events)
    for clock in seen.values():  # a reset that is asked for strikes at the next edge
        stalls = Stress(reset_at=clock - 1)
        checker.check(Command(op, "vector", values, local, classes, (16, 16), stalls))
    assert checker.faults == []


def test_a_frame_wider_than_the_lane_is_refused() -> None:
    with pytest.raises(ValueError, match=r"at most 12 bits for LaneParams.*, got 13"):
        check_width(LaneParams(width_max=12), LinkTables(np.zeros(256)), 13)
