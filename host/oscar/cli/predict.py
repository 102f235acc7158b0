"""`oscar predict`: would compression pay, and if not, why."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oscar.blas import one_blas_thread
from oscar.cli.common import amount, check_values, declare
from oscar.errors import ConfigError
from oscar.files import check_outputs, write_json

EXAMPLE = """\
  oscar predict --values 25M --nodes 8 --gbps 25 --bits 4.5
  oscar predict --values 25M --nodes 8 --gbps 1 --method oscar-sw-best --codec host
  oscar predict --values 1k --nodes 64 --gbps 400
  oscar predict --values 25M --bits 2 --topology net.yaml --schedule s.json
  oscar predict --policy policy.yaml --nodes 8 --gbps 1
  oscar predict --offload U55Cx4 --gpu L40S --batch 16 32 64

Compares with fp32, bf16 and int8 where its sums fit, all uncompressed. Exit status 0 when compression
pays by at least 5 %, 3 when it does not; the reason is printed. --bits: measure it with `oscar allreduce`
(column bits/val); the default is a dense transformer's at full accuracy, sparse models need far less.
--method NAME estimates them on Laplace gradients; with --codec host also what the method computes. The
estimate is measured on this machine at first use, and kept.

--codec rtl takes the package's NIC for links of that rate: an ECP5 85F of 1 unit up to 25 Gb/s, a U55C of 8
units above. --nic-file names another one, for all rates.

--policy asks what a policy of `oscar tune` gives on another link or between other nodes (those of the file,
where none are said): an iteration of the computing time that the file was made with, gradients at an even
rate. Status 0 where it is 5 % faster than the best without compression, else 3.

