"""Converted blocks as shared libraries: ports, clocks, whole runs over arrays."""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from myhdl import always, always_comb, block

from needs import needs
from oscar_hdl.streams.bundles import bit, word
from oscar_sim.verilator import Model, ToolError, build


@block
def _sums(clk, rst, a, b, total, both, wide_in, wide_out):
    """A running sum, a sum at once, and a wide word a clock later."""
    at = word(len(total))

    @always(clk.posedge)
    def add():
        at.next = at + a
        wide_out.next = wide_in
        if rst:
            at.next = 0

    @always_comb
    def give():
        total.next = at
        both.next = a + b

    return add, give


def sums(bits: int = 12):
    """The block with a sum of so many bits."""
    return _sums(bit(), bit(), word(8), word(8), word(bits), word(9), word(100), word(100))


@pytest.fixture(scope="module")
def model():
    needs("verilator", "g++", "make")
    path = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    try:
        yield Model("test_verilator:sums", bits=40)
    finally:
        if path is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = path


def test_ports_are_items(model: Model) -> None:
    model.reset()
    assert (model.ports["wide_in"].bits, model.ports["total"].is_input) == (100, False)
    model["a"], model["b"], model["wide_in"] = 250, 9, 1 << 99 | 77
    assert model["both"] == 259
    assert model["total"] == 0
    model.clock(5)
    assert model["total"] == 1250
    assert model["wide_out"] == 1 << 99 | 77
    with pytest.raises(ValueError, match="a has 8 bits, got 256"):
        model["a"] = 256
    with pytest.raises(KeyError, match="an output"):
        model["total"] = 1
    with pytest.raises(KeyError, match="no port called 'c'; there are clk, rst"):
        model["c"]


def test_a_run_over_arrays(model: Model, seed: int) -> None:
    rng = np.random.default_rng(seed)
    clocks = 5000
    a = rng.integers(0, 256, clocks)
    wide = rng.integers(0, 1 << 32, (clocks, 4), dtype=np.uint32)
    wide[:, 3] &= 15
    rst = rng.random(clocks) < 0.01
    rst[0] = True
    model["b"] = 3
    got = model.run({"a": a, "rst": rst, "wide_in": wide}, ["total", "both", "wide_out"])
    total, wanted = 0, []
    for t in range(clocks):
        wanted.append(total)
        total = 0 if rst[t] else total + int(a[t])
    assert got["total"].dtype == np.uint64
    assert got["total"][1:].tolist() == wanted[1:]
    assert np.array_equal(got["both"], a + 3)
    assert np.array_equal(got["wide_out"][1:], wide[:-1])
    assert model["total"] == total
    assert len(model.run({}, ["total"], clocks=3)["total"]) == 3


def test_clocks_are_remembered(model: Model, seed: int) -> None:
    inputs = {"a": np.random.default_rng(seed).integers(0, 256, 50)}
    model.trace(30)
    got = model.run(inputs, ["total", "wide_out"])
    found = model.traced()
    assert found["a"].tolist() == inputs["a"][:30].tolist()
    assert np.array_equal(found["total"], got["total"][:30])
    assert np.array_equal(found["wide_out"], got["wide_out"][:30])
    assert "clk" not in found


def test_signals_go_into_a_waveform(model: Model, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It begins where the context does, a clock is as long as said, and what is compiled is told."""
    with pytest.raises(ValueError, match="make it with wave=True"), model.waveform(tmp_path / "x", mhz=1):
        pass
    other = Model("test_verilator:sums", bits=40, wave=True, cache=tmp_path / "cache")
    said = capfd.readouterr().err.splitlines()
    assert said[0].startswith("# sums: MyHDL to Verilog, kept in ")
    assert said[-1].startswith("# sums: C++ to a library by g++")
    other.reset()
    for name, clocks in (("short", 10), ("long", 500)):
        with other.waveform(tmp_path / name, mhz=100):
            other.clock(clocks)
        header = (tmp_path / name).read_bytes()[:25]
        assert int.from_bytes(header[17:25], "big") == 10_000 * clocks - 5_000  # ps of the last edge
    other.clock()


def test_what_does_not_fit_is_refused(model: Model) -> None:
    three = np.zeros(3, np.int64)
    with pytest.raises(ValueError, match=r"a has 8 bits, got 0\.\.600"):
        model.run({"a": three + 300 * np.arange(3)}, [])
    with pytest.raises(ValueError, match="one length, got"):
        model.run({"a": three, "b": three[:2]}, [])
    with pytest.raises(ValueError, match="rows of 4 words"):
        model.run({"wide_in": three}, [])
    wide = np.full((3, 4), 16, np.uint32)
    with pytest.raises(ValueError, match="wide_in has 100 bits"):
        model.run({"wide_in": wide}, [])


def test_two_instances_are_apart(model: Model) -> None:
    other = Model("test_verilator:sums", bits=40)  # built before
    for each in (model, other):
        each.reset()
    other["a"] = 1
    other.clock(7)
    assert (model["total"], other["total"]) == (0, 7)


def test_what_two_want_at_once_is_made_once(tmp_path: Path) -> None:
    made, done = [], tmp_path / "cache" / "one"

    def make(number: int) -> bool:
        with build._made(done) as work:
            if work:
                made.append(number)
                time.sleep(0.1)
                (work / "file").touch()
        return (done / "file").exists()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(make, range(2))) == [True, True]
    assert len(made) == 1


def test_failures_are_told(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A top that is not there, a missing tool, and an installation that cannot say where it is."""
    with pytest.raises(ToolError, match="no top called 'nosuch'"):
        Model("nosuch")
    tool = tmp_path / "verilator"
    tool.write_text("#!/bin/sh\necho no root here; exit 3\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(ToolError, match=r"verilator failed \(status 3\).*\n.*no root here"):
        build.build("test_verilator:sums", {"bits": 41}, cache=tmp_path / "cache")
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    with pytest.raises(ToolError, match="apt-get install -y verilator"):
        Model("test_verilator:sums")
