"""row_lines and row_walk: the steps of a packet, and whose rows each is of; row_port: what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from myhdl import block

from oscar_hdl.nic.memory.ports import RowCommand
from oscar_hdl.nic.memory.row_lines import KNOWN, OPENED, RowLines, row_lines, row_walk
from oscar_hdl.nic.memory.row_port import row_port
from oscar_hdl.nic.ports import ADDS_AT, COUNT_AT, MadeRows
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_sim.compiled import copy_of
from oscar_sim.seeds import dice

pytestmark = pytest.mark.usefixtures("seed")

BLOCK_BITS, LINES_LOG2 = 5, 3


@block
def walked(clk: Any, command: RowCommand, lines: RowLines, start: Any, ports: list[Any], skip: int) -> Any:
    forward, row, here, final, behind = ports
    return (
        row_lines(clk, command, lines, skip_bits=skip),
        row_walk(clk, start, command.first, lines, forward, row, here, final, behind, skip_bits=skip),
    )


@pytest.mark.parametrize("skip", [0, 1, 2, 3])
def test_each_row_goes_by_once_in_the_step_of_its_place(skip: int) -> None:
    rng, banks, size = dice(f"row lines {skip}"), 1 << skip, 1 << BLOCK_BITS
    row_bits = BLOCK_BITS + LINES_LOG2
    clk, start, forward = bit(), bit(), bit()
    command, lines = RowCommand(row_bits + skip), RowLines(BLOCK_BITS)
    ports = [forward, word(row_bits), *(word(banks) for _ in range(3))]
    _, row, here, final, behind = ports
    sim = copy_of(
        ("row lines", skip), lambda: walked(clk, command, lines, start, ports, skip), clk, lambda: None,
        [command, lines, start, ports],
    )  # fmt: skip
    for _ in range(12):
        blocks = rng.randrange(1, 3 * banks + 1)
        first, count = rng.randrange(8 * banks - blocks + 1), 1024 * blocks - rng.randrange(1024)
        rows = -(-count // 32)
        where = [(first + r // size, r % size) for r in range(rows)]  # block, and row there
        step_of = [(b // banks - first // banks) * size + r for b, r in where]
        command.first.next, command.count.next = first * size, count
        sim.run(KNOWN)
        start.next = True
        sim.run(1)
        start.next = False
        sim.run(OPENED - 1)
        alone = rows <= size or where[-1][0] % banks == 0
        last_line = (where[-1][0] // banks - first // banks) * size
        steps = step_of[-1] + 1 if alone else last_line + size
        assert int(lines.steps) == steps
        assert int(lines.rows) == rows
        assert int(lines.words) == 4 * steps - (3 - (count - 1) % 32 // 8 if alone else 0)
        for step in range(steps):
            going = [r for r in range(rows) if step_of[r] == step]
            assert int(here) == sum(1 << where[r][0] % banks for r in going)
            assert int(final) == sum(1 << where[r][0] % banks for r in going if r == rows - 1)
            over = step // size == last_line // size and where[-1][1] < step % size <= where[-1][1] | 31
            assert int(behind) == over << where[-1][0] % banks
            assert int(row) == first // banks * size + step
            forward.next = True
            sim.run(1)
            forward.next = False
            sim.run(3)


@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize("added", [True, False])
def test_a_packet_that_adds_is_refused_where_nothing_can(adds: bool, added: bool) -> None:
    clk, rst, clear, cleared, wrong, rows = bit(), bit(), bit(), bit(), bit(), word(14)
    command, s_axis, m_axis, made, first = RowCommand(8), Stream(64), Stream(64), MadeRows(), word(24)
    to_row = rst, s_axis, m_axis, clear, first, rows, cleared, command, wrong, made
    sim = copy_of(
        ("row port", adds), lambda: row_port(clk, *to_row, adds=adds), clk, lambda: None, [*to_row]
    )  # fmt: skip
    command.idle.next = True
    s_axis.tdata.next, s_axis.tvalid.next = 32 << COUNT_AT | added << ADDS_AT, True
    seen = []
    for _ in range(9):
        sim.run(1)
        seen.append((bool(command.start), bool(command.adds), bool(wrong)))
    refused = added and not adds
    assert any(start for start, _, _ in seen) != refused
    assert any(bad for _, _, bad in seen) == refused
    assert all(kind == added for start, kind, _ in seen if start)
