"""Train with the mean that the configured AllReduce gives, and write down what every iteration cost."""

from __future__ import annotations

import math
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from oscar import checkpoint
from oscar.array import sizes_of
from oscar.collective.frames import AllReduceResult, Stats
from oscar.config import BURST, Config
from oscar.errors import ConfigError, GradientError, GradientOverflowError, WrongSumError
from oscar.planning.tuning.apply import groups_of
from oscar.planning.tuning.policy import load_policy
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.grouped import Group, GroupedCluster, GroupedResult
from oscar.reducers.scheduling import network_of
from oscar.schemes.registry import method_info
from oscar.state import Saved
from oscar.version import __version__
from oscar_studies.overlap import bucket_shares, bucket_times, iteration_time
from oscar_studies.parallel import Tick, run_tasks
from oscar_studies.recording import Progress, open_workload
from oscar_studies.sampled import SampledCluster
from oscar_studies.workloads import Workload

TAIL = 5  # evaluations that are averaged at the end of a run, `TAIL_GAP` iterations apart
TAIL_GAP = 5
_TAIL = range(0, TAIL * TAIL_GAP, TAIL_GAP)  # iterations left after an evaluation of the tail

OTHER_RUN = (
    "; resume with the configuration of the run that saved it, leave out --resume to start anew, or keep "
    "this run elsewhere (--checkpoint FILE, --set output=FOLDER)"
)

# What may differ between the run that saved a checkpoint and the one that takes it over.
_FREE = ("output", "methods", "compare", "iterations", "threads")
_FREE_TRAIN = ("evaluate_every", "checkpoint_every", "compute_ms")


@dataclass(frozen=True)
class Run:
    """What one seed's training left.

    series: a list per name, one number per iteration: `loss` (nats), `wire_bytes` (all nodes together),
    `bits_per_value`, `step_sync_bits`, `communication_s` (AllReduce alone), `iteration_s` (compute and
    exposed communication). evaluations: held-out metrics with their `iteration`; final: their mean over the
    tail, empty where there is no held-out data. compute_s: one node's forward and backward pass.
    exact: every sum was the sum computed directly. state_sha256: of weights, optimiser and batch generators.
    diverged: gradients, loss or metrics left the numbers; the series end there and `final` is empty.
    clipped: values that saturated, of all nodes in all iterations; clipped_energy: the largest share of an
    iteration's energy that this took.
    """

    seed: int
    values: int
    tensors: int
    series: dict[str, list[float]]
    evaluations: list[dict[str, float]]
    final: dict[str, float]
    compute_s: float
    exact: bool
    state_sha256: str
    diverged: bool = False
    clipped: int = 0
    clipped_energy: float = 0.0

    @property
    def sent_bytes(self) -> float:
        """Bytes that all nodes sent in all iterations."""
        return sum(self.series["wire_bytes"])

    @property
    def simulated_s(self) -> float:
        """Modelled seconds of the whole training."""
        return sum(self.series["iteration_s"])


def check_ring(config: Config) -> None:
    """Raise ConfigError where `train.ring_every` leaves out rings that are needed."""
    if config.train.ring_every == 1:
        return
    needs = {
        "a policy": config.policy is not None,
        "quantiser.controller: bandit": config.quantiser.controller == "bandit",
    }
    for what, needed in needs.items():
        if needed:
            raise ConfigError(
                f"train.ring_every: expected 1 with {what}, got {config.train.ring_every}; "
                "add --set train.ring_every=1"
            )
    if method_info(config.method).codec is None:
        raise ConfigError(
            f"train.ring_every: expected 1, as {config.method} is a scheme whose rings cannot be left out, "
            f"got {config.train.ring_every}; add --set train.ring_every=1"
        )


def ring_every(config: Config) -> int:
    """Return in how many iterations rings run once: a run shorter than that has them at its end."""
    most = min(config.train.ring_every, config.iterations)
    return most if most >= BURST else 1


