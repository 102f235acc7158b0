"""Whose clock modelled times have: ideal, the RTL's as measured, or this host's."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oscar.cli import main
from oscar.coding.asc.turns import cells_of
from oscar.coding.costs import machine
from oscar.coding.registry import make_codec
from oscar.collective.ring import Duplex, Ring
from oscar.collective.trees import Direct
from oscar.config import Config, LinkSection
from oscar.errors import ConfigError
from oscar.timeline.equal import assumed_frames, equal_time
from oscar.timeline.link import Pipeline
from oscar.timeline.nic import NicFile, load_nic
from oscar.timeline.replay import replay
from oscar.timeline.turns import FRONT
from oscar.timeline.units import UnitFrame, received, sent
from oscar.timeline.units_head import head_reads

SMALL = """
nodes: 3
iterations: 3
workload: {name: numpy-lm, options: {vocabulary: 200, hidden: 8}}
methods:
  - {name: fp32, method: fp32}
  - {name: int16, method: int16}
  - {name: zstd, method: zstd}
  - {name: asc, method: asc}
  - {name: asc+duplex, method: asc, schedule: duplex}
"""


def test_the_shipped_nics_are_what_the_hardware_results_say() -> None:
    """A part for each rate; 142 turns of 4 clocks for a dense 4,096 values to encode, 134 to decode."""
    parts = {gbps: load_nic(gbps=gbps) for gbps in (1, 25, 25.1, 100)}
    found = {gbps: (nic.name, nic.units, nic.mhz) for gbps, nic in parts.items()}
    ecp5, u55c = ("barrel unit in an ECP5 85F", 1, 150.0), ("barrel unit in a U55C, by cells", 8, 250.0)
    assert found == {1: ecp5, 25: ecp5, 25.1: u55c, 100: u55c}
    for nic in parts.values():
        turns = [nic.units * 4096 * nic.clocks[name][0] / 4 for name in ("encode", "decode")]
        assert turns == pytest.approx([142, 134], abs=0.1)
        assert [nic.clocks[name][1] for name in ("encode", "decode")] == list(FRONT)
    link = LinkSection(codec="rtl")
    nic = link.model().coder
    assert isinstance(nic, Pipeline)
    assert nic.encode.front_s == pytest.approx(FRONT[0] / 250e6)
    assert "codec: rtl (8 x barrel unit in a U55C, by cells at 250 MHz" in link.clock_text()


def test_the_rtls_clock_has_its_driver_unless_it_is_left_out(tmp_path: Path) -> None:
    """6 writes of .1 us and 6 reads of .9 a command; a row, 80 bytes in, 66 out, by a DMA of 113 Gb/s."""
    link = LinkSection(codec="rtl")
    driver = link.model().driver
    assert driver is not None
    value = 80 * 8 / 113e9 / 32, 66 * 8 / 113e9 / 32
    assert driver.costs == pytest.approx((6.0e-6, 1e-6, *value, 0, 0, 0, 80 / 250e6, False))
    assert "its driver takes 6 us a command, and for a row of 32 values 1.42 clocks" in link.clock_text()
    few = load_nic().model_copy(update={"units": 2}).driver_model()  # whose ports are slower than the DMA
    assert few is not None
    assert few.costs[2:4] == pytest.approx((2 / 250e6 / 32, 2 / 250e6 / 32))
    assert LinkSection(gbps=25, codec="rtl").model().driver.load_s == pytest.approx(4 / 150e6 / 32)
    assert LinkSection(gbps=25).rtl() == LinkSection(gbps=25, codec="rtl")
    assert LinkSection(codec="ideal").model().driver is None
    alone = LinkSection(driver=False).rtl()
    assert alone.model().driver is None
    assert alone.clock_text().endswith("; without a driver)")
    file = tmp_path / "nic.json"  # as results of before have it
    load_nic().model_copy(update={"driver": None}).write(file)
    assert LinkSection(codec="rtl", nic_file=str(file)).model().driver is None


def test_units_take_turns_and_hold_eight_blocks() -> None:
    """A dense block of 1,024 values alone waits for its own turns; eight of them fill a unit."""

    def clocks(blocks: int, units: int, classes: int = 3, *, raw: bool = False) -> tuple[float, float]:
        rows = np.full(32 * blocks, classes, np.uint8)
        cells = cells_of(rows, 1024 * blocks, np.full(rows.size, raw))
        frame = UnitFrame(cells, 1024 * blocks, 600 * blocks, np.full(blocks, 600.0), 0)
        return sent([frame], units, 1024, 0.0)[0], received([frame], units, 1024, 0.0)[0]

    one = clocks(1, 1)
    assert one == pytest.approx((40 * 20, 35 * 28), rel=0.5)  # and what is before and behind
    both = clocks(2, 1)
    assert both[0] < 1.3 * one[0]
    assert both[1] < 1.3 * one[1]
    assert clocks(2, 2) == pytest.approx(one, rel=0.2)
    many = clocks(64, 1)
    assert many == pytest.approx((64 * 40 * 4, 64 * 35 * 4), rel=0.25)
    assert clocks(64, 2)[1] == pytest.approx(many[1] / 2, rel=0.2)
    assert clocks(4, 1, classes=13) > clocks(4, 1)  # another turn for the low bits of each row
    assert clocks(1, 1, raw=True)[1] > 2 * one[1]


@pytest.mark.parametrize(
    ("word", "asked", "tables", "listed"),
    [
        (32, (13, 22, 33, 44, 56, 67, 78, 90, 101, 112), 26, 135),
        (64, (13, 26, 37, 48, 63, 76, 87, 99, 114, 127), 30, 150),
    ],
)
def test_a_head_is_read_as_converted_rtl_does(
    word: int, asked: tuple[int, ...], tables: int, listed: int
) -> None:
    """Clocks of NICs of four units and of eight under Verilator, for a frame of 20 blocks."""
    assert head_reads(20, word) == (asked, tables, listed)


def test_small_frames_wait_for_tables_and_learning() -> None:
    """Builds of tables are 163 clocks apart; a frame is learnt in 280 and 8 for a unit, then the next one."""
    cells = cells_of(np.repeat(np.array([3, 0], np.uint8), (6, 26)), 1024, np.zeros(32, bool))
    for units in (4, 8):
        frames = [UnitFrame(cells, 1024, 250, np.full(1, 210.0), 32 * n) for n in range(12)]
        for way, ends in (("send", sent), ("receive", received)):
            gaps = np.diff(ends(frames, units, 1024, 0.0))
            assert gaps[0] == pytest.approx(163, abs=8), way
            assert gaps[-4:].mean() == pytest.approx(282 + 2 * units, abs=8), way


def test_frames_end_whatever_their_blocks_are(seed: int) -> None:
    """Two kinds of frames let the model turn for ever: raw blocks behind coded ones, and a light frame."""

    def frame(kinds: str, rows: int, row: int) -> UnitFrame:
        parts = [(np.full(rows, 3 if k != "0" else 0, np.uint8), np.full(rows, k == "r")) for k in kinds]
        classes, raw = (np.concatenate(part) for part in zip(*parts, strict=True))
        sizes = np.array([{"0": 0.0, "c": 20.0, "r": 40.0}[k] * rows for k in kinds])
        cells = cells_of(classes, 32 * rows * len(kinds), raw)
        return UnitFrame(cells, 32 * rows * len(kinds), 60 + int(sizes.sum()), sizes, row)

    for kinds, units in (("cr", 1), ("cr", 8), ("crcc", 2), ("ccccccrc", 8)):
        ends = received([frame(kinds, 32, 32 * n * len(kinds)) for n in range(8)], units, 1024, 0.0)
        assert np.diff(ends).min() > 0, (kinds, units)
    light = [frame("cc", 256, 0), frame("0000", 256, 512), frame("c", 256, 1536)]
    assert np.diff(sent(light, 1, 8192, 0.0)).min() > 0
    random = np.random.default_rng(seed)
    for units in (1, 2, 8):
        mixed = ["".join(random.choice([*"cr0"], random.integers(1, 9))) for _ in range(6)]
        frames = [frame(kinds, 32, 256 * n) for n, kinds in enumerate(mixed)]
        for way in (sent, received):
            ends = np.array(way(frames, units, 1024, 0.0))
            assert np.isfinite(ends).all(), (units, mixed)
            assert ends.max() < 1e6, (units, mixed)


def test_a_list_loads_and_reads_rows_while_it_runs() -> None:
    """22 entries, direct on 8 ranks. Memory may be too small, a list too long, a schedule may have none."""
    driver = load_nic().driver_model()
    assert driver is not None
    listed = driver.listed(Direct(8), 288_440)
    assert listed is not None
    assert listed.armed_s == pytest.approx(22 * 28 / 250e6 + 0.2e-6)
    assert listed.end_s == pytest.approx(1e-6 + 1.8e-6)
    assert (listed.by_list, listed.command_s, listed.notice_s) == (True, 0, 0)
    assert (listed.ask_s, listed.read_s) == (pytest.approx(1e-6), driver.read_s)
    assert driver.listed(Ring(8), 288_440) is not None
    assert driver.listed(Duplex(8), 288_440) is None
    assert driver.listed(Direct(8, 12), 288_440) is None
    assert driver.listed(Direct(8), 10**6) is None
    link = LinkSection(codec="rtl").model()
    assert link.driver is not None
    registers = replace(link, driver=replace(link.driver, listing=None))
    for schedule in (Direct(8), Ring(8)):
        values, bits = 8 * 9000, {"bits": 4.0, "header_bytes": 24}
        time_s = equal_time(schedule, values, link, **bits)
        by_registers = equal_time(schedule, values, registers, **bits)
        by_list = replace(link, driver=link.driver.listed(schedule, values))
        assert time_s == min(by_registers, equal_time(schedule, values, by_list, **bits))
        assert time_s == replay(schedule, assumed_frames(schedule, values, 4.0), link).total_s


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"mhz": 0}, "mhz: Input should be greater than 0"),
        ({"lanes": 3}, "lanes: Extra inputs"),
        ({"clocks": {"encode": [1, 2]}}, "expected five numbers for each of encode, decode"),
        ({"clocks": {"encode": [1, 2], "hop": [-1, 2], "decode": [1, 2]}}, "hop: expected more than 0"),
        ({"clocks": {"encode": [1, 2], "hop": [0, 2], "decode": [1, 2]}}, "hop: expected more than 0"),
        ({"clocks": {"encode": [1, 2], "hop": [1, -2], "decode": [1, 2]}}, "once_s: expected seconds"),
    ],
)
def test_a_file_that_is_no_nic_is_refused_in_one_line(
    change: dict[str, object], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "nic.json"
    file.write_text(json.dumps(load_nic().model_dump(mode="json") | change))
    for path in (file, tmp_path / "absent.json"):
        words = ["predict", "--values", "1M", "--nodes", "4", "--gbps", "10", "--codec", "rtl"]
        assert main([*words, "--nic-file", str(path)]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert str(path) in said
        assert (why if path == file else "no such file; the package has examples: ") in said
        assert "nics of the package" in said or path != file


@pytest.mark.parametrize(
    ("link", "why"),
    [
        ({"codec": "rtl", "codec_gvalues": 1.0}, "leave codec_gvalues out, or set codec: ideal"),
        ({"codec": "host", "encode_latency_us": 9.0}, "leave encode_latency_us out"),
        ({"nic_mhz": 250.0}, "nic_mhz was removed.*nic_file"),
    ],
)
def test_a_clock_is_measured_or_assumed_not_both(link: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Config().variant(link=link)


def test_an_assumed_clock_is_not_called_ideal() -> None:
    assert LinkSection().clock_text() == "codec: ideal (line rate, 0.5 us deep)"
    assert LinkSection(codec_gvalues=0.25).clock_text() == "codec: assumed (0.25 G values/s, 0.5 us deep)"


def test_the_hosts_clock_is_the_estimate_of_its_coder() -> None:
    section, cost = LinkSection(codec="host"), make_codec("asc").cost()
    coder = section.model().coder
    assert coder is not None
    assert coder.count == 1
    for part, expected in ((coder.encode, cost.encode), (coder.decode, cost.decode)):
        assert part.per_value_s == pytest.approx(expected.per_value_s)
        assert part.once_s == pytest.approx(expected.once_s)
    assert coder.hop.per_value_s == pytest.approx(cost.encode.per_value_s + cost.decode.per_value_s)
    assert section.nic().revision == machine()
    assert "codec: host (1 x compiled coder on a core: " in section.clock_text()


def test_every_table_names_its_clock_and_has_the_rtl_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The RTL column has the times of a run with the RTL's clock."""
    (tmp_path / "small.yaml").write_text(SMALL)
    rows = {}
    for clock in ("ideal", "rtl"):
        out = tmp_path / clock
        words = ["--set", f"link.codec={clock}", "--set", f"output={out}", "--workers", "1"]
        assert main(["allreduce", str(tmp_path / "small.yaml"), *words]) == 0
        text = capsys.readouterr().out
        assert f"time(us), speedup, algbw, busbw with codec: {clock} (" in text
        part = "8 x barrel unit in a U55C, by cells at 250 MHz"
        assert f"rtl(us), rtl x (its speedup) with codec: rtl ({part}" in text
        assert f"| time (us), codec: {clock} |" in (out / "table.md").read_text()
        assert f"codec: {clock} (" in json.loads((out / "trace.json").read_text())["otherData"]["clock"]
        assert main(["scale", "--results", str(out / "results.json"), "--nodes", "8"]) == 0
        assert f"us a hop; codec: {clock} (" in capsys.readouterr().out
        rows[clock] = {row["name"]: row for row in json.loads((out / "results.json").read_text())["methods"]}
    ideal, rtl = rows["ideal"]["asc"], rows["rtl"]["asc"]
    assert rtl["time_s"] == rtl["rtl_time_s"] == ideal["rtl_time_s"] > 4 * ideal["time_s"]
    assert ideal["rtl_speedup_vs_fp32"] < 1 < ideal["speedup_vs_fp32"] * 2
    for row in rows["ideal"].values():
        if row["name"] in ("zstd", "asc+duplex"):
            assert row["rtl_time_s"] is None  # there is no RTL of it; a NIC holds one sum of a value
        elif not row["coded"]:
            assert row["rtl_time_s"] == row["time_s"]
        assert 0 < row["busiest_ingress"] <= row["wire_bytes"]
        assert row["busiest_ingress"] == pytest.approx(row["busiest_egress"], rel=0.3)


