"""Pictures of the documentation, drawn from the tables of its pages alone.

`PICTURES[name](path)` draws one: how a picture is made anew, and what a test holds the kept one to.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from oscar.config import load_config
from oscar.studies.contest import large_time
from oscar.studies.contest_figure import draw as draw_comparison
from oscar_lab.lab.report import draw as draw_lab

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
COMPARED = re.compile(
    r"^(?P<contender>.{22}) (?:\((?P<diverged>\d+) diverged\))?(?P<label>.*?) +\d+ +(?P<mean>[\d.]+)"
    r" +(?P<spread>[\d.]+) +-?[\d.]+ ±[\d.]+ (?P<holds>yes|no) +(?P<bits>[\d.]+) +(?P<sync>[\d.]+)"
)
CASE = re.compile(r"^# (?P<hosts>\d+) hosts, (?P<mbps>\d+) Mb/s, goodput")
MEASURED = re.compile(
    r"^(?P<name>.{22}) +\d+ +\d+ +(?P<type>\w+) +sum +-1 +(?P<us>\d+) .* (?P<low>\d+)-(?P<high>\d+) "
)


def block(page: str, command: str) -> list[str]:
    """Return the lines of what a command printed, as its page has them."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return text.partition(f"\n$ {command}\n")[2].partition("\n```")[0].splitlines()


def comparison(name: str, path: Path) -> None:
    """Draw the picture of `oscar compare` from its table on the page."""
    config = load_config(ROOT / "configs" / f"{name}.yaml")
    codecs = {contender.name: variant.method for contender, _, variant in config.contenders()}
    lines = block("results/compare.md", f"oscar compare configs/{name}.yaml")
    rows: list[dict[str, Any]] = []
    for line in lines:
        if found := COMPARED.match(line):
            contender = found["contender"].strip()
            rows.append(
                {
                    "contender": contender,
                    "label": found["label"].strip(),
                    "codec": codecs[contender],
                    "metric": config.compare.metric,
                    "diverged": int(found["diverged"] or 0),
                    "holds": found["holds"] == "yes",
                    "large_s": large_time(float(found["sync"]), config.nodes, config.link.model()),
                    **{key: float(found[key]) for key in ("mean", "spread", "bits")},
                }
            )
    title = lines[0].removeprefix("# ").partition(", seeds")[0]
    draw_comparison({"title": title, "metric": config.compare.metric, "rows": rows}, path)


def lab(path: Path) -> None:
    """Draw the picture of `oscar lab` from its tables on the page: the cases that have all methods."""
    lines = block("results/lab.md", "oscar lab configs/lab.yaml")
    cases: list[dict[str, Any]] = []
    for line in lines:
        if found := CASE.match(line):
            cases.append({"hosts": int(found["hosts"]), "mbps": int(found["mbps"]), "methods": []})
        elif found := MEASURED.match(line):
            row = {
                "name": found["name"].strip(),
                "kind": "replay" if found["type"] == "frames" else "",
                "time_s": int(found["us"]) * 1e-6,
                "quartiles_s": [int(found[end]) * 1e-6 for end in ("low", "high")],
            }
            cases[-1]["methods"].append(row)
    most = max(len(case["methods"]) for case in cases)
    about = re.match(r"# (?P<source>\w+), (?P<values>[\d,]+) values; (?P<cores>\d+) cores", lines[0])
    assert about is not None
    results = {
        "source": about["source"],
        "values": int(about["values"].replace(",", "")),
        "machine": {"cores": int(about["cores"])},
        "cases": [case for case in cases if len(case["methods"]) == most],
    }
    draw_lab(results, path)


PICTURES: dict[str, Callable[[Path], None]] = {
    "compare_cnn": partial(comparison, "compare_cnn"),
    "compare_transformer": partial(comparison, "compare_transformer"),
    "lab": lab,
}