class Trainer:
    """One training run that can be saved after any iteration and go on elsewhere, bit for bit.

    workload: to train instead of the configured one. Raises ConfigError for a configuration that cannot run.
    """

    def __init__(self, config: Config, workload: Workload | None = None) -> None:
        self.config = config
        check_ring(config)  # and the cluster: what they refuse is known before data is read
        every = ring_every(config)
        self.workload = workload or open_workload(config)
        self.done = 0
        sizes = sizes_of(self.workload.tensor_shapes)
        self.values, self.shares = sum(sizes), bucket_shares(sizes, config.train.buckets)
        self.cluster: LocalCluster | GroupedCluster
        if config.policy is not None:
            tensors = list(zip(self.workload.tensor_names, sizes, strict=True))
            self.cluster = GroupedCluster(_policy_groups(config.policy, tensors, config), sizes)
            self.shares = self.cluster.shares(sizes)
        else:
            self.cluster = LocalCluster(config) if every == 1 else SampledCluster(config, every=every)
        self.losses: list[float] = []
        self.compute: list[float] = []  # measured seconds of one node
        self.measured: list[list[float]] = []  # iteration, bytes, bits, sync bits, seconds, *bucket seconds
        self.evaluations: list[dict[str, float]] = []
        self.exact, self.diverged = True, False
        self.clipped, self.clipped_energy = 0, 0.0

    def step(self) -> None:
        """Do one iteration; `diverged` is set once gradients, loss or held-out metrics are no numbers.

        Raises WrongSumError when nodes differ or a lossless sum is not exact.
        """
        began = time.perf_counter()
        gradients = self.workload.gradients()
        self.compute.append((time.perf_counter() - began) / self.workload.nodes)
        try:
            result = self.cluster.allreduce(gradients)
        except GradientError as error:
            self.diverged = isinstance(error, GradientOverflowError) or not all(
                np.isfinite(tensor).all() for node in gradients for tensor in node
            )
            if not self.diverged:
                raise
            return
        if math.isinf(self.workload.loss):
            self.diverged = True
            return
        self.losses.append(float(self.workload.loss))
        self.workload.apply(result.mean)
        self._check(result.stats)
        if not isinstance(self.cluster, SampledCluster) or self.cluster.measured(self.done):
            self._measure(result)
        self.done += 1
        every, left = self.config.train.evaluate_every, self.config.iterations - self.done
        if left in _TAIL or (every and self.done % every == 0):
            metrics = self.workload.evaluate()
            self.diverged = not all(map(math.isfinite, metrics.values()))
            if metrics and not self.diverged:
                self.evaluations.append({"iteration": self.done, **metrics})

    def _check(self, stats: Stats) -> None:
        lossless = self.config.policy is None and method_info(self.config.method).lossless
        if not stats.identical or (lossless and not stats.exact):
            raise WrongSumError(
                f"iteration {self.done}: expected the exact sum on every node, got another: this is a bug; "
                "please report it with the configuration"
            )
        self.exact &= stats.exact
        self.clipped += stats.clipped
        self.clipped_energy = max(self.clipped_energy, float(stats.clipped_energy))

    def _measure(self, result: AllReduceResult) -> None:
        stats = result.stats
        if isinstance(result, GroupedResult):
            buckets = np.array([part.time_s for part in result.parts])
        else:
            buckets = bucket_times(stats, shares=self.shares, **network_of(self.config, stats.nodes))
        rates = [stats.bits_per_value, stats.step_sync_bits, stats.time_s]
        self.measured.append([self.done, stats.wire_bytes, *rates, *buckets])

    def finish(self) -> Run:
        """Return what the run left; unmeasured iterations have bytes and times of the last measured one."""
        given = self.config.train.compute_ms
        compute = statistics.median(self.compute) if given is None else given * 1e-3
        unknown = [0.0] + [math.nan] * (4 + self.shares.size)  # diverged before any ring was measured
        table = np.array(self.measured or [unknown])
        # The iterations before the first measured one have that one's.
        which = np.searchsorted(table[:, 0], np.arange(self.done), side="right") - 1
        rows = table[np.maximum(which, 0)]
        names = ("wire_bytes", "bits_per_value", "step_sync_bits", "communication_s")
        series = {"loss": self.losses} | {name: rows[:, 1 + i].tolist() for i, name in enumerate(names)}
        series["iteration_s"] = iteration_time(compute, self.shares, rows[:, 5:]).tolist()
        return Run(
            seed=self.config.seed,
            values=self.values,
            tensors=len(self.workload.tensor_shapes),
            series=series,
            evaluations=self.evaluations,
            final=self._tail_mean(),
            compute_s=compute,
            exact=self.exact,
            state_sha256=checkpoint.digest(self.workload.state_dict()),
            diverged=self.diverged,
            clipped=self.clipped,
            clipped_energy=self.clipped_energy,
        )

    def _tail_mean(self) -> dict[str, float]:
        last = self.config.iterations
        tail = [e for e in self.evaluations if last - e["iteration"] in _TAIL and not self.diverged]
        names = [name for name in (tail[0] if tail else {}) if name != "iteration"]
        return {name: statistics.fmean(e[name] for e in tail) for name in names}

    @property
    def fingerprint(self) -> dict[str, Any]:
        """What has to be equal for a checkpoint to fit."""
        config = self.config.model_dump(mode="json")
        train = {key: value for key, value in config["train"].items() if key not in _FREE_TRAIN}
        kept = {key: value for key, value in config.items() if key not in _FREE} | {"train": train}
        versions = {"oscar": __version__, "numpy": np.__version__, "python": platform.python_version()}
        return {**kept, "version": versions}

    def save(self, path: Path) -> None:
        """Write a checkpoint to `path`; raises ConfigError when it cannot."""
        tree = {
            "fingerprint": self.fingerprint,
            "done": self.done,
            "workload": self.workload.state_dict(),
            "cluster": self.cluster.state_dict(),
            "losses": np.array(self.losses),
            "compute": np.array(self.compute),
            "measured": np.array(self.measured),
            "evaluations": self.evaluations,
            "exact": self.exact,
            "clipped": self.clipped,
            "clipped_energy": self.clipped_energy,
        }
        checkpoint.save(path, tree)

    def resume(self, path: Path) -> None:
        """Go on from the checkpoint at `path`; raises ConfigError when it is damaged or of another run."""
        saved = Saved(checkpoint.load(path), str(path))
        try:
            saved.fits("fingerprint", self.fingerprint)
        except ConfigError as error:
            error.advice = OTHER_RUN
            raise
        done, exact = saved["done"].integer(), saved["exact"].flag()
        clipped, energy = saved["clipped"].integer(), saved["clipped_energy"].number(0.0, 1.0)
        if done > self.config.iterations:
            raise ConfigError(
                f"{path}: expected a checkpoint of at most {self.config.iterations} iterations, it holds "
                f"{done}; raise iterations"
            )
        losses, compute = (
            saved[name].array(np.float64, (done,), finite=False).tolist() for name in ("losses", "compute")
        )
        measured, evaluations = saved["measured"], saved["evaluations"].items()
        columns = (5 + self.shares.size,) if np.size(measured.value) else ()
        rows = measured.array(np.float64, (*np.shape(measured.value)[:1], *columns)).tolist()
        before = self.workload.state_dict()
        self.workload.load_state_dict(saved["workload"])
        try:
            self.cluster.load_state_dict(saved["cluster"])
        except BaseException:
            self.workload.load_state_dict(before)
            raise
        self.done, self.measured, self.exact = done, rows, exact
        self.losses, self.compute = losses, compute
        self.clipped, self.clipped_energy = clipped, energy
        self.evaluations = [item.value for item in evaluations]