def test_a_nic_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    load_nic().write(tmp_path / "nic.json")
    again = load_nic(str(tmp_path / "nic.json"))
    assert again.model() == load_nic().model()
    assert isinstance(again, NicFile)


@pytest.mark.parametrize("clock", ["rtl", "host"])
def test_a_report_has_the_clock_that_was_measured_with(
    clock: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The NIC's file is gone, and this host is another: results hold what they were modelled with."""
    (tmp_path / "small.yaml").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    slow = load_nic().model_copy(update={"mhz": 40.0, "name": "slow lane"})
    slow.write(Path("nic.json"))
    monkeypatch.setattr("oscar.config.link.host_nic", lambda: slow)
    settings = {"link.codec": clock, "output": "out"} | (
        {"link.nic_file": "nic.json"} if clock == "rtl" else {}
    )
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    assert main(["allreduce", "small.yaml", *words, "--workers", "1"]) == 0
    Path("nic.json").unlink()
    monkeypatch.setattr("oscar.config.link.host_nic", load_nic)
    results = json.loads(Path("out/results.json").read_text())
    assert main(["report", "out/results.json", "--html", "page.html"]) == 0
    assert f"codec: {clock} (8 x slow lane at 40 MHz" in Path("page.html").read_text()
    assert main(["report", "out/results.json", "--markdown"]) == 0
    assert main(["scale", "--results", "out/results.json", "--nodes", "8"]) == 0
    assert capsys.readouterr().out.count(f"codec: {clock} (8 x slow lane at 40 MHz") >= 3
    assert json.loads(Path("out/scale.json").read_text())["link"] == results["config"]["link"]
