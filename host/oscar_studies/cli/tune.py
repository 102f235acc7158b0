"""`oscar tune`: which gradients to compress, how, and in which groups."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from oscar.cli.common import add_config, declare, read_config
from oscar.cores import one_blas_thread
from oscar.files import check_outputs

if TYPE_CHECKING:
    from oscar.config import Config
    from oscar.planning.tuning.policy import PolicyProblem
    from oscar.planning.tuning.profile import ReadyTimes, Tensors
    from oscar.timeline.engine import Floats
    from oscar_studies.workloads import Workload
    from oscar_studies.workloads.torch_models import TorchWorkload

SAMPLES = 3  # iterations whose gradients sparse methods are priced on
EXAMPLE = """\
  oscar tune train --set link.gbps=1 --explain
  oscar tune train --set link.gbps=0.5 --set link.latency_us=100 --compute-ms 40 -o policy.yaml
  oscar tune train --save-profile ready.yaml
  oscar tune train --profile ready.yaml

Selects a policy for the configured workload, nodes and link, in the model of timeline.md: groups of
tensors in the order of the backward pass, and for each a method, its processor and a schedule. Costs of
methods are measured on this machine at first use, and kept. So is when gradients become ready, unless a
profile says so. Exit status 0 where compression makes an iteration 5 % faster, 3 where it does not.
"""


def add_command(commands: Any) -> None:
    """Declare the command."""
    parser = declare(
        commands, "tune", run, short="choose what to compress, how and in which groups", example=EXAMPLE
    )
    add_config(parser, default="train")
    parser.add_argument("-o", "--output", type=Path, metavar="OUT", help="write the policy here, as YAML")
    parser.add_argument(
        "--methods",
        nargs="+",
        metavar="NAME",
        help="to choose from; asc:c=1/2 for another coarseness (default: fp32, that of CONFIG, and bf16 "
        "unless it loses more)",
    )
    parser.add_argument("--schedules", nargs="+", default=["ring", "direct"], metavar="NAME")
    parser.add_argument(
        "--processors",
        nargs="+",
        default=["same", "other"],
        metavar="NAME",
        help="that may code: the training's own (same), another one beside it (other), another one that "
        "codes and sends group after group, as the DDP hook does (thread); default: same other",
    )
    parser.add_argument(
        "--selector", default="joint", metavar="NAME", help="see docs/how-to/tune.md (%(default)s)"
    )
    parser.add_argument(
        "--compute-ms",
        type=float,
        metavar="MS",
        help="forward and backward pass of a node (default: train.compute_ms, or as measured here)",
    )
    parser.add_argument(
        "--profile",
        type=Path,
        metavar="FILE",
        help="when gradients become ready: a profile, or a trace of torch.profiler or Chakra "
        "(default: measured here)",
    )
    parser.add_argument(
        "--save-profile", type=Path, metavar="OUT", help="write when gradients become ready here, as YAML"
    )
    parser.add_argument("--explain", action="store_true", help="explain the choice for every group")


def run(args: argparse.Namespace) -> int:
    """Select, print, write; return 0 where compression pays and 3 where it does not."""
    one_blas_thread()
    from oscar.array import sizes_of
    from oscar.planning.predict import MIN_GAIN
    from oscar.planning.tuning.apply import made_of
    from oscar.planning.tuning.policy import PolicyFile, PolicyProblem
    from oscar.planning.tuning.select import reasons, select, verdict
    from oscar_studies.espresso import SELECTORS
    from oscar_studies.recording import open_workload

    config = read_config(args)
    check_outputs([args.output, args.save_profile], [Path(args.config), args.profile])
    workload = open_workload(config)
    names, sizes = workload.tensor_names[::-1], sizes_of(workload.tensor_shapes)[::-1]
    tensors = list(zip(names, sizes, strict=True))
    times = _times(config, workload, tensors, args)
    compute = times.ready_s[-1]
    problem = _problem(config, workload, sizes, times.ready(tensors), args)
    result = select(problem, args.selector, among=SELECTORS)
    print(
        f"# {len(sizes)} tensors, {sum(sizes):,} values, {config.nodes} nodes, {config.link.gbps:g} Gb/s, "
        f"{config.link.latency_us:g} us a hop; compute {compute * 1e3:.3g} ms"
    )
    print(f"# forward pass {times.forward_s * 1e3:.3g} ms; gradients: {times.made}")
    print(f"# {result.tried:,} policies tried in {result.took_s * 1e3:.0f} ms; times are modelled")
    for name, seconds in sorted(problem.uniform().items(), key=lambda pair: pair[1]):
        print(f"{name + ' for every tensor':40} {seconds * 1e3:10.3f} ms")
    print(f"{args.selector + f', {len(result.policy.stops)} groups':40} {result.time_s * 1e3:10.3f} ms")
    raw = tuple(option for option in problem.options if not option.compresses)
    plain = select(PolicyProblem(problem.sizes, problem.ready_s, raw)).time_s if raw else float("inf")
    pays = result.time_s * MIN_GAIN <= plain
    print(verdict(problem, result.policy))
    if not pays:
        print(f"does not pay: {plain * 1e3:.3f} ms without any compression")
    for option, own in problem.left_out.items():
        print(f"# left out: {option} for {', '.join(f'{names[at]} ({why})' for at, why in own.items())}")
    if args.explain:
        for reason in reasons(problem, result.policy):
            print(reason.text)
    if args.output is not None:
        made = made_of(config, times, problem, result.policy, args.processors, args.selector)
        PolicyFile.of(names, problem, result.policy, made).write(args.output)
        print(f"# wrote {args.output}")
    return 0 if pays else 3


def _times(config: Config, workload: Workload, tensors: Tensors, args: argparse.Namespace) -> ReadyTimes:
    """Return when gradients become ready: as in the file, as measured, or where neither can be, evenly.

    Computing time that is given stretches it, but not what is written.
    """
    from oscar.errors import ConfigError
    from oscar.planning.tuning.profile import FORWARD, even
    from oscar_studies.profiler_traces import read_times
    from oscar_studies.recording import of_numpy, of_workload
    from oscar_studies.workloads.numpy_training import NumpyWorkload

    given = config.train.compute_ms if args.compute_ms is None else args.compute_ms
    if args.profile is not None:
        times = read_times(args.profile, tensors)
        given = args.compute_ms
    elif isinstance(workload, NumpyWorkload):
        times = of_numpy(workload)
    elif hasattr(workload, "model"):
        times = of_workload(cast("TorchWorkload", workload))
    elif args.save_profile is not None:
        raise ConfigError(
            f"expected a workload whose gradients can be timed one by one, got {workload.name}; "
            "leave out --save-profile: they are taken to become ready at an even rate"
        )
    else:
        times = even(tensors, _compute_s(workload), FORWARD)
    if args.save_profile is not None:
        times.write(args.save_profile)
    return times if given is None else times.scaled(float(given) * 1e-3)


def _compute_s(workload: Workload) -> float:
    """Return the seconds of one node's forward and backward pass: the best of some."""
    import time

    took = []
    for _ in range(4):
        began = time.perf_counter()
        workload.gradients()
        took.append((time.perf_counter() - began) / workload.nodes)
    return min(took)


