"""command_port: valid commands start once and in order, all others are refused; results are told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from oscar_hdl.nic.control.command_port import command_port
from oscar_hdl.nic.control.register_ports import CommandAsk, CommandState
from oscar_hdl.nic.control.registers import BY_NAME, ERROR_ABORTED, ROW_BITS
from oscar_hdl.nic.ports import FrameCommand
from oscar_hdl.streams.bundles import bit, word
from oscar_sim.cycles import CycleSimulator
from oscar_sim.seeds import dice

pytestmark = pytest.mark.usefixtures("seed")

SETS, ROWS_LOG2, BLOCK = 16, 12, 1 << 5  # BLOCK: rows


@dataclass(frozen=True)
class Order:
    """What a driver writes."""

    name: str
    frame: dict[str, int]
    shape: dict[str, int]
    tables: dict[str, int]
    order: dict[str, int]
    stray: int = 0  # a bit without a field

    @property
    def valid(self) -> bool:
        shape, order = self.shape, self.order
        rows = -(-shape["count"] // 32)
        fine = 1 <= shape["count"] < 1 << 18 and 1 <= shape["width"] <= 16 and not self.stray
        fine = fine and self.tables["save"] < SETS and (order["fresh"] or self.tables["load"] < SETS)
        fine = bool(fine and order["row"] + rows <= 1 << ROWS_LOG2)
        return fine and not order["row"] % BLOCK and order.get("add", 1) + order.get("adopt", 0) == 1


def random_order(rng: Any, name: str) -> Order:
    """Return an order that is often valid."""
    pick = rng.choice
    count = pick([rng.randrange(1, 5000), rng.randrange(1, 5000), 0, 1, (1 << 18) - 1, 1 << 18])
    row = pick([0, rng.randrange(1 << 11), (1 << ROWS_LOG2) - -(-count // 32) + pick([-1, 0, 1])])
    if rng.random() < 0.8:
        row &= -BLOCK
    order = {"row": max(0, row), "fresh": rng.getrandbits(1), "peer": rng.getrandbits(8)}
    if name == "RECEIVE":
        order["add"] = rng.getrandbits(1)
        order["adopt"] = pick([0, 1, 1 - order["add"], 1 - order["add"]])
    return Order(
        name,
        {"step": rng.getrandbits(16), "chunk": rng.getrandbits(16)},
        {"count": count, "width": pick([0, 1, 8, 12, 16, 17]), "sub": rng.getrandbits(8)},
        {"sequence": rng.getrandbits(16), "load": pick([0, 5, 15, 16]), "save": pick([0, 9, 15, 15, 16])},
        order,
        int(rng.random() < 0.1),
    )


@pytest.mark.parametrize("name", ["RECEIVE", "SEND"])
def test_commands_start_once_or_are_refused(name: str) -> None:
    rng = dice(f"command_port {name}")
    clk, rst, row = bit(), bit(), word(ROW_BITS)
    ask, state = CommandAsk(), CommandState()
    command = FrameCommand()
    command.idle._val = True
    dut = command_port(
        clk, rst, ask, command, row, state, receive=name == "RECEIVE", sets=SETS, rows_log2=ROWS_LOG2,
        block_log2=10,
    )  # fmt: skip
    given: list[Order] = []  # valid, not started yet
    under_way: list[int] = []  # when they end; at 0: when they are aborted
    errors: list[int] = []
    seen = {"refused": 0, "started": 0}
    verdicts: list[int] = []
    expected = 0  # are refused
    now = 0

    def starts() -> None:
        wanted = given.pop(0)
        seen["started"] += 1
        found = {
            "step": int(command.step), "chunk": int(command.chunk), "count": int(command.count),
            "width": int(command.width), "sub": int(command.sub), "sequence": int(command.sequence),
            "load": int(command.load), "save": int(command.save), "fresh": int(command.fresh),
            "row": int(row), "peer": int(command.peer),
        }  # fmt: skip
        if name == "RECEIVE":
            found |= {"adopt": int(command.adopt), "add": 1 - int(command.adopt)}
        assert found == wanted.frame | wanted.shape | wanted.tables | wanted.order
        under_way.append(now + rng.randrange(2, 60))

    def each() -> None:
        nonlocal now
        now += 1
        if command.start:
            assert command.idle
            assert len(under_way) < 4
            starts()
        seen["refused"] += int(ask.refused)
        if ask.judged:
            verdicts.append(bool(ask.bad))
        command.done.next = False
        if under_way and (under_way[0] <= now or command.abort):
            del under_way[0]
            errors.append(ERROR_ABORTED if command.abort else rng.choice([0, 0, 3]))
            command.done.next, command.error.next = True, errors[-1]
        if command.start:
            command.idle.next = False
        elif rng.random() < 0.5:
            command.idle.next = True

    simulator = CycleSimulator(dut, clk, each)
    for drawn in range(3000):
        if drawn >= 150 and seen["started"] > 5:
            break
        wanted = random_order(rng, name)
        fields = ask.fields
        for signal, part in ((fields.frame, "frame"), (fields.shape, "shape"), (fields.tables, "tables")):
            signal.next = BY_NAME[f"COMMAND_{part.upper()}"].pack(**getattr(wanted, part))
        ask.order.next = BY_NAME[f"{name}_COMMAND"].pack(**wanted.order) | wanted.stray << 29
        ask.issue.next = True
        simulator.run(1)
        ask.issue.next = False
        if not ask.locked and rng.random() < 0.2:  # only judged
            verdicts.clear()
            ask.trial.next = True
            simulator.run(10)
            ask.trial.next = False
            simulator.run(1)
            assert verdicts == [not wanted.valid]
            assert not ask.locked
        elif not ask.locked and wanted.valid:
            given.append(wanted)
        else:
            expected += 1
        state.abort.next = rng.random() < 0.05
        simulator.run(1)
        state.abort.next = False
        simulator.run(rng.choice([5, 10, 40]))
    simulator.run(300)
    assert not given
    assert not ask.locked
    assert int(state.running) == 0
    assert seen["refused"] == expected
    assert seen["started"] > 5
    wanted_result = [len(errors) & 255, *errors[:-6:-1]]
    assert [int(state.result) & 255, *(int(state.result) >> 8 + 3 * n & 7 for n in range(5))] == wanted_result
