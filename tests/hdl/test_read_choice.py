"""read_choice: four clocks behind the index there is the value of that register, whatever was read before."""

from __future__ import annotations

import pytest

from oscar_hdl.nic.control.axi_lite_registers import read_choice
from oscar_hdl.nic.control.register_ports import RegisterRead
from oscar_hdl.nic.control.registers import REGISTERS
from oscar_hdl.nic.nic_core import SHOWN
from oscar_hdl.streams.bundles import bit, word
from oscar_sim.cycles import CycleSimulator
from oscar_sim.seeds import dice

pytestmark = pytest.mark.usefixtures("seed")

KEPT = {"PLAN_EDGE_": SHOWN.index("PLAN_EDGE_"), "": SHOWN.index("")}  # sixteen of each, read by their place


def test_each_register_shows_its_own_word() -> None:
    rng = dice("read_choice")
    clk, rd, place, words = bit(), RegisterRead(), word(4), [word(32) for _ in SHOWN]
    kept = {n: [rng.getrandbits(32) for _ in range(16)] for n in KEPT.values()}

    def each() -> None:
        for n, values in kept.items():
            words[n].next = values[int(place)]

    simulator = CycleSimulator(read_choice(clk, rd, words, place, names=SHOWN), clk, each)
    for n, signal in enumerate(words):
        if n not in kept:
            signal.next = rng.getrandbits(32)
    simulator.run(1)
    for register in rng.sample([r for r in REGISTERS if r.access == "RO"], 40):
        name = register.name
        n = SHOWN.index(name) if name in SHOWN else KEPT["PLAN_EDGE_" if name.startswith("PLAN") else ""]
        rd.index.next = register.index
        simulator.run(5)  # in the first of them the index comes
        assert int(rd.value) == (kept[n][register.index % 16] if n in kept else int(words[n])), name
