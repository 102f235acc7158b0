"""What `oscar allreduce` leaves on disk: results, the Markdown table, the figure, the timeline."""

from __future__ import annotations

from pathlib import Path

from oscar.config import Config
from oscar.files import write_text
from oscar.reducers.method import make_codec_of
from oscar.reducers.scheduling import schedule_of
from oscar.results import Results, write_results
from oscar.studies.comparison_figure import draw
from oscar.studies.comparison_table import markdown_table
from oscar.studies.recording import Recording
from oscar.timeline.perfetto import write_trace
from oscar.timeline.replay import replay


def write_outputs(results: Results, folder: Path) -> list[Path]:
    """Write results.json, table.md and allreduce.png; return their paths."""
    paths = [folder / name for name in ("results.json", "table.md", "allreduce.png")]
    write_results(paths[0], results)
    write_text(paths[1], markdown_table(results))
    draw(results, paths[2])
    return paths


def write_timeline(recording: Recording, config: Config, path: Path) -> None:
    """Write the timeline of the last AllReduce of the training run, for ui.perfetto.dev."""
    stats, codec = recording.stats[-1], make_codec_of(config)
    schedule = schedule_of(config, codec, stats.nodes, stats.values)
    spans = replay(schedule, stats.frames, config.link.model(), coded=codec.coded, spans=True).spans
    meta = {"config": config.model_dump(mode="json"), "iteration": stats.iteration, "plan": stats.plan}
    meta["clock"] = config.link.clock_text()
    write_trace(path, spans, meta)
