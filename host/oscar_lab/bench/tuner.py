"""Modelled time of selected policies, against brute force, uniform policies and other selectors.

Tables (tune.md): random cases against brute force (a) and uniform policies (b). A transformer at 500
Mb/s: groups and options together against the best per tensor and the best two groups (c), by the number of
groups (d), with a slow codec (e). The time of selection (f); sums that begin while values are made (l); which
tensors to offload (offload); the transformer by the rate of the link (rates); the constants of Espresso
(preset); MergeComp's search with noise (merge); even and measured ready times (ready). Methods cost what they
cost this machine. c to f, rates, merge and ready need the extra `torch`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from oscar.collective.schedules import make_schedule
from oscar.planning.tuning.options import measured, options
from oscar.planning.tuning.policy import SAME, Option, Policy, PolicyProblem
from oscar.planning.tuning.select import fixed, verdict
from oscar.tables import Row, Table
from oscar.timeline.equal import assumed_frames
from oscar.timeline.lanes import seconds_at
from oscar.timeline.link import LinkModel
from oscar.timeline.nic import load_nic
from oscar_lab.bench._timelines import write_timelines
from oscar_lab.rivals.by_frame import Production, allreduce, sums_s
from oscar_lab.rivals.oracles import brute, select
from oscar_lab.rivals.preset import Preset
from oscar_studies.espresso import offloaded
from oscar_studies.merging import merge

RATES = 0.1, 0.5, 1.0, 10.0, 25.0  # Gb/s
CASES = 0.1, 0.3, 1.0, 5.0  # of random cases
TABLE = Table("table <7", "what <45", "gbps >5", "ms >9.3f", "groups >6", "ratio >7.4f", "met >4", "note <1")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    parser.add_argument("--tables", nargs="+", choices=list(TABLES), default=list(TABLES))
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--methods", nargs="+", default=["fp32", "bf16", "asc", "zstd"])
    parser.add_argument("--schedules", nargs="+", default=["ring", "direct"])
    parser.add_argument("--compute-ms", type=float, default=40.0, help="backward pass, of the transformer")
    parser.add_argument("--cases", type=int, nargs=2, default=[200, 1000], help="random cases of a and of b")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trace", type=Path, metavar="OUT", help="write the timelines of c, for Perfetto")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Make all tables; ok where every row meets its bar."""
    tuner = _Tuner(args)
    print(f"# {args.nodes} nodes, {', '.join(args.methods)} by {', '.join(args.schedules)}, seed {args.seed}")
    print(TABLE.heading)
    rows: list[Row] = []
    for name in args.tables:
        tuner.random = np.random.default_rng([args.seed, list(TABLES).index(name)])  # whatever was asked for
        for row in TABLES[name](tuner):
            rows.append({"table": name, **row})
            print(TABLE.line(rows[-1]), flush=True)
    return {"rows": rows}


def _row(what: str, seconds: float | None = None, **more: Any) -> Row:
    none = dict.fromkeys(("gbps", "groups", "ratio", "met"))
    return {"what": what, **none, "ms": None if seconds is None else seconds * 1e3, "note": "", **more}


class _Tuner:
    """Prices, links and problems of one run."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.random = args, np.random.default_rng()
        self.prices = [measured(name, args.nodes) for name in args.methods]

    def options(
        self, gbps: float, schedules: Sequence[str] = (), methods: Sequence[str] = ()
    ) -> list[Option]:
        """Return the options at a rate; latency as of a cluster of that age."""
        link = LinkModel.of(gbps=gbps, latency_us=100 if gbps <= 1 else 10)
        prices = [price for price in self.prices if price.name in (methods or self.args.methods)]
        return options(prices, self.args.nodes, link, list(schedules or self.args.schedules))

    def drawn(self, tensors: int, own: Sequence[Option]) -> PolicyProblem:
        """Draw tensors whose backward pass takes .02 to 1.5 of the time to send them."""
        random = self.random
        sizes = np.exp(random.uniform(np.log(200), np.log(800_000), tensors)).astype(int).tolist()
        raw = next(option for option in own if not option.compresses)
        sent = sum(seconds_at(raw.curves[0], size) for size in sizes)
        compute = sent * random.uniform(0.2, 1.5) * random.uniform(0.1, 1)
        return PolicyProblem(tuple(sizes), np.cumsum(sizes) / sum(sizes) * compute, tuple(own))

    def transformer(self, own: Sequence[Option]) -> PolicyProblem:
        """Return the transformer's tensors; its backward pass makes values at an even rate."""
        return _even(transformer_sizes(), self.args.compute_ms * 1e-3, own)


