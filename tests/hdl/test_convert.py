"""Conversion: the same bytes each time, no path told, and every failure an error."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from myhdl import always, always_comb, always_seq, block

from check_conversion import differences, faults
from needs import needs
from oscar_hdl.flow import convert
from oscar_hdl.flow.tops import TOPS, find
from oscar_hdl.nic.receive.chunk_reader import ChunkAsk
from oscar_hdl.nic.receive.line_turns import ThreadSpan, line_turns
from oscar_hdl.nic.receive.ports import RawWord
from oscar_hdl.streams.bundles import bit, word


@block
def _warns(clk, a, b):
    @always_comb
    def logic():
        b.next = a

    return logic


def warns():
    """A top whose conversion warns: clk is not used."""
    return _warns(bit(), bit(), bit())


@block
def _broken(clk, a, b):
    @always_seq(clk.posedge, reset=None)
    def logic():
        b.next = {0: a}[0]

    return logic


def broken():
    """A top that MyHDL cannot convert."""
    return _broken(bit(), word(4), word(4))


@block
def _cuts(clk, rst, a, b):
    @always(clk.posedge)
    def logic():
        b.next = a - 2
        if rst:
            b.next = 0

    return logic


def cuts():
    """A top in whose VHDL a number has more bits than its operand."""
    return _cuts(bit(), bit(), word(1), word(1))


@block
def _turns(clk, rst, turn, room, put, at, top, bottom, ask, asked_at, want, raw_at, land, line, tag):
    span, chunk, raw = ThreadSpan(len(at), len(top)), ChunkAsk(len(asked_at)), RawWord(len(raw_at))
    span.put, span.at, span.top, span.bottom, chunk.ask, chunk.at = put, at, top, bottom, ask, asked_at
    raw.want, raw.at, raw.land = want, raw_at, land
    return line_turns(clk, rst, turn, [room], span, chunk, raw, line, tag)


def turns():
    """The turns of a NIC of one unit."""
    span, raw = (bit(), word(3), word(7), word(7)), (bit(), word(3), bit())
    line, tag = word(7), word(1 + 1 + 1 + 3)
    return _turns(bit(), bit(), word(1), word(8), *span, bit(), word(7), *raw, line, tag)


def test_files_are_the_same_twice_and_tell_no_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two blocks; `make vhdl` converts all tops, and .ci/run looks at them in the same way."""
    names = ["attention_unit", "barrel_encoder"]
    convert.convert_all(names, tmp_path)
    assert faults(tmp_path, names) == []
    assert "MyHDL to vhdl" in capsys.readouterr().out
    for name in names:
        assert differences(tmp_path, name) == []
    file = tmp_path / "vhdl" / "attention_unit" / "attention_unit.vhd"
    file.write_text("-- UTC\n")
    assert faults(tmp_path, names) == ["vhdl/attention_unit/attention_unit.vhd tells a date: UTC"]
    assert differences(tmp_path, "attention_unit") == ["attention_unit.vhd is not the same twice"]
    file.rename(file.with_name("other.vhd"))
    told = [fault.split()[0] for fault in faults(tmp_path, names)]
    assert told == ["lacks", "vhdl/attention_unit/other.vhd", "files.txt", "oscar.core"]


def test_ghdl_accepts_a_block_and_refuses_a_broken_one(tmp_path: Path) -> None:
    """The check elaborates, simulates and synthesises; `make vhdl` runs it on every top."""
    needs("ghdl")
    convert.convert_all(["splitter"], tmp_path, languages=["vhdl"])
    convert.check_vhdl(["splitter"], tmp_path)
    assert (tmp_path / "synth" / "splitter.v").read_text().startswith("module")
    file = tmp_path / "vhdl" / "splitter" / "splitter.vhd"
    file.write_text(file.read_text().replace("end architecture", "nonsense end architecture"))
    with pytest.raises(convert.ConvertError, match=r"(?s)analysis of splitter: ghdl failed.*nonsense"):
        convert.check_vhdl(["splitter"], tmp_path)


def test_a_message_leaves_out_what_is_no_fault() -> None:
    """GHDL notes each memory in three lines, which would hide what it refuses."""
    note = 'x.vhd:1:8:note: found RAM "store", width: 4 bits, depth: 32\nsignal store;\n       ^\n'
    script = f"printf '%s' '{note}' >&2; echo 'x.vhd:7:1:error: refused' >&2; exit 1"
    with pytest.raises(convert.ConvertError) as raised:
        convert.run_tool(["sh", "-c", script], "synthesis")
    assert str(raised.value) == "synthesis: sh failed (1):\nx.vhd:7:1:error: refused"


@pytest.fixture
def _find_tops_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let conversion processes import this file, and what it imports."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))


@pytest.mark.usefixtures("_find_tops_here")
def test_a_warning_is_an_error(tmp_path: Path) -> None:
    """A conversion warning ends the conversion, with its text."""
    with pytest.raises(convert.ConvertError, match=r"(?s)warns does not convert to vhdl.*Port is not used"):
        convert.convert_top("test_convert:warns", "vhdl", tmp_path)


