"""`oscar predict`: would compression pay, and if not, why."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from oscar.blas import one_blas_thread
from oscar.cli.common import amount, declare
from oscar.files import check_outputs, write_json

EXAMPLE = """\
  oscar predict --values 25M --nodes 8 --gbps 25 --bits 4.5
  oscar predict --values 25M --nodes 8 --gbps 1 --method oscar-sw-best --codec host
  oscar predict --values 1k --nodes 64 --gbps 400

Compares with fp32, bf16 and int8 where its sums fit, all uncompressed. Exit status 0 when compression
pays by at least 5 %, 3 when it does not; the reason is printed. --bits: measure it with `oscar allreduce`
(column bits/val); the default is a dense transformer's at full accuracy, sparse models need far less.
--method NAME estimates them on Laplace gradients; with --codec host also what the method computes. The
estimate is measured on this machine at first use, and kept.
"""


def add_command(commands: Any) -> None:
    """Declare the command."""
    parser = declare(
        commands, "predict", run, short="say whether compression pays on a link, and why not", example=EXAMPLE
    )
    parser.add_argument("--values", type=amount, required=True, metavar="V", help="gradient values, e.g. 25M")
    parser.add_argument("--nodes", type=int, required=True, metavar="N")
    parser.add_argument("--gbps", type=float, required=True, metavar="G", help="link rate")
    parser.add_argument(
        "--bits", type=float, metavar="B", help="coded bits per value (6, or those of --method)"
    )
    parser.add_argument("--method", metavar="NAME", help="codec or scheme whose cost is estimated")
    parser.add_argument("--latency-us", type=float, default=2.0, metavar="US", help="of a hop (%(default)s)")
    parser.add_argument(
        "--codec", choices=["ideal", "rtl", "host"], default="ideal", help="whose clock (%(default)s)"
    )
    parser.add_argument(
        "--nic-file", metavar="FILE", help="of a NIC, for --codec rtl (default: the package's)"
    )
    parser.add_argument("--codec-gvalues", type=float, metavar="G", help="10^9 values/s (default: line rate)")
    parser.add_argument("--codec-latency-us", type=float, default=0.5, metavar="US", help="(%(default)s)")
    parser.add_argument("--subframes", type=int, default=1, metavar="K", help="per chunk (%(default)s)")
    parser.add_argument(
        "--schedule", default="network", metavar="NAME", help="ring, duplex, direct, auto, .. (%(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the prediction here")


def run(args: argparse.Namespace) -> int:
    """Predict; return 0 when compression pays and 3 when it does not."""
    one_blas_thread()  # a low-rank method is not to be measured by how its threads wait
    from oscar.config import Config
    from oscar.planning.case import assumed, estimated
    from oscar.planning.predict import predict

    check_outputs([args.json])
    keys = ("gbps", "latency_us", "codec", "nic_file", "codec_gvalues", "codec_latency_us")
    link = {key: getattr(args, key) for key in keys}
    schedule = {"name": args.schedule, "subframes": args.subframes}
    config = Config().variant(link=link, schedule=schedule)
    if args.method is None:
        case = assumed(config, args.values, args.nodes, args.bits)
    else:
        case = estimated(config.variant(method=args.method), args.values, args.nodes, args.bits)
    found = predict(args.values, case.schedule, case.link, case.bits, coded=case.coded, around=case.around)
    print(
        f"# {args.values:,} values, {args.nodes} nodes, {args.gbps:g} Gb/s, {args.latency_us:g} us a hop, "
        f"{case.bits:.4g} bits/value{case.source}, schedule {case.schedule.name}"
    )
    print(f"# times are modelled, {case.clock}")
    times = {
        "fp32": found.fp32_time_s,
        "fp32 direct": found.fp32_direct_time_s,
        "bf16": found.bf16_time_s,
        "int8": found.int8_time_s,
    }
    coded = args.method or "coded"
    rows = (*times.items(), (coded, found.time_s))  # --method may be fp32, too
    unit, scale, digits = _unit(max(time_s for _, time_s in rows if time_s is not None))
    for name, time_s in rows:
        text = "sums do not fit" if time_s is None else f"{time_s * scale:14.{digits}f} {unit}"
        print(f"{name:{max(11, len(coded))}} {text}")
    print(f"speedup over fp32: {found.speedup:.2f}, sent direct {found.speedup_direct:.2f}")
    if found.breakeven_values is not None:
        print(f"pays from {found.breakeven_values:,} values on this link")
    if found.breakeven_gbps is not None:
        print(f"pays up to {found.breakeven_gbps:.4g} Gb/s for this model")
    print(found.reason if found.pays else f"does not pay: {found.reason}")
    if args.json is not None:
        _write(args.json, found, case)
    if args.codec == "ideal" and args.codec_gvalues is None:
        print("# on a codec at line rate; this machine's own: --codec host")
    return 0 if found.pays else 3


def _unit(longest_s: float) -> tuple[str, float, int]:
    """Return unit, factor and decimals of a column of times: us up to 10 ms, ms up to 10 s."""
    if longest_s <= 0.01:
        return "us", 1e6, 2
    return ("ms", 1e3, 3) if longest_s <= 10 else ("s", 1.0, 3)


def _write(path: Path, found: Any, case: Any) -> None:
    import math
    from dataclasses import asdict

    data = {key: None if value == math.inf else value for key, value in asdict(found).items()}
    data["clock"] = case.clock
    data["bits_per_value"] = case.bits
    if case.cost is not None:
        data["cost"] = asdict(case.cost)
    write_json(path, data)
