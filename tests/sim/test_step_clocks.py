"""Coefficients of a NIC from measured clocks: the fit finds what made the clocks, and files are checked."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from oscar.coding.asc.turns import cells_of
from oscar.timeline.clocks import Terms
from oscar.timeline.nic import NIC, load_nic
from oscar_sim import step_clocks
from oscar_sim.fit_clocks import Queue, fit_nic

FRONT = 100
RESULT, HOLD = Terms(busiest=4.0, longest=16.0, once=50.0), Terms(mean=4.0, blocks=10.0, once=200.0)


def made(way: str, seed: int, units: int, block: int) -> Queue:
    """Return a queue whose clocks follow the model with coefficients RESULT and HOLD."""
    rng = np.random.default_rng(seed)
    counts = [int(each) for each in rng.integers(1000, 40_000, 6)]
    cells = []
    for count in counts:
        live = rng.random(-(-count // 32)) < rng.choice([0.1, 0.5, 1.0])
        cells.append(cells_of(live.astype(np.uint8) * 3, count).tolist())
    empty = Queue("made", seed, way, counts, cells, [], [], [], [])
    terms = empty.terms(units, block)
    works, holds = np.rint(terms @ np.array(RESULT)), np.rint(terms @ np.array(HOLD))
    ends = FRONT + np.append(0, np.cumsum(holds)[:-1]) + works
    alone = (FRONT + works).astype(int).tolist()
    return Queue(
        "made", seed, way, counts, cells, alone, [FRONT] * 6, [0] * 6, ends.astype(int).tolist()
    )  # fmt: skip


def test_the_fit_finds_the_coefficients_that_made_the_clocks() -> None:
    for nic in (load_nic(None, 10.0), load_nic()):
        queues = [made(way, seed, nic.units, nic.block) for way in NIC for seed in range(12)]
        fitted = fit_nic(nic, queues, source="made", revision="0")
        assert (fitted.measured_by, fitted.revision, fitted.mhz) == ("made", "0", nic.mhz)
        for way in NIC:
            stage = fitted.stage(way)
            assert stage.front == FRONT
            assert all(clocks >= 0 for part in (stage.result, stage.hold) for clocks in part.terms())
            assert stage.error["worst"] < 0.01
            assert stage.error["queue_worst"] < 0.02


def test_a_file_that_is_fitted_again_is_written_with_its_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nic = load_nic()
    queues = [asdict(made(way, seed, nic.units, nic.block)) for way in NIC for seed in range(8)]
    file, kept, recorded = (tmp_path / name for name in ("nic.json", "kept.json", "recorded.json"))
    nic.write(file)
    kept.write_text(json.dumps({"nic": queues}))
    words = [str(file), "--from-json", str(kept), "--write", "--record", str(recorded)]
    assert step_clocks.main(words) == 0
    written = load_nic(str(file))
    assert "of made, 8 seeds, alone and in queues, both ways through a NIC of" in written.measured_by
    assert written.stage("encode").result != nic.stage("encode").result
    assert {row["way"] for row in json.loads(recorded.read_text())["nic"]} == set(NIC)
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_what_is_no_measurement_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nic, kept = tmp_path / "nic.json", tmp_path / "kept.json"
    load_nic().write(nic)
    kept.write_text(json.dumps({"nic": [{"way": "encode"}]}))
    assert step_clocks.main([str(nic), "--from-json", str(kept)]) == 2
    assert "expected what --json of this command wrote" in capsys.readouterr().err
