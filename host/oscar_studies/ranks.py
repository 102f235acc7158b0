"""The configured training with a process per rank: what `oscar worker` does, and what rank 0 reports."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from oscar.array import sizes_of
from oscar.checkpoint import digest
from oscar.collective.redundant import Redundant
from oscar.collective.schedules import make_schedule
from oscar.config import Config
from oscar.errors import ConfigError, PeerError
from oscar.numerics.tensors import split
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.communicator import Communicator, PeerResult, PeerStats
from oscar.reducers.tasks import TaskCommunicator
from oscar.tables import Table
from oscar.transports.base import Transport, TransportError
from oscar.transports.handshake import flatten
from oscar_studies.recording import open_workload
from oscar_studies.workloads import Workload
from oscar_studies.workloads.base import Batched, DataParallel

DIGITS = 16  # of the digest of a mean
REPORT_BYTES = 300  # of one iteration in a rank's report, at most
LOSS_BYTES = 40  # of a task's loss in it
TABLE = Table(
    "iteration >9", "loss >8.4f", "sent_bytes:bytes >10,", "bits_per_value:bits/value >10.3f", "ms >8.2f",
    "waited_ms:waited ms >9.2f", "identical: identical <",
)  # fmt: skip
_DONE = struct.Struct("<Q")


def of_tasks(config: Config) -> Config:
    """Return the configuration of the training in one process, whose nodes are the tasks of all ranks.

    Raises ConfigError for a schedule that does not fit the number of ranks.
    """
    section = config.schedule
    if section.name != Redundant.name:
        return config
    try:
        schedule = make_schedule(section.name, config.nodes, copies=section.copies, pieces=section.pieces)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    assert isinstance(schedule, Redundant)
    return config.variant(nodes=schedule.tasks, schedule="network")


class RankRun:
    """One rank's training: gradients of its own worker, the mean of all applied, and a log of both.

    A communicator is made here: collective. Where `config.transport.survive`, a rank's death is survived by
    those that are left, as far as the transport can; `transport` is then theirs. With the schedule redundant,
    ranks compute tasks of each other. workload: that of `of_tasks(config)`, where it is open already.
    """

    def __init__(self, config: Config, transport: Transport, workload: Workload | None = None) -> None:
        self.config = config
        self.worker = transport.rank  # whose batches these are; stays when ranks are renumbered
        self.workload = open_workload(of_tasks(config)) if workload is None else workload
        self.values = sum(sizes_of(self.workload.tensor_shapes))
        self.log: list[dict[str, Any]] = []
        self.last: list[np.ndarray] = []
        self.lost = 0
        self.communicator = self._communicator(transport)

    def _communicator(self, transport: Transport) -> Communicator:
        self.transport = transport
        whole = self.config.model_dump(mode="json")
        extra = {**flatten(whole["workload"], "workload"), "iterations": self.config.iterations}
        extra["transport.survive"] = self.config.transport.survive
        redundant = self.config.schedule.name == Redundant.name
        kind = TaskCommunicator if redundant else Communicator
        return kind(self.config, transport, timeout_s=self.config.transport.timeout_s, extra=extra)

    def run(self, hear: Callable[[dict[str, Any]], None] | None = None) -> None:
        """Train for the configured iterations; raises PeerError when a peer fails and is not survived.

        hear: is given the row of each iteration, of all ranks, as soon as there is one; on all ranks or none.
        """
        if isinstance(self.communicator, TaskCommunicator):
            self._train_tasks(self.communicator)
            return
        while len(self.log) < self.config.iterations:
            tensors, loss = self._gradients()
            result = self._reduce(tensors)
            if result is not None:
                self._apply(result.mean, loss, result.stats)
            else:  # the others had this iteration's mean already
                self._apply(self.last, loss, None)
            if hear is not None:
                every = self.communicator.gather(json.dumps(self.log[-1]).encode(), REPORT_BYTES)
                hear(make_row(len(self.log) - 1, [json.loads(text) for text in every], self.values))

    def _train_tasks(self, communicator: TaskCommunicator) -> None:
        workload, batches = self.workload, isinstance(self.workload, Batched)
        if isinstance(workload, DataParallel) and not batches:
            raise ConfigError(
                f"workload {workload.name}: its nodes keep a state, so ranks cannot compute each other's "
                "tasks; take another schedule than redundant"
            )
        while len(self.log) < self.config.iterations:
            losses: dict[int, float] = {}
            recorded = [] if batches else workload.gradients()

            def compute(
                task: int, recorded: Sequence[Any] = recorded, losses: dict[int, float] = losses
            ) -> list[np.ndarray]:
                if isinstance(workload, Batched):
                    tensors, losses[task] = workload.node_gradients(task)
                    return [tensor.copy() for tensor in tensors]
                losses[task] = float(workload.loss)
                return list(recorded[task])

            result = communicator.allreduce_tasks(compute)
            if isinstance(workload, Batched):
                for task in {*range(communicator.gradients)} - losses.keys():
                    workload.next_batch(task)  # others learnt from it
            self._apply(result.mean, math.fsum(losses.values()) / max(1, len(losses)), result.stats)
            self.log[-1]["losses"] = losses
        communicator.drain()
        self.lost = sum(ended < communicator.copies.call for ended in communicator.copies.dead.values())

    def _gradients(self) -> tuple[list[np.ndarray], float]:
        if isinstance(self.workload, DataParallel):
            return self.workload.node_gradients(self.worker)
        return self.workload.gradients()[self.worker], float(self.workload.loss)  # a recorded trace

    def _apply(self, mean: list[np.ndarray], loss: float, stats: PeerStats | None) -> None:
        """Apply the mean and log it. stats: None where other ranks took this one's part in the AllReduce."""
        self.workload.apply(mean)
        self.last = mean
        entry = {
            "loss": loss,
            "sent": stats.sent_bytes if stats else 0,
            "seconds": stats.seconds if stats else math.nan,
            "waited_s": stats.waited_s if stats else math.nan,
            "clipped": stats.clipped if stats else 0,
            "clipped_energy": float(stats.clipped_energy) if stats else 0.0,
            "mean": digest(mean)[:DIGITS],
        }
        self.log.append(entry)

    def _reduce(self, tensors: list[np.ndarray]) -> PeerResult | None:
        """Return the AllReduce of `tensors`, or None where survivors had it already: `last` then holds it."""
        while True:
            try:
                return self.communicator.allreduce(tensors)
            except PeerError as error:
                if not self.config.transport.survive:
                    raise
                if self._regroup(error):
                    return None

    def _regroup(self, error: PeerError) -> bool:
        """Go on with those that are left; return whether they have this iteration's mean, put into `last`.

        A rank may die after some have all they need of it. Those are one iteration ahead, and the mean of
        all is theirs; the others take it from them, so that weights stay equal.
        """
        before = self.communicator.nodes
        try:
            transport = self.communicator.transport.survivors(self.config.transport.timeout_s)
        except TransportError as why:
            raise PeerError(
                f"{error}; {why}", rank=error.rank, peer=error.peer, step=error.step, chunk=error.chunk
            ) from error
        self.communicator.transport.close()
        self.communicator = self._communicator(transport)
        self.lost += before - transport.nodes
        mine = len(self.log)
        counts = [_DONE.unpack(c)[0] for c in self.communicator.gather(_DONE.pack(mine), _DONE.size)]
        ahead = max(counts)
        if min(counts) == ahead:
            return False
        source = counts.index(ahead)
        packed = b"".join(t.tobytes() for t in self.last) if source == transport.rank else b""
        flat = np.frombuffer(self.communicator.gather(packed, 4 * self.values)[source], np.float32)
        if mine == ahead:
            return False
        self.last = split(flat.copy(), self.workload.tensor_shapes)
        return True

    def reports(self) -> list[list[dict[str, Any]]]:
        """Return every rank's log, by rank; collective. Only this rank's where tasks survived a death."""
        cap = REPORT_BYTES * self.config.iterations
        if isinstance(self.communicator, TaskCommunicator):
            cap += LOSS_BYTES * self.communicator.gradients * self.config.iterations
            if self.lost:
                return [self.log]
        return [json.loads(text) for text in self.communicator.gather(json.dumps(self.log).encode(), cap)]


