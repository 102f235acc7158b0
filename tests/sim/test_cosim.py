"""The vectors of the benches, and the co-simulation's own machinery on a short run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from needs import needs
from oscar_hdl.convert import SMALL
from oscar_hdl.format2.params import CODED, CONSTANT, RAW
from oscar_sim.cosim import __main__ as cosim
from oscar_sim.vectors import blocks, damaged, frames

ASC = SMALL.asc


def test_frames_meet_every_kind_of_block() -> None:
    """Coded, constant and raw blocks, raw ones in the middle, a shift that rises and falls, damage."""
    found = {frame.name: frame for frame in frames(ASC)}
    kinds = {frame.payload[0] & 3 for frame in found.values()}
    assert kinds == {CODED, CONSTANT, RAW}
    assert len(blocks(found["a raw block between coded ones"], ASC)) >= 1
    shifts = [int(frame.after.shift[0]) for frame in found.values()]
    assert max(shifts) > 0 == shifts[-1]
    assert max(frame.width for frame in found.values()) == 12
    real = found["real"]
    assert len(blocks(real, ASC)) >= 2
    assert (real.values != 0).mean() > 0.1
    assert len(list(damaged(real, ASC))) > 5


def test_blocks_are_those_of_the_payload() -> None:
    """The words of a frame's first block stand in its payload, in reading order."""
    frame = next(frames(ASC))
    block = blocks(frame, ASC)[0]
    packed = int.from_bytes(frame.payload[42:], "little")
    assert [packed >> 12 * i & 0xFFF for i in range(len(block.words))] == block.words
    assert int.from_bytes(frame.payload[:6], "little") >> 2 & 0x3FFFFF == len(block.words)
    assert len(block.symbols) == len(block.classes) == ASC.block


def test_missing_tools_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One line says what to install."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert cosim.main(["--block", "rans_encoder"]) == 1
    assert "apt-get install ghdl-mcode iverilog" in capsys.readouterr().err
    monkeypatch.setattr(cosim, "_importable", lambda module: True)
    monkeypatch.setattr(cosim, "_libpython", lambda: False)
    assert cosim.main(["--block", "rans_encoder"]) == 1
    assert "apt-get install ghdl-mcode iverilog libpython3." in capsys.readouterr().err


@pytest.mark.parametrize("language", ["vhdl", "verilog"])
def test_a_short_run(language: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The converted encoder equals the reference on the first frame."""
    needs("cosim", "libpython", cosim.PROGRAM[language])
    arguments = ["--block", "rans_encoder", "--language", language, "--frames", "1", "--out", str(tmp_path)]
    assert cosim.main(arguments) == 0
    assert "2 tests, equal to the reference" in capsys.readouterr().out


def test_a_wrong_block_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that does something else does not pass."""
    needs("cosim", "libpython", "iverilog")

    def convert_wrong(names: list[str], out: Path, params: object, **_: object) -> None:
        convert_all(names, out, params, languages=["verilog"])
        file = out / "verilog" / "rans_encoder.v"
        file.write_text(file.read_text().replace("q12 + 1", "q12 + 2"))

    convert_all = cosim.convert_all
    monkeypatch.setattr(cosim, "convert_all", convert_wrong)
    arguments = ["--block", "rans_encoder", "--language", "verilog", "--frames", "1", "--out", str(tmp_path)]
    assert cosim.main(arguments) == 1
