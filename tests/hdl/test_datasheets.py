"""Datasheets: the pages are those of the source, and their ports those of the converted blocks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oscar_hdl.flow import vhdl_bench
from oscar_hdl.flow.convert import convert_tree
from oscar_hdl.flow.delivery import datasheets
from oscar_hdl.flow.tops import find

LARGE = "switch_slice", "oscar_nic"  # of which tests/check_conversion.py compares the ports


@pytest.mark.parametrize("name", [name for name in datasheets.SHEETS if name not in LARGE])
def test_a_page_is_what_the_source_says(name: str) -> None:
    page = (datasheets.PAGES / f"{name}.md").read_text()
    assert page == datasheets.page(name), f"run {datasheets.MADE}"


def test_the_list_has_all_pages() -> None:
    pages = {name: (datasheets.PAGES / f"{name}.md").read_text() for name in datasheets.SHEETS}
    assert (datasheets.PAGES / "README.md").read_text() == datasheets.index(pages)
    assert {path.stem for path in datasheets.PAGES.glob("*.md")} == {*datasheets.SHEETS, "README"}


def test_ports_are_those_of_the_converted_block(tmp_path: Path) -> None:
    *_, file = convert_tree("frame_crc", "vhdl", tmp_path)
    datasheets.write(["frame_crc", "module:function"], tmp_path)
    (sheet,) = (tmp_path / datasheets.FOLDER).iterdir()
    assert sorted(datasheets.shown_ports(sheet.read_text())) == sorted(
        (name, way, int(match[1]) + 1 if (match := re.search(r"\((\d+) ", kind)) else 1)
        for name, way, kind in vhdl_bench.ports_of(file)
    )


def test_a_port_without_a_meaning_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    top = find("frame_crc")()
    monkeypatch.setattr(top.func, "__doc__", top.func.__doc__.replace("done: Strobe", "ended: Strobe"))
    with pytest.raises(ValueError, match="frame_crc: port done has no text in Args or Attributes"):
        list(datasheets.ports_of(top))
