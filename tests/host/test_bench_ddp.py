"""`oscar bench ddp` starts its ranks and names one that failed; the example that it runs trains."""

from __future__ import annotations

import argparse
import runpy

import pytest

from needs import needs
from oscar_lab.bench import ddp


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    ddp.add_arguments(parser)
    return parser.parse_args(words)


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
