"""`oscar schedule`: list, check, draw and export, from arguments to files and error lines."""

from __future__ import annotations

import json
import time
from math import log2
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from needs import needs
from oscar.cli import main
from oscar.cli.schedule import frame_sizes
from oscar.collective.actions import SENDS
from oscar.collective.frames import Frames
from oscar.collective.schedule import Schedule
from oscar.collective.schedule_file import FileSchedule, read_schedule, write_schedule
from oscar.collective.schedules import SCHEDULES, make_schedule
from oscar.collective.trees import Direct
from oscar.config import load_config
from oscar.planning.schedule_figure import IN_SWITCH, bars, draw_schedule, hops
from oscar.timeline.equal import equal_time
from oscar.timeline.link import LinkModel
from oscar.timeline.replay import replay
from oscar.timeline.topology import adding_switch, grouped, switch


def oscar(*arguments: Any) -> int:
    return main(["schedule", *map(str, arguments)])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = {"topology": "a switch", "synthesiser": "milp", "modelled_s": 1.5e-5, "bound_s": 1e-5}
    write_schedule(tmp_path / "s.json", FileSchedule(4, routes=Direct(4).routes, title="mine", made=made))
    return tmp_path / "s.json"


def test_the_list_names_every_built_in_schedule_and_what_it_costs(capsys: pytest.CaptureFixture[str]) -> None:
    assert oscar("list", "--nodes", 6) == 0
    rows = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()[1:]}
    assert set(SCHEDULES) <= set(rows)
    assert rows["ring"] == ["6", "10", "10", "6", "yes"]
    assert rows["duplex"] == ["6", "10", "5", "5", "no"]
    assert rows["direct"] == ["6", "10", "2", "6", "yes"]
    assert rows["star"] == ["1", "1", "to", "5", "2", "6", "yes"]


@pytest.mark.parametrize("name", SCHEDULES)
def test_frames_are_counted_without_all_actions(name: str) -> None:
    for nodes in (1, 2, 5, 8):
        schedule = make_schedule(name, nodes, subframes=2)
        counted = (sum(a.op in SENDS for a in schedule.actions(rank)) for rank in range(nodes))
        assert schedule.sends == tuple(counted)
    began = time.process_time()
    assert len(make_schedule(name, 256).sends) == 256
    assert time.process_time() - began < 2  # 0.2 s; every action of every rank takes 3 to 5


