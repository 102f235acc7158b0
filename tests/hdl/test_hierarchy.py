"""The tree of entities of a converted top: what it has, that GHDL takes it, what it does."""

from __future__ import annotations

import os
import random
import re
import sys
from pathlib import Path

import pytest
from myhdl import Signal, always, always_comb, block, enum

from needs import needs
from oscar_hdl.flow import convert
from oscar_hdl.flow.hierarchy.layout import short_tables, wrapped
from oscar_hdl.streams.bundles import Bundle, bit, lane, word
from oscar_hdl.streams.copied import copied

States = enum("IDLE", "ADD", "NEXT")


class Item(Bundle):
    """A byte and whether it counts."""

    data = word(8)
    valid = bit()


@block
def adder(clk, item: Item, part, state, total, *, step: int):
    """Add a nibble to a total, while a state says so."""
    grown, some = word(8), bit()

    @always_comb
    def grow():
        grown.next = total + part + step
        some.next = item.valid and state == States.ADD

    @always(clk.posedge)
    def add():
        if some:
            total.next = grown
        if item.data == 0:
            total.next = 0
        item.valid.next = not item.valid

    return grow, add


@block
def chooser(clk, rst, totals, which, chosen, state):
    """Choose one of the totals; the states go round."""

    @always(clk.posedge)
    def choose():
        chosen.next = totals[which]
        if state == States.IDLE:
            state.next = States.ADD
        elif state == States.ADD:
            state.next = States.NEXT
        else:
            state.next = States.IDLE
        if rst:
            state.next = States.IDLE

    return choose


@block
def totals(clk, rst, data, which, chosen):
    """Add up both nibbles of a byte, twice, and show one of the four totals.

    data u8, which u2: inputs. chosen u8: a total, two clocks later.
    """
    state, early = Signal(States.IDLE), word(8)
    sums, items = [word(8) for _ in range(4)], [Item() for _ in range(4)]
    for item in items:
        item.data = data
    return (
        [adder(clk, items[n], lane(data, n % 2, 4), state, sums[n], step=n // 3) for n in range(4)],
        chooser(clk, rst, sums, which, early, state),
        copied(clk, early, chosen),
    )


def top():
    """A top whose conversion has all that a tree can have."""
    return totals(bit(), bit(), word(8), word(2), word(8))


TOP = "test_hierarchy:top"


@pytest.fixture(autouse=True)
def _find_tops_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))


def test_equal_blocks_are_one_entity(tmp_path: Path) -> None:
    """A block has a file, with its docstring and the names of its source; one of two assignments has none."""
    for language, suffix in convert.LANGUAGES.items():
        files = [file.name for file in convert.convert_tree(TOP, language, tmp_path)]
        package = [convert.PACKAGE, "top_types.vhd"] if language == "vhdl" else []
        assert files == [*package, *(f"{name}{suffix}" for name in ("chooser", "adder", "adder_v2", "top"))]
    text = (tmp_path / "vhdl" / "top" / "adder.vhd").read_text()
    assert text.startswith(
        "-- adder\n--\n-- Add a nibble to a total, while a state says so.\n--\n-- Parameters: step=1\n"
    )
    ports = re.findall(r"^        (.*?);?$", text.partition("port (\n")[2].partition("    );")[0], re.M)
    assert ports == [
        "clk: in std_logic", "-- item: Item", "item_data: in unsigned(7 downto 0)",
        "item_valid: out std_logic := '0'", "part: in unsigned(3 downto 0)", "state: in states_t",
        "total: out unsigned(7 downto 0) := 8X\"0\"",
    ]  # fmt: skip
    text = (tmp_path / "vhdl" / "top" / "top.vhd").read_text()
    assert re.findall(r"(\w+): entity work.(\w+)", text) == [
        ("adder_1", "adder_v2"), ("adder_2", "adder_v2"), ("adder_3", "adder_v2"), ("adder_4", "adder"),
        ("chooser", "chooser"),
    ]  # fmt: skip
    assert "part => data_num(8-1 downto 4)" in text
    assert (
        "type unsigned_8_array is array (natural range <>)"
        in (tmp_path / "vhdl/top/top_types.vhd").read_text()
    )


def test_a_tree_does_in_verilog_what_the_flat_text_does(tmp_path: Path) -> None:
    needs("iverilog")
    flat = convert.convert_top(TOP, "verilog", tmp_path / "flat")
    flat.write_text(flat.read_text().replace("module top (", "module flat ("))
    files = convert.convert_tree(TOP, "verilog", tmp_path)
    bench = tmp_path / "bench.v"
    bench.write_text("""module bench;
  reg clk = 0, rst = 1; reg [7:0] data = 0; reg [1:0] which = 0; wire [7:0] a, b; integer i;
  top one(.clk(clk), .rst(rst), .data(data), .which(which), .chosen(a));
  flat two(.clk(clk), .rst(rst), .data(data), .which(which), .chosen(b));
  initial begin
    for (i = 0; i < 2000; i = i + 1) begin
      data = $random; which = $random; rst = i < 2;
      #1 clk = 1; #1 clk = 0;
      if (a !== b) begin $display("differs in clock %0d", i); $finish; end
    end
    $display("equal %0d", a != 0); $finish;
  end
endmodule
""")
    program = tmp_path / "bench"
    convert.run_tool(["iverilog", "-g2001", "-Wall", "-o", program, bench, flat, *files], "iverilog")
    assert convert.run_tool(["vvp", "-n", program], "vvp").split()[0] == "equal"


def test_ghdl_takes_trees_without_a_warning(tmp_path: Path) -> None:
    """A warning is an error of the check; a whole unit has lists, memories, tables and states."""
    needs("ghdl")
    names = [TOP, "attention_unit"]
    files = convert.convert_all(names, tmp_path, languages=["vhdl"])
    convert.check_vhdl(names, tmp_path, note=False)
    assert max(file.read_text().count("\n") for file in files) <= 1000
    label = tmp_path / "vhdl" / "top" / "top.vhd"
    label.write_text(label.read_text().replace("chooser: entity", "top: entity"))
    with pytest.raises(convert.ConvertError, match=r"(?s)analysis of top: ghdl .*hides entity"):
        convert.check_vhdl([TOP], tmp_path, note=False)


def test_lines_are_broken_between_words() -> None:
    words = [random.Random(3).choice(("and", '"a  b"', "x(3)", "not")) for _ in range(100)]
    line = "        a <= " + " ".join(words) + ";"
    lines = wrapped(f"{line}\n-- {line}").split("\n")
    assert max(map(len, lines[:-1])) <= 110
    assert " ".join(part.strip() for part in lines[:-1]) == line.strip()
    assert lines[-1] == f"-- {line}"
    table = "\n".join(["case x is", *(f'    when {n} => y <= "{n:08b}";' for n in range(20)), "end case;"])
    packed = short_tables(table, re.compile(r" *when \d+ => [^;]*;$"))
    assert packed.count("\n") < 10
    assert 'when 19 => y <= 8X"13";' in packed