def _problem(
    config: Config, workload: Workload, sizes: Sequence[int], ready_s: Floats, args: argparse.Namespace
) -> PolicyProblem:
    from oscar.planning.tuning.options import (
        SPARSE,
        check_processors,
        default_choices,
        measured,
        measured_on,
        options,
    )
    from oscar.planning.tuning.policy import PolicyProblem
    from oscar.timeline.link import LinkModel

    methods = dict.fromkeys(args.methods or default_choices(config.method))
    if lossier := [name for name in methods if name not in (*default_choices(config.method), *SPARSE)]:
        print(f"# may change the loss, asked for by --methods: {', '.join(lossier)}")
    model = config.link.model()
    link = LinkModel(model.bandwidth_bps, model.latency_s)  # the codec is a lane of its own
    prices = [measured(name, config.nodes, config) for name in methods if name not in SPARSE]
    processors = check_processors(args.processors)
    own = options(prices, config.nodes, link, args.schedules, processors=processors)
    refused: dict[str, dict[int, str]] = {}
    counts: dict[str, tuple[int, ...]] = {}
    for name in filter(methods.__contains__, SPARSE):
        drawn = [workload.gradients() for _ in range(SAMPLES)]
        price, unable, counted = measured_on(name, config, [[node[::-1] for node in one] for one in drawn])
        if price is None:
            print(f"# left out: {name}, as no tensor is sparse")
            continue
        sparse = options(  # alone: it must not displace others
            [price], config.nodes, link, args.schedules, processors=processors
        )
        refused |= {option.name: unable for option in sparse}
        counts |= {option.name: counted for option in sparse}
        own += sparse
    return PolicyProblem(tuple(sizes), ready_s, tuple(own), refused, counts)
