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
from oscar.timeline.clocks import block_turns, dense_cells, frame_terms
from oscar.timeline.equal import assumed_frames, equal_time
from oscar.timeline.link import Pipeline
from oscar.timeline.nic import SHIPPED, NicFile, load_nic
from oscar.timeline.replay import replay

CLOCKS = Path(__file__).parent / "data" / "nic_clocks.json"
STAGE = {"front": 1, "result": {"bound": 1}, "hold": {"mean": 4}}
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
    """A part for each rate, with clocks that were measured and their errors."""
    parts = {gbps: load_nic(gbps=gbps) for gbps in (1, 25, 25.1, 100)}
    found = {gbps: (nic.name, nic.units, nic.mhz) for gbps, nic in parts.items()}
    ecp5, u55c = ("barrel unit in an ECP5 85F", 1, 150.0), ("barrel unit in a U55C, by cells", 8, 250.0)
    assert found == {1: ecp5, 25: ecp5, 25.1: u55c, 100: u55c}
    for nic in parts.values():
        assert nic.measured_by.startswith("python -m oscar_sim.step_clocks: ")
        for stage in nic.clocks.values():
            assert stage.error["median"] < 0.05
            assert stage.error["queue_median"] < 0.08
    link = LinkSection(codec="rtl")
    assert isinstance(link.model().coder, Pipeline)
    assert "codec: rtl (8 x barrel unit in a U55C, by cells at 250 MHz" in link.clock_text()


def test_the_rtls_clock_has_its_driver_unless_it_is_left_out(tmp_path: Path) -> None:
    """5 writes of .1 us and 4 reads of .9 a command; a row, 80 bytes in, 66 out, by a DMA of 113 Gb/s."""
    link = LinkSection(codec="rtl")
    driver = link.model().driver
    assert driver is not None
    value = 80 * 8 / 113e9 / 32, 66 * 8 / 113e9 / 32
    assert driver.costs == pytest.approx((4.1e-6, 1e-6, *value, 0, 0, 0, 80 / 250e6, False))
    assert "its driver takes 4.1 us a command, and for a row of 32 values 1.42 clocks" in link.clock_text()
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


def frame(kinds: str, block: int = 2048) -> tuple[np.ndarray, int]:
    """Return the cells of a frame and its values; kinds: of its blocks, d(ense), l(ight), z(ero), r(aw)."""
    rows = block // 32
    classes = {"d": [3] * rows, "l": [3] * 4 + [0] * (rows - 4), "z": [0] * rows, "r": [3] * rows}
    live = np.array([each for kind in kinds for each in classes[kind]], np.uint8)
    raw = np.array([kind == "r" for kind in kinds for _ in range(rows)])
    return cells_of(live, live.size * 32, raw), live.size * 32


def test_turns_of_blocks_by_hand() -> None:
    """64 rows and two groups of each kind: a turn for each live row, headers, classes, seeds and states."""
    encode, decode, raw = block_turns(*frame("dlzr"), 2048)
    assert encode.tolist() == [2 + 64 + 2 + 6, 2 + 4 + 1 + 6, 2 + 1, 2 + 64 + 2 + 6]
    assert decode.tolist() == [64 + 2 + 2, 4 + 1 + 2, 0, 0]
    assert raw.tolist() == [0, 0, 0, 64]
    whole, parts = block_turns(*frame("dl"), 4096), block_turns(*frame("dl"), 1024)
    assert whole[0].tolist() == [4 + 68 + 3 + 6]
    assert parts[0].tolist() == [1 + 32 + 1 + 6] * 2 + [1 + 4 + 1 + 6, 1 + 1]


def test_terms_of_a_frame_by_hand() -> None:
    """Three dense blocks on two units: the first one has two of them."""
    encode, decode = frame_terms(*frame("ddd"), 2, 2048)
    assert encode == (20 * 74, 2 * 74, 74, 1.5 * 74, 3, 0, 0, 1)
    assert decode == (28 * 68, 2 * 68, 68, 1.5 * 68, 3, 0, 0, 1)
    assert frame_terms(*frame("d" * 12), 1, 2048)[0].bound == 4 * 12 * 74
    count = 3 << 18  # beyond a NIC's frame: cells of 4,096 values, whose blocks share their work
    long, short = (frame_terms(dense_cells(size), size, 8, 2048)[0] for size in (count, 1 << 18))
    assert long.busiest == pytest.approx(3 * short.busiest, rel=0.02)


@pytest.mark.parametrize("gbps", SHIPPED)
def test_the_formula_follows_clocks_of_rtl(gbps: float) -> None:
    """Frames that `oscar_sim.step_clocks --record` measured, within the errors that the NIC's file tells."""
    nic, rows = load_nic(None, gbps), json.loads(CLOCKS.read_text())[Path(SHIPPED[gbps]).stem]
    model = nic.model()
    assert isinstance(model, Pipeline)
    for way, name in enumerate(("encode", "decode")):
        front, told = nic.stage(name).front, nic.stage(name).error
        errors = [
            abs((front + model.engaged(np.array(row["cells"]), row["values"])[way].work) / row["clocks"] - 1)
            for row in rows
            if row["way"] == name
        ]
        assert np.median(errors) < 0.05
        assert max(errors) < told["worst"] + 0.001


def test_more_rows_never_take_less() -> None:
    for gbps in SHIPPED:
        model = load_nic(None, gbps).model()
        assert isinstance(model, Pipeline)
        for less, more in (("zl", "ld"), ("dl", "dd"), ("dd", "ddl"), ("r", "rr"), ("dddd", "ddddd")):
            for few, many in zip(model.engaged(*frame(less)), model.engaged(*frame(more)), strict=True):
                assert few.work <= many.work
                assert few.hold <= many.hold
        assert model.values_per_s == pytest.approx(load_nic(None, gbps).gvalues * 1e9)


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
        ({"clocks": {"encode": [1, 2]}}, "clocks: expected encode, decode of a NIC, or encode, hop, decode"),
        ({"clocks": {"encode": [1, 2, 3, 4, 5]}}, "clocks.encode"),  # as NICs were written before
        ({"clocks": {"encode": [1, 2], "hop": [-1, 2], "decode": [1, 2]}}, "hop: expected more than 0"),
        ({"clocks": {"encode": [1, 2], "hop": [0, 2], "decode": [1, 2]}}, "hop: expected more than 0"),
        ({"clocks": {"encode": [1, 2], "hop": [1, -2], "decode": [1, 2]}}, "once_s: expected seconds"),
        ({"clocks": {"encode": STAGE, "decode": STAGE | {"front": -1}}}, "front: Input should be greater"),
        ({"clocks": {"encode": STAGE, "decode": STAGE | {"hold": {}}}}, "decode: expected more than 0"),
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
