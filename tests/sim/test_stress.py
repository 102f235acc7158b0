"""Barrel units and NICs of converted RTL against the software, and the test that runs them for long."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from needs import needs
from oscar.coding.asc.model import count_group
from oscar.coding.asc.params import CONSTANT, GROUP_ROWS, LANES, group_cycle
from oscar.coding.asc.reference import ReferenceCoder
from oscar.coding.asc.state import TableState
from oscar_sim import stress
from oscar_sim.batches import DecoderBatch, EncoderBatch, run
from oscar_sim.blocks import Coder, counted
from oscar_sim.frames import Generator
from oscar_sim.units import FAULTS, faults
from oscar_sim.whole_stress import Traffic


@pytest.fixture(scope="module")
def units() -> dict[str, Any]:
    needs("verilator", "g++", "make")
    return {kind: stress.converted(kind) for kind in stress.USUAL}


@pytest.mark.parametrize("kind", stress.USUAL)
def test_stalls_resets_and_damage(units: dict[str, Any], kind: str, seed: int) -> None:
    seen: Counter[str] = Counter()
    refuses = kind != "barrel_encoder"
    for turn in range(16):  # one alone may have no reset: heads have two of them
        found = stress.stress(kind, units[kind], clocks=500_000, seed=seed + turn, largest=20_000)
        assert found["faults"] == []
        seen.update({name: found[name] for name in ("blocks", "frames", "resets", "refused")})
        if max(seen["blocks"], seen["frames"]) > 50 and seen["resets"] and refuses <= seen["refused"]:
            break
    else:
        pytest.fail(f"too little happened: {seen}")
    assert refuses or not seen["refused"]


def test_wrong_values_bytes_and_counts_are_seen(units: dict[str, Any], seed: int) -> None:
    """What is expected is changed in one place."""
    rng = np.random.default_rng(seed)
    frame = Coder(log2=10).encode(
        np.rint(rng.laplace(0, 4, 5000)).astype(np.int16), np.full(5000, 6, np.uint8), TableState.initial()
    )
    for change, words in (("value", "values of 1 rows differ"), ("count", "counts differ"), ("byte", "")):
        batch = DecoderBatch([frame], Coder(), rng, stress=False)
        if change == "value":
            batch.expected[2] = batch.expected[2].copy()
            batch.expected[2][3, 4] += 1
        elif change == "count":
            frame.counts[2, 5] += 1
        else:
            data = frame.bytes_of(2).copy()
            data[: data.size // 2] ^= 0x5A
            batch.batch.blocks[2]["bytes"] = batch.batch.hold(data)
        _, done, found = run(units["barrel_decoder"], batch, seed)
        frame.counts[2, 5] -= change == "count"
        assert done == 5
        assert len(found) == 1
        assert found[0].startswith("block 2 of 1024 values")
        assert words in found[0]


def test_a_constant_block_of_large_values_has_room(units: dict[str, Any], seed: int) -> None:
    """Nobody sends its bytes, but a unit gives them: three a value, and the classes of its groups."""
    values = np.full(1 << 15, -32768, np.int16)
    frame = Coder(log2=15).encode(values, np.full(values.size, 6, np.uint8), TableState.initial())
    assert frame.entries["kind"].tolist() == [CONSTANT]
    batch = EncoderBatch([frame], np.random.default_rng(seed), stress=False)
    _, done, found = run(units["barrel_encoder"], batch, seed)
    assert (done, found) == (1, [])
    assert batch.batch.blocks[0]["given"] > 3 * values.size + 400


def test_what_a_nic_does_wrong_is_seen(units: dict[str, Any], seed: int) -> None:
    """What it did is changed in one place: memory outside of frames, a frame, a counter."""
    traffic = Traffic(Generator(seed, largest=2000), units["nic"], 10)
    told = units["nic"].run(
        traffic.memory, receives=traffic.receives, sends=traffic.sends, arrivals=traffic.arrivals, seed=seed
    )
    units["nic"].reset()
    assert traffic.faults(told) == []
    traffic.memory.values[-1, 7] ^= 5
    assert traffic.faults(told) == [f"values of 1 rows differ, row {traffic.rows - 1} is the first"]
    told.counters["FRAMES_BAD"] += 1
    assert len(traffic.faults(told)) == 2
    told.frames.append(b"")
    traffic.wanted.insert(len(told.frames) - 1, b"OSCA")
    assert f"frame {len(told.frames) - 1} sent differs" in traffic.faults(told)


def test_faults_have_names() -> None:
    assert faults(0) == ""
    assert faults(1 | 1 << len(FAULTS) - 1) == f"{FAULTS[0]}, {FAULTS[-1]}"


def test_what_is_counted_is_what_the_reference_counts(seed: int) -> None:
    generate = Generator(seed, largest=3000)
    seen: Counter[str] = Counter()
    while sum(seen.values()) < 12 or len(seen) < 2:  # frames of one block and of more
        frame = generate()
        coder, rows = ReferenceCoder(Coder().params), frame.rows
        numbers = rows.values.reshape(-1)[: rows.count].tolist()
        counts = [[0] * 16 for _ in range(32)]
        groups = coder._groups(numbers, frame.positions.tolist(), 0)
        for number, group in enumerate(groups):
            count_group(group, number % group_cycle(frame.log2), rows.count, 0, counts)
        found = counted(rows, frame.log2)
        assert np.array_equal(found.sum(axis=0).reshape(32, 16), counts)
        assert np.array_equal(found, frame.counts)
        seen[str(len(found) > 1)] += 1
        assert -(-rows.means.size // GROUP_ROWS) * LANES * GROUP_ROWS >= rows.count


def test_a_seed_shows_the_same_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    needs("verilator", "g++", "make")
    shown = []
    for seeds in (["7", "8"], ["8"]):
        out = tmp_path / "stress.json"
        arguments = ["--clocks", "60k", "--unit", "barrel_decoder", "--json", str(out), "--seed", *seeds]
        assert stress.main(arguments) == 0
        lines = [line.split() for line in capsys.readouterr().out.splitlines()]
        shown.append([line[:-1] for line in lines if line[1] == "8"])
        result = json.loads(out.read_text())
        assert result["ok"]
        assert result["total"]["clocks"] >= 60_000 * len(seeds)
    assert shown[0] == shown[1] != []


def test_the_seed_of_the_day() -> None:
    def today() -> int:
        return int(datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%d"))

    before = today()
    assert stress.of_the_day() in (before, today())


def test_arguments_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in (["--clocks", "many"], ["--seed", "-1"], ["--largest", "1"], ["--day", "--seed", "1"]):
        with pytest.raises(SystemExit):
            stress.main(wrong)
    assert "expected a number such as 10M" in capsys.readouterr().err