--offload asks another question: do memory cards beside a GPU pay for decoding (Llama-2 7B, 1,024 tokens in
and out)? CARD is L40S, U55C, HPU, H200, or host: this machine, measured; U55Cx4 is four of them. Status 0
where they pay for a batch, else 3. --unit rtl takes the clocks of the RTL's attention units, which read keys
and values of 8 bits (GPUs too, then), and says at which context lengths cards pay.
"""

# Options that do nothing for a question: of --offload, of --policy, of all others.
MODELLED = (
    "values", "bits", "method", "codec", "nic_file", "codec_gvalues", "codec_latency_us", "subframes",
    "no_driver", "schedule", "group", "topology",
)  # fmt: skip
OF_CARDS = "unit", "units", "unit_mhz", "gpu", "batch"
STRANGERS = {
    "--offload": (*MODELLED, "nodes", "gbps", "latency_us", "policy"),
    "--policy": (*MODELLED, *OF_CARDS),
    "--values": OF_CARDS,
}


def add_command(commands: Any) -> None:
    """Declare the command."""
    parser = declare(
        commands, "predict", run, short="say whether compression pays on a link, and why not", example=EXAMPLE
    )
    parser.add_argument("--values", type=amount, metavar="V", help="gradient values, e.g. 25M")
    parser.add_argument("--nodes", type=int, metavar="N")
    parser.add_argument("--gbps", type=float, metavar="G", help="link rate")
    parser.add_argument(
        "--bits", type=float, metavar="B", help="coded bits per value (6, or those of --method)"
    )
    parser.add_argument("--method", metavar="NAME", help="codec or scheme whose cost is estimated")
    parser.add_argument("--latency-us", type=float, metavar="US", help="latency of a hop (2)")
    parser.add_argument(
        "--codec",
        choices=["ideal", "rtl", "host"],
        default="ideal",
        help="codec clock to model (%(default)s)",
    )
    parser.add_argument(
        "--nic-file", metavar="FILE", help="with --codec rtl: the NIC (default: the package's for --gbps)"
    )
    parser.add_argument("--codec-gvalues", type=float, metavar="G", help="10^9 values/s (default: line rate)")
    parser.add_argument("--codec-latency-us", type=float, default=0.5, metavar="US", help="(%(default)s)")
    parser.add_argument(
        "--subframes", type=int, default=1, metavar="K", help="frames per chunk (%(default)s)"
    )
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
    parser.add_argument(
        "--policy", type=Path, metavar="FILE", help="policy of oscar tune, instead of --values"
    )
    parser.add_argument("--offload", metavar="CARDxK", help="cards that take attention in decoding")
    parser.add_argument(
        "--unit", choices=["roofline", "rtl"], default="roofline", help="what attends on a card (%(default)s)"
    )
    parser.add_argument(
        "--units", type=int, default=192, metavar="U", help="with --unit rtl: units on a card (%(default)s)"
    )
    parser.add_argument(
        "--unit-mhz", type=float, default=200.0, metavar="MHZ", help="with --unit rtl (%(default)g)"
    )
    parser.add_argument("--gpu", default="L40S", metavar="CARD", help="beside them (%(default)s)")
    parser.add_argument(
        "--batch", type=int, nargs="+", default=[16, 32, 64], metavar="B", help="requests (16 32 64)"
    )
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the prediction here")
    parser.set_defaults(usual=parser.get_default)


def run(args: argparse.Namespace) -> int:
    """Predict; return 0 when compression pays and 3 when it does not."""
    check_outputs([args.json])
    _refuse_strangers(args)
    if args.offload is not None:
        return _offload(args)
    if args.policy is not None:
        return _policy(args)
    args.latency_us = 2.0 if args.latency_us is None else args.latency_us
    check_values(args)
    _check_options(args)
    one_blas_thread()  # a low-rank method is not to be measured by how its threads wait
    from oscar.planning.case import assumed, estimated
    from oscar.planning.predict import predict

    config = _config(args)
    if args.method is None:
        case = assumed(config, args.values, args.nodes, args.bits)
    else:
        case = estimated(config.variant(method=args.method), args.values, args.nodes, args.bits)
    _say_replay(case.schedule)
    found = predict(
        args.values, case.schedule, case.link, case.bits, coded=case.coded, around=case.around,
        topology=case.topology,
    )  # fmt: skip
    network = f"{args.nodes} nodes, {args.gbps:g} Gb/s, {args.latency_us:g} us a hop"
    if case.topology is not None:
        network = case.topology.text
    print(
        f"# {args.values:,} values, {network}, "
        f"{case.bits:.4g} bits/value{case.source}, schedule {case.schedule.name}"
    )
    print(f"# times are modelled, {case.clock}{_part(args)}")
    times = {
        "fp32": found.fp32_time_s,
        "fp32 direct": found.fp32_direct_time_s,
        "bf16": found.bf16_time_s,
        "int8": found.int8_time_s,
    }
    coded = args.method or "coded"
    rows = (*times.items(), (coded, found.time_s))  # --method may be fp32, too
    known = [time_s for _, time_s in rows if time_s is not None and time_s < math.inf]
    unit, scale, digits = _unit(max(known))
    for name, time_s in rows:
        text = "sums do not fit" if time_s is None else f"{time_s * scale:14.{digits}f} {unit}"
        print(f"{name:{max(11, len(coded))}} {'no links for it' if time_s == math.inf else text}")
    print(f"speedup over fp32: {found.speedup:.2f}, sent direct {found.speedup_direct:.2f}")
    if found.breakeven_values is not None:
        print(f"pays from {found.breakeven_values:,} values on this link")
    if case.schedule.nodes > 1:
        print(breakeven_text(found))
    print(_verdict(found, case.schedule.nodes, coded, lambda s: f"{s * scale:.{digits}f} {unit}"))
    if args.json is not None:
        _write(args.json, found, case)
    if args.codec == "ideal" and args.codec_gvalues is None:
        print("# on a codec at line rate; this machine's own: --codec host")
    return 0 if found.pays else 3


def _refuse_strangers(args: argparse.Namespace) -> None:
    """Raise ValueError for an option that has no effect on what is asked."""
    asked = next((name for name in STRANGERS if getattr(args, name[2:]) is not None), "--values")
    for name in STRANGERS[asked]:
        if getattr(args, name) != args.usual(name):
            raise ValueError(f"--{name.replace('_', '-')} is not for {asked}: leave it out")
    for name in ("units", "unit_mhz"):
        if args.unit != "rtl" and getattr(args, name) != args.usual(name):
            raise ValueError(f"--{name.replace('_', '-')} needs --unit rtl, got --unit {args.unit}")


def _check_options(args: argparse.Namespace) -> None:
    """Raise ValueError for options that are missing, and for those that others leave without effect."""
    for option, given in (("--nic-file", args.nic_file is not None), ("--no-driver", args.no_driver)):
        if given and args.codec != "rtl":
            raise ValueError(f"{option} needs --codec rtl, got --codec {args.codec}")
    if args.topology is not None and args.gbps is not None:
        raise ValueError(f"--gbps is not for --topology: {args.topology} says how fast links are")
    needed = ("values",) if args.topology is not None else ("values", "nodes", "gbps")
    missing = [f"--{key}" for key in needed if getattr(args, key) is None]
    if missing:
        raise ValueError(
            f"predict needs {', '.join(missing)} (or --policy, or --offload): oscar predict --help"
        )


def _part(args: argparse.Namespace) -> str:
    """Return where the NIC comes from that nobody named."""
    from oscar.timeline.nic import shipped_text

    if args.codec != "rtl" or args.nic_file is not None:
        return ""
    return f" ({shipped_text(args.gbps)}; --nic-file for another)"


def _verdict(found: Any, nodes: int, coded: str, text: Callable[[float], str]) -> str:
    """Return whether coding pays, against what and why; text: of a time."""
    from oscar.planning.predict import MIN_GAIN

    if found.pays:
        return str(found.reason)
    if nodes == 1:
        return f"does not pay: {found.reason}"
    rival_s = {"bf16": found.bf16_time_s, "int8": found.int8_time_s}[found.rival]
    times = f"{found.rival} takes {text(rival_s)}, {coded} {text(found.time_s)}"
    return f"does not pay: {times} ({100 * (MIN_GAIN - 1):.0f} % needed): {found.reason}"


def _policy(args: argparse.Namespace) -> int:
    """Print what an iteration takes under a policy; return 0 where it pays. Errors name its file."""
    try:
        return _policy_times(args)
    except ConfigError as error:
        named = str(error) if str(args.policy) in str(error) else f"{args.policy}: {error}"
        raise ConfigError(named) from None


def _policy_times(args: argparse.Namespace) -> int:
    """Print what an iteration takes under a policy, and with one option for all; return 0 where it pays."""
    one_blas_thread()
    from oscar.planning.predict import MIN_GAIN
    from oscar.planning.tuning.apply import problem_of
    from oscar.planning.tuning.policy_file import MOST, load_policy
    from oscar.planning.tuning.reasons import verdict
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
        write_json(args.json, {"nodes": nodes, "gbps": gbps, "latency_us": latency_us, "times_s": times})
    plain = [seconds for name, seconds in times.items() if name.startswith("fp32 ")]
    return 0 if problem.time(policy) * MIN_GAIN <= min(plain) else 3


def _config(args: argparse.Namespace) -> Any:
    """Return the configuration that the options ask for; `nodes` and `gbps` are those of a topology."""
    from oscar.cli.schedule import refuse_strangers
    from oscar.collective.schedules import GROUPED, KINDS
    from oscar.config import BY_NETWORK, BY_TIME, Config
    from oscar.config.topology import read_section

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
    schedule = {"name": args.schedule, "subframes": args.subframes, "group": args.group}
    if args.schedule not in (*KINDS, BY_NETWORK, BY_TIME) and Path(args.schedule).exists():
        schedule |= {"name": "file", "file": args.schedule}
    return Config().variant(link=link, schedule=schedule, **topology)


def _say_replay(schedule: Any) -> None:
    """Say so where a time takes long, since every frame is replayed."""
    from oscar.planning.predict import SEARCHED
    from oscar.timeline.equal import has_short_cut

    if schedule.nodes > SEARCHED and not has_short_cut(schedule):
        print(f"# replaying {schedule.describe()}: some 10 s or more", file=sys.stderr, flush=True)


def breakeven_text(found: Any) -> str:
    """Return up to which link rate coding pays, for a reader."""
    from oscar.planning.predict import last_text

    if not found.searched:
        return "# the rate up to which it pays was not looked for: of ring and direct at a switch it is"
    if found.breakeven_gbps is None:
        return "pays at no link rate for this model"
    text = f"pays up to {last_text(found.breakeven_gbps)} for this model"
    if found.breakeven_gbps == math.inf:
        text = f"pays at any link rate up to {last_text(found.breakeven_gbps)} for this model"
    return text if found.pays_below else f"{text}, and not at all rates below that"


def _unit(longest_s: float) -> tuple[str, float, int]:
    """Return unit, factor and decimals of a column of times: us up to 10 ms, ms up to 10 s."""
    if longest_s <= 0.01:
        return "us", 1e6, 2
    return ("ms", 1e3, 3) if longest_s <= 10 else ("s", 1.0, 3)


def _write(path: Path, found: Any, case: Any) -> None:
    from dataclasses import asdict

    from oscar.planning.predict import FASTEST_GBPS

    data = {key: None if value == math.inf else value for key, value in asdict(found).items()}
    if found.breakeven_gbps == math.inf:
        data["breakeven_gbps"] = FASTEST_GBPS
    data["breakeven"] = breakeven_text(found)
    data["clock"] = case.clock
    data["bits_per_value"] = case.bits
    if case.cost is not None:
        data["cost"] = asdict(case.cost)
    write_json(path, data)


def _offload(args: argparse.Namespace) -> int:
    """Print what cards beside a GPU bring; return 0 where they pay for a batch, else 3."""
    from dataclasses import asdict, replace

    from oscar.planning.offload import (
        TABLE,
        AttentionUnits,
        LanguageModel,
        contexts_that_pay,
        find_card,
        parse_cards,
        plan,
    )  # fmt: skip

    name, cards = parse_cards(args.offload)
    gpu, card, model, units = find_card(args.gpu), find_card(name), LanguageModel(), None
    if args.unit == "rtl":
        units, model = AttentionUnits(args.units, args.unit_mhz), replace(model, cache_bytes=1)
    print(
        f"# {cards} x {card.name} beside {gpu.name}: Llama-2 7B, {model.prompt} tokens in, {model.output} out"
    )
    print(
        f"# ridge, flops a byte: {gpu.name} {gpu.ridge:.0f}, {card.name} {card.ridge:.1f}; all at their peaks"
    )
    if units is not None:
        rate = units.number * units.mhz * 8e-3
        print(
            f"# {units.number} attention units of {units.mhz:g} MHz a card read {rate:.0f} GB/s of its "
            f"{1e-9 * card.bandwidth:.0f}; keys and values of 8 bits, on the GPU too"
        )
    plans = [plan(gpu, card, cards, batch, model, units=units) for batch in args.batch]
    print(TABLE.heading)
    for one in plans:
        print(TABLE.line({key: 1e3 * v if key.endswith("_s") else v for key, v in asdict(one).items()}))
    pays = (
        {b: contexts_that_pay(gpu, card, cards, b, model, units=units) for b in args.batch} if units else {}
    )
    for batch, lengths in pays.items():
        text = "at no length of a context that GPU and cards hold"
        if lengths is not None:
            first, last, full = lengths
            text = f"from {first:,} to {last:,} tokens of context{', all that memory holds' if full else ''}"
        print(f"batch {batch}: cards gain 5 % or more {text}")
    if args.json is not None:
        found = {"gpu": asdict(gpu), "card": asdict(card), "plans": [asdict(p) for p in plans]}
        write_json(args.json, found | ({"contexts": pays} if units else {}))
    return 0 if any(one.pays for one in plans) else 3
