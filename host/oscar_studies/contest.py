"""Train every method on the same workload, seeds and iterations; put bytes against accuracy."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from oscar.config import Config
from oscar.errors import ConfigError, OscarError
from oscar.files import write_json
from oscar.provenance import provenance
from oscar.schemes.registry import method_info, source_of
from oscar.timeline.link import LinkModel
from oscar_studies.parallel import Tick, run_tasks
from oscar_studies.recording import Progress
from oscar_studies.training import check_ring, train

LARGE = 64_000_000  # values of the model that speed-ups are given for: links, not latencies, decide
IDEAL = "codec: ideal (takes no time)"  # clock of end-to-end figures, whatever link.codec says
# Sections of the configuration that affect a run's result; a change elsewhere does not repeat the run.
DECISIVE = {
    "nodes", "iterations", "seed", "workload", "quantiser", "method", "scheme", "asc", "plan", "schedule",
    "topology", "link", "train",
}  # fmt: skip
SERIES_STEP = 5  # iterations between two kept losses
WORST = {"accuracy": 0.0, "loss": 99.0}  # what a run that diverged counts with


@dataclass(frozen=True)
class TrainingTask:
    """One training run: a contender's point under one seed."""

    contender: str
    point: int
    label: str
    config: Config

    @property
    def key(self) -> str:
        """Name of the file that keeps the run: a digest of all that affects its result, and nothing else."""
        text = json.dumps(self.config.model_dump(mode="json", include=DECISIVE), sort_keys=True)
        return hashlib.sha256(text.encode() + source_of(self.config.method)).hexdigest()[:20]


def tasks_of(config: Config) -> list[TrainingTask]:
    """Return all runs that `config.compare` asks for, seed by seed; raises ConfigError without any."""
    if not config.compare.contenders:
        raise ConfigError("compare.contenders is empty; configs/compare_cnn.yaml shows what it holds")
    tasks = []
    for seed in config.compare.seeds:
        numbers: dict[str, int] = {}
        for contender, point, variant in config.contenders():
            number = numbers[contender.name] = numbers.get(contender.name, -1) + 1
            own = variant.variant(seed=seed, train={**variant.train.model_dump(), **_ring(variant)})
            check_ring(own)
            tasks.append(TrainingTask(contender.name, number, _label(point), own))
    return tasks


def _ring(config: Config) -> dict[str, int]:
    """Rings may be left out between bursts only where sums do not depend on them."""
    return {} if method_info(config.method).commutes else {"ring_every": 1}


def _label(point: dict[str, dict[str, Any]]) -> str:
    return " ".join(f"{key}={value}" for section in point.values() for key, value in section.items())