def test_a_file_is_checked_and_told(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert oscar("check", path, "--nodes", 4) == 0
    said = capsys.readouterr().out
    for text in (
        "file 'mine', 4 ranks",
        "synthesiser: milp",
        "modelled: 15.00 us",
        "hops 2",
        "keeps all rules",
    ):
        assert text in said
    path.write_text(path.read_text().replace("[1, 0, 1]", "[1, 0, 2]", 1))
    assert oscar("check", path) == 2
    assert "the file was changed after it was written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check", "drect"], "drect: no such file, nor schedule; did you mean 'direct'?"),
        (["check", "swich"], "did you mean 'switch'?"),
        (["check", "direct", "--nodes", 0], "expected 1 to 1024 nodes"),
        (["check", "star", "--root", 9], "expected a root of 0 to 7, got 9"),
        (["check", "ring", "--root", 1], "--root is for star alone, got it with ring"),
        (
            ["draw", "direct", "--group", 4],
            "--group is for hierarchical and exchange alone, got it with direct",
        ),
        (["draw", "switch", "--slices", -1], "--slices: expected 1 or more, got -1"),
        (["draw", "direct", "--slices", 8], "--slices is for switch alone, got it with direct"),
        (["check", "ring", "--nodes", 257], "take it for fewer ranks, or another schedule"),
        (["export", "duplex", "--msccl"], "floats would differ; take ring"),
        (["export", "ring", "--msccl", "-o", "none/x.xml"], "expected an existing folder"),
    ],
)
def test_what_cannot_be_done_is_said(
    arguments: list[Any], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert oscar(*arguments) == 2
    assert said in capsys.readouterr().err


def test_a_file_on_a_network_is_predicted(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    links = [(i, j) for i in range(4) for j in range(4) if i != j]
    wires = ", ".join(f"{{from: {i}, to: {j}, gbps: 10, latency_us: 2}}" for i, j in links)
    (tmp_path / "net.yaml").write_text(f"{{kind: links, nodes: 4, links: [{wires}]}}")
    json_file = tmp_path / "p.json"
    words = ["predict", "--values", "1M", "--bits", "4", "--codec", "ideal", "--json", str(json_file)]
    assert main([*words, "--topology", str(tmp_path / "net.yaml"), "--schedule", str(path)]) == 0
    said = capsys.readouterr().out
    assert "4 ranks, 12 links" in said
    assert "schedule file" in said
    assert "was not looked for" in said
    assert json.loads(json_file.read_text())["breakeven_gbps"] is None
    for group, status in ((2, 0), (9, 2)):
        given = ["--nodes", "4", "--gbps", "10", "--schedule", "hierarchical", "--group", str(group)]
        assert main([*words, *given]) == status
    said = capsys.readouterr()
    assert "pays up to " in said.out
    assert "expected groups of 1 to 4 ranks, got 9" in said.err
    assert json.loads(json_file.read_text())["breakeven_gbps"] > 10


def test_the_export_is_printed_or_written_alike(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert oscar("export", path, "--msccl") == 0
    printed = capsys.readouterr().out
    assert oscar("export", path, "--msccl", "-o", path.with_suffix(".xml")) == 0
    assert path.with_suffix(".xml").read_text() == printed
    assert ElementTree.fromstring(printed).get("ngpus") == "4"


def frames(schedule: Schedule) -> Frames:
    return Frames.of(
        (a.phase, a.step, rank, a.peer, a.chunk, a.sub, a.workers, 1000, 4000)
        for rank in range(schedule.nodes)
        for a in schedule.actions(rank)
        if a.op in SENDS
    )


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_is_drawn_beside_its_timeline(name: str, tmp_path: Path) -> None:
    schedule = make_schedule(name, 4, subframes=2)
    file = tmp_path / "s.png"
    link = LinkModel(codec_values_per_s=1e9)
    seconds = draw_schedule(file, schedule, switch([100.0] * 4, 2e-6), link, frames(schedule))
    assert 2e-6 < seconds < 1e-3
    assert file.read_bytes().startswith(b"\x89PNG")


def test_slices_of_a_switch_send_until_the_last_frame_is_in() -> None:
    schedule = make_schedule("switch", 3, slices=2)
    done = replay(
        schedule, frames(schedule), LinkModel(), adding_switch(3, 2, 1.0, 2e-6), coded=False, spans=True
    )
    sent = [bar for bar in bars(schedule, done) if bar.stage == "send"]
    assert [bar.rank for bar in sent if bar.rank >= 3] == [3, 4]
    assert [bar.chunk for bar in sent if bar.rank >= 3] == [0, 1]
    assert max(bar.start_s + bar.duration_s for bar in sent) == pytest.approx(done.total_s)
    assert schedule.describe() == "switch, 3 ranks and 2 slices, 2 chunks of 1 sub-frames"


def test_other_networks_are_drawn_and_a_wrong_one_is_not(tmp_path: Path) -> None:
    file, schedule = tmp_path / "s.png", make_schedule("hierarchical", 4, group=2)
    network = grouped(2, 2, inside=(200.0, 1e-6), between=(25.0, 2e-6))
    slow = draw_schedule(file, schedule, network, LinkModel(), frames(schedule))
    assert slow > draw_schedule(file, schedule, switch([200.0] * 4, 1e-6), LinkModel(), frames(schedule))
    file.unlink()
    with pytest.raises(ValueError, match="expected a topology of 4 ranks, got 5"):
        draw_schedule(file, schedule, switch([100.0] * 5, 2e-6), LinkModel(), frames(schedule))
    assert not file.exists()


def test_sizes_of_frames_grow_with_the_workers_that_they_sum() -> None:
    assert frame_sizes([32.0], 1000, 3) == [4000.0] * 3
    assert frame_sizes([4.0, 7.0], 8000, 8) == pytest.approx(
        [4000, 5000, 5585, 6000, 6322, 6585, 6807, 7000], abs=1
    )
    for bits in ([0.0], [1.0, 2.0, 3.0], [float("nan")]):
        with pytest.raises(ValueError, match="--bits: expected one or two numbers above 0"):
            frame_sizes(bits, 10, 2)


def test_a_schedule_is_made_for_a_network_checked_and_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needs("schedule")
    network, file, picture = tmp_path / "net.yaml", tmp_path / "s.json", tmp_path / "s.png"
    network.write_text("{kind: groups, nodes: 4, size: 2, gbps: 200, nic_gbps: 25}")
    words = ["--bits", 4, 6, "--limit", 5, "--floats", "--name", "two by two"]
    assert oscar("synth", network, "-o", file, *words) == 0
    said = capsys.readouterr().out.splitlines()
    times = {row[:16].strip(): float(row[16:29]) for row in said if row[29:32] == " us"}
    taken = next(row[:16].strip() for row in said if row.endswith("<- taken"))
    assert times["bound"] <= times[taken] == min(value for name, value in times.items() if name != "bound")
    assert {"ring", "direct", "milp"} <= set(times)
    assert "duplex" not in times
    assert read_schedule(file, nodes=4).made["modelled_s"] * 1e6 == pytest.approx(times[taken], abs=0.01)
    assert oscar("draw", file, "--topology", network, "--bits", 4, 6, "-o", picture) == 0
    assert "file 'two by two', 4 ranks" in capsys.readouterr().out
    assert picture.exists()


@pytest.mark.parametrize(
    ("network", "words", "advice"),
    [
        (
            "{kind: groups, nodes: 8, size: 4, gbps: 200, latency_us: 1, nic_gbps: 25, nic_latency_us: 4}",
            ["--values", "2M", "--bits", 1.25, 2.9],
            {"schedule.name": "exchange", "schedule.group": "4"},
        ),
        ("{kind: ring, nodes: 3, gbps: 100, latency_us: 2}", [], {"schedule.name": "duplex"}),
    ],
)
def test_a_winner_without_a_file_is_not_written_and_its_advice_runs(
    network: str, words: list[Any], advice: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needs("schedule")
    (tmp_path / "net.yaml").write_text(network)
    assert oscar("synth", tmp_path / "net.yaml", "-o", tmp_path / "s.json", "--limit", 0, *words) == 3
    assert not (tmp_path / "s.json").exists()
    said = capsys.readouterr().err
    assert f"{tmp_path / 's.json'} is not written: the best, {advice['schedule.name']}" in said
    given = [word for word in said.split() if word.startswith("schedule.")]
    assert dict(word.split("=") for word in given) == advice
    assert load_config("default", given).schedule.name == advice["schedule.name"]


def test_times_of_all_schedules_are_drawn_against_the_ranks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "all.png"
    assert oscar("scale", "--values", "288k", "--nodes", 2, 16, 1024, "-o", file) == 0
    assert file.read_bytes().startswith(b"\x89PNG")
    points = json.loads(file.with_suffix(".json").read_text())["points"]
    times = {(point["name"], point["nodes"]): point["time_s"] for point in points}
    assert {name for name, count in times if count == 16} == {
        *SCHEDULES,
        IN_SWITCH,
        "fp32 ring",
        "fp32 direct",
    }
    assert times["direct", 1024] == pytest.approx(
        equal_time(make_schedule("direct", 1024), 288_000, LinkModel(), bits=rate, header_bytes=24)
    )
    assert times["star", 16] > times["direct", 16] > times[IN_SWITCH, 16]
    assert times["duplex", 1024] > 50 * times["direct", 1024]  # 1,023 hops against 2
    assert len(capsys.readouterr().out.splitlines()) == len(times) + 4  # where replays end, too
    assert oscar("scale", "--nodes", 1025, "-o", file) == 2
    assert oscar("scale", "--doubling", -1, "-o", file) == 2
    assert "bits above 0 for any number of workers" in capsys.readouterr().err


def rate(terms: int) -> float:
    return 1.25 + 0.55 * log2(terms)


def test_hops_of_a_chunk_follow_each_other() -> None:
    for name, last in (("ring", 6), ("hierarchical", 4), ("direct", 2)):
        schedule = make_schedule(name, 4, group=2) if name == "hierarchical" else make_schedule(name, 4)
        own = [hop for hop in hops(schedule) if hop.chunk == 1]
        assert len(own) == 2 * 3, name  # each of the others sends and receives once
        assert {hop.after + 1 for hop in own} == set(range(1, last + 1)), name
        for hop in own:
            before = [one for one in own if one.receiver == hop.sender and one.after < hop.after]
            assert bool(before) == bool(hop.after), name


def test_a_check_of_many_ranks_says_what_it_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("oscar.cli.schedule.MANY", 7)
    for nodes, said in (
        (7, ""),
        (8, "# following ring, 8 ranks, 8 chunks of 1 sub-frames: some 10 s or more\n"),
    ):
        assert main(["schedule", "check", "ring", "--nodes", str(nodes)]) == 0
        assert capsys.readouterr().err == said