def _even(sizes: Sequence[int], compute_s: float, own: Sequence[Option]) -> PolicyProblem:
    return PolicyProblem(tuple(sizes), np.cumsum(sizes) / sum(sizes) * compute_s, tuple(own))


def transformer_sizes() -> list[int]:
    """Return the values of the workload's tensors, in the order of its backward pass."""
    from oscar_studies.workloads import make_workload

    shapes = make_workload("transformer", nodes=1, seed=0).tensor_shapes
    return [int(np.prod(shape)) for shape in shapes][::-1]


def resnet101_sizes() -> list[int]:
    """Return the values of ResNet-101's 314 tensors, in the order of its backward pass."""
    sizes, inputs = [64 * 3 * 49, 64, 64], 64
    for blocks, width in ((3, 64), (4, 128), (23, 256), (3, 512)):
        for block in range(blocks):
            for kernel, to in ((inputs, width), (9 * width, width), (width, 4 * width)):
                sizes += [kernel * to, to, to]
            if block == 0:
                sizes += [inputs * 4 * width, 4 * width, 4 * width]
            inputs = 4 * width
    return [*sizes, 2048 * 1000, 1000][::-1]


def _oracle(tuner: _Tuner) -> Iterator[Row]:
    """a: against brute force, over options alone and over groups and options."""
    gaps: dict[str, list[float]] = {}
    for _ in range(tuner.args.cases[0]):
        gbps = float(tuner.random.choice(CASES))
        problem = tuner.drawn(6, tuner.options(gbps, ["direct"], ["fp32", "asc", "zstd"]))
        alone, every = (problem.time(brute(problem, groups=groups)[0]) for groups in (False, True))
        for name in ("espresso", "espresso-released", "joint"):
            result = select(problem, name).time_s
            gaps.setdefault(f"{name}, to groups and options", []).append(result / every - 1)
            if name != "joint":
                gaps.setdefault(f"{name}, to options alone", []).append(result / alone - 1)
    for name, some in gaps.items():
        optimal = np.mean(np.array(some) < 1e-9)
        met = fmean(some) <= 0.005 and max(some) <= 0.02 if name.startswith("joint") else None
        note = f"mean {fmean(some):.3%}, max {max(some):.2%}, best in {optimal:.0%} of {len(some)}"
        yield _row(f"gap of {name}", ratio=1 + fmean(some), met=met, note=note)


def _uniform(tuner: _Tuner) -> Iterator[Row]:
    """b: how often a selector is worse than the best uniform policy."""
    worse: dict[str, list[float]] = {"joint": [], "espresso": [], "espresso-released": []}
    for _ in range(tuner.args.cases[1]):
        own = tuner.options(float(tuner.random.choice(CASES)))
        problem = tuner.drawn(int(tuner.random.integers(2, 30)), own)
        best = min(problem.uniform().values())
        for name, some in worse.items():
            some.append(select(problem, name).time_s / best)
    for name, some in worse.items():
        count = sum(ratio > 1 + 1e-9 for ratio in some)
        note = f"worse in {count} of {len(some)}, by {max(0.0, max(some) - 1):.1%} at most"
        yield _row(f"{name} against the best uniform policy", ratio=fmean(some), met=count == 0, note=note)


def _offload(tuner: _Tuner) -> Iterator[Row]:
    """Equal tensors, all compressed: which ones go to the other processor, against all subsets."""
    gaps: dict[str, list[float]] = {"farthest": [], "nearest": []}
    for _ in range(tuner.args.cases[0]):
        gbps = float(tuner.random.choice(CASES))
        pair = [one for one in tuner.options(gbps, ["direct"], ["asc"]) if one.compresses]
        count, size = int(tuner.random.integers(2, 7)), int(tuner.random.integers(1000, 10**6))
        gap = seconds_at(pair[0].curves[1], size) * tuner.random.uniform(0, 2)
        ready = np.cumsum(gap * tuner.random.uniform(0.2, 1.8, count))
        problem = PolicyProblem((size,) * count, ready, tuple(pair))
        start = Policy.uniform(count, next(at for at, one in enumerate(pair) if SAME in one.name))
        best = problem.time(brute(problem, groups=False)[0])
        for name, some in gaps.items():
            result, _ = offloaded(problem, start, farthest=name == "farthest")
            some.append(problem.time(result) / best - 1)
    for name, some in gaps.items():
        optimal = np.mean(np.array(some) < 1e-9)
        note = f"mean {fmean(some):.2%}, max {max(some):.1%}, best in {optimal:.0%} of {len(some)}"
        yield _row(f"the {name} from the output layer", ratio=1 + fmean(some), note=note)