def run_all(
    tasks: Sequence[TrainingTask],
    folder: Path,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Return what every run left, in the order of `tasks`; runs that have a file in `folder` are done."""
    folder.mkdir(parents=True, exist_ok=True)
    # By key: contenders that share a configuration share a run.
    missing = {task.key: task for task in tasks if not (folder / f"{task.key}.json").exists()}
    work: list[Callable[[Tick], None]] = [
        partial(_run, task, folder / f"{key}.json") for key, task in missing.items()
    ]
    total = sum(task.config.iterations for task in missing.values())
    if work:
        run_tasks(work, stage="training", total=total, workers=workers, progress=progress)
    return [_read(folder / f"{task.key}.json") for task in tasks]


def _run(task: TrainingTask, path: Path, tick: Tick) -> None:
    try:
        run = train(task.config, tick=tick)
    except ConfigError as error:
        raise ConfigError(f"{task.contender} ({task.label}): {error}") from error
    kept = asdict(run)
    series = kept.pop("series")
    kept["losses"] = series["loss"][::SERIES_STEP]
    if not series["loss"]:
        raise OscarError(
            f"{task.contender} ({task.label}): expected gradients that are numbers, the first ones are not; "
            "look at the workload's options"
        )
    kept |= {name: statistics.fmean(values) for name, values in series.items() if name != "loss"}
    kept |= {"contender": task.contender, "label": task.label, "iterations": task.config.iterations}
    kept["provenance"] = provenance()
    write_json(path, kept, indent=None)


def _read(path: Path) -> dict[str, Any]:
    try:
        result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        result["final"], result["bits_per_value"]
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"{path}: expected what one run left ({error!r}); remove the file") from error
    return result


def provenances(runs: Iterable[dict[str, Any]]) -> list[dict[str, str]]:
    """Return where `runs` come from: of each revision, Python and processor the first run's, all in order."""
    names = ("revision", "python", "processor")
    unknown = dict.fromkeys(names, "not kept by some runs")
    kept = [run.get("provenance", unknown) for run in runs]
    return list({tuple(map(one.get, names)): one for one in reversed(kept)}.values())[::-1]


def summarise(
    config: Config, tasks: Sequence[TrainingTask], runs: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return one row per contender and point: mean and spread over seeds, bytes, times, and what holds.

    holds: not worse than fp32 by more than the standard deviation of fp32 over its seeds: a bound on the
    difference of means, no test of significance. diverged: runs whose gradients or metric left the numbers;
    each counts with the worst there is. Raises ConfigError where the workload has no such metric.
    """
    metric = config.compare.metric
    better = 1 if metric == "accuracy" else -1
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    labels: dict[tuple[str, int], tuple[str, Config]] = {}
    for task, run in zip(tasks, runs, strict=True):
        groups.setdefault((task.contender, task.point), []).append(run)
        labels[task.contender, task.point] = (task.label, task.config)
    link = config.link.model()
    rows = []
    for (contender, point), group in groups.items():
        label, own = labels[contender, point]
        scores = [_score(run, metric) for run in group]
        rows.append(
            {
                "contender": contender,
                "point": point,
                "label": label,
                "codec": own.method,
                "seeds": len(group),
                "diverged": sum(not _finished(run, metric) for run in group),
                "metric": metric,
                "mean": statistics.fmean(scores),
                "spread": statistics.stdev(scores) if len(scores) > 1 else 0.0,
                "scores": scores,
                "bits": _mean(group, "bits_per_value"),
                "sync_bits": _mean(group, "step_sync_bits"),
                "communication_s": _mean(group, "communication_s"),
                "iteration_s": _mean(group, "iteration_s"),
                **_clipped(group),
                "large_s": large_time(_mean(group, "step_sync_bits"), config.nodes, link),
            }
        )
    _relate(rows, better)
    return rows


def _finished(run: dict[str, Any], metric: str) -> bool:
    return not run["diverged"] and math.isfinite(run["final"].get(metric, math.nan))


def _score(run: dict[str, Any], metric: str) -> float:
    if not run["diverged"] and metric not in run["final"]:
        there = ", ".join(run["final"]) or "none: it holds nothing out"
        raise ConfigError(f"compare.metric: expected one that the workload has ({there}), got {metric}")
    return float(run["final"][metric]) if _finished(run, metric) else WORST[metric]


def _mean(runs: Iterable[dict[str, Any]], key: str) -> float:
    return statistics.fmean(run[key] for run in runs)


def _clipped(runs: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """Return the mean of the values clipped in a run, and the largest share of an iteration's energy.

    Both are None where a run was kept by a release that did not count them.
    """
    if any("clipped" not in run for run in runs):
        return {"clipped": None, "clipped_energy": None}
    return {"clipped": _mean(runs, "clipped"), "clipped_energy": max(run["clipped_energy"] for run in runs)}


def large_time(sync_bits: float, nodes: int, link: LinkModel) -> float:
    """Return the modelled seconds of an AllReduce of 64 M values at these step-synchronous bits per value."""
    hops = 2 * (nodes - 1)
    return hops * (LARGE / nodes * sync_bits / 8 * link.seconds_per_byte + link.latency_s)


def fp32_row(rows: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the row that the others are held to, or None."""
    return next((row for row in rows if row["codec"] == "fp32"), None)


def _relate(rows: list[dict[str, Any]], better: int) -> None:
    """Add what needs more than one row: against fp32, and who is on the Pareto front."""
    base = fp32_row(rows)
    for row in rows:
        row["worse_by"] = None if base is None else better * (base["mean"] - row["mean"])
        row["paired_error"] = None if base is None else _paired_error(row["scores"], base["scores"])
        # Of one seed nothing is known of what a seed moves.
        known = base is not None and len(base["scores"]) > 1
        row["holds"] = row["worse_by"] <= base["spread"] if known and base is not None else None
        row["front"] = not any(_dominates(other, row, better) for other in rows)


def _paired_error(scores: Sequence[float], base: Sequence[float]) -> float:
    """Return the standard error of the mean difference to fp32 under equal seeds; 0 where seeds differ."""
    if len(scores) != len(base) or len(scores) < 2:
        return 0.0
    differences = [theirs - mine for mine, theirs in zip(scores, base, strict=True)]
    return statistics.stdev(differences) / math.sqrt(len(differences))


def _dominates(one: dict[str, Any], other: dict[str, Any], better: int) -> bool:
    """Whether a row is no worse than another in bits and metric, and better in one of them."""
    fewer, gain = other["bits"] - one["bits"], better * (one["mean"] - other["mean"])
    return bool(min(fewer, gain) >= 0 and max(fewer, gain) > 0)


def fewest_bits(rows: Sequence[dict[str, Any]], target: float, better: int) -> dict[str, float]:
    """Return per contender the fewest bits/value at which it reaches `target`, between points on a line.

    The line is straight in log2(bits) and the metric, from each point that misses the target to the next
    finer one that reaches it; a contender that never does is left out. Points are taken at their best: a
    coarser point that is better than a finer one replaces it.
    """
    result = {}
    for name in dict.fromkeys(row["contender"] for row in rows):
        own = sorted((row for row in rows if row["contender"] == name), key=lambda row: row["bits"])
        reached = next((i for i, row in enumerate(own) if better * (row["mean"] - target) >= 0), None)
        if reached is None:
            continue
        high = own[reached]
        if reached == 0:
            result[name] = high["bits"]
            continue
        low = own[reached - 1]
        part = (target - low["mean"]) / (high["mean"] - low["mean"])
        coarse, fine = math.log2(low["bits"]), math.log2(high["bits"])
        result[name] = 2 ** (coarse + part * (fine - coarse))
    return result


def metric_at(rows: Sequence[dict[str, Any]], contender: str, bits: float, better: int) -> float | None:
    """Return the contender's metric with at most `bits` per value, or None beyond its points.

    Between two points the metric is interpolated, linear in log2(bits), as in `fewest_bits`. Where a coarser
    point, which sends less, is better, its metric is returned.
    """
    own = sorted((row for row in rows if row["contender"] == contender), key=lambda row: row["bits"])
    if not own or not own[0]["bits"] <= bits <= own[-1]["bits"]:
        return None
    result = [row["mean"] for row in own if row["bits"] <= bits]
    for low, high in itertools.pairwise(own):
        if low["bits"] < bits < high["bits"]:
            part = math.log2(bits / low["bits"]) / math.log2(high["bits"] / low["bits"])
            result.append(low["mean"] + part * (high["mean"] - low["mean"]))
    return float(max(result, key=lambda mean: better * mean))


def speedups(row: dict[str, Any], base: dict[str, Any], shares: Sequence[float]) -> list[float]:
    """Return how much faster an iteration is than with fp32, when fp32 communicates for these parts of it.

    For 64 M values, modelled: nothing overlaps, compression takes no time, and compute is what is left of
    fp32's iteration.
    """
    wholes = [base["large_s"] / share for share in shares]
    return [whole / (whole - base["large_s"] + row["large_s"]) for whole in wholes]


def names_of(rows: Iterable[Any]) -> list[str]:
    """Return the contenders in the order of their first rows."""
    return list(dict.fromkeys(row["contender"] for row in rows))


def fastest(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return each contender's fastest point that holds fp32's metric; those that have none are left out."""
    holding = sorted((row for row in rows if row["holds"]), key=lambda row: float(row["large_s"]))
    best = {row["contender"]: row for row in reversed(holding)}
    return {name: best[name] for name in names_of(rows) if name in best}
