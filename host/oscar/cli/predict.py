"""`oscar predict`: would compression pay, and if not, why."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from oscar.cli.common import amount, check_values, declare
from oscar.cores import one_blas_thread
from oscar.files import check_outputs, write_json

EXAMPLE = """\
  oscar predict --values 25M --nodes 8 --gbps 25
  oscar predict --values 25M --nodes 8 --gbps 1 --method oscar-sw-best
  oscar predict --values 25M --nodes 8 --gbps 25 --bits 4.5 --codec ideal
  oscar predict --values 25M --bits 2 --topology net.yaml --schedule s.json

Compares with fp32, bf16 and int8 where its sums fit, all uncompressed. Exit status 0 when compression
pays by at least 5 %, 3 when it does not; the reason is printed, and on the last line what was assumed.

Without options ASC runs on hosts like this one, one thread a rank. Everything that a host computes counts:
coding, quantising, steps and means. It is measured on this machine at first use, and kept. --codec ideal asks
what a codec would bring that takes no time for a value.
Bits per value are estimated on Laplace gradients, a dense transformer's at full accuracy; sparse models need
far less. Measure them with `oscar allreduce` (column bits/val).

--codec rtl takes the package's NIC for links of that rate: an ECP5 85F of 1 unit up to 25 Gb/s, a U55C of 8
units above. --nic-file names another one, for all rates.

