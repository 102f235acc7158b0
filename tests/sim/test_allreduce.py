"""AllReduces of simulated NICs: the driver's book-keeping, the network, and whole ones against the host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oscar.collective.actions import Phase
from oscar.collective.ring import Boomerang, Ring
from oscar.collective.trees import Direct
from oscar.errors import ConfigError
from oscar_hdl.coder.rows import frame_rows
from oscar_sim.allreduce.__main__ import main
from oscar_sim.allreduce.network import in_bytes, in_words
from oscar_sim.allreduce.run import Options, Run
from oscar_sim.driver.programme import Key, programme
from oscar_sim.driver.table_sets import Link, TableSets
from oscar_sim.seeds import dice

PUSH, PULL = Phase.REDUCE_SCATTER, Phase.ALL_GATHER


def test_a_rings_programme() -> None:
    made = programme(1, Ring(4))
    assert [(send.frame.chunk, send.peers) for send in made.sends] == [(1, [2]), (0, [2]), (3, [2]), (2, [2])]
    assert [send.receives for send in made.sends] == [(), *((Key(PUSH, 0, c, 0),) for c in (0, 3, 2))]
    adopted = {key: receive.sends for key, receive in made.receives.items() if receive.adopt}
    assert adopted == {Key(PULL, 0, 1, 0): (0,), Key(PULL, 3, 0, 0): (1,), Key(PULL, 2, 3, 0): (2,)}
    assert dict(made.forwards) == {Key(PULL, 0, 1, 0): [2], Key(PULL, 3, 0, 0): [2]}


def test_a_direct_programme() -> None:
    """Pushes are added as they come; the sum is coded once, after all of them, for all peers."""
    made = programme(1, Direct(4))
    assert [(send.frame.chunk, send.peers) for send in made.sends] == [
        (2, [2]), (3, [3]), (0, [0]), (1, [2, 3, 0]),
    ]  # fmt: skip
    assert set(made.sends[3].receives) == {Key(PUSH, source, 1, 0) for source in (0, 2, 3)}
    assert not any(made.receives[key].sends for key in made.sends[3].receives)
    assert not made.forwards


def test_a_schedule_with_two_sums_is_refused() -> None:
    with pytest.raises(ValueError, match="boomerang keeps two sums apart"):
        programme(0, Boomerang(3))


def test_a_set_for_each_table_of_a_link() -> None:
    sets, link, other = TableSets(3), Link(PUSH, 1), Link(PUSH, 2)
    assert sets.take(link, 0) == (0, 0, True, 0)
    assert sets.take(link, 0) == (0, 0, False, 1)
    assert sets.take(link, 2) == (0, 1, False, 0)  # from the nearest lower table
    assert sets.take(link, 2) == (1, 1, False, 1)
    assert sets.take(other, 2) == (0, 2, True, 0)
    with pytest.raises(ConfigError, match="3 table sets are taken"):
        sets.take(other, 3)


@pytest.mark.parametrize("size", [8, 64])
@pytest.mark.usefixtures("seed")
def test_frames_are_cut_into_words(size: int) -> None:
    rng = dice("words")
    for count in (1, size, size + 1, 300):
        frame = rng.randbytes(count)
        words = in_words(frame, size)
        assert in_bytes(words) == frame
        assert [last for *_, last in words] == [False] * (len(words) - 1) + [True]


def test_two_nics_reduce_as_the_host_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A ring, twice: tables have learnt, and the NICs have cut the second time's chunks."""
    file = tmp_path / "allreduce.json"
    words = ["--nodes", "2", "--values", "1000", "--rate", "0.7", "--schedule", "ring", "--json", str(file)]
    assert main(words) == 0
    result = json.loads(file.read_text())
    assert (result["ok"], result["faults"]) == (True, [])
    assert [(row["equal"], row["frames"]) for row in result["rows"]] == [(True, 4)] * 2
    steps = result["rows"][1]["steps"][0]
    assert [(s["name"], s["what"]) for s in steps if s["name"] == "SEND"] == [
        ("SEND", "push chunk 0"), ("SEND", "final chunk 1"),
    ]  # fmt: skip
    assert all(s["given"] < s["ended"] <= result["rows"][1]["clocks"] and s["values"] for s in steps)
    said = capsys.readouterr()
    assert "the NICs cut the next iteration at" in said.out
    assert "FRAMES_IN 8, FRAMES_OUT 8, FRAMES_BAD 0," in said.out
    assert "# ring: 8 of 8 frames" in said.err


@pytest.mark.parametrize("wrong", ["nothing", "frame", "sum"])
def test_what_differs_from_the_host_is_a_fault(wrong: str) -> None:
    run = Run(Options(schedule="direct", nodes=2, values=200, iterations=1))
    expected = run.expected[0]
    run._place(expected)
    sums = expected.plan.gather(expected.sums)
    for node in run.nodes:
        for low, place in zip(expected.plan.bounds, run.places, strict=False):
            part = slice(low, low + place.count)
            node.memory.load(place.row, frame_rows(sums[part], expected.classes[part]))
    run.nodes[0].port.frames = list(expected.frames)
    if wrong == "frame":
        run.nodes[0].port.frames[0] += b"x"
    elif wrong == "sum":
        run.nodes[1].memory.value[0, 3] += 1
    run._check(0, expected, 0)
    assert run.rows[0]["equal"] == (wrong == "nothing")
    assert (
        run.faults
        == {
            "nothing": [],
            "frame": ["iteration 0: 3 of 4 frames equal, 4 sent"],
            "sum": ["iteration 0: sums right on nodes [0] only"],
        }[wrong]
    )


def test_where_results_cannot_go_is_said_before_it_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["--json", str(tmp_path / "file" / "x.json")]) == 2
    assert "cannot write there (File exists); choose another file" in capsys.readouterr().err
