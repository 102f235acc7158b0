"""The table of registers, its page, and the hardware made from it."""

from __future__ import annotations

import random
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from myhdl import SignalType, always, block, instance

from oscar_hdl.flow.tops import find
from oscar_hdl.nic.control.axi_lite_registers import SLVERR, axi_lite_registers
from oscar_hdl.nic.control.register_header import header
from oscar_hdl.nic.control.register_page import markdown, ports
from oscar_hdl.nic.control.register_ports import RegisterRead, RegisterWrite
from oscar_hdl.nic.control.registers import BY_NAME, REGISTERS, STORED, Field, Register, check
from oscar_hdl.nic.oscar_nic import oscar_nic
from oscar_hdl.streams.bundles import AxiLite, bit, word
from oscar_sim.seeds import dice
from support.bench import clock, simulate


class Master:
    """An AXI4-Lite manager that pauses now and then; generators for a driver to `yield from`."""

    def __init__(self, clk: Any, bus: AxiLite, rng: random.Random | None = None) -> None:
        self.clk, self.bus, self.rng = clk, bus, rng

    def _pause(self):
        while self.rng and self.rng.random() < 0.5:
            yield self.clk.posedge

    def write(self, offset: int, value: int, strobes: int = 15):
        """Write a register; the response is in `response`."""
        bus = self.bus
        bus.awaddr.next, bus.awvalid.next = offset, True
        bus.wdata.next, bus.wstrb.next = value, strobes
        if not self.rng:
            bus.wvalid.next = True
        yield from self._pause()
        bus.wvalid.next = True
        yield self.clk.posedge
        address = data = False
        while not (address and data):
            if bus.awvalid and bus.awready:
                bus.awvalid.next, address = False, True
            if bus.wvalid and bus.wready:
                bus.wvalid.next, data = False, True
            yield self.clk.posedge
        yield from self._pause()
        bus.bready.next = True
        yield self.clk.posedge
        while not bus.bvalid:
            yield self.clk.posedge
        self.response = int(bus.bresp)
        bus.bready.next = False
        yield self.clk.posedge

    def read(self, offset: int):
        """Read a register into `value` and `response`."""
        bus = self.bus
        bus.araddr.next, bus.arvalid.next = offset, True
        yield self.clk.posedge
        while not bus.arready:
            yield self.clk.posedge
        bus.arvalid.next = False
        yield from self._pause()
        bus.rready.next = True
        yield self.clk.posedge
        while not bus.rvalid:
            yield self.clk.posedge
        self.value, self.response = int(bus.rdata), int(bus.rresp)
        bus.rready.next = False
        yield self.clk.posedge


class Bench:
    """Registers without anything behind them; RO registers read as their index times 0x01010101."""

    def __init__(self, stream: int | None = None) -> None:
        self.clk, self.rst, self.irq = bit(), bit(), bit()
        self.bus = AxiLite(8)
        self.values = [word(32) for _ in STORED]
        self.wr, self.rd, self.events = RegisterWrite(), RegisterRead(), word(32)
        self.master = Master(self.clk, self.bus, None if stream is None else dice(stream))
        self.commands: list[tuple[int, int]] = []

    @block
    def top(self, steps: Any) -> Any:
        """Return the bench that runs the generator function `steps`."""

        @always(self.clk.posedge)
        def behind():
            self.rd.value.next = int(self.rd.index) * 0x01010101
            if self.wr.strobe:
                self.commands.append((4 * int(self.wr.index), int(self.wr.data)))

        driver = instance(steps)
        dut = axi_lite_registers(
            self.clk, self.rst, self.bus, self.values, self.wr, self.rd, self.events, self.irq
        )
        return clock(self.clk), behind, driver, dut

    def run(self, steps: Any) -> None:
        """Run the generator function `steps` to its end."""
        finished = []

        def all_of():
            yield from steps()
            finished.append(True)

        simulate(partial(self.top, all_of), self.clk, until=lambda: bool(finished), limit=20_000)


