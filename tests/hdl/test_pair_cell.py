"""A pair of engines as a cell: the instance has the ports of the module, no less, and their directions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from myhdl import always, block

from oscar_hdl.coder import ports
from oscar_hdl.coder.ports import CountChain
from oscar_hdl.flow.convert import convert_top
from oscar_hdl.flow.placement import pair_cell as cells
from oscar_hdl.flow.placement.array import anchor_cells
from oscar_hdl.flow.placement.place import PAIR
from oscar_hdl.streams.bundles import bit, word


@block
def two_pairs(clk, rst, so):
    """Two cells, the second one's chains behind the first one's."""
    phase, chains = word(5), [CountChain() for _ in range(6)]
    parts = []
    for n in range(2):
        decode = [[make() for _ in "ab"] for make in (ports.DecoderJob, cells._bytes_in, ports.PositionPort)]
        encode = [[make() for _ in "ab"] for make in (ports.EncoderJob, cells._bytes_out, ports.SourcePort)]
        tables = [make() for make in (ports.TableWrites, ports.TableWrites) for _ in "ab"]
        sums = [ports.SumPort(), ports.SumPort()]
        parts.append(
            cells.pair_cell(
                clk, rst, phase, *tables, *decode, sums, chains[n], chains[n + 1], *encode, chains[n + 3],
                chains[n + 4],
            )
        )  # fmt: skip
    last = chains[2].valid

    @always(clk.posedge)
    def count():
        phase.next = phase + 1
        so.next = last

    return parts, count


@pytest.fixture(scope="module")
def module_ports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Direction of each port of the converted module."""
    text = convert_top(PAIR, "verilog", tmp_path_factory.mktemp("pair")).read_text()
    return {name: way for way, name in re.findall(r"^(input|output) (?:\[.*?\] )?(\w+);$", text, flags=re.M)}


@pytest.mark.filterwarnings("ignore")
def test_an_instance_has_the_ports_of_the_module(module_ports: dict[str, str], tmp_path: Path) -> None:
    """Each cell becomes an instance; what a pair drives is an output of the module, all else an input."""
    top = cells.instantiate(two_pairs(bit(), bit(), bit()))
    for cell in top.subs[:2]:
        driven = {name: driven for name, _, driven in cells._signals(*cell.args)}
        assert driven == {name: way == "output" for name, way in module_ports.items()}
    top.convert(hdl="Verilog", path=str(tmp_path), testbench=False, initial_values=True)
    text = (tmp_path / "two_pairs.v").read_text()
    first, second = re.findall(r"^pair_module \w+\((.*)\);$", text, flags=re.M)
    for instance in (first, second):
        assert re.findall(r"\.(\w+)\(", instance) == list(driven)
    link = re.search(r"\.decoder_after_totals\((\w+)\)", first)
    assert link
    assert f".decoder_before_totals({link[1]})" in second
    assert not re.search(rf"^reg .*\b{link[1]}\b", text, flags=re.M)  # the first cell drives it


def test_cells_are_anchored_by_what_is_their_own() -> None:
    """A flip-flop that two cells read says nothing about where either one belongs."""

    def flip_flop(q: int) -> dict[str, object]:
        return {"type": "TRELLIS_FF", "connections": {"Q": [q]}, "attributes": {}}

    parts = {f"f{q}": flip_flop(q) for q in (1, 2, 3)}
    parts |= {f"c{n}": {"type": "pair", "connections": {"a": [1, 2 + n], "k": ["0"]}} for n in range(2)}
    anchor_cells({"cells": parts}, "pair")
    assert "BEL" not in parts["f1"]["attributes"]
    places = [parts[name]["attributes"]["BEL"] for name in ("f2", "f3")]
    assert len(set(places)) == 2
    assert all(re.fullmatch(r"X\d+/Y\d+/SLICEA.FF0", place) for place in places)
