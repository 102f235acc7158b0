"""AllReduces of simulated NICs: the driver's book-keeping, the network, and whole ones against the host."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oscar.collective.actions import Action, Op, Phase
from oscar.collective.ring import Boomerang, Ring
from oscar.collective.schedules import make_schedule
from oscar.collective.trees import Direct
from oscar.errors import ConfigError
from oscar_hdl.nic.control.list_ports import OWN
from oscar_sim.allreduce.__main__ import main
from oscar_sim.allreduce.network import in_bytes, in_words
from oscar_sim.allreduce.run import Options, Run
from oscar_sim.allreduce.timeline import UnitWork, Work, rows
from oscar_sim.driver.lists import entries, makers, named
from oscar_sim.driver.nic_driver import Command
from oscar_sim.driver.programme import Key, programme
from oscar_sim.driver.table_sets import Link, TableSets
from oscar_sim.errors import RtlError
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


def test_a_direct_list() -> None:
    """Pushes of others count for the sum's SEND; finals wait for the own push of their chunk."""
    made = entries(programme(1, Direct(4)), lambda chunk, sub: 100)
    assert [entry.name for entry in made] == ["RECEIVE"] * 6 + ["SEND"] * 4
    pushes = [entry for entry in made if entry.need == 0 and entry.name == "RECEIVE"]
    assert {(entry.frame.source, entry.gate) for entry in pushes} == {(0, 9), (2, 9), (3, 9)}
    finals = {entry.frame.chunk: entry.gate for entry in made if entry.need == 2}
    assert finals == {2: 6, 3: 7, 0: 8}
    assert [entry.events for entry in made[6:]] == [0, 0, 0, 3]
    assert [entry.next for entry in made[6:]] == [6, 7, 8, 9]  # each on a link of its own


def test_the_page_shows_a_list() -> None:
    made = entries(programme(1, Direct(4)), lambda chunk, sub: 2500, made=lambda chunk, sub: 2500)
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "nic-on-a-board.md").read_text(encoding="utf-8")
    for number, entry in enumerate(made):
        fields = named(entry.command)
        does = next((word for word in ("add", "adopt") if word in fields), None)
        does = does or ("the sum" if entry.events else "own values")
        own = entry.events, entry.next, entry.gate, entry.need, entry.values
        row = number, entry.name, fields["step"], fields["chunk"], fields["peer"], does, *own
        assert f"| {' | '.join(map(str, row))} |" in page


def test_a_list_keeps_the_order_of_a_link() -> None:
    """A ring's pushes: each waits for its sum and for the push before it; an empty chunk has no entry."""
    made = entries(programme(1, Ring(4)), lambda chunk, sub: int(chunk != 0))
    sends = [
        (n, entry.frame.chunk, entry.events, entry.next)
        for n, entry in enumerate(made)
        if entry.name == "SEND"
    ]
    assert sends == [(4, 1, 0, 5), (5, 3, 2, 5), (6, 2, 1, 6)]


