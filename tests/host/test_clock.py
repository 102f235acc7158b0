"""Whose clock modelled times have: ideal, the RTL's as measured, or this host's."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from oscar.cli import main
from oscar.coding.asc.slots import cells_of
from oscar.coding.costs import machine
from oscar.coding.registry import make_codec
from oscar.config import Config, LinkSection
from oscar.errors import ConfigError
from oscar.timeline.engines import decode_clocks, encode_clocks
from oscar.timeline.link import Pipeline
from oscar.timeline.nic import NicFile, load_nic

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


def test_the_shipped_nic_is_what_the_hardware_results_say() -> None:
    """As in docs/results/hardware.md: 16 engines at 195 MHz; 134 slots a block to encode, 136 to decode."""
    shipped = load_nic()
    assert (shipped.engines, shipped.mhz) == (16, 195.0)
    slots = [16 * 4096 * shipped.clocks[name][0] / 32 for name in ("encode", "decode")]
    assert slots == pytest.approx([134, 136], abs=0.1)
    link = LinkSection(codec="rtl")
    nic = link.model().engines
    assert isinstance(nic, Pipeline)
    assert nic.encode.front_s == pytest.approx(195 / 195e6)
    assert "codec: rtl (16 x engine of format 3 at 195 MHz: 2.94 G values/s" in link.clock_text()


def test_the_rtls_clock_has_its_driver_unless_it_is_left_out(tmp_path: Path) -> None:
    """6 writes of .1 us and 6 reads of .9 a command; 4 and 4 clocks of 195 MHz for a row of 32 values."""
    link = LinkSection(codec="rtl")
    driver = link.model().driver
    assert driver is not None
    assert driver.costs == pytest.approx((6.0e-6, 1e-6, 4 / 195e6 / 32, 4 / 195e6 / 32))
    assert "its driver takes 6 us a command, and for a row of 32 values 4 clocks" in link.clock_text()
    assert LinkSection(gbps=25).rtl() == LinkSection(gbps=25, codec="rtl")
    assert LinkSection(codec="ideal").model().driver is None
    alone = LinkSection(driver=False).rtl()
    assert alone.model().driver is None
    assert alone.clock_text().endswith("; without a driver)")
    file = tmp_path / "nic.json"  # as results of before have it
    load_nic().model_copy(update={"driver": None}).write(file)
    assert LinkSection(codec="rtl", nic_file=str(file)).model().driver is None


def test_engines_take_slots_and_do_not_wait_to_count() -> None:
    """A dense block takes 134 slots to encode; two engines that count all rows work side by side."""
    block = np.full(128, 3, np.uint8)  # classes of its rows

    def clocks(blocks: int, values: int, engines: int) -> tuple[float, float]:
        cells = cells_of(np.tile(block, blocks), values)
        sizes = np.full(blocks, 100.0)
        coded, _ = encode_clocks(cells, values, 0, engines, 4096, sizes)
        return coded, decode_clocks(cells, values, engines, 4096)

    one = clocks(1, 4096, 1)
    assert one == pytest.approx((134 * 32, 138 * 32), abs=100)
    assert clocks(2, 8192, 1) == pytest.approx((2 * one[0], 2 * one[1]), rel=0.02)
    assert clocks(2, 8192, 2) == pytest.approx(one, rel=0.03)  # all rows count
    assert clocks(10, 40_960, 10) == pytest.approx(one, rel=0.15)  # a quarter of them does
    raw = cells_of(block, 4096, np.ones(128, bool))
    assert decode_clocks(raw, 4096, 4, 4096, 6144) > 4 * one[1]
    long = encode_clocks(cells_of(np.tile(block, 10), 40_960), 40_960, 0, 10, 4096, np.full(10, 3600.0))
    assert long[0] > 5 * one[0]  # half of each block waits for those before


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
        assert "nics/nic.json" in said
        assert why in said or path != file


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
    engines = section.model().engines
    assert engines is not None
    assert engines.count == 1
    for part, expected in ((engines.encode, cost.encode), (engines.decode, cost.decode)):
        assert part.per_value_s == pytest.approx(expected.per_value_s)
        assert part.once_s == pytest.approx(expected.once_s)
    assert engines.hop.per_value_s == pytest.approx(cost.encode.per_value_s + cost.decode.per_value_s)
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
        assert "rtl(us), rtl x (its speedup) with codec: rtl (16 x engine of format 3 at 195 MHz" in text
        assert f"| time (us), codec: {clock} |" in (out / "table.md").read_text()
        assert f"codec: {clock} (" in json.loads((out / "trace.json").read_text())["otherData"]["clock"]
        assert main(["scale", "--results", str(out / "results.json"), "--nodes", "8"]) == 0
        assert f"us a hop; codec: {clock} (" in capsys.readouterr().out
        rows[clock] = {row["name"]: row for row in json.loads((out / "results.json").read_text())["methods"]}
    ideal, rtl = rows["ideal"]["asc"], rows["rtl"]["asc"]
    assert rtl["time_s"] == rtl["rtl_time_s"] == ideal["rtl_time_s"] > 10 * ideal["time_s"]
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
    assert f"codec: {clock} (16 x slow lane at 40 MHz" in Path("page.html").read_text()
    assert main(["report", "out/results.json", "--markdown"]) == 0
    assert main(["scale", "--results", "out/results.json", "--nodes", "8"]) == 0
    assert capsys.readouterr().out.count(f"codec: {clock} (16 x slow lane at 40 MHz") >= 3
    assert json.loads(Path("out/scale.json").read_text())["link"] == results["config"]["link"]
