"""The figure of a training: loss against iterations, bytes and modelled time, drawn from train.json alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from oscar.results import Results
from oscar.studies.plotting import PALETTE, SOFT, figure, logarithmic
from oscar.studies.training_results import mean_series, seed_series

SMOOTHED = 0.05  # of the iterations: the window of the running mean of the training loss
FAR_APART = 8  # times the bytes of another method: then the axis of bytes is logarithmic


def draw(several: Sequence[Results], path: Path) -> None:
    """Draw the results of one or more trainings of the same workload into a PNG at `path`."""
    config = several[0]["config"]
    title = (
        f"{config['workload']['name']}, {several[0]['model']['values']:,} values, {config['nodes']} nodes: "
        + (several[0]["method"] if len(several) == 1 else f"{len(several)} methods")
    )
    with figure(path, height=3.9, title=title) as drawn:
        panels = drawn.subplots(1, 3, sharey=True)
        for index, results in enumerate(several):
            _curves(panels, results, PALETTE[(index + 3) % len(PALETTE)])
        for axes, label in zip(
            panels, ("iterations", "MB sent by all nodes", "modelled seconds"), strict=True
        ):
            axes.set_xlabel(label)
            axes.set_xlim(left=0)
            axes.grid()
        ends = [float(mean_series(results, "wire_bytes").sum()) / 1e6 for results in several]
        if min(ends) and max(ends) / min(ends) > FAR_APART:
            logarithmic(panels[1].xaxis)
            panels[1].set_xlim(left=min(ends) / 20)
        panels[0].set_title("loss (nats): lines training, dots held out")
        if len(several) > 1:
            panels[2].legend()
        clocks = dict.fromkeys(results["clock"] for results in several)
        drawn.supxlabel("seconds: " + "; ".join(clocks), x=0.988, ha="right", fontsize=9.5, color=SOFT)


def _curves(panels: Sequence[Any], results: Results, colour: str) -> None:
    """One line per panel, with the range over the seeds behind it and held-out losses as dots."""
    smooth = np.array([smoothed(row) for row in seed_series(results, "loss")])
    sent = np.cumsum(mean_series(results, "wire_bytes")) / 1e6
    seconds = np.cumsum(mean_series(results, "iteration_s"))
    for axes, x in zip(panels, (np.arange(1, sent.size + 1), sent, seconds), strict=True):
        axes.plot(x, smooth.mean(axis=0), color=colour, linewidth=1.8, label=results["method"])
        if len(smooth) > 1:
            low, high = smooth.min(axis=0), smooth.max(axis=0)
            axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
        for run in results["runs"]:
            at = [(e["iteration"], e["loss"]) for e in run["evaluations"] if e["iteration"] <= x.size]
            if at:
                places, values = zip(*at, strict=True)
                axes.plot(x[np.array(places) - 1], values, "o", color=colour, markersize=2.5, alpha=0.6)


def smoothed(losses: np.ndarray) -> np.ndarray:
    """Return the running mean over the last `SMOOTHED` part of the iterations, shorter at the start."""
    width = max(1, round(losses.size * SMOOTHED))
    total = np.concatenate([[0.0], np.cumsum(losses)])
    ends = np.arange(1, losses.size + 1)
    starts = np.maximum(0, ends - width)
    return (total[ends] - total[starts]) / (ends - starts)