@pytest.mark.parametrize("nodes", range(2, 9))
@pytest.mark.parametrize("schedule", [Ring, Direct])
@pytest.mark.parametrize(("late", "adds"), [(False, False), (True, False), (True, True)])
@pytest.mark.usefixtures("seed")
def test_lists_of_all_nodes_end_in_any_order(schedule: type, nodes: int, late: bool, adds: bool) -> None:
    """As NICs run them, frames of a link in order, all else by chance; sums are sent when they are whole.

    late: own values are made meanwhile; adds: and frames need not wait for them.
    """
    rng, plan = dice(f"lists {schedule.__name__} {nodes}"), schedule(nodes)
    empty = rng.randrange(nodes)

    def count(chunk: int, sub: int) -> int:
        return int(chunk != empty)

    made = [entries(programme(r, plan), count, made=count if late else None, adds=adds) for r in range(nodes)]
    assert not any(adds and entry.need == OWN for own in made for entry in own)
    waits = [[e.events + (e.values != 0) if e.name == "SEND" else 1 for e in own] for own in made]
    unmade = {(rank, n) for rank, own in enumerate(made) if late for n in makers(own).values()}
    assert len(unmade) == late * nodes * (nodes - 1)
    terms = [[1 << rank] * nodes for rank in range(nodes)]  # whose values a rank's rows hold
    fired, links = [[False] * len(own) for own in made], defaultdict(deque)
    forwards = [programme(rank, plan).forwards for rank in range(nodes)]
    numbers = [(rank, n) for rank, own in enumerate(made) for n in range(len(own))]
    moved = True
    while moved:
        moved = bool(unmade)
        for rank, n in rng.sample(sorted(unmade), min(1, len(unmade))):
            unmade.remove((rank, n))
            waits[rank][n] -= 1
        for rank, n in rng.sample(numbers, len(numbers)):
            entry = made[rank][n]
            if entry.name != "SEND" or fired[rank][n] or waits[rank][n]:
                continue
            fired[rank][n] = moved = True
            if entry.next != n:
                waits[rank][entry.next] -= 1
            assert terms[rank][entry.frame.chunk] == entry.frame.terms
            for peer in entry.command.peers:
                links[rank, peer].append((Key.of(entry.frame), entry.frame.terms))
        for (_, rank), queue in rng.sample(sorted(links.items()), len(links)):
            if not queue:
                continue
            (key, held), own = queue[0], made[rank]
            n = next(n for n, e in enumerate(own) if e.name == "RECEIVE" and Key.of(e.frame) == key)
            if own[n].need == 2 and not fired[rank][own[n].gate]:
                continue
            if own[n].need == 1 and (rank, own[n].gate) in unmade:
                continue
            queue.popleft()
            assert not fired[rank][n]
            fired[rank][n] = moved = True
            terms[rank][key.chunk] = held if own[n].command.adopt else held | terms[rank][key.chunk]
            if own[n].need < 2:
                waits[rank][own[n].gate] -= 1
            for peer in forwards[rank].get(key, []):
                links[rank, peer].append((key, held))
    assert all(map(all, fired))
    for rank, own in enumerate(terms):
        assert own == [(1 << nodes) - 1 if chunk != empty else 1 << rank for chunk in range(nodes)]


def test_what_a_list_cannot_say_is_refused() -> None:
    with pytest.raises(ConfigError, match="is tied to 2 SENDs, a list's RECEIVE to one"):
        entries(programme(0, make_schedule("exchange", 4)), lambda chunk, sub: 1)
    never = programme(0, Direct(3))
    del never.sends[-1]
    with pytest.raises(ConfigError, match="chunk 0 is added to, but never sent"):
        entries(never, lambda chunk, sub: 1, made=lambda chunk, sub: 1)
    with pytest.raises(ConfigError, match="at most 256 entries, this schedule takes 298"):
        entries(programme(0, Direct(100)), lambda chunk, sub: 1)
    with pytest.raises(ConfigError, match="a SEND waits for at most 63 events, one has 69"):
        entries(programme(0, Direct(70)), lambda chunk, sub: 1)


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
    """A ring, twice: tables have learnt, and the NICs have cut the second chunks. In MyHDL."""
    file, picture = tmp_path / "allreduce.json", tmp_path / "allreduce.svg"
    words = ["--nodes", "2", "--values", "500", "--rate", "0.7", "--schedule", "ring", "--json", str(file)]
    words += ["--driver", "registers", "--host", "0", "0", "0", "--simulator", "myhdl"]
    words += ["--mhz", "100", "--figure", str(picture)]
    assert main(words) == 0
    result = json.loads(file.read_text())
    assert (result["ok"], result["faults"]) == (True, [])
    assert [(row["equal"], row["frames"]) for row in result["rows"]] == [(True, 4)] * 2
    last = result["rows"][1]
    steps, counters = last["steps"][0], last["counters"]
    assert [(s["name"], s["what"]) for s in steps if s["name"] == "SEND"] == [
        ("SEND", "push chunk 0"), ("SEND", "final chunk 1"),
    ]  # fmt: skip
    assert all(s["given"] < s["ended"] <= last["clocks"] and s["values"] for s in steps)
    spans = [span for node in last["spans"] for span in node]
    assert sorted(span["way"] for span in spans) == ["in"] * 4 + ["out"] * 4
    assert all(0 <= s["begin"] < s["end"] <= last["clocks"] for s in spans)
    work = [span for node in last["work"] for span in node]
    assert {span["what"] for span in work} == {"decode", "encode"}
    assert all(0 <= s["begin"] <= s["end"] <= last["clocks"] for s in work)
    assert [(c["FRAMES_IN"], c["FRAMES_OUT"], c["FRAMES_BAD"]) for c in counters] == [(4, 4, 0)] * 2
    assert last["us"] == last["clocks"] / 100
    assert last["gbps"] == pytest.approx(500 * 32 / last["us"] / 1000)
    assert last["fp32_bytes"] == 4 * 4 * 250
    said = capsys.readouterr()
    assert "# the NICs cut the chunks of the next call where the host does" in said.out
    assert said.out.splitlines()[-1] == "2 of 2 AllReduces equal the host, bit for bit"
    assert all(len(line) <= 110 for line in said.out.splitlines() if str(tmp_path) not in line)
    assert "# ring, registers: 8 of 8 frames" in said.err
    assert picture.read_text().count("units decode")


