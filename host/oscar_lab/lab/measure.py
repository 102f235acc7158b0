"""Measure all methods of all cases in turns, on links of checked rate whose bytes are counted."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from oscar.array import sizes_of
from oscar.collective.frames import Frames
from oscar.collective.ring import Ring
from oscar.config import Config
from oscar.errors import ConfigError, MissingExtraError, OscarError, install
from oscar.planning.case import estimated
from oscar.planning.predict import predict
from oscar.reducers.method import make_codec_of
from oscar.reducers.scheduling import schedule_of
from oscar.results import FORMS
from oscar.timeline.equal import equal_time
from oscar.timeline.link import LinkModel
from oscar.timeline.replay import time_of
from oscar.transports.gloo import load_torch
from oscar_lab.lab.calibrate import (
    Flow,
    calibrate,
    calibrate_together,
    check_delay,
    check_loss,
    check_wire,
    message_cost,
)
from oscar_lab.lab.hold import gradient_folder, one_lab
from oscar_lab.lab.hosts import Hosts, write_gradients
from oscar_lab.lab.network import GOODPUT, HostNetwork, require_root
from oscar_lab.lab.report import LATE_S
from oscar_lab.lab.settings import Case, MethodSpec, Settings, method_config, parse_settings
from oscar_studies.recording import open_workload, warm_up, warmup_of
from oscar_studies.workloads import exact_mean, trace

LEAD_S = 0.03  # from a command to the moment at which all ranks start
Say = Callable[[str], None]
Keep = Callable[[dict[str, Any]], object]


def measure(config: Config, say: Say, keep: Keep) -> dict[str, Any]:
    """Return the results of the section lab.

    keep: called with the results so far after each case. A case whose figures would not be true goes to
    `refused`, with the reason, and the others go on. Raises OscarError where a case needs what is missing.
    """
    settings = parse_settings(config)
    _check_needs(config, settings)
    with one_lab(), gradient_folder() as folder:
        source, shapes, paths = _gradients(config, settings, folder, say)
        values = settings.steps * sum(sizes_of(shapes))
        say(f"# {source}: {settings.steps} iterations side by side, {values:,} values a host")
        results: dict[str, Any] = {
            "schema": FORMS["lab"].schema,
            "config": config.model_dump(mode="json"),
            "source": source,
            "values": values,
            "machine": {
                "cores": len(os.sched_getaffinity(0)),
                "processor": platform.machine(),
                "kernel": platform.release(),
                "congestion": settings.congestion,
            },
            "cases": [],
            "refused": [],
        }
        for case in settings.cases:
            for mbps in case.mbps:
                with HostNetwork(case.hosts, congestion=settings.congestion, locked=True) as network:
                    run = _Case(config, settings, case, network, mbps, paths, shapes, folder)
                    try:
                        results["cases"].append(run.measure(say))
                    except (OscarError, OSError) as error:
                        why = " ".join(str(error).split())
                        say(f"# refused: {why}")
                        results["refused"].append({**run.conditions, "why": why})
                    keep(results)
    return results


def _check_needs(config: Config, settings: Settings) -> None:
    """Raise OscarError where a case needs what is missing: fail now, not hours later in the last case."""
    require_root(*(["nft"] if any(case.loss for case in settings.cases) else []))
    load_torch()
    for case in settings.cases:
        for spec in settings.chosen(case):
            if spec.kind != "oscar" or find_spec("cryptography") is not None:
                continue
            if method_config(config, spec, case.hosts).transport.security != "none":
                raise MissingExtraError(f"lab: method {spec.name!r} needs cryptography: {install('secure')}")


def _gradients(
    config: Config, settings: Settings, folder: Path, say: Say
) -> tuple[str, list[tuple[int, ...]], list[Path]]:
    """Return where gradients come from, the shapes of one iteration's tensors, and a file per rank."""
    if settings.trace is not None:
        workload: Any = trace.load(settings.trace)
        if workload.nodes < config.nodes or workload.iterations < settings.iterations:
            raise ConfigError(
                f"{settings.trace}: expected {settings.iterations} iterations of {config.nodes} nodes, got "
                f"{workload.iterations} of {workload.nodes}; record a longer one"
            )
    else:
        workload, before = open_workload(config), warmup_of(config)
        say(f"# training {workload.name} for {before} iterations, then {settings.iterations} of gradients")
        warm_up(workload, config)
    gradients: list[list[np.ndarray]] = [[] for _ in range(config.nodes)]
    for _ in range(settings.iterations):
        current = workload.gradients()
        for rank in range(config.nodes):
            gradients[rank].append(np.concatenate([tensor.ravel() for tensor in current[rank]]))
        workload.apply(exact_mean(current))
    shapes = [tuple(shape) for shape in workload.tensor_shapes]
    return str(workload.name), shapes, write_gradients(gradients, folder)