def summarise(
    config: Config, run: RankRun, logs: list[list[dict[str, Any]]], *, check: int
) -> dict[str, Any]:
    """Return what rank 0 reports of all ranks' logs; the first `check` iterations are compared in-process.

    "ok": all ranks had the same means; the checked ones, losses and bytes are those of a LocalCluster.
    """
    entries = zip(*logs, strict=True)
    iterations = [make_row(number, list(every), run.values) for number, every in enumerate(entries)]
    wrong = [] if run.lost else _differences(config, iterations[:check])
    wrong += [f"iteration {i['iteration']}: replicas differ" for i in iterations if not i["identical"]]
    return {
        "model": run.workload.name,
        "ranks": len(logs),
        "lost": run.lost,
        "values": run.values,
        "iterations": iterations,
        "clipped": sum(row["clipped"] for row in iterations),
        "clipped_energy": max((row["clipped_energy"] for row in iterations), default=0.0),
        "compared": "means, losses and bytes" if of_tasks(config) is config else "means and losses",
        "checked": 0 if run.lost else min(check, len(iterations)),
        "wrong": wrong,
        "ok": not wrong,
    }


def make_row(number: int, entries: Sequence[dict[str, Any]], values: int) -> dict[str, Any]:
    """Return the report of one iteration; entries: what each rank logged of it; values: of a gradient."""
    ranks = len(entries)
    sent = sum(entry["sent"] for entry in entries)
    crossed = 2 * (ranks - 1) * values
    losses = [entry["loss"] for entry in entries]
    if "losses" in entries[0]:  # of each task once
        losses = [*{int(t): loss for entry in entries for t, loss in entry["losses"].items()}.values()]
    return {
        "iteration": number,
        "loss": math.fsum(losses) / len(losses),
        "sent_bytes": sent,
        "bits_per_value": 8 * sent / crossed if crossed else 0.0,
        "seconds": max(entry["seconds"] for entry in entries),
        "waited_s": max(entry["waited_s"] for entry in entries),
        "clipped": sum(entry["clipped"] for entry in entries),
        "clipped_energy": math.fsum(entry["clipped_energy"] for entry in entries) / ranks,
        "identical": len({entry["mean"] for entry in entries}) == 1,
        "mean": entries[0]["mean"],
    }