def _transformer(tuner: _Tuner) -> Iterator[Row]:
    """c: the transformer at 500 Mb/s: joint against the best per tensor and the best two groups."""
    for schedules in (["ring"], tuner.args.schedules):
        problem = tuner.transformer(tuner.options(0.5, schedules))
        way = "+".join(schedules)
        result = select(problem)
        uniform = problem.uniform()
        best = min(uniform, key=uniform.__getitem__)
        rivals = {f"best uniform: {best}": Policy.uniform(len(problem.sizes), _number(problem, best))}
        rivals["best per tensor"] = fixed(problem, len(problem.sizes))
        rivals["espresso, published"] = select(problem, "espresso").policy
        rivals["espresso, released"] = select(problem, "espresso-released").policy
        rivals["best two groups (y = 2)"] = fixed(problem, 2)
        yield _row(
            f"joint, {way}",
            result.time_s,
            gbps=0.5,
            groups=len(result.policy.stops),
            note=verdict(problem, result.policy),
        )
        if tuner.args.trace:
            shown = rivals | {"joint": result.policy}
            runs = {name: problem.timeline(policy) for name, policy in shown.items()}
            write_timelines(tuner.args.trace, runs, {"schedules": way, "seed": tuner.args.seed})
        for name, policy in rivals.items():
            ratio = problem.time(policy) / result.time_s
            met = ratio >= 1.2 if name.startswith("best") and "uniform" not in name else None
            yield _row(name, problem.time(policy), gbps=0.5, groups=len(policy.stops), ratio=ratio, met=met)


def _number(problem: PolicyProblem, name: str) -> int:
    return [option.name for option in problem.options].index(name)


def _groups(tuner: _Tuner) -> Iterator[Row]:
    """d: the best of so many groups, against the best of any number."""
    for gbps in RATES:
        for schedules in (["ring"], tuner.args.schedules):
            problem = tuner.transformer(tuner.options(gbps, schedules))
            result = select(problem)
            times = {y: problem.time(fixed(problem, y)) for y in (1, 2, 3, 4, 6, 8, 12, 16, 54)}
            note = ", ".join(f"y={y} {seconds / result.time_s:.3f}" for y, seconds in times.items())
            ratio = times[2] / result.time_s
            what = f"two groups, {'+'.join(schedules)}"
            yield _row(
                what,
                times[2],
                gbps=gbps,
                groups=len(result.policy.stops),
                ratio=ratio,
                met=ratio < 1.05,
                note=note,
            )


def _slow_codec(tuner: _Tuner) -> Iterator[Row]:
    """e: 10 Gb/s and this host's codecs: within 1 % of fp32."""
    for methods in (["fp32", "asc"], tuner.args.methods):
        problem = tuner.transformer(tuner.options(10.0, methods=methods))
        result, raw = select(problem), [o for o in problem.options if not o.compresses]
        rival = select(PolicyProblem(problem.sizes, problem.ready_s, tuple(raw)))
        ratio = result.time_s / rival.time_s
        note = verdict(problem, result.policy)
        yield _row(
            "+".join(methods),
            result.time_s,
            gbps=10,
            groups=len(result.policy.stops),
            ratio=ratio,
            met=ratio <= 1.01,
            note=note,
        )


def _selection(tuner: _Tuner) -> Iterator[Row]:
    """f: how long selection takes a core, the best of five."""
    own = tuner.options(0.5)
    for sizes, bar in ((transformer_sizes(), 0.05), (resnet101_sizes(), 0.2)):
        problem = _even(sizes, 0.04 if bar < 0.1 else 0.2, own)
        for name in ("joint", "espresso"):
            took = [select(problem, name) for _ in range(5)]
            best = min(took, key=lambda one: one.took_s)
            met = best.took_s <= bar if name == "joint" else None
            note = f"{best.tried:,} policies of {len(own)} options"
            what, count = f"{name}, {len(sizes)} tensors", len(best.policy.stops)
            yield _row(what, best.took_s, gbps=0.5, groups=count, met=met, note=note)


def _trigger(tuner: _Tuner) -> Iterator[Row]:
    """l: sums of 64 k values that begin while they are made, 4 nodes, 16 bits, production as long as they."""
    lane = LinkModel.of(gbps=8, latency_us=2.5, codec_gvalues=0.2, codec_latency_us=0.75)
    for clock, link in (
        ("a lane of 200 MHz, 8 Gb/s", lane),
        ("NIC, 100 Gb/s", LinkModel(coder=load_nic().model())),
    ):
        for name, subs in (("ring", 1), ("ring", 4), ("ring", 16), ("direct", 4)):
            schedule = make_schedule(name, 4, subframes=subs)
            frames = assumed_frames(schedule, 1 << 16, 16, header_bytes=0)
            alone = sums_s(allreduce(schedule, frames, link))
            own, plain = (
                sums_s(allreduce(schedule, frames, link, production=Production(alone, order)))
                for order in ("rotated", "plain")
            )
            note = f"in plain order {2 * alone / plain:.3f}; sequential {2 * alone * 1e3:.4f} ms, ideal 2"
            what = f"{name}, K={subs}, {clock}"
            bar = 2 * alone / own >= 1.5 if name == "ring" and link is lane else None
            yield _row(what, own, ratio=2 * alone / own, met=bar, note=note)