class _Case:
    """The methods on one number of hosts and one link rate."""

    def __init__(
        self,
        config: Config,
        settings: Settings,
        case: Case,
        network: HostNetwork,
        mbps: float,
        paths: list[Path],
        shapes: list[tuple[int, ...]],
        folder: Path,
    ) -> None:
        self.config, self.settings, self.case, self.network, self.mbps = config, settings, case, network, mbps
        self.specs = settings.chosen(case)
        base = config.variant(nodes=case.hosts, lab={}).model_dump(mode="json")
        common = {"config": base, "steps": settings.steps, "shapes": shapes, "share": str(folder)}
        self.setups = [{**common, "gradients": str(paths[rank])} for rank in range(case.hosts)]
        self.values = settings.steps * sum(sizes_of(shapes))
        self.wire = LinkModel()  # of the time model; measured once the hosts run
        self.runs: dict[str, list[dict[str, Any]]] = {spec.name: [] for spec in self.specs}
        self.conditions = {"hosts": case.hosts, "mbps": mbps}
        self.conditions |= case.model_dump(include={"pin", "delay_ms", "loss"})

    def measure(self, say: Say) -> dict[str, Any]:
        """Calibrate, then run all methods in turn, `warmup` + `repetitions` times."""
        rate = self.mbps * 1e6
        flows = self._calibrated(rate)
        worst = max(flows, key=lambda flow: abs(flow.error))
        say(
            f"# {self.case.hosts} hosts, {self.mbps:g} Mb/s: goodput {worst.goodput_bps / 1e6:.2f} Mb/s "
            f"({worst.error:+.2%} of what the rate allows)"
        )
        with Hosts(self.network, self.setups, pin=self.case.pin) as hosts:
            latency = hosts.ask("ping")[0]["latency_s"]
            if self.case.delay_ms:
                check_delay(latency, self.case.delay_ms / 1e3)
            begin = time.monotonic() + LEAD_S
            slowest = max(answer["seconds"] for answer in hosts.ask("messages", at=begin))
            self.wire = LinkModel(latency_s=latency, message_s=message_cost(slowest, latency))
            hosts.ask("make", methods=[spec.model_dump() for spec in self.specs])
            for repetition in range(self.settings.warmup + self.settings.repetitions):
                for spec in self._turn(repetition):
                    run = self._run(hosts, spec, repetition)
                    run["counts_as"] = repetition >= self.settings.warmup
                    self.runs[spec.name].append(run)
                times = (f"{spec.name} {self.runs[spec.name][-1]['time_s'] * 1e3:.0f}" for spec in self.specs)
                say(f"#   {repetition:2d} ms: {', '.join(times)}")
        seen, lost = self.network.losses() if self.case.loss else (0, 0)
        if self.case.loss:
            check_loss(seen, lost, self.case.loss)
            say(f"#   {lost:,} of {seen:,} packets lost")
        goodput = statistics.median(flow.goodput_bps for flow in flows)
        return {
            **self.conditions,
            "goodput_mbps": [flow.goodput_bps / 1e6 for flow in flows],
            "expected_mbps": rate * GOODPUT / 1e6,
            "latency_us": latency * 1e6,
            "message_us": self.wire.message_s * 1e6,
            "packets": seen,
            "lost": lost,
            "methods": [self._summary(spec, goodput) for spec in self.specs],
        }

    def _calibrated(self, rate_bps: float) -> list[Flow]:
        """Set rate, loss and delay; return the flows that checked the rate before there was loss or delay."""
        network, case = self.network, self.case
        network.shape(rate_bps)
        if case.loss:
            network.segment()
            network.lose(0)  # ends the loss of an earlier rate
        if case.delay_ms:
            network.delay(0)
            calibrate_together(network, rate_bps, tolerance=self.settings.tolerance)
        flows = calibrate(network, rate_bps, tolerance=self.settings.tolerance)
        if case.loss:
            network.lose(case.loss)
        if case.delay_ms:
            network.delay(case.delay_ms)
        return flows

    def _turn(self, repetition: int) -> list[MethodSpec]:
        """Return the methods in the order of this repetition: rotated by one each time, replays last."""
        shift = repetition % len(self.specs)
        turned = [*self.specs[shift:], *self.specs[:shift]]
        replays = [spec for spec in turned if spec.kind == "replay"]
        return [*(spec for spec in turned if spec.kind != "replay"), *replays]

    def _run(self, hosts: Hosts, spec: MethodSpec, first: int) -> dict[str, Any]:
        if spec.kind == "replay":
            hosts.ask("load", name=spec.name, of=spec.of, frames=self._frames(spec.of).tree())
        hosts.ask("prepare", name=spec.name, first=first)
        before, resent = self.network.wires(), self._resent()
        start = time.monotonic() + LEAD_S
        ranks = hosts.ask("run", name=spec.name, at=start)
        wires = [after - b for after, b in zip(self.network.wires(), before, strict=True)]
        again = [after - b for after, b in zip(self._resent(), resent, strict=True)]
        received = sum(rank["payload"] for rank in ranks)
        for host, (rank, wire) in enumerate(zip(ranks, wires, strict=True)):
            what = f"{spec.name}, {self.mbps:g} Mb/s, host {host}"
            others = received - rank["payload"]
            check_wire(
                rank["payload"], others, wire, messages=rank["messages"], what=what,
                again=again[host], again_all=sum(again),
            )  # fmt: skip
        hosts.ask("share", name=spec.name)
        checks = hosts.ask("check", name=spec.name)
        wrong = sum(check["wrong"] for check in checks)
        if len({check["digest"] for check in checks}) != 1:
            raise OscarError(f"{spec.name}: ranks ended with different results")
        return {
            "time_s": max(rank["end"] for rank in ranks) - start,
            "late_s": max(rank["late_s"] for rank in ranks),
            **{key: [rank[key] for rank in ranks] for key in ("cpu_s", "payload", "frames")},
            "wire": [wire.sent for wire in wires],
            "dropped": sum(wire.dropped for wire in wires),
            "resent": sum(again),
            "wrong": wrong,
        }

    def _resent(self) -> list[int]:
        """Return the segments that TCP has retransmitted, by host; 0 where the switch is a plain bridge."""
        counted = self.case.loss or self.case.delay_ms
        return self.network.resent() if counted else [0] * self.case.hosts

    def _frames(self, name: str) -> Frames:
        """Return all hosts' frames of a method's last run."""
        return Frames.joined(Frames.from_tree(tree) for tree in self.runs[name][-1]["frames"])

    def _summary(self, spec: MethodSpec, goodput: float) -> dict[str, Any]:
        measured = [run for run in self.runs[spec.name] if run["counts_as"]]
        usual = statistics.median(run["late_s"] for run in measured)
        runs = [run for run in measured if run["late_s"] <= usual + LATE_S]
        times = [run["time_s"] for run in runs]
        quartiles = statistics.quantiles(times, n=4) if len(times) > 1 else [times[0]] * 3
        crossed = 2 * (self.case.hosts - 1) * self.values
        payload = statistics.mean(sum(run["payload"]) for run in runs)
        return {
            "name": spec.name,
            "kind": spec.kind,
            "type": spec.type,
            "time_s": statistics.median(times),
            "quartiles_s": [quartiles[0], quartiles[2]],
            "times_s": times,
            "late_s": max(run["late_s"] for run in runs),
            "left_out": len(measured) - len(runs),
            "model_s": self._model(spec, goodput),
            "predicted_s": self._predicted(spec, goodput, 8 * payload / crossed),
            "wrong": sum(run["wrong"] for run in self.runs[spec.name]),
            "wire_bytes": statistics.mean(sum(run["wire"]) for run in runs),
            "payload_bytes": payload,
            "bits_per_value": 8 * payload / crossed,
            "cpu_s": statistics.mean(sum(run["cpu_s"]) for run in runs),
            **{key: sum(run[key] for run in runs) for key in ("dropped", "resent")},
        }

    def _predicted(self, spec: MethodSpec, goodput: float, bits: float) -> float | None:
        """Return what `oscar predict` says for a method of these bits per value on this link.

        None for a replay. Where hosts share cores, each takes as many times as long.
        """
        hosts, link = self.case.hosts, replace(self.wire, bandwidth_bps=goodput)
        if spec.kind == "gloo":
            return equal_time(Ring(hosts), self.values, link, bits=bits, header_bytes=0, coded=False)
        if spec.kind == "replay":
            return None
        config = method_config(self.config, spec, hosts).variant(link={"codec": "host"})
        shared = max(1.0, hosts / len(os.sched_getaffinity(0)))
        case = estimated(config, self.values, hosts, bits, ranks_per_core=shared)
        link = replace(link, coder=case.link.coder)
        return predict(self.values, case.schedule, link, bits, coded=case.coded, around=case.around).time_s

    def _model(self, spec: MethodSpec, goodput: float) -> float | None:
        """Return the modelled time of the last run's frames on this link, with no time for the codec."""
        name = spec.of if spec.kind == "replay" else spec.name
        if self.runs[name][-1]["frames"][0] is None:
            return None
        source = next(s for s in self.specs if s.name == name)
        config = method_config(self.config, source, self.case.hosts)
        schedule = schedule_of(config, make_codec_of(config), self.case.hosts, self.values)
        link = replace(self.wire, bandwidth_bps=goodput)
        return time_of(schedule, self._frames(name), link, coded=False)
