"""`oscar offload`: do memory cards beside a GPU pay for decoding?"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from oscar.cli.common import declare
from oscar.files import check_outputs, write_json

EXAMPLE = """\
  oscar offload U55Cx4 --gpu L40S --batch 16 32 64
  oscar offload U55Cx4 --unit rtl

Llama-2 7B decodes, 1,024 tokens in and out. CARD is L40S, U55C, HPU, H200, or host: this machine, measured.
U55Cx4 is four of them. --unit rtl takes the clocks of the RTL's attention units, which read keys and values
of 8 bits (GPUs too, then), and says at which context lengths cards pay.
Exit status 0 where cards pay for a batch, else 3.
"""
UNITS, UNIT_MHZ = 192, 200.0  # on a card, with --unit rtl


def add_command(commands: Any) -> None:
    """Declare the command."""
    parser = declare(
        commands,
        "offload",
        run,
        short="say whether memory cards beside a GPU pay for decoding",
        example=EXAMPLE,
    )
    parser.add_argument("cards", metavar="CARDxK", help="cards that take attention in decoding")
    parser.add_argument("--gpu", default="L40S", metavar="CARD", help="beside them (%(default)s)")
    parser.add_argument(
        "--batch", type=int, nargs="+", default=[16, 32, 64], metavar="B", help="requests (16 32 64)"
    )
    parser.add_argument(
        "--unit", choices=["roofline", "rtl"], default="roofline", help="what attends on a card (%(default)s)"
    )
    parser.add_argument("--units", type=int, metavar="U", help=f"with --unit rtl: units on a card ({UNITS})")
    parser.add_argument("--unit-mhz", type=float, metavar="MHZ", help=f"with --unit rtl ({UNIT_MHZ:g})")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the plans here")


def run(args: argparse.Namespace) -> int:
    """Print what cards beside a GPU bring; return 0 where they pay for a batch, else 3."""
    check_outputs([args.json])
    for option, value in (("--units", args.units), ("--unit-mhz", args.unit_mhz)):
        if args.unit != "rtl" and value is not None:
            raise ValueError(f"{option} needs --unit rtl, got --unit {args.unit}")
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

    name, cards = parse_cards(args.cards)
    gpu, card, model, units = find_card(args.gpu), find_card(name), LanguageModel(), None
    if args.unit == "rtl":
        number = UNITS if args.units is None else args.units
        mhz = UNIT_MHZ if args.unit_mhz is None else args.unit_mhz
        units, model = AttentionUnits(number, mhz), replace(model, cache_bytes=1)
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
    for each in plans:
        print(TABLE.line({key: 1e3 * v if key.endswith("_s") else v for key, v in asdict(each).items()}))
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
        report = {"gpu": asdict(gpu), "card": asdict(card), "plans": [asdict(p) for p in plans]}
        write_json(args.json, report | ({"contexts": pays} if units else {}))
    return 0 if any(each.pays for each in plans) else 3