def _rates(tuner: _Tuner) -> Iterator[Row]:
    """The transformer by the rate of the link: none compressed, all, published, joint."""
    for gbps in RATES:
        named = _by_selector(tuner.transformer(tuner.options(gbps)))
        note = ", ".join(f"{name} {seconds * 1e3:.2f}" for name, seconds in named.items())
        yield _row(
            "none over joint", named["joint"], gbps=gbps, ratio=named["none"] / named["joint"], note=note
        )


def _by_selector(problem: PolicyProblem) -> dict[str, float]:
    times = problem.uniform()
    result = {
        what: min(seconds for name, seconds in times.items() if name.startswith(start))
        for what, start in (("none", "fp32"), ("all ASC", "asc"))
    }
    return result | {
        name: select(problem, name).time_s for name in ("espresso", "espresso-released", "joint")
    }


def _preset(tuner: _Tuner) -> Iterator[Row]:
    """ResNet-101 with Espresso's constants, 8 machines of 8 accelerators; 130 ms, of each value the same."""
    for what, preset in (("PCIe", Preset()), ("NVLink", Preset.nvlink())):
        problem = _even(resnet101_sizes(), 0.13, preset.options())
        joint = select(problem).time_s
        for name in ("espresso", "espresso-released", "joint"):
            result = select(problem, name)
            ratio = problem.uniform()["fp32"] / result.time_s
            note = f"fp32 over it; joint is {result.time_s / joint:.2f}x as fast"
            yield _row(
                f"{what}: {name}", result.time_s, groups=len(result.policy.stops), ratio=ratio, note=note
            )


def _merge(tuner: _Tuner) -> Iterator[Row]:
    """MergeComp's halving on step times of the model with noise, against the best groups: means of 50."""
    for gbps, (groups, noise, apart) in product(
        RATES, ((2, 0, 1), (3, 0, 1), (2, 1, 1), (2, 1, 4), (2, 1, 8))
    ):
        problem = tuner.transformer(tuner.options(gbps, ["ring"]))
        coded = [at for at, option in enumerate(problem.options) if option.compresses]
        one = min(coded, key=lambda at: problem.time(Policy((54,), (at,))))
        every = {
            stops: problem.time(Policy(stops, (one,) * len(stops)))
            for inside in range(groups)
            for stops in ((*inner, 54) for inner in combinations(range(1, 54), inside))
        }
        ratios = []
        for _ in range(50 if noise else 1):
            noisy = lambda s: every[s] * tuner.random.normal(1, noise / 100)  # noqa: B023, E731 - called at once
            result = merge(54, noisy, most=groups, apart=apart)
            ratios.append(every[result.stops] / min(every.values()))
        yield _row(
            f"y <= {groups}, {noise} % noise, neighbours {apart} apart",
            gbps=gbps,
            ratio=fmean(ratios),
            note=f"at most {max(ratios):.3f}; {result.measured} measured; {problem.options[one].name}",
        )


def _ready(tuner: _Tuner) -> Iterator[Row]:
    """What measured ready times change: a policy for an even rate, played with them, against one for them."""
    from oscar_studies.recording import of_workload
    from oscar_studies.workloads import make_workload

    times = of_workload(make_workload("transformer", nodes=1, seed=0))  # type: ignore[arg-type]
    backward = (np.array(times.ready_s) - times.forward_s) / times.backward_s * tuner.args.compute_ms * 1e-3
    for gbps in RATES:
        own = tuple(tuner.options(gbps))
        problem = PolicyProblem(times.sizes, backward, own)
        result, even = select(problem), select(_even(times.sizes, backward[-1], own))
        for what, policy in (("measured", result.policy), ("even", even.policy)):
            ratio = problem.time(policy) / result.time_s
            yield _row(
                f"selected for {what} times",
                problem.time(policy),
                gbps=gbps,
                groups=len(policy.stops),
                ratio=ratio,
            )
        yield _row("even times, as modelled", even.time_s, gbps=gbps, ratio=even.time_s / result.time_s)


TABLES = {
    "a": _oracle, "b": _uniform, "c": _transformer, "d": _groups, "e": _slow_codec, "f": _selection,
    "offload": _offload, "rates": _rates, "preset": _preset, "l": _trigger,
    "merge": _merge, "ready": _ready,
}  # fmt: skip
