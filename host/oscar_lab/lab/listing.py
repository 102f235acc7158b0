"""The cases of the shipped laboratory configurations, and about how many minutes each takes."""

from __future__ import annotations

from oscar.config import load_config
from oscar.shipped import names
from oscar_lab.lab.settings import Case, MethodSpec, Settings, read_settings

MILLIONS = 10.3  # of values of a host's gradient, as docs/results/lab.md has it
RUN_S = 1.2  # of a run beside its AllReduce: gradients are loaded, sums checked, bytes counted
CASE_S = 30.0  # of a rate: the network is made and calibrated, hosts start
GLOO_BITS = {"float32": 32, "bfloat16": 16, "int8": 8}
CODED_BITS = 4  # of a value, about


def listing() -> list[str]:
    """Return a line for each shipped configuration with a section `lab`, and for each of its cases."""
    lines = []
    for name in names():
        config = load_config(name)
        if not config.lab:
            continue
        settings = read_settings(config)
        cases = [(case, minutes(settings, case)) for case in settings.cases]
        total = sum(took for _, took in cases)
        lines.append(f"{name}: about {total:.0f} minutes, where nothing else runs")
        lines += [f"  {_text(settings, case)}: {took:.0f} minutes" for case, took in cases]
    return lines


def minutes(settings: Settings, case: Case) -> float:
    """Return about how many minutes a case takes on an idle machine."""
    runs = settings.warmup + settings.repetitions
    methods = settings.chosen(case)
    crossing = 2 * (case.hosts - 1) / case.hosts * MILLIONS  # millions of values on each link
    wire_s = sum(crossing * _bits(spec) / mbps for spec in methods for mbps in case.mbps)
    other_s = len(case.mbps) * (CASE_S + runs * len(methods) * RUN_S)
    return (runs * wire_s + other_s) / 60


def _bits(spec: MethodSpec) -> int:
    return GLOO_BITS[spec.dtype] if spec.kind == "gloo" else CODED_BITS


def _text(settings: Settings, case: Case) -> str:
    rates = ", ".join(f"{mbps:g}" for mbps in case.mbps)
    extra = f", loss {case.loss:g}" if case.loss else ""
    extra += f", {case.delay_ms:g} ms of delay" if case.delay_ms else ""
    return f"{case.hosts} hosts, {rates} Mb/s{extra}, {len(settings.chosen(case))} methods"
