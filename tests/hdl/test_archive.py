"""What comes with converted tops: file lists, templates, constraints, a core, and a bench with vectors."""

from __future__ import annotations

from pathlib import Path

import yaml

from check_archive import PAGE, commands, printed
from needs import needs
from oscar.coding.frame import peek
from oscar_hdl.flow import convert
from oscar_hdl.flow.delivery.archive import BENCH, fits
from oscar_hdl.flow.delivery.fusesoc import VECTORS, core_file
from oscar_sim.vectors import COUNT, actions


def test_files_beside_a_top(tmp_path: Path) -> None:
    """The list and the instance of the template compile; constraints name the clock."""
    needs("iverilog")
    convert.convert_all(["splitter"], tmp_path, languages=["vhdl", "verilog"])
    listed = (tmp_path / "verilog" / "splitter.f").read_text().split()
    bench = tmp_path / "bench.v"
    bench.write_text(f"module bench;\n{(tmp_path / 'templates' / 'splitter.v').read_text()}endmodule\n")
    files = [*(tmp_path / name for name in listed), bench]
    convert.run_tool(["iverilog", "-g2001", "-o", tmp_path / "bench", *files], "iverilog")
    assert (tmp_path / "vhdl" / "splitter.f").read_text().split()[0] == f"vhdl/{convert.PACKAGE}"
    assert "splitter_0: entity work.splitter" in (tmp_path / "templates" / "splitter.vhd").read_text()
    assert "-period 4.000 [get_ports clk]" in (tmp_path / "constraints" / "splitter.xdc").read_text()
    assert not (tmp_path / BENCH).exists()


def test_the_core_has_a_target_for_each_task() -> None:
    names = ["vhdl/p.vhd", "vhdl/oscar_nic/oscar_nic.vhd", "verilog/oscar_nic/oscar_nic.v"]
    core = yaml.safe_load(core_file(["oscar_nic"], names, BENCH))
    assert core["filesets"]["oscar_nic_vhdl"]["files"] == names[:2]
    tools = {name: target.get("default_tool") for name, target in core["targets"].items()}
    assert tools == {
        "default": None, "oscar_nic_vhdl": None, "oscar_nic_verilog": None, "sim": "ghdl",
        "sim_icarus": "icarus", "sim_verilator": "verilator", "lint": "verilator", "synth_yosys": "yosys",
        "synth_vivado": "vivado", "synth_radiant": "radiant",
    }  # fmt: skip
    assert "sim" not in yaml.safe_load(core_file(["oscar_nic"], names, ""))["targets"]


def test_the_bench_is_for_one_unit() -> None:
    assert fits("units=1, bus_bits=64, sets=16")
    assert not fits("units=1, bus_bits=128")


def test_vectors_hold_two_frames_of_the_host() -> None:
    """The frame that has to leave and the one that comes are whole, of the values that are loaded."""
    lines = list(actions(12))
    frames = {}
    for kind in "TX":
        words = [line.split() for line in lines if line.startswith(f"{kind} ")]
        assert [word[3] for word in words] == ["0"] * (len(words) - 1) + ["1"]
        sizes = [int(word[2], 16).bit_length() for word in words]
        data = (
            int(word[1], 16).to_bytes(8, "little")[:size] for word, size in zip(words, sizes, strict=True)
        )
        frames[kind] = peek(b"".join(data))
    assert [head.count for head in frames.values()] == [COUNT, COUNT]
    assert [head.step for head in frames.values()] == [0, 1]
    assert sum(line.startswith("M ") for line in lines) == COUNT // 8


def test_the_page_shows_what_the_vectors_say() -> None:
    """.ci/run runs its commands; GHDL takes a minute."""
    page = PAGE.read_text()
    assert len(commands(page)) == 2
    said = [line[2:] for line in actions(12) if line.startswith("#")]
    assert printed(page)[: len(said)] == said
    assert f" {sum(1 for _ in actions(12))} lines" in printed(page)[-1]
    assert VECTORS in page