What a policy of `oscar tune` gives elsewhere: oscar predict-policy. Memory cards for decoding: oscar offload.
"""

MOST_RANKS_PER_CORE = 1024


def add_command(commands: Any) -> None:
    """Declare the command."""
    parser = declare(
        commands, "predict", run, short="say whether compression pays on a link, and why not", example=EXAMPLE
    )
    parser.add_argument("--values", type=amount, metavar="V", help="gradient values, e.g. 25M")
    parser.add_argument("--nodes", type=int, metavar="N")
    parser.add_argument("--gbps", type=float, metavar="G", help="link rate")
    parser.add_argument(
        "--bits",
        type=float,
        metavar="B",
        help="coded bits per value (default: an estimate for --method, or 6)",
    )
    parser.add_argument("--method", metavar="NAME", help="codec or scheme (default: asc with --codec host)")
    parser.add_argument(
        "--latency-us", type=float, default=2.0, metavar="US", help="latency of a hop (%(default)g)"
    )
    parser.add_argument(
        "--codec",
        choices=["host", "ideal", "rtl"],
        help="what codes: this host, a codec at line rate, or the NIC's RTL (default: host)",
    )
    parser.add_argument(
        "--nic-file", metavar="FILE", help="with --codec rtl: the NIC (default: the package's for --gbps)"
    )
    parser.add_argument("--codec-gvalues", type=float, metavar="G", help="10^9 values/s (default: line rate)")
    parser.add_argument("--codec-latency-us", type=float, default=0.5, metavar="US", help="(%(default)s)")
    parser.add_argument(
        "--subframes", type=int, metavar="K", help="frames per chunk (default: the fastest number)"
    )
    parser.add_argument(
        "--ranks-per-core", type=float, default=1.0, metavar="R",
        help="with --codec host: ranks that share a core (%(default)g)",
    )  # fmt: skip
    parser.add_argument(
        "--no-driver", action="store_true", help="with --codec rtl: time the NIC alone, without its driver"
    )
    parser.add_argument(
        "--schedule", default="network", metavar="NAME",
        help="ring, duplex, direct, auto, .., or a schedule file (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--group", type=int, metavar="G", help="ranks of a group: hierarchical, exchange")
    parser.add_argument(
        "--topology", type=Path, metavar="FILE.yaml", help="the network (default: a switch of --gbps)"
    )
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the prediction here")
    for option, command in (("--policy", "predict-policy FILE"), ("--offload", "offload CARDxK")):
        refuse = partial(_refuse_moved, command)  # these were questions of their own
        parser.add_argument(option, nargs="?", type=refuse, const="", help=argparse.SUPPRESS)
    parser.set_defaults(usual=parser.get_default)


def _refuse_moved(command: str, text: str) -> str:
    raise argparse.ArgumentTypeError(f"this is a command now: oscar {command}")


def run(args: argparse.Namespace) -> int:
    """Predict; return 0 when compression pays and 3 when it does not."""
    check_outputs([args.json])
    check_values(args)
    _check_options(args)
    one_blas_thread()  # a low-rank method is not to be measured by how its threads wait
    case, result = _predicted(args)
    _print(args, case, result)
    if args.json is not None:
        _write(args.json, result, case)
    return 0 if result.pays else 3


def _predicted(args: argparse.Namespace) -> tuple[Any, Any]:
    """Return the case that the options describe, and its prediction; `auto` chooses for the frames taken."""
    from oscar.planning.predict import SEARCHED

    config = _config(args)
    case = _case(args, config)
    schedule = case.schedule
    if schedule.nodes > SEARCHED and not schedule.alike:  # every frame is replayed
        print(f"# replaying {schedule.describe()}: some 10 s or more", file=sys.stderr, flush=True)
    result = _predict(args, case)
    if args.subframes is None and args.schedule == "auto" and result.subframes > 1:
        section = config.schedule.model_copy(update={"subframes": result.subframes})
        again = _case(args, config.model_copy(update={"schedule": section}))
        other = _predict(args, again)
        if other.time_s < result.time_s:
            return again, other
    return case, result


def _case(args: argparse.Namespace, config: Any) -> Any:
    from oscar.planning.case import assumed, estimated

    if args.method is None:
        return assumed(config, args.values, args.nodes, args.bits)
    config = config.variant(method=args.method)
    return estimated(config, args.values, args.nodes, args.bits, ranks_per_core=args.ranks_per_core)


def _predict(args: argparse.Namespace, case: Any) -> Any:
    from oscar.planning.predict import predict

    return predict(
        args.values, case.schedule, case.link, case.bits, coded=case.coded, around=case.around,
        topology=case.topology, any_subframes=args.subframes is None,
    )  # fmt: skip


def _print(args: argparse.Namespace, case: Any, result: Any) -> None:
    """Print the times, the verdict and what was assumed."""
    from oscar.timeline.nic import shipped_text

    network = f"{args.nodes} nodes, {args.gbps:g} Gb/s, {args.latency_us:g} us a hop"
    if case.topology is not None:
        network = case.topology.text
    print(f"# {args.values:,} values, {network}")
    nic = ""
    if args.codec == "rtl" and args.nic_file is None:
        nic = f" ({shipped_text(args.gbps)}; --nic-file for another)"
    print(f"# times are modelled, {case.clock}{nic}")
    times = {
        "fp32": result.fp32_time_s,
        "fp32 direct": result.fp32_direct_time_s,
        "bf16": result.bf16_time_s,
        "int8": result.int8_time_s,
    }
    coded = args.method or "coded"
    rows = (*times.items(), (coded, result.time_s))  # --method may be fp32, too
    known = [time_s for _, time_s in rows if time_s is not None and time_s < math.inf]
    unit, scale, digits = _unit(max(known))
    overflow = f"not usable, sums of {args.nodes} workers overflow 8 bits"
    for name, time_s in rows:
        text = overflow if time_s is None else f"{time_s * scale:14.{digits}f} {unit}"
        print(f"{name:{max(11, len(coded))}} {'no links for it' if time_s == math.inf else text}")
    print(f"speedup over fp32: {result.speedup:.2f}, sent direct {result.speedup_direct:.2f}")
    if result.breakeven_values is not None:
        print(f"pays from {result.breakeven_values:,} values on this link")
    if case.schedule.nodes > 1:
        print(breakeven_text(result))
    print(_verdict(result, case.schedule.nodes, coded, lambda s: f"{s * scale:.{digits}f} {unit}"))
    if case.schedule.name == "redundant":
        print(_copies(args.values, case))
    print(_assumed(args, case, result))


def _copies(values: int, case: Any) -> str:
    """Return what the schedule redundant sends, and how much more where others compute a slow rank's part."""
    schedule, frame = case.schedule, values * case.bits / 8e6
    sent = schedule.nodes * (schedule.nodes - 1) * frame
    more = (schedule.copies - 1) * schedule.pieces * (schedule.nodes - 1) * frame
    return (
        f"# all ranks send {sent:.3g} MB a step; where others compute the {schedule.pieces} tasks of a slow "
        f"rank, up to {more:.3g} MB more"
    )


def _assumed(args: argparse.Namespace, case: Any, result: Any) -> str:
    """Return the line that says what the times rest on."""
    from oscar.provenance import processor

    picked = "the fastest" if args.subframes is None else "as given"
    frames = f"{result.subframes} {'frame' if result.subframes == 1 else 'frames'} a chunk ({picked})"
    bits = f"{case.bits:.4g} bits/value{case.source}"
    coder = {
        "ideal": "a codec that takes no time for a value (this host: --codec host)",
        "rtl": "the NIC above",
        "host": f"hosts like this one ({processor()}), one thread a rank",
    }[args.codec]
    if args.codec_gvalues is not None:
        coder = f"a codec of {args.codec_gvalues:g} G values/s"
    if args.ranks_per_core != 1:
        coder += f", {args.ranks_per_core:g} ranks a core"
    return f"# assumed: {coder}; {bits}; schedule {case.schedule.name}, {frames}"


