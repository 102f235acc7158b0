"""Values a clock of decoding and encoding units: converted RTL under Verilator that never waits.

Frames follow one another as fast as a unit takes their blocks; memory answers at once and bytes are always
there, or taken. Every value and byte is compared with the software.

    python -m oscar_sim.unit_rates --unit barrel_encoder barrel_decoder --models dense cnn
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from oscar.coding.asc.state import TableState
from oscar.errors import OscarError
from oscar_sim.batches import DecoderBatch, EncoderBatch, run
from oscar_sim.blocks import CodedFrame, Coder
from oscar_sim.step_clocks import add_frames, check_frames, frames_of
from oscar_sim.units import Unit

UNITS = ("barrel_decoder", "barrel_encoder")
DENSE_VALUES, DENSE_SCALE = 16384, 4.0


def coded_frames(model: str, number: int, coder: Coder, seed: int) -> list[CodedFrame]:
    """Return frames of a model's AllReduce, or of values without a row of zeros (dense)."""
    rng, states = np.random.default_rng(seed), defaultdict[int, TableState](TableState.initial)
    if model == "dense":
        values = [np.rint(rng.laplace(0, DENSE_SCALE, DENSE_VALUES)).astype(np.int16) for _ in range(number)]
        return [coder.encode(v, np.full(v.size, 6, np.uint8), states[0]) for v in values]
    return [
        coder.encode(
            np.asarray(given.values, np.int16),
            np.zeros(given.values.size, np.uint8) if given.positions is None else given.positions,
            states[given.link],
        )
        for given in frames_of(model, number, seed)
    ]


def rate(unit: Unit, frames: Sequence[CodedFrame], coder: Coder, seed: int) -> tuple[int, int, int]:
    """Run frames; return blocks, values and clocks. Raises OscarError where something differs."""
    batch: DecoderBatch | EncoderBatch
    rng = np.random.default_rng(seed)
    if unit.kind == "barrel_decoder":
        batch = DecoderBatch(frames, coder, rng, stress=False)
    else:
        batch = EncoderBatch(frames, rng, stress=False)
    clocks, done, result = run(unit, batch, seed)
    if result:
        raise OscarError(f"{unit.kind}: {result[0]}")
    return done, int(batch.batch.blocks["count"].sum()), clocks


def main(argv: list[str] | None = None) -> int:
    """Print a table; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m oscar_sim.unit_rates", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--unit", nargs="+", choices=UNITS, default=list(UNITS), help="(all)")
    parser.add_argument("--block-log2", type=int, default=11, choices=range(10, 18), help="(%(default)s)")
    add_frames(parser, "dense", usual=("dense", "numpy-lm"), frames=12)
    args = parser.parse_args(argv)
    check_frames(parser, args)
    try:
        units = [Unit(kind) for kind in args.unit]
        print(" ".join(f"{name:>14}" for name in ("unit", "model", "blocks", "values", "clocks", "a clock")))
        for model in args.models:
            coder = Coder(log2=args.block_log2)
            frames = coded_frames(model, args.frames, coder, args.seed)
            for unit in units:
                blocks, values, clocks = rate(unit, frames, coder, args.seed)
                cells = (unit.kind, model, blocks, values, clocks, f"{values / clocks:.2f}")
                print(" ".join(f"{cell:>14}" for cell in cells), flush=True)
    except OscarError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
