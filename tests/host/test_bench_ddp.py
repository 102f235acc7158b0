"""`oscar bench ddp` starts its ranks and names one that failed; the example that it runs trains."""

from __future__ import annotations

import argparse
import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from needs import needs
from oscar.cli import main
from oscar.errors import OscarError
from oscar_lab.bench import ddp

REPORT = """
import json, os, sys
out = sys.argv[sys.argv.index("--json") + 1]
hooks = sys.argv[sys.argv.index("--hook") + 1 : sys.argv.index("--bypass")]
def row(hook, ms):
    return {"hook": hook, "median_ms": ms, "quartiles_ms": [ms, ms], "cpu_ms": ms, "sent_bytes": 8,
            "loss": 1.0, "identical": hook != "fp16"}
if os.environ["RANK"] == "1":
    with open(out, "w") as file:
        json.dump({"ranks": int(os.environ["WORLD_SIZE"]), "values": 3,
                   "runs": [row(hook, 10.0 / (i + 1)) for i, hook in enumerate(hooks)]}, file)
"""


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    ddp.add_arguments(parser)
    return parser.parse_args(words)


def test_the_table_compares_with_oscar_and_replicas_must_be_identical(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    script, out = tmp_path / "script.py", tmp_path / "out.json"
    script.write_text(REPORT)
    words = ["bench", "ddp", "--ranks", "3", "--script", str(script), "--json", str(out)]
    assert main([*words, "--hooks", "none", "oscar"]) == 0
    report: dict[str, Any] = json.loads(out.read_text())
    assert report["ranks"] == 3
    assert [row["times_oscar"] for row in report["runs"]] == [2.0, 1.0]
    printed = capsys.readouterr().out
    assert "2.00x" in printed
    assert "bar" not in printed  # it is of 100 Mb/s
    assert main([*words, "--hooks", "fp16", "oscar"]) == 1
    assert "DIFFER" in capsys.readouterr().out
    monkeypatch.setattr(ddp, "_in_lab", lambda args, words: report)
    assert main([*words, "--mbps", "100"]) == 0
    assert "2.00x (bar: 5x)" in capsys.readouterr().out


def test_a_rank_that_fails_is_quoted_and_the_others_end(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys, time\ntime.sleep(300 * (os.environ['RANK'] == '0'))\nsys.exit('no luck')"
    )
    with pytest.raises(OscarError, match="rank 1 ended with status 1: no luck"):
        ddp.run(arguments("--ranks", "2", "--script", str(script)))
    with pytest.raises(OscarError, match=r"rank 0 still ran after --limit-s 0\.5 and was killed"):
        ddp.run(arguments("--ranks", "1", "--limit-s", "0.5", "--script", str(script)))
    with pytest.raises(OscarError, match="run it in a checkout"):
        ddp.run(arguments("--script", str(tmp_path / "none.py")))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--set schedule.name=duplex", "--set replaces keys of --config"),
        ("--config a.yaml --schedule duplex", "--coarseness and --schedule are in the file"),
        ("--config a.yaml --coarseness 1", "--coarseness and --schedule are in the file"),
        ("--config a.yaml --hook none oscar oscar-sw", "take off oscar-sw, or --config"),
    ],
)
def test_the_example_refuses_options_that_it_would_ignore(
    words: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("torch")
    monkeypatch.setattr("sys.argv", [str(ddp.SCRIPT), *words.split()])
    with pytest.raises(SystemExit):
        runpy.run_path(str(ddp.SCRIPT))["arguments"]()
    assert said in capsys.readouterr().err


def test_the_example_trains_identical_replicas() -> None:
    needs("torch")
    words = ["--hook", "none", "oscar", "--bypass", "never", "--steps", "8", "--batch", "1"]
    words += ["--length", "16", "--width", "32", "--layers", "1"]
    report = ddp.run_ranks(arguments("--ranks", "2", "--limit-s", "240"), [str(ddp.SCRIPT), *words])
    plain, ours = report["runs"]
    assert plain["identical"]
    assert ours["identical"]
    assert ours["loss"] == pytest.approx(plain["loss"], rel=0.05)
    assert 0 < ours["sent_bytes"] < plain["sent_bytes"] / 4