def _policy_groups(path: str, tensors: list[tuple[str, int]], config: Config) -> list[Group]:
    policy = load_policy(Path(path))
    try:
        return groups_of(policy, tensors, config)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _no_tick() -> None: ...


def train(config: Config, tick: Tick = _no_tick, *, path: Path | None = None, resume: bool = False) -> Run:
    """Train once, with `config.seed`; `tick` is called after every iteration, also for those in a checkpoint.

    path: of the checkpoint, written every `train.checkpoint_every` iterations and at the end; resume: go on
    from it where it exists. Raises OscarError and its subclasses.
    """
    trainer = Trainer(config)
    if resume and path is not None and path.exists():
        trainer.resume(path)
        for _ in range(trainer.done):
            tick()
    every = config.train.checkpoint_every if path is not None else 0
    while trainer.done < config.iterations and not trainer.diverged:
        before = trainer.done
        trainer.step()
        due = every and (trainer.done % every == 0 or trainer.done == config.iterations)
        if path is not None and due and trainer.done > before and not trainer.diverged:
            trainer.save(path)
        tick()
    return trainer.finish()


def train_seeds(
    config: Config,
    seeds: Sequence[int],
    *,
    path: Path | None = None,
    resume: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[Run]:
    """Train once per seed, side by side in processes; arguments as for `train` and `run_tasks`.

    path: checkpoints are files of that name with `.seedS` appended.
    """
    if not seeds or len(set(seeds)) < len(seeds):
        raise ConfigError(f"expected one seed or more, each once, got {list(seeds)}")
    tasks: list[Callable[[Tick], Run]] = []
    for seed in seeds:
        variant, own = config.variant(seed=seed, methods=()), checkpoint_path(path, seed)
        tasks.append(partial(train, variant, path=own, resume=resume))
    total = len(seeds) * config.iterations
    return run_tasks(tasks, stage="training", total=total, workers=workers, progress=progress)


def checkpoint_path(path: Path | None, seed: int) -> Path | None:
    """Return where the run of `seed` saves, or None."""
    return None if path is None else path.with_name(f"{path.name}.seed{seed}")
