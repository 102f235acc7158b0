"""The question `oscar predict --offload`: do memory cards beside a GPU pay for decoding?"""

from __future__ import annotations

import argparse

from oscar.files import write_json


def offload(args: argparse.Namespace) -> int:
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