@pytest.mark.parametrize("stream", [None, 1, 2])
@pytest.mark.usefixtures("seed")
def test_every_address_does_what_the_table_says(stream: int | None):
    rng = dice(stream or 0)
    bench = Bench(stream)
    master, by_offset = bench.master, {register.offset: register for register in REGISTERS}

    def steps():
        expected = dict.fromkeys(range(0, 256, 4), 0)
        for offset in rng.sample(range(0, 256, 4), 64):
            register, value, strobes = by_offset.get(offset), rng.getrandbits(32), rng.choice((15, 15, 6, 1))
            before = len(bench.commands)
            yield from master.write(offset, value, strobes)
            access = register.access if register else "none"
            fine = access in ("RW", "W1C", "WO") and strobes == 15
            assert master.response == (0 if fine else SLVERR), access
            if access == "RW" and fine:
                expected[offset] = value & register.mask
            assert bench.commands[before:] == ([(offset, value)] if access == "WO" and fine else [])
        for offset in range(0, 256, 4):
            register = by_offset.get(offset)
            yield from master.read(offset + rng.randrange(4))
            assert master.response == (0 if register else SLVERR)
            value = offset // 4 * 0x01010101 if register and register.access == "RO" else expected[offset]
            assert master.value == value, hex(offset)
        for name, signal in zip(STORED, bench.values, strict=True):
            assert int(signal) == expected[BY_NAME[name].offset]
        bench.rst.next = True
        yield bench.clk.posedge
        bench.rst.next = False
        yield from master.read(BY_NAME["COMMAND_SHAPE"].offset)
        assert master.value == 0

    bench.run(steps)


def test_interrupts():
    bench = Bench()
    master, clk = bench.master, bench.clk
    status, enable = BY_NAME["IRQ_STATUS"], BY_NAME["IRQ_ENABLE"]

    def event(bits: int):
        bench.events.next = bits
        yield clk.posedge
        bench.events.next = 0
        yield clk.posedge
        yield clk.posedge
        yield clk.posedge

    def steps():
        yield from event(status.pack(received=1, bad_frame=1))
        assert not bench.irq
        yield from master.read(status.offset)
        assert master.value == status.pack(received=1, bad_frame=1)
        yield from master.write(enable.offset, enable.pack(sent=1, bad_frame=1))
        yield clk.posedge
        assert bench.irq
        yield from master.write(status.offset, status.pack(bad_frame=1))
        yield clk.posedge
        assert not bench.irq
        yield from event(status.pack(sent=1))
        assert bench.irq
        yield from master.read(status.offset)
        assert master.value == status.pack(received=1, sent=1)
        bench.events.next = 1  # all the while: clearing must not lose it
        yield from master.write(status.offset, 0xFFFFFFFF)
        bench.events.next = 0
        yield from master.read(status.offset)
        assert master.value == 1

    bench.run(steps)


def test_the_page_is_made_from_the_table():
    page = Path(__file__).parents[2] / "docs" / "reference" / "registers.md"
    assert page.read_text() == markdown(), "make it anew: the page says how"


def test_the_page_has_all_ports_of_the_nic(monkeypatch: pytest.MonkeyPatch):
    names = signature(oscar_nic).parameters
    monkeypatch.setattr("oscar_hdl.nic.oscar_nic.oscar_nic", lambda *given, **_: given)
    expected = {}
    for name, port in zip(names, find("oscar_nic")(units=4, bus_bits=128), strict=False):
        parts = {"": port} if isinstance(port, SignalType) else vars(port)
        expected |= {f"{name}_{part}".rstrip("_"): signal for part, signal in parts.items()}
    widths = {"bus_bits": 128, "bus_bits / 8": 16, "128 x units": 512, "16 x units": 64}
    shown = {name: widths.get(bits) or int(bits) for name, _, bits, _ in ports()}
    assert shown == {name: len(signal) or 1 for name, signal in expected.items()}


def test_tables_that_overlap_are_refused():
    one = Register("ONE", 0, "RW", "", (Field("a", 0, 4, ""), Field("b", 3, 1, "")))
    with pytest.raises(ValueError, match=r"ONE\.b overlaps"):
        check((one,))
    whole = (Field("a", 0, 32, ""),)
    with pytest.raises(ValueError, match="share an offset"):
        check((Register("A", 4, "RW", "", whole), Register("B", 4, "RO", "", whole)))
    with pytest.raises(ValueError, match="no word below"):
        check((Register("A", 256, "RW", "", whole),))
    with pytest.raises(ValueError, match="a is 0 to 3, got 4"):
        Field("a", 0, 2, "").put(4)


def test_the_c_header_has_every_register_and_field_once() -> None:
    lines = [line.split() for line in header().splitlines() if line.startswith("#define OSCAR_")]
    assert len({words[1] for words in lines}) == len(lines)
    told = {words[1]: int(words[2].removesuffix("u"), 0) for words in lines if len(words) > 2}
    for register in REGISTERS:
        name = f"OSCAR_{register.name.upper()}"
        assert told[name] == register.offset
        for field in register.fields:
            of = f"{name}_{field.name.upper()}"
            assert told[f"{of}_MASK"] == field.mask
            assert told[f"{of}_MASK"] >> told[f"{of}_SHIFT"] == (1 << field.bits) - 1
