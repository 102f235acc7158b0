"""Simulated lanes and the NICs made of them against the host's coder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from needs import needs
from oscar.allreduce.cluster import LocalCluster
from oscar.asc import Encoder
from oscar.config import Config
from oscar.errors import ConfigError, FrameError
from oscar_hdl.params import LaneParams
from oscar_sim.nics import hardware_params, rtl_codec
from oscar_sim.stress import Checker, Generator
from oscar_sim.verilator import build

HARDWARE = {"block_log2": 12, "interval_log2": 12, "map": "fixed"}


@pytest.fixture(scope="module")
def myhdl_lane():
    from oscar_sim.myhdl_lane import MyhdlLane

    return MyhdlLane(LaneParams(block_log2=10))


@pytest.fixture(scope="module")
def verilated_lane():
    needs("verilator", "g++", "make")
    from oscar_sim.verilator.lane import VerilatedLane

    return VerilatedLane()


def check(lane, params: LaneParams, *, frames: int, largest: int, seed: int) -> Checker:
    generate, checker = Generator(seed, largest=largest), Checker(lane, params, seed=seed)
    for _ in range(frames):
        checker.check(generate())
    assert checker.faults == []
    return checker


def test_the_description_itself_under_stalls_resets_and_damage(myhdl_lane) -> None:
    checker = check(myhdl_lane, LaneParams(block_log2=10), frames=6, largest=400, seed=4)
    assert checker.tally["frames"] == 6


def test_converted_rtl_under_stalls_resets_and_damage(verilated_lane) -> None:
    tally = check(verilated_lane, LaneParams(), frames=150, largest=9000, seed=2).tally
    assert min(tally[k] for k in ("encode", "hop", "last hop", "adopt", "refused", "resets", "redos")) > 3


def test_a_cluster_on_converted_rtl_is_the_compiled_one(verilated_lane) -> None:
    rng = np.random.default_rng(1)
    gradients = [[rng.laplace(0, 1e-3, 9001).astype(np.float32)] for _ in range(3)]
    base = {"nodes": 3, "asc": HARDWARE, "ring": {"gather": "boomerang"}}
    compiled = LocalCluster(Config.model_validate(base))
    config = Config.model_validate({**base, "nic": "verilator"})
    on_rtl = LocalCluster(config, codec=rtl_codec(config.asc_params(), verilated_lane))
    for _ in range(2):
        a, b = compiled.allreduce(gradients), on_rtl.allreduce(gradients)
        assert np.array_equal(a.stats.frame_bytes, b.stats.frame_bytes)
        assert all(np.array_equal(x, y) for x, y in zip(a.mean, b.mean, strict=True))
        assert b.stats.exact
        assert b.stats.clocks is not None
        assert (b.stats.clocks.max(axis=3)[:, 0] > 3000).all()


def test_a_refused_payload_changes_nothing(verilated_lane) -> None:
    params = LaneParams().asc
    codec = rtl_codec(params, verilated_lane)
    encoder, decoder = Encoder(params), codec.make_decoder()
    values = np.arange(-700, 700) // 9
    first, second = (encoder.encode(values, step=0) for _ in range(2))
    from oscar.frame import pack_frame, unpack_frame

    head, payload = unpack_frame(first)
    with pytest.raises(FrameError, match="frame damaged"):
        decoder.decode(pack_frame(head, bytes(payload[:-2])), step=0)
    assert np.array_equal(decoder.decode(first, step=0), values)
    assert np.array_equal(decoder.decode(second, step=0), values)


@pytest.mark.parametrize(
    ("asc", "match"),
    [({}, "set asc.block_log2=12"), ({**HARDWARE, "context": "none"}, "asc.context=both")],
)
def test_other_parameters_than_the_lanes_are_refused(asc: dict, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        hardware_params(Config.model_validate({"asc": asc}).asc_params())


def test_a_verilator_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation that cannot say where it is: its words and the log, not a CalledProcessError."""
    tool = tmp_path / "verilator"
    tool.write_text("#!/bin/sh\necho no root here; exit 3\n")
    tool.chmod(0o755)
    monkeypatch.setattr(build, "require", lambda name, package: str(tool))
    monkeypatch.setattr(build, "verilog_of", lambda top, folder: folder / f"{top}.v")
    with pytest.raises(build.ToolError, match=r"verilator failed \(status 3\).*\n.*no root here"):
        build.build("nic_lane", harness=build.HERE / "lane.cpp", cache=tmp_path)
