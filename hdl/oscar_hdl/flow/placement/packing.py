"""Move flip-flops into the registers that multipliers and block RAMs have anyway.

yosys leaves the registers of the ECP5's MULT18X18D and DP16KD unused, which costs flip-flops and, because the
wires between them are then part of the slowest paths, clock rate. These passes change its JSON netlist:
a rank of flip-flops in front of both factors, behind the product, or behind the outputs of a block RAM port
becomes the cell's own rank. Nothing moves in time: a flip-flop is replaced by one in the same place of
the same path. tests/hdl/test_packing.py simulates the result against the source.

A flip-flop qualifies when it has the clock of the cell, no reset, and no initial value 1; clock enables move
along if a rank has the same one in all bits. A rank in front stays where it is for other readers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Bit = int | str  # a net, or the constant "0", "1", "x"
Cell = dict[str, Any]


@dataclass(frozen=True)
class Packed:
    """How many ranks were moved, and the flip-flops this saved."""

    factors: int = 0
    products: int = 0
    reads: int = 0
    flip_flops: int = 0


def pack(netlist: dict[str, Any]) -> Packed:
    """Pack the top module of a `synth_ecp5 -json` netlist in place; return what was done."""
    tops = [m for m in netlist["modules"].values() if int(str(m.get("attributes", {}).get("top", "0")), 2)]
    if len(tops) != 1:
        raise ValueError(f"expected one top module in the netlist, found {len(tops)}")
    module = Module(tops[0])
    before = module.count("TRELLIS_FF")
    factors = sum(_pack_factors(module, cell) for cell in module.of_type("MULT18X18D"))
    products = sum(_pack_product(module, cell) for cell in module.of_type("MULT18X18D"))
    reads = sum(_pack_reads(module, cell) for cell in module.of_type("DP16KD"))
    module.remove_unread_flip_flops()
    return Packed(factors, products, reads, before - module.count("TRELLIS_FF"))


class Module:
    """A flat module of a netlist: who drives and who reads each net."""

    def __init__(self, module: dict[str, Any]) -> None:
        self.cells: dict[str, Cell] = module["cells"]
        self.driver: dict[int, tuple[str, str]] = {}
        self.readers: defaultdict[int, set[tuple[str, str]]] = defaultdict(set)
        for name, cell in self.cells.items():
            for port in cell["connections"]:
                self._index(name, port)
        self.outputs = {
            bit for port in module["ports"].values() if port["direction"] != "input" for bit in port["bits"]
        }

    def of_type(self, kind: str) -> list[str]:
        """Names of the cells of a type."""
        return [name for name, cell in self.cells.items() if cell["type"] == kind]

    def count(self, kind: str) -> int:
        """Number of cells of a type."""
        return len(self.of_type(kind))

    def _index(self, name: str, port: str) -> None:
        cell = self.cells[name]
        for bit in cell["connections"][port]:
            if isinstance(bit, int):
                if cell["port_directions"].get(port) == "output":
                    self.driver[bit] = (name, port)
                else:
                    self.readers[bit].add((name, port))

    def connect(self, name: str, port: str, bit: Bit, direction: str = "input") -> None:
        """Connect a port of a cell to a net, or to nothing else than a constant."""
        cell = self.cells[name]
        for old in cell["connections"].get(port, ()):
            if isinstance(old, int):
                self.readers[old].discard((name, port))
                if self.driver.get(old) == (name, port):
                    del self.driver[old]
        cell["connections"][port] = [bit]
        cell["port_directions"][port] = direction
        self._index(name, port)

    def remove(self, name: str) -> None:
        """Take a cell out."""
        for port, bits in self.cells[name]["connections"].items():
            for bit in bits:
                if isinstance(bit, int):
                    self.readers[bit].discard((name, port))
                    if self.driver.get(bit) == (name, port):
                        del self.driver[bit]
        del self.cells[name]

    def rank_enable(self, names: Iterable[str], clock: Bit) -> Bit | None:
        """The clock enable that flip-flops share ("1": none), or None if they do not form a rank."""
        enables: set[Bit] = set()
        for name in names:
            cell = self.cells[name]
            parameters, connections = cell["parameters"], cell["connections"]
            reset = connections.get("LSR") or ["0"]
            if (
                cell["type"] != "TRELLIS_FF"
                or "DI" not in connections
                or connections.get("CLK") != [clock]
                or parameters.get("CLKMUX", "CLK").strip() != "CLK"
                or parameters.get("REGSET", "RESET").strip() != "RESET"
                or reset != ["0"]
            ):
                return None
            gated = parameters.get("CEMUX", "1").strip()
            if gated not in ("1", "CE"):
                return None
            enables.add(connections["CE"][0] if gated == "CE" else "1")
        return enables.pop() if len(enables) == 1 else None

    def remove_unread_flip_flops(self) -> None:
        """Take out flip-flops that drive nothing (any more)."""
        for name in self.of_type("TRELLIS_FF"):
            out = self.cells[name]["connections"]["Q"][0]
            if not self.readers[out] and out not in self.outputs:
                self.remove(name)


def _bits(cell: Cell, prefix: str) -> dict[str, Bit]:
    """Connected bits of a bus of a cell: ports `prefix` + number."""
    found = {}
    for port, bits in cell["connections"].items():
        if port.startswith(prefix) and port[len(prefix) :].isdigit() and bits:
            found[port] = bits[0]
    return found


def _enable_port(module: Module, name: str, enable: Bit) -> str:
    """Return the multiplier's clock enable input that has this net, connecting a free one."""
    for n in range(4):
        now = module.cells[name]["connections"].get(f"CE{n}")
        if now == [enable]:
            return f"CE{n}"
        if not now:
            module.connect(name, f"CE{n}", enable)
            return f"CE{n}"
    raise AssertionError("a multiplier has at most three ranks")


