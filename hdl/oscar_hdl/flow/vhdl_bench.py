"""A test bench in VHDL that clocks a converted top, for what only a running simulator complains of."""

from __future__ import annotations

import re
from pathlib import Path

from oscar_hdl.flow.tools import write_text

NAME = "bench_of_a_top"
RESET, CLOCKS = 66, 256  # clocks in the reset, of which a NIC takes 64, and after it
# Options of `ghdl -r`: a warning of numeric_std ends the run, unless inputs have no value yet.
STRICT = "--assert-level=warning", "--ieee-asserts=disable-at-0"
_PORT = re.compile(r"^ *(\w+): (in|out|inout) (std_logic(?:_vector\(\d+ downto 0\))?)", re.MULTILINE)
_TEXT = """\
library ieee;
use ieee.std_logic_1164.all;
use ieee.numeric_std.all;

entity {name} is
end entity;

architecture sim of {name} is
{signals}
begin
    dut: entity work.{block} port map ({ports});

    process
        variable state: unsigned(63 downto 0) := x"0123456789ABCDEF";

        impure function random return std_logic is  -- xorshift
        begin
            state := state xor shift_left(state, 13);
            state := state xor shift_right(state, 7);
            state := state xor shift_left(state, 17);
            return state(40);
        end function;
    begin
        for clock in 1 to {clocks} loop
            if clock > {reset} then
                rst <= '0';
{drives}
            end if;
            wait for 5 ns;
            clk <= '1';
            wait for 5 ns;
            clk <= '0';
        end loop;
        wait;
    end process;
end architecture;
"""


def ports_of(source: Path) -> list[tuple[str, str, str]]:
    """Return name, direction and type of each port of the top in a converted file that has its name."""
    text = source.read_text(encoding="utf-8").partition(f"entity {source.stem} is")[2]
    return _PORT.findall(text.partition("end entity")[0])


def write(source: Path, folder: Path) -> Path:
    """Write a bench of the top in `source`, a converted file that has its name, and return the bench's file.

    It resets the top, then gives all inputs pseudo-random bits, the same in each run. A phase counts clocks.
    """
    block, ports = source.stem, ports_of(source)
    signals, drives = [], []
    for name, way, kind in ports:
        vector = kind != "std_logic"
        start = "'1'" if name == "rst" else "(others => '0')" if vector else "'0'"
        signals.append(f"    signal {name}: {kind} := {start};")
        if way != "in" or name in ("clk", "rst"):
            continue
        if name == "phase":
            drives.append("phase <= std_logic_vector(unsigned(phase) + 1);")
        else:
            drives.append(
                f"for i in {name}'range loop {name}(i) <= random; end loop;"
                if vector
                else f"{name} <= random;"
            )
    file = folder / f"{NAME}.vhd"
    bench = _TEXT.format(
        name=NAME, block=block, signals="\n".join(signals), drives="\n".join(drives), reset=RESET,
        ports=", ".join(f"{name} => {name}" for name, *_ in ports), clocks=RESET + CLOCKS,
    )  # fmt: skip
    write_text(file, bench)
    return file