def test_what_units_do_is_joined_where_little_is_between() -> None:
    probe = SimpleNamespace(decode_row=False, encode_row=False)
    work = UnitWork(probe)
    for clock in range(200):
        probe.decode_row = clock in (10, 14, 40, 100)
        probe.encode_row = clock in (12, 16)
        work.tick(clock)
    assert work.spans == [Work("decode", 10, 40), Work("encode", 12, 16), Work("decode", 100, 100)]


def test_without_verilator_it_is_said_how_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oscar_sim.allreduce.__main__.installed", lambda: False)
    assert main([]) == 2
    assert "`make verilator` installs them; --simulator myhdl needs neither" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("schedule", "nodes", "values", "driver", "asks", "order", "make"),
    [
        ("ring", 2, 400, "adding", False, "rotated", 4.0),
        ("direct", 2, 4600, "triggered", True, "pieces", 0.0),
    ],
)
def test_nics_reduce_by_lists_as_the_host_does(
    schedule: str, nodes: int, values: int, driver: str, asks: bool, order: str, make: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Two frames a chunk; twice by a ring, whose rows hold older sums until they are made.

    By direct a frame's values are two packets: the last alone counts, and waits until the list is armed.
    Two writes and two reads an AllReduce, where the host does not ask. A peer is late: its list comes later.
    A host that asks has read all sums when it returns.
    """
    monkeypatch.setattr("oscar.collective.node.MIN_SUBFRAME", 32)
    run = Run(
        Options(
            schedule=schedule, nodes=nodes, values=values, iterations=2 - asks, driver=driver,
            host=(3, 5, 40), make=make, order=order, subframes=2, asks=asks,
        )
    )  # fmt: skip
    assert len(run.expected[0].frames) == 2 * nodes * nodes
    late, node = run.nodes[-1].driver, run.nodes[-1]
    begin = late.run_list

    def later(*words: Any, **how: Any) -> Any:
        for _ in range(2500):
            yield
        return (yield from begin(*words, **how))

    late.run_list = later
    run.run()
    assert run.faults == []
    packets = {len(node._cuts(place.count)) for place in run.places.values()}
    assert packets == {1 if make else 2}
    assert [row["equal"] for row in run.rows] == [True] * (2 - asks)
    for used in run.rows[-1]["registers"]:
        least = {"write": 2, "read": 2, "interrupts": 1}
        assert used["read"] > 4 if asks else used == least
    assert run.rows[0]["clocks"] > 2500
    assert node.manager.used["read"] > 2


def test_ranks_in_software_reduce_beside_a_nic() -> None:
    """Twice, with what links have learnt; each rank sends the frames and ends with the sums of the host.

    In a ring a rank in software passes on what the NIC has encoded, and the NIC what software has. The NIC
    quantises its gradient, whose tensors share rows.
    """
    options = {"schedule": "ring", "nodes": 3, "values": 400, "driver": "list", "software": 2}
    run = Run(Options(**options, host=(3, 5, 40), floats="bfloat16"))
    run.run()
    assert run.faults == []
    assert [(row["equal"], row["frames"]) for row in run.rows] == [(True, 9)] * 2
    assert [len(row["registers"]) for row in run.rows] == [1, 1]
    assert run.rows[1]["model_clocks"] is None
    spans = run.rows[1]["spans"]
    assert all(0 <= s["begin"] < s["end"] for node in spans for s in node)
    assert [{s["way"] for s in node} for node in spans] == [{"in", "out"}] * 3


def test_ends_noticed_in_one_read_share_their_clocks() -> None:
    """Nobody knows when the first of them ended: 0 clocks and 1,250 values a clock would be invented."""
    given_ended = [("SEND", 1, 10, 400), ("RECEIVE", 0, 20, 900), ("SEND", 2, 30, 900), ("SEND", 3, 450, 900)]
    commands = [
        Command(name, None, Action(Op.SEND, PUSH, 0, chunk, 0, source=1), 1250, given, ended)
        for name, chunk, given, ended in given_ended
    ]
    steps = rows(commands, 0)
    told = [(step["clocks"], step["values_per_clock"], step["noticed_together"]) for step in steps]
    assert told == [(390, 3.205, 1), (880, 1.42, 1), (500, 5.0, 2), (500, 5.0, 2)]


def test_nics_that_wait_for_ever_are_an_error() -> None:
    run = Run(Options(schedule="direct", nodes=2, values=200, iterations=1))
    run.limit = 50
    with pytest.raises(RtlError, match="expected an end within 100 clocks, the NICs still wait"):
        run._perform(SimpleNamespace(run=lambda clocks: run._step()), repeat(None))


@pytest.mark.parametrize("wrong", ["nothing", "frame", "sum"])
def test_what_differs_from_the_host_is_a_fault(wrong: str) -> None:
    run = Run(Options(schedule="direct", nodes=2, values=200, iterations=1))
    expected = run.expected[0]
    run._place(expected)
    sums = expected.plan.gather(expected.sums)
    for node in run.nodes:
        node.sums = sums.copy()
    run.nodes[0].port.frames = list(expected.frames)
    if wrong == "frame":
        run.nodes[0].port.frames[0] += b"x"
    elif wrong == "sum":
        run.nodes[1].sums[3] += 1
    run._check(0, expected)
    assert run.rows[0]["equal"] == (wrong == "nothing")
    assert (
        run.faults
        == {
            "nothing": [],
            "frame": ["iteration 0: 3 of 4 frames equal, 4 sent"],
            "sum": ["iteration 0: sums right on nodes [0] only"],
        }[wrong]
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--order", "pieces"], "for direct alone, got ring: take --schedule direct, or --order"),
        (["--asks", "--driver", "registers"], "while a list runs, got driver registers: leave --asks out"),
        (["--software", "4"], "expected 0 to 3 of 4 nodes in software, got 4: one at least is a NIC"),
        (["--trace", "x.fst", "--driver", "all"], "--trace is of one AllReduce, got 4 drivers: name one"),
        (["--trace", "x.fst", "--simulator", "myhdl"], "written by Verilator, got --simulator myhdl: leave"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert told in capsys.readouterr().err


def test_where_results_cannot_go_is_said_before_it_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["--json", str(tmp_path / "file" / "x.json")]) == 2
    assert "cannot write there (File exists); choose another file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--subframes", "0"], "--subframes: expected 1 to 64, got 0"),
        (["--values", "100"], "--values: expected 128 to 1e+09, got 100"),
        (["--host", "1", "-2", "3"], "--host: expected 0 to 1e+09, got -2"),
    ],
)
def test_options_out_of_range_are_told_in_a_line(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err == f"error: {told}\n"