def _differences(config: Config, iterations: Sequence[dict[str, Any]]) -> list[str]:
    """Say where ranks differ from the same training in one process."""
    whole = of_tasks(config)
    workload, cluster, wrong = open_workload(whole), LocalCluster(whole), []
    for came in iterations:
        result = cluster.allreduce(workload.gradients())
        workload.apply(result.mean)
        for what, here, there in (
            ("mean", digest(result.mean)[:DIGITS], came["mean"]),
            ("loss", float(workload.loss), came["loss"]),
            ("bytes", result.stats.wire_bytes, came["sent_bytes"]),
        ):
            redundant = what == "bytes" and whole is not config  # they depend on who was slow
            if here != there and not redundant and not (here != here and there != there):
                wrong.append(f"iteration {came['iteration']}: {what} is {there}, in one process {here}")
    return wrong


def text_row(row: dict[str, Any]) -> str:
    """Return a row as a line of TABLE."""
    times = {"ms": row["seconds"] * 1e3, "waited_ms": row["waited_s"] * 1e3}
    return TABLE.line(row, **times, identical=" yes" if row["identical"] else " NO")


def text_summary(report: dict[str, Any]) -> str:
    """Return the lines that rank 0 prints under the rows."""
    settled = report["iterations"][2:] or report["iterations"]
    mean_bits = sum(row["bits_per_value"] for row in settled) / len(settled)
    times = sorted(row["seconds"] for row in settled if row["seconds"] == row["seconds"])
    median = times[len(times) // 2] * 1e3 if times else math.nan
    total = sum(row["sent_bytes"] for row in report["iterations"])
    lines = [
        f"# {report['ranks']} ranks sent {total:,} bytes; after 2 iterations {mean_bits:.3f} bits/value, "
        f"median {median:.2f} ms per AllReduce (slowest rank)",
        f"# clipped {report['clipped']:,} values, at most {report['clipped_energy']:.2g} of the energy of an "
        "iteration",
    ]
    if report["lost"]:
        lines.append(f"# {report['lost']} ranks died and were survived; not compared with one process")
    elif not report["wrong"]:
        lines.append(
            f"# {report['compared']} of the first {report['checked']} iterations are those of one process"
        )
    lines += [f"# WRONG: {text}" for text in report["wrong"]]
    return "\n".join(lines)
