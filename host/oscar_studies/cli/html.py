"""One self-contained page of a result: table, figures, timeline, configuration, where it comes from."""

from __future__ import annotations

import base64
import hashlib
import tempfile
from html import escape
from pathlib import Path
from typing import Any

import yaml

from oscar.collective.frames import Frames
from oscar.plotting import GRID, PALETTE, figure
from oscar.results import Results
from oscar.timeline.replay import STAGES, replay
from oscar.version import __version__
from oscar_studies.cli.report import ResultsKind
from oscar_studies.comparison_report import kept_link, kept_schedule, of_scheme

NODES_SHOWN = 8  # of a timeline: more are too thin to be seen

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ margin: 0 auto; max-width: 78rem; padding: 1.5rem; color: #22303c; background: #fff;
       font: 16px/1.5 system-ui, sans-serif; }}
h1 {{ font-size: 1.6rem; margin: 0 0 .3rem; }}
h2 {{ font-size: 1.1rem; margin: 2rem 0 .5rem; border-bottom: 1px solid #e3e8ec; padding-bottom: .2rem; }}
pre {{ overflow-x: auto; background: #f6f8f9; padding: .8rem 1rem; font-size: .8rem; line-height: 1.45; }}
img {{ max-width: 100%; height: auto; }}
p.notes {{ color: #6b7883; margin: .2rem 0; }}
th {{ text-align: left; padding-right: 1.5rem; font-weight: 600; vertical-align: top; }}
td {{ overflow-wrap: anywhere; }}
</style>
</head>
<body>
<h1>{title}</h1>
{sections}
</body>
</html>
"""


def page(kind: ResultsKind, results: Results, path: Path) -> str:
    """Return the page of `results`, which were read from `path`; nothing in it refers to another file."""
    text = kind.text(results)
    notes = [line.lstrip("# ") for line in text.splitlines() if line.startswith("# ")]
    sections = [_notes(notes[:1])]
    sections += _section("Figure", _drawn(kind, results))
    sections += _section("Table", f"<pre>{escape(text)}</pre>")
    if kind.command == "allreduce" and results["nodes"] > 1:
        sections += _section("Timeline", _timeline(results))
    if "config" in results:
        shown = yaml.safe_dump(results["config"], sort_keys=False, allow_unicode=True)
        body = f"<details><summary>all keys, as YAML</summary><pre>{escape(shown)}</pre></details>"
        sections += _section("Configuration", body)
    sections += _section("Where it comes from", _provenance(kind, results, path))
    title = f"oscar {kind.command}: {path.parent.name}/{path.name}"
    return _PAGE.format(title=escape(title), sections="\n".join(sections))


def _section(title: str, body: str) -> list[str]:
    return [f"<section><h2>{title}</h2>", body, "</section>"]


def _notes(lines: list[str]) -> str:
    return "\n".join(f'<p class="notes">{escape(line)}</p>' for line in lines)


def _drawn(kind: ResultsKind, results: Results) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figure.png"
        kind.draw(results, path)
        return _image(path, f"Figure of oscar {kind.command}")


def _image(path: Path, alt: str) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<img alt="{escape(alt)}" src="data:image/png;base64,{data}">'


def _timeline(results: Results) -> str:
    """Return the last AllReduce of the fastest coded method, or of another codec: what each node did when.

    Times are of the time model. A scheme's frames are of several messages, which no one schedule replays.
    """
    codecs = [row for row in results["methods"] if not of_scheme(row)]
    rows = [row for row in codecs if row["coded"]] or codecs
    if not rows:
        return _notes(["Only schemes were compared: trace.json has their messages."])
    row = min(rows, key=lambda row: row["time_s"])
    link = kept_link(results)
    replayed = replay(
        kept_schedule(results, row),
        Frames.from_tree(row["frames"]),
        link.model(),
        coded=row["coded"],
        spans=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "timeline.png"
        _draw_timeline(replayed.spans, f"{row['name']}, {row['plan']}: {replayed.total_s * 1e6:.1f} us", path)
        return _image(path, "Timeline of one AllReduce") + _notes(
            [
                f"Modelled, with the bytes of real frames; {link.clock_text()}.",
                "Open trace.json in ui.perfetto.dev to zoom.",
            ]
        )


def _draw_timeline(spans: Any, title: str, path: Path) -> None:
    """One lane for each node and stage, a bar for each time it is busy."""
    colours = {"encode": PALETTE[3], "send": PALETTE[4], "wait": GRID, "decode-add": PALETTE[2]}
    nodes = min(NODES_SHOWN, 1 + max(span.rank for span in spans))
    with figure(path, height=1.2 + 0.62 * nodes, title=title) as drawn:
        axes = drawn.subplots()
        for index, stage in enumerate(STAGES):
            for rank in range(nodes):
                bars = [
                    (span.start_s * 1e6, span.duration_s * 1e6)
                    for span in spans
                    if span.rank == rank and span.stage == stage
                ]
                label = stage if rank == 0 else None
                axes.broken_barh(bars, (rank + 0.22 * index, 0.18), color=colours[stage], label=label)
        axes.set_yticks([rank + 0.4 for rank in range(nodes)], [f"node {rank}" for rank in range(nodes)])
        axes.invert_yaxis()
        axes.set_xlabel("us")
        axes.grid(axis="x")
        drawn.legend(loc="outside upper right", ncols=len(STAGES))


def _provenance(kind: ResultsKind, results: Results, path: Path) -> str:
    """Return a table: what wrote the results, on what, and their digest."""
    kept = results.get("provenance", [])
    several = kept if isinstance(kept, list) else [kept]
    rows = {
        "Command": f"oscar {kind.command}",
        "Results": path.name,
        "SHA-256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "Written by": f"oscar {results.get('oscar', 'of an unnamed release')}",
        "Page by": f"oscar {__version__}",
        **{
            f"{key.capitalize()}{f' ({number} of {len(several)})' if len(several) > 1 else ''}": value
            for number, one in enumerate(several, 1)
            for key, value in one.items()
        },
        **{f"Machine, {key}": value for key, value in results.get("machine", {}).items()},
    }
    cells = "".join(f"<tr><th>{escape(str(k))}</th><td>{escape(str(v))}</td></tr>" for k, v in rows.items())
    return f"<table>{cells}</table>"
