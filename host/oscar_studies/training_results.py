"""What `oscar train` prints, keeps and draws: train.json, the table made of it, and the figure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from oscar.config import Config
from oscar.plotting import PALETTE, SOFT, figure, logarithmic
from oscar.reducers.method import make_codec_of
from oscar.reducers.scheduling import schedule_of
from oscar.results import FORMS, Results, finite
from oscar.schemes.registry import method_info
from oscar.tables import Table
from oscar.version import __version__
from oscar_studies.training import TAIL, TAIL_GAP, Run

_NUMBERS = (  # of a row, whose mean and spread over the seeds are kept
    "loss", "accuracy", "bits_per_value", "step_sync_bits", "sent_mb", "simulated_s", "exposed", "clipped",
    "clipped_energy",
)  # fmt: skip


def make_results(config: Config, runs: Sequence[Run]) -> dict[str, Any]:
    """Return what train.json holds: configuration, every run's series, and mean and spread over the seeds.

    None stands for what is no number: a diverged run's, or where a trace holds no losses.
    """
    rows = [_row(run) for run in runs]
    # NaN for a seed that diverged, or where nothing is held out.
    columns = {key: [row.get(key, math.nan) for row in rows] for key in _NUMBERS}
    results = {
        "oscar": __version__,
        "schema": FORMS["train"].schema,
        "method": method_name(config, chosen := schedule_name(config, runs[0].values)),
        "schedule": chosen,
        "config": config.model_dump(mode="json"),
        "clock": config.link.clock_text(),
        "model": {"values": runs[0].values, "tensors": runs[0].tensors},
        "rows": rows,
        "mean": {key: float(np.mean(column)) for key, column in columns.items()},
        "spread": {
            key: float(np.std(column, ddof=1)) if len(rows) > 1 else 0.0 for key, column in columns.items()
        },
        "runs": [asdict(run) for run in runs],
    }
    return dict(finite(results))


def _row(run: Run) -> dict[str, Any]:
    """Return one seed's line: held-out loss and accuracy, or the training loss where nothing is held out."""
    series = run.series
    recent = series["loss"][-TAIL * TAIL_GAP :]
    held_out = run.final or {"loss": math.nan if run.diverged else statistics.fmean(recent)}
    compute = run.compute_s * len(series["loss"])
    return {
        "seed": run.seed,
        **held_out,
        "bits_per_value": statistics.fmean(series["bits_per_value"] or [math.nan]),
        "step_sync_bits": statistics.fmean(series["step_sync_bits"] or [math.nan]),
        "sent_mb": run.sent_bytes / 1e6,
        "simulated_s": run.simulated_s,
        "exposed": 1 - compute / run.simulated_s if run.simulated_s else 0.0,
        "clipped": run.clipped,
        "clipped_energy": run.clipped_energy,
        "exact": run.exact,
        "diverged": run.diverged,
        "state": run.state_sha256,
    }


def schedule_name(config: Config, values: int) -> str:
    """Return the name of the schedule that the run's coded messages took, whoever chose it."""
    if config.policy is not None:
        return "by the policy"
    return schedule_of(config, make_codec_of(config), config.nodes, values).name


def method_name(config: Config, schedule: str) -> str:
    """Return the run's method with its step and what else is not the default, `schedule` among it."""
    codec = method_info(config.method).codec
    if codec is None:
        return " ".join([config.method, *(f"{key}={value}" for key, value in sorted(config.scheme.items()))])
    parts = [config.method]
    if config.schedule.name not in ("ring", "network"):
        parts[0] += f"+{schedule}"
    if codec.domain == "int":
        quantiser = config.quantiser
        parts.append(f"step {quantiser.coarseness:g} sigma" if quantiser.scale == "sigma" else "one step")
        parts += ["of each value"] if quantiser.step == "value" else []
        parts += ["feedback"] if quantiser.error_feedback else []
    return " ".join(parts)


def heading(results: Results) -> list[str]:
    """Return the lines above the table, without marks."""
    config, model = results["config"], results["model"]
    link, train = config["link"], config["train"]
    compute = statistics.fmean(run["compute_s"] for run in results["runs"]) * 1e3
    source = "measured here" if train["compute_ms"] is None else "as given"
    ring = "" if train["ring_every"] == 1 else f"; ring in bursts, once in {train['ring_every']} iterations"
    name = config["workload"]["trace"] or config["workload"]["name"]
    return [
        f"oscar {results['oscar']} train: {name}, {model['values']:,} values in {model['tensors']} tensors, "
        f"{config['nodes']} nodes, {config['iterations']} iterations{ring}",
        f"method {results['method']}; schedule {results.get('schedule', 'not named')}, "
        f"plan {config['plan']['name']}",
        f"time model: {link['gbps']:g} Gb/s, {link['latency_us']:g} us a hop, {results['clock']}; compute "
        f"{compute:.3g} ms ({source}), {train['buckets']} buckets overlap the backward pass",
        f"loss, accuracy: held out, mean of the last {TAIL} looks, {TAIL_GAP} iterations apart; MB: sent by",
        "all nodes together; exposed: the part of the time in which compute waits for the AllReduce;",
        "clipped: values that saturated; of energy: the largest share of an iteration's energy cut off;",
        "state: start of the SHA-256 over weights, optimiser and batch generators at the end",
    ]


_TABLE = Table(
    "seed:# seed >6", "loss >8.4f", "accuracy >8.4f", "bits_per_value:bits/val >8.3f",
    "step_sync_bits:sync >7.3f", "sent_mb:MB sent >10.2f", "simulated_s:simul. s >9.4f", "exposed >7.3f",
    "clipped >8.6g", "clipped_energy:of energy >9.2g", "exact >5", "state <",
)  # fmt: skip


def text_table(results: Results) -> str:
    """Return heading and table as text; every line that is no row of the table starts with #."""
    shown = [
        {**row, "state": "diverged" if row["diverged"] else row["state"][:12]} for row in results["rows"]
    ]
    if len(shown) > 1:
        shown += [{**results[name], "seed": name, "exact": "", "state": ""} for name in ("mean", "spread")]
    known = dict.fromkeys(_NUMBERS)  # a workload that holds nothing out has no accuracy
    rows = [_TABLE.line(known | finite(row)) for row in shown]
    return "\n".join([*(f"# {line}" for line in heading(results)), _TABLE.heading, *rows])


def mean_series(results: Results, name: str) -> np.ndarray:
    """Return a series averaged over the seeds, float64 [iteration]; see `seed_series`."""
    return np.asarray(seed_series(results, name).mean(axis=0))


def seed_series(results: Results, name: str) -> np.ndarray:
    """Return a series of every seed, float64 [seed, iteration], as long as the shortest; NaN if not known."""
    every = [run["series"][name] for run in results["runs"]]
    shortest = min(map(len, every))
    return np.array([[math.nan if x is None else x for x in one[:shortest]] for one in every], float)


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
    """One line per panel, with the range over the seeds beneath it and held-out losses as dots."""
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