def _use_rank(module: Module, name: str, rank: str, clock: Bit, enable: Bit) -> None:
    module.connect(name, "CLK0", clock)
    parameters = module.cells[name]["parameters"]
    parameters[f"REG_{rank}_CLK"] = "CLK0"
    parameters[f"REG_{rank}_CE"] = _enable_port(module, name, enable)


def _clock_of(module: Module, names: Iterable[str]) -> Bit | None:
    clocks = {tuple(module.cells[n]["connections"].get("CLK", ())) for n in names}
    return clocks.pop()[0] if len(clocks) == 1 and () not in clocks else None


def _pack_factors(module: Module, name: str) -> int:
    """Both factors or none: the placer takes multipliers with one input rank for combinational ones."""
    ranks: dict[str, tuple[dict[str, str], Bit]] = {}
    clock: Bit | None = None
    for side in "AB":
        sources: dict[str, str] = {}
        for port, bit in _bits(module.cells[name], side).items():
            if bit == "1":  # a register would read 0 in the first clock
                return 0
            if isinstance(bit, int):
                if bit not in module.driver:
                    return 0
                sources[port] = module.driver[bit][0]
        if any(module.cells[source]["type"] != "TRELLIS_FF" for source in sources.values()):
            return 0
        clock = clock if clock is not None else _clock_of(module, sources.values())
        if clock is None:
            return 0
        enable = module.rank_enable(set(sources.values()), clock) if sources else "1"
        if enable is None:
            return 0
        ranks[side] = (sources, enable)
    assert clock is not None
    for side, (sources, enable) in ranks.items():
        for port, source in sources.items():
            module.connect(name, port, module.cells[source]["connections"]["DI"][0])
        _use_rank(module, name, f"INPUT{side}", clock, enable)
    return 1


def _rank_behind(module: Module, name: str, ports: dict[str, Bit]) -> dict[str, str] | None:
    """Map each port that is read to the one flip-flop that reads it; None unless that is all that does."""
    behind: dict[str, str] = {}
    for port, bit in ports.items():
        readers = module.readers[bit] if isinstance(bit, int) else set()
        if bit in module.outputs or len(readers) > 1:
            return None
        if readers:
            reader, pin = next(iter(readers))
            if module.cells[reader]["type"] != "TRELLIS_FF" or pin != "DI":
                return None
            behind[port] = reader
    return behind or None


def _absorb_behind(module: Module, name: str, behind: dict[str, str]) -> None:
    for port, flip_flop in behind.items():
        out = module.cells[flip_flop]["connections"]["Q"][0]
        module.remove(flip_flop)
        module.connect(name, port, out, "output")


def _pack_product(module: Module, name: str) -> int:
    behind = _rank_behind(module, name, _bits(module.cells[name], "P"))
    if behind is None:
        return 0
    clock = _clock_of(module, behind.values())
    enable = None if clock is None else module.rank_enable(behind.values(), clock)
    used = module.cells[name]["connections"].get("CLK0")
    if clock is None or enable is None or (used and used != [clock]):
        return 0
    _absorb_behind(module, name, behind)
    _use_rank(module, name, "OUTPUT", clock, enable)
    return 1


def _pack_reads(module: Module, name: str) -> int:
    cell = module.cells[name]
    width = int(cell["parameters"]["DATA_WIDTH_A"], 2)
    # 36 bits: port A writes, port B reads, and the word leaves through DOA and DOB together.
    ports = [("B", ("A", "B"))] if width == 36 else [("A", ("A",)), ("B", ("B",))]
    done = 0
    for port, halves in ports:
        outputs = {pin: bit for half in halves for pin, bit in _bits(cell, f"DO{half}").items()}
        behind = _rank_behind(module, name, outputs)
        clock = cell["connections"][f"CLK{port}"][0]
        enable = None if behind is None else module.rank_enable(behind.values(), clock)
        resets = [cell["connections"].get(f"RST{half}") or ["0"] for half in halves]
        if behind is None or enable is None or any(reset != ["0"] for reset in resets):
            continue
        _absorb_behind(module, name, behind)
        for half in halves:
            cell["parameters"][f"REGMODE_{half}"] = "OUTREG"
            module.connect(name, f"OCE{half}", enable)
        done += 1
    return done