def _check_options(args: argparse.Namespace) -> None:
    """Raise ValueError for options that are missing, and for those that others leave without effect.

    Fills in the codec and the method where none is given: ASC on this host, unless a rate was assumed.
    """
    if args.codec is None:
        given = args.codec_gvalues is not None or args.codec_latency_us != args.usual("codec_latency_us")
        args.codec = "ideal" if given else "host"
    if args.codec == "host" and args.method is None:
        args.method = "asc"
    if not 0 < args.ranks_per_core <= MOST_RANKS_PER_CORE:
        raise ValueError(
            f"--ranks-per-core: expected more than 0 and at most {MOST_RANKS_PER_CORE}, "
            f"got {args.ranks_per_core:g}"
        )
    if args.codec != "host" and args.ranks_per_core != 1:
        raise ValueError(f"--ranks-per-core needs --codec host, got --codec {args.codec}")
    for option, given in (("--nic-file", args.nic_file is not None), ("--no-driver", args.no_driver)):
        if given and args.codec != "rtl":
            raise ValueError(f"{option} needs --codec rtl, got --codec {args.codec}")
    if args.topology is not None and args.gbps is not None:
        raise ValueError(f"--gbps is not for --topology: {args.topology} says how fast links are")
    needed = ("values",) if args.topology is not None else ("values", "nodes", "gbps")
    missing = [f"--{key}" for key in needed if getattr(args, key) is None]
    if missing:
        raise ValueError(f"predict needs {', '.join(missing)}: oscar predict --help")


def _verdict(result: Any, nodes: int, coded: str, text: Callable[[float], str]) -> str:
    """Return whether coding pays, against what and why; text: of a time."""
    from oscar.planning.predict import MIN_GAIN

    if result.pays:
        return str(result.reason)
    if nodes == 1:
        return f"does not pay: {result.reason}"
    rival_s = {"bf16": result.bf16_time_s, "int8": result.int8_time_s}[result.rival]
    times = f"{result.rival} takes {text(rival_s)}, {coded} {text(result.time_s)}"
    return f"does not pay: {times} ({100 * (MIN_GAIN - 1):.0f} % needed): {result.reason}"


def _config(args: argparse.Namespace) -> Any:
    """Return the configuration that the options ask for; `nodes` and `gbps` are those of a topology."""
    from oscar.cli.schedule import refuse_strangers
    from oscar.collective.schedules import GROUPED, KINDS
    from oscar.config import BY_NETWORK, BY_TIME, Config
    from oscar.config.link import read_section

    grouped = (*(kind.name for kind in GROUPED), BY_NETWORK, BY_TIME)
    refuse_strangers(args.schedule, {"--group": (args.group, grouped)})
    topology = {}
    if args.topology is not None:
        section, network = read_section(args.topology, args.nodes)
        args.nodes = network.nodes
        args.gbps = 8e-9 / min(port.seconds_per_byte for port in network.ports)
        topology = {"topology": section.model_dump(by_alias=True) | {"nodes": args.nodes}}
    keys = ("gbps", "latency_us", "codec", "nic_file", "codec_gvalues", "codec_latency_us")
    link = {key: getattr(args, key) for key in keys} | {"driver": not args.no_driver}
    schedule = {"name": args.schedule, "subframes": args.subframes or 1, "group": args.group}
    if args.schedule not in (*KINDS, BY_NETWORK, BY_TIME) and Path(args.schedule).exists():
        schedule |= {"name": "file", "file": args.schedule}
    return Config().variant(link=link, schedule=schedule, **topology)


def breakeven_text(result: Any) -> str:
    """Return up to which link rate coding pays, for a reader."""
    from oscar.planning.predict import last_text

    if not result.searched:
        return "# the rate up to which it pays was not looked for: of ring and direct at a switch it is"
    if result.breakeven_gbps is None:
        return "pays at no link rate for this model"
    text = f"pays up to {last_text(result.breakeven_gbps)} for this model"
    if result.breakeven_gbps == math.inf:
        text = f"pays at any link rate (tried up to {last_text(result.breakeven_gbps)}) for this model"
    return text if result.pays_below else f"{text}, and not at all rates below that"


def _unit(longest_s: float) -> tuple[str, float, int]:
    """Return unit, factor and decimals of a column of times: us up to 10 ms, ms up to 10 s."""
    if longest_s <= 0.01:
        return "us", 1e6, 2
    return ("ms", 1e3, 3) if longest_s <= 10 else ("s", 1.0, 3)


def _write(path: Path, result: Any, case: Any) -> None:
    from dataclasses import asdict

    from oscar.planning.predict import FASTEST_GBPS

    data = {key: None if value == math.inf else value for key, value in asdict(result).items()}
    if result.breakeven_gbps == math.inf:
        data["breakeven_gbps"] = FASTEST_GBPS
    data["breakeven"] = breakeven_text(result)
    data["clock"] = case.clock
    data["bits_per_value"] = case.bits
    data["schedule"] = case.schedule.name
    if case.cost is not None:
        data["cost"] = asdict(case.cost)
    write_json(path, data)
