"""Schedule files: what is written reads back; what is no schedule, or was changed, is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from oscar.collective.check import check
from oscar.collective.routes import Routed, Routes, Transfer
from oscar.collective.schedule_file import (
    MADE as MADE_KEYS,
)
from oscar.collective.schedule_file import (
    MAX_BYTES,
    NEEDED,
    OPTIONAL,
    FileSchedule,
    _digest,
    read_schedule,
    write_schedule,
)
from oscar.collective.schedules import make_schedule
from oscar.collective.trees import Direct, Hierarchical, Star
from oscar.errors import ConfigError

MADE = {"topology": "4 ranks at a switch", "synthesiser": "milp", "modelled_s": 1.4e-5, "bound_s": 1e-5}


def filed(schedule: Routed, **more: Any) -> FileSchedule:
    return FileSchedule(schedule.nodes, schedule.subframes, schedule.adopt, routes=schedule.routes, **more)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A schedule file of three ranks."""
    write_schedule(tmp_path / "s.json", filed(Direct(3), title="mine", made=MADE, shares=(0.5, 0.25, 0.25)))
    return tmp_path / "s.json"


def rewrite(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the content of a file and give it the digest of what it says then, as a forger would."""
    data = json.loads(path.read_text())
    change(data)
    body = {key: value for key, value in data.items() if key != "digest"}
    try:
        data["digest"] = _digest(body, path)
    except ConfigError:
        data["digest"] = "NaN has none"
    path.write_text(json.dumps(data))


@pytest.mark.parametrize(
    "schedule", [Direct(1), Direct(5, 3), Hierarchical(7, 2, True, group=3), Star(4, root=2)], ids=repr
)
def test_what_is_written_reads_back_and_does_the_same(schedule: Routed, tmp_path: Path) -> None:
    written = filed(schedule, title="été", made=MADE)
    write_schedule(tmp_path / "s.json", written)
    read = read_schedule(tmp_path / "s.json", subframes=schedule.subframes, adopt=schedule.adopt)
    assert read == written
    assert read.digest == written.digest
    assert (read.title, read.made) == ("été", MADE)
    for rank in range(schedule.nodes):
        assert list(read.actions(rank)) == list(written.actions(rank))
    name, nodes = str(tmp_path / "s.json"), schedule.nodes
    assert (
        make_schedule("file", nodes, subframes=schedule.subframes, adopt=schedule.adopt, file=name) == written
    )
    first = (tmp_path / "s.json").read_bytes()
    write_schedule(tmp_path / "s.json", read)
    assert (tmp_path / "s.json").read_bytes() == first


def test_who_made_a_schedule_does_not_make_it_another_and_its_routes_do() -> None:
    one = filed(Direct(4))
    assert one == filed(Direct(4), title="other", made=MADE)
    assert one.digest == filed(Direct(4), title="other", made=MADE).digest
    assert "file 'other', 4 ranks, 4 chunks" in filed(Direct(4), title="other").describe()
    others = [
        filed(Direct(4), shares=(0.4, 0.2, 0.2, 0.2)),
        filed(Hierarchical(4)),
        filed(Star(4)),
        filed(Direct(4, 2)),
    ]
    assert len({one.digest, *(other.digest for other in others)}) == 5


def test_a_schedule_for_other_ranks_is_refused(path: Path) -> None:
    assert read_schedule(path, nodes=3).for_nodes(3).nodes == 3
    with pytest.raises(
        ConfigError, match=r"s.json: expected a schedule for 8 ranks, got one for 3; run 3 ranks"
    ):
        read_schedule(path, nodes=8)
    with pytest.raises(ValueError, match="expected routes between 4 ranks, got routes of 3"):
        FileSchedule(4, routes=Direct(3).routes)
    with pytest.raises(ValueError, match="expected the path of a schedule file, got none"):
        make_schedule("file", 3)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda d: d.update(format="oscar-results"), "format: expected .oscar-schedule., got .oscar-res"),
        (lambda d: d.update(version=2), "version: expected at most 1, which this OSCAR reads, got 2; update"),
        (lambda d: d.update(version=0), "version: expected a whole number of 1 to 1, got 0"),
        (lambda d: d.update(version=True), "version: expected a whole number of 1 to 1, got True"),
        (lambda d: d.update(nodes=257), "nodes: expected a whole number of 1 to 256, got 257"),
        (lambda d: d.update(nodes=3.0), "nodes: expected a whole number of 1 to 256, got 3.0"),
        (lambda d: d.update(nodes=10**400), "nodes: expected a whole number"),
        (lambda d: d.update(nodes=2), r"owners\[2\]: expected a whole number of 0 to 1, got 2"),
        (lambda d: d.update(owners=[]), "owners: expected a rank for each chunk, got 'none'"),
        (lambda d: d.update(owners="012"), "owners: expected a list of ranks, got '012'"),
        (lambda d: d.update(owners=[0] * 511), "owners: expected at most 510 ranks, got '511'"),
        (lambda d: d["owners"].__setitem__(0, 3), r"owners\[0\]: expected a whole number of 0 to 2, got 3"),
        (lambda d: d["reduce"].pop(), "reduce: expected 6 transfers, nodes - 1 for each chunk, got '5'"),
        (lambda d: d["gather"].__setitem__(1, [0, 1]), r"gather\[1\]: expected \[chunk, sender, receiver\]"),
        (lambda d: d["gather"].__setitem__(1, [3, 0, 1]), r"gather\[1\]: expected a chunk of 0 to 2"),
        (lambda d: d["gather"].__setitem__(1, [0, 9, 1]), r"gather\[1\]: expected a rank of 0 to 2, got"),
        (lambda d: d["gather"].__setitem__(1, [0, 1, 1]), r"gather\[1\]: expected a sender and another"),
        (lambda d: d["reduce"].__setitem__(0, [0, 1, 2]), r"s.json: schedule file: rank \d, step \d"),
        (lambda d: d.update(owners=[1, 1, 2]), r"s.json: schedule file: rank \d, step \d .* chunk 0"),
        (lambda d: d.update(shares=[0.5, 0.5]), "shares: expected 3 numbers of 0 to 1"),
        (lambda d: d.update(shares=[0.5, 0.5, 0.5]), "shares: expected 3 numbers of 0 to 1"),
        (lambda d: d.update(shares=[2, -1, 0]), "shares: expected 3 numbers of 0 to 1"),
        (lambda d: d.update(shares=[float("nan"), 1, 0]), "NaN, which is no number in JSON"),
        (lambda d: d.update(made={"by": "me"}), "made: expected a mapping with keys of topology"),
        (lambda d: d.update(made={"modelled_s": -1}), "made.modelled_s: expected seconds, 0 or more, got -1"),
        (lambda d: d.update(made={"topology": "a\nb"}), "made.topology: expected a text"),
        (lambda d: d.update(name="x" * 401), "name: expected a text of at most 400 characters"),
        (lambda d: d.update(extra=1), "keys: expected format, .*, got 'extra'"),
        (lambda d: d.pop("gather"), "gather: expected a value, got 'none'"),
    ],
)  # fmt: skip
def test_what_is_no_schedule_is_refused(
    change: Callable[[dict[str, Any]], Any], match: str, path: Path
) -> None:
    rewrite(path, change)
    with pytest.raises(ConfigError, match=match):
        read_schedule(path)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (b"", "expected a schedule file in JSON"),
        (b"\xff\xfe", "expected a schedule file in JSON"),
        (b"[" * 100_000, "expected a schedule file in JSON"),
        (b'{"nodes": ' + b"9" * 5000 + b"}", "expected a schedule file in JSON"),
        (b'{"format": "oscar-schedule", "version": 1e999}', "version: expected a whole number"),
        (b'{"format": "oscar-schedule", "version": 1, "version": 1}', "a key that comes twice"),
        (b"[]", r"format: expected 'oscar-schedule', got \[\]"),
        (b" " * (MAX_BYTES + 1), "at most 16 MiB, got more"),
    ],
    ids=["empty", "binary", "deep", "long number", "infinite", "twice", "list", "large"],
)
def test_what_is_no_file_of_ours_is_refused(text: bytes, match: str, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_bytes(text)
    with pytest.raises(ConfigError, match=match):
        read_schedule(tmp_path / "s.json")


def test_what_cannot_be_opened_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no such file; `oscar schedule synth TOPOLOGY -o .* writes one"):
        read_schedule(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="expected a schedule file, got Is a directory"):
        read_schedule(tmp_path)


def test_a_changed_file_is_told_from_the_original(path: Path) -> None:
    text = path.read_text()
    path.write_text(text.replace("[1, 0, 1]", "[1, 0, 2]", 1))
    with pytest.raises(ConfigError, match=r"digest: expected .*the file was changed after it was written"):
        read_schedule(path)
    path.write_text(json.dumps(json.loads(text), indent=4))  # written otherwise, the same content
    assert read_schedule(path).title == "mine"


def test_what_would_not_read_again_is_not_written(tmp_path: Path) -> None:
    routes = Routes(3, (0,), (Transfer(0, 1, 0), Transfer(0, 1, 0)), Star(3).routes.gather)
    for wrong in (
        FileSchedule(3, routes=routes), filed(Star(3), made={"modelled_s": float("inf")}),
        filed(Star(3), shares=(0.5,)), filed(Star(3), title="a\nb"),
    ):  # fmt: skip
        with pytest.raises(ConfigError):
            write_schedule(tmp_path / "s.json", wrong)
    assert not list(tmp_path.iterdir())


def test_a_mutated_file_is_refused_or_says_the_same(path: Path, seed: int) -> None:
    random, original, raw = Random(seed), read_schedule(path), path.read_bytes()
    refused = 0
    for _ in range(400):
        text = bytearray(raw)
        for _ in range(random.randint(1, 3)):
            at = random.randrange(len(text))
            kind = random.randrange(4)
            if kind == 0:
                text[at] ^= 1 << random.randrange(8)
            elif kind == 1:
                text[at:at] = random.choice([b"0", b"-", b"]", b",", b" ", b'"', b"NaN", b"1e9", b"\\u0000"])
            elif kind == 2:
                del text[at : at + random.randint(1, 9)]
            else:
                text[at:at] = text[at : at + random.randint(1, 30)]
        path.write_bytes(bytes(text))
        try:
            read = read_schedule(path)
        except ConfigError:
            refused += 1
        else:
            assert read == original, bytes(text)
    assert refused > 200


def test_forged_routes_are_refused_or_keep_the_rules(path: Path, seed: int) -> None:
    """With a digest of its own, a file is judged by the rules alone."""
    random, raw = Random(seed), path.read_text()

    def change(data: dict[str, Any]) -> None:
        rows = data[random.choice(["reduce", "gather"])]
        if random.random() < 0.5:
            one, other = random.sample(range(len(rows)), 2)
            rows[one], rows[other] = rows[other], rows[one]
        else:
            random.choice(rows)[random.randrange(3)] = random.randrange(3)

    kept = 0
    for _ in range(200):
        path.write_text(raw)
        rewrite(path, change)
        try:
            check(read_schedule(path, subframes=6))
        except ConfigError:
            continue
        kept += 1
    assert 0 < kept < 200


def test_the_page_shows_a_file_that_reads_and_names_every_key(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "schedules.md").read_text(encoding="utf-8")
    example = page.partition("```json\n")[2].partition("```")[0]
    (tmp_path / "s.json").write_text(example)
    assert read_schedule(tmp_path / "s.json") == filed(Direct(3))
    assert all(f"| `{key}` |" in page for key in (*NEEDED, *OPTIONAL))
    assert all(f"`{key}`" in page for key in MADE_KEYS)
    said = page.partition("```\nschedule file: ")[2].partition("\n")[0]
    routes = Routes(3, (0,), (Transfer(0, 1, 0), Transfer(0, 1, 0)), Star(3).routes.gather)
    with pytest.raises(ConfigError, match=re.escape(said)):
        check(FileSchedule(3, routes=routes))