@pytest.mark.usefixtures("_find_tops_here")
def test_a_number_that_vhdl_cuts_is_a_fault(tmp_path: Path) -> None:
    """GHDL only warns of it, in every clock: only a bench shows it. A NIC's turns of one bit do not."""
    needs("ghdl")
    for top in ("cuts", "turns"):
        convert.convert_all([f"test_convert:{top}"], tmp_path / top, languages=["vhdl"])
    with pytest.raises(convert.ConvertError, match=r"(?s)simulation of cuts:.*TO_UNSIGNED: vector truncated"):
        convert.check_vhdl(["test_convert:cuts"], tmp_path / "cuts")
    convert.check_vhdl(["test_convert:turns"], tmp_path / "turns")


@pytest.mark.usefixtures("_find_tops_here")
def test_a_failure_leaves_nothing_old(tmp_path: Path) -> None:
    """A stale file never poses as a result."""
    stale = tmp_path / "verilog" / "broken.v"
    stale.parent.mkdir()
    stale.write_text("module broken(); endmodule\n")
    with pytest.raises(convert.ConvertError, match=r"broken does not convert to verilog:\n.*Error"):
        convert.convert_top("test_convert:broken", "verilog", tmp_path)
    assert not stale.exists()


def test_names_that_are_taken_are_lengthened() -> None:
    """Verilog keywords and VHDL states get longer names, not in comments; ports are refused."""
    text = "// a table\nmodule m (\n    clk\n);\nreg table;\n// table\nassign x = $unsigned(table);\n"
    expected = text.replace("reg table", "reg table_0").replace("(table)", "(table_0)")
    assert convert.rename(text, "verilog") == expected
    with pytest.raises(convert.ConvertError, match="a port is called 'table'"):
        convert.rename(text.replace("clk", "table"), "verilog")
    states = "-- NEXT\ntype t_enum_step is (\n\tNEXT,\n\tLAST\n\t);\nnext when step = NEXT and last;\n"
    expected = (
        "-- NEXT\ntype t_enum_step is (\n\tS_NEXT,\n\tS_LAST\n\t);\nnext when step = S_NEXT and last;\n"
    )
    assert convert.rename(states, "vhdl") == expected


def test_logic_of_what_never_changes_is_looked_at(tmp_path: Path) -> None:
    """Where an input is 0 from the start, it is chance whether Verilog alone finds its complement."""
    needs("iverilog")
    text = "// m\nmodule m (\n    b\n);\noutput b;\nreg b = 0;\nreg a = 0;\n"
    text += "always @(a) begin: LOGIC\n    b = !a;\nend\nendmodule\n"
    made = convert.rename(text, "verilog")
    assert "always @(a, at_start) begin" in made
    file, program = tmp_path / "m.v", tmp_path / "m"
    file.write_text(f'{made}module t;\nwire b;\nm dut(b);\ninitial #1 $display("%b", b);\nendmodule\n')
    convert.run_tool(["iverilog", "-o", program, file], "iverilog")
    assert convert.run_tool(["vvp", "-n", program], "vvp").strip() == "1"


def test_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown tops, a missing GHDL and refused parameters are said in one line, with status 1."""
    assert convert.main(["--top", "nothing", "--out", str(tmp_path)]) == 1
    assert re.match(r"error: no top called 'nothing'; there are frame_crc", capsys.readouterr().err)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert convert.main(["--top", "splitter", "--out", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "apt-get install ghdl-mcode" in said
    assert f"files are in {tmp_path}, unchecked" in said
    assert convert.main(["--top", "oscar_nic", "--with", "units=3", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "error: oscar_nic has 1, 2, 4 or 8 barrel units, got 3\n"
    assert convert.main(["--top", "splitter", "--out", str(tmp_path), "--no-check"]) == 0
    assert "splitter (granule_log2=8): conv" in (tmp_path / "verilog" / "splitter" / "splitter.v").read_text()


def test_parameters_are_names_that_a_top_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(tmp_path), "--no-check"]
    assert convert.main(["--top", "oscar_nic", *out, "--with", "units=2", "bus_bit=128"]) == 1
    assert "oscar_nic has no parameter bus_bit; it has units, bus_bits" in capsys.readouterr().err
    for given, told in (("adds=2", "adds is 0 to 1"), ("rows_log2=21", "rows_log2 is 6 to 20")):
        assert convert.main(["--top", "oscar_nic", *out, "--with", given]) == 1
        assert f"oscar_nic: {told}, got" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        convert.main(["--top", "oscar_nic", *out, "--with", "units"])
    assert "expected NAME=VALUE, such as units=2, got 'units'" in capsys.readouterr().err


@pytest.mark.parametrize("name", TOPS)
def test_names(name: str) -> None:
    """Top, block and file have one name; conversion gives it to the entity."""
    assert callable(find(name))
    (file,) = Path(convert.__file__).parents[1].rglob(f"{name}.py")
    assert re.search(rf"^@block\ndef {name}\(", file.read_text(), re.M)
