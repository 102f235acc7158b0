"""The ring of simulated NICs: its driver's book-keeping, and one AllReduce of two nodes."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from oscar.collective.actions import Action, Op, Phase
from oscar.collective.ring import Boomerang, Ring
from oscar_sim.ring.__main__ import main
from oscar_sim.ring.commands import ADOPT, ENCODE, HOP, LAST_HOP, TableSets, commands
from oscar_sim.ring.shell import Port, Wire


@pytest.mark.parametrize("kind", [Ring, Boomerang])
def test_commands_are_the_schedule(kind: type[Ring]) -> None:
    codes = [c.code for c in commands(1, kind(4))]
    if kind.apart:
        assert codes == [ENCODE, HOP, HOP, LAST_HOP, ENCODE, HOP, HOP, ADOPT]
    else:
        assert codes == [ENCODE, HOP, HOP, HOP, ADOPT, ADOPT, ADOPT]
    assert [c.forward for c in commands(1, Ring(4))][-3:] == [2, 2, -1]


def test_a_set_is_kept_until_the_next_is_committed() -> None:
    sets, phase = TableSets(4), Phase.REDUCE_SCATTER
    sent, later = (Action(Op.SEND, phase, step, 0, 0, peer=1, source=0, table=step) for step in (0, 2))
    assert sets.load(sent) == (None, 0)
    first = sets.reserve()
    sets.commit(sent, first)
    assert sets.load(sent) == (first, 1)
    assert sets.load(later) == (first, 0)  # from the nearest lower table
    assert sets.load(Action(Op.WAIT, phase, 2, 0, 0, peer=1, source=1, table=2)) == (None, 0)
    assert sets.load(later._replace(phase=Phase.ALL_GATHER)) == (None, 0)
    second = sets.reserve()
    assert second != first
    sets.commit(sent, second)
    assert sets.load(sent) == (second, 2)
    assert first in sets.free


@pytest.mark.parametrize("ahead", [False, True])
def test_a_frame_is_passed_on_after_the_nics_own(ahead: bool) -> None:
    """Of three NICs with 300 values at half rate, one was late because of a redo: a frame that it passed on
    came before its own, and the next NIC refused it.
    """
    before, after = Wire(0), Wire(0)
    rx, tx = MagicMock(), MagicMock(tdata=0, tlast=True)
    port = Port(rx, tx, rate=1.0)
    port.source = before
    port.routes.append(after)
    port.forwards.append((after, int(ahead)))
    before.words.extend([(0, 7, False), (0, 8, True)])
    for clock in range(1, 20):
        tx.tvalid = clock >= 10  # late
        port.tick(clock)
    assert [data for _, data, _ in after.words] == ([0, 7, 8] if ahead else [7, 8, 0])


def test_two_nics_reduce_as_the_host_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ring.json"
    words = [
        "--nodes",
        "2",
        "--values",
        "300",
        "--iterations",
        "1",
        "--rate",
        "0.5",
        "--schedule",
        "boomerang",
    ]
    assert main([*words, "--json", str(file)]) == 0
    result = json.loads(file.read_text())
    assert (result["ok"], result["faults"]) == (True, [])
    assert [(row["equal"], row["frames"]) for row in result["rows"]] == [(True, 4)]
    said = capsys.readouterr()
    assert "FRAMES_OUT 4, FRAMES_BAD 0," in said.out
    assert said.out.startswith("# takes about 0.4 minutes\n")  # before all else
    assert "# boomerang: 4 of 4 frames" in said.err


def test_where_results_cannot_go_is_said_before_the_ring_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["--json", str(tmp_path / "file" / "ring.json")]) == 2
    assert "cannot write there (File exists); choose another file" in capsys.readouterr().err
