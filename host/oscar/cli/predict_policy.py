"""`oscar predict-policy`: what a policy of `oscar tune` gives on another link or between other nodes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from oscar.cli.common import declare
from oscar.cores import one_blas_thread
from oscar.errors import ConfigError
from oscar.files import check_outputs, write_json

EXAMPLE = """\
  oscar predict-policy policy.yaml --nodes 8 --gbps 1

Prints the seconds of an iteration under the policy, and with one method for all tensors. Computing takes as
long as when the file was made, and gradients appear at an even rate. What is not given is as in the file.
Exit status 0 when the policy is at least 5 % faster than the fastest uncompressed fp32, else 3.
"""


def add_command(commands: Any) -> None:
    """Declare the command."""
    parser = declare(
        commands, "predict-policy", run, short="say what a policy of oscar tune gives on another network",
        example=EXAMPLE,
    )  # fmt: skip
    parser.add_argument("policy", type=Path, metavar="FILE", help="policy of oscar tune")
    parser.add_argument("--nodes", type=int, metavar="N", help="(those of the file)")
    parser.add_argument("--gbps", type=float, metavar="G", help="link rate (that of the file)")
    parser.add_argument("--latency-us", type=float, metavar="US", help="latency of a hop (that of the file)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the times here")


def run(args: argparse.Namespace) -> int:
    """Print what an iteration takes; return 0 where the policy pays. Errors name its file."""
    check_outputs([args.json])
    try:
        return _print_times(args)
    except ConfigError as error:
        named = str(error) if str(args.policy) in str(error) else f"{args.policy}: {error}"
        raise ConfigError(named) from None


def _print_times(args: argparse.Namespace) -> int:
    one_blas_thread()
    from oscar.planning.predict import MIN_GAIN
    from oscar.planning.tuning.apply import problem_of
    from oscar.planning.tuning.policy import MOST, load_policy
    from oscar.planning.tuning.select import verdict
    from oscar.timeline.link import LinkModel

    file = load_policy(args.policy)
    given = {"nodes": args.nodes, "gbps": args.gbps, "latency_us": args.latency_us, "compute_ms": None}
    for key, value in given.items():
        least = 0 if key == "latency_us" else 1e-6
        if value is not None and not least <= value <= MOST[key]:
            option = key.replace("_", "-")
            raise ValueError(f"--{option}: expected {least:g} to {MOST[key]:g}, got {value:g}")
    nodes, gbps, latency_us, compute_ms = (
        file.number(key, MOST[key]) if value is None else float(value) for key, value in given.items()
    )
    problem = problem_of(file, int(nodes), LinkModel.of(gbps=gbps, latency_us=latency_us), compute_ms * 1e-3)
    policy = file.policy(problem)
    times = {f"{name} for every tensor": seconds for name, seconds in problem.uniform().items()}
    times[f"policy, {len(policy.stops)} groups"] = problem.time(policy)
    print(
        f"# {len(file.tensors)} tensors, {sum(problem.sizes):,} values, {int(nodes)} nodes, {gbps:g} Gb/s, "
        f"{latency_us:g} us a hop; compute {compute_ms:.3g} ms; times are modelled"
    )
    for name, seconds in sorted(times.items(), key=lambda pair: pair[1]):
        print(f"{name:40} {seconds * 1e3:10.3f} ms")
    print(verdict(problem, policy))
    if args.json is not None:
        write_json(args.json, {"nodes": int(nodes), "gbps": gbps, "latency_us": latency_us, "times_s": times})
    plain = [seconds for name, seconds in times.items() if name.startswith("fp32 ")]
    return 0 if problem.time(policy) * MIN_GAIN <= min(plain) else 3
