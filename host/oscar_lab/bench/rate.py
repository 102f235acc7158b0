"""Loss of ASC against its own model: coded bits of real frames over the code length by their tables.

The code length is by the tables that a frame is coded with: -log2 of its frequency for each symbol, one for
each raw bit. The rest of a frame is overhead: header, directory, sent table rows, and the final states, less
the rows that ride in these. It is printed for blocks of several sizes. Frames are
partial sums of a ring, as its links carry them; tables learn over all iterations, and the first ones are not
counted.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from oscar.coding.asc import AscParams, Decoder, Encoder
from oscar.coding.asc.model import frequencies, from_octaves
from oscar.coding.asc.params import (
    BASE,
    CODED,
    CONSTANT,
    DIRECTORY_BYTES,
    FLUSH_BYTES,
    GROUP,
    LANES,
    LIMIT,
    MASK_BYTES,
    NARROW_CLASS,
    PREFIX_BYTES,
    RAW_BITS,
    SENT_ROW_BYTES,
    SYMBOLS,
    TABLE_ROWS,
    TOTAL,
    VALUE_ROWS,
    WIDE_SHIFT,
    context_of,
)  # fmt: skip
from oscar.coding.asc.state import TableState
from oscar.coding.frame import HEADER_BYTES
from oscar.errors import OscarError
from oscar.tables import Row, Table
from oscar_lab.sources import add_source, default_model, open_source
from oscar_studies.integers import IntegerGradients, integers
from oscar_studies.workloads import WORKLOADS, Workload

BAR = 2.5  # percent, of frames as they are sent by default
BLOCKS = {"1,024": 10, "16,384": 14, "auto": 0}  # values of a block, and their log2
PARTS = ("ideal", "tables", "flush", "directory", "header")
LOW_BITS = np.array([0] * (NARROW_CLASS + 1) + list(WIDE_SHIFT))  # of a value in a row of each class
CONTEXTS = np.array(
    [[[context_of(c, p, m) if c else 0 for m in range(16)] for p in range(16)] for c in range(SYMBOLS)]
)

TABLE = Table(
    "model <22", "block >7", "step >4", "frames >6", "values >9", "ideal_bits:ideal >8.3f",
    "coded_bits:coded >8.3f", "tables_bits:tables >7.3f", "flush_bits:flush >7.3f",
    "directory_bits:directory >9.3f", "header_bits:header >7.3f", "loss_percent:loss % >7.2f",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    add_source(parser)
    parser.add_argument(
        "--models", nargs="+", choices=list(WORKLOADS), default=None, help="default: the torch ones, if any"
    )
    parser.add_argument("--iterations", type=int, default=8, help="of training, counted or not")
    parser.add_argument("--learning", type=int, default=3, help="first iterations that are not counted")
    parser.add_argument("--links", nargs="+", type=int, default=[0, 1], help="ranks that send")
    parser.add_argument(
        "--steps", nargs="+", type=int, default=None, help="of the ring; default: first, middle, full sums"
    )


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measure all models, print a row for each block size and step; return the rows and each model's loss."""
    if not 0 <= args.learning < args.iterations:
        raise ValueError(f"expected learning below {args.iterations} iterations, got {args.learning}")
    models = args.models or [default_model(name) for name in ("cnn", "transformer", "embedding")]
    workloads = [open_source(args, name) for name in (["trace"] if args.trace else dict.fromkeys(models))]
    print(f"# {AscParams()}, and blocks of other sizes")
    print(f"# quantiser 8s; links {args.links}; iterations {args.learning}..{args.iterations - 1} counted")
    print("# bits/value; coded: whole frames; ideal: what the frames' own tables give the same symbols")
    print(TABLE.heading)
    rows: list[Row] = []
    losses: dict[str, float] = {}
    for workload in workloads:
        fresh = measure(workload, args)
        auto = [row for row in fresh if row["block"] == "auto"]
        ideal, coded = (
            sum(row[name] * row["values"] for row in auto) for name in ("ideal_bits", "coded_bits")
        )
        losses[workload.name] = 100 * (coded / ideal - 1)
        rows += fresh
        verdict = "met" if losses[workload.name] <= BAR else "MISSED"
        print(f"# {workload.name}: loss {losses[workload.name]:.2f} %, bar {BAR} %: {verdict}")
    return {"rows": rows, "loss_percent": losses, "bar_percent": BAR}


def measure(workload: Workload, args: argparse.Namespace) -> list[Row]:
    """Code the frames of the chosen links and steps over all iterations; return and print a row per step.

    Bits are per value, loss_percent is what coding loses against the ideal.
    """
    nodes = workload.nodes
    steps = sorted({0, nodes // 2 - 1, nodes - 1} if args.steps is None else set(args.steps))
    if not 0 <= min(steps) <= max(steps) < nodes or not 0 <= min(args.links) <= max(args.links) < nodes:
        raise ValueError(f"links and steps of {nodes} nodes are 0 to {nodes - 1}")
    pairs = {
        (b, s, link): _Pair(AscParams(block_log2=BLOCKS[b]))
        for b in BLOCKS
        for s in steps
        for link in args.links
    }
    for index, iteration in enumerate(integers(workload, args.iterations)):
        for (_, step, link), pair in pairs.items():
            values, classes = partial_sum(iteration, link, step)
            pair.code(values, classes, step, counted=index >= args.learning)
    rows = []
    for block, step in ((b, s) for b in BLOCKS for s in steps):
        mine = [pair.total for (b, s, _), pair in pairs.items() if (b, s) == (block, step)]
        total = {name: sum(each[name] for each in mine) for name in mine[0]}
        row: Row = {"model": workload.name, "block": block, "step": step}
        row |= {name: int(total[name]) for name in ("frames", "values")}
        row |= {f"{part}_bits": float(total[part] / total["values"]) for part in (*PARTS, "coded")}
        rows.append(row | {"loss_percent": float(100 * (total["coded"] / total["ideal"] - 1))})
        print(TABLE.line(rows[-1]), flush=True)
    return rows


def partial_sum(iteration: IntegerGradients, link: int, step: int) -> tuple[np.ndarray, np.ndarray]:
    """What rank `link` sends at reduce-scatter `step`, and its classes; step N-1 has the full sums."""
    nodes, count = len(iteration.values), iteration.classes.size
    chunk = (link - step) % nodes
    here = slice(chunk * count // nodes, (chunk + 1) * count // nodes)
    terms = [iteration.values[(link - back) % nodes][here] for back in range(step + 1)]
    return np.add.reduce(terms, dtype=np.int32), iteration.classes[here]


class _Pair:
    """Both ends of a link at one step, and what its frames were made of."""

    def __init__(self, params: AscParams) -> None:
        self.encoder, self.decoder = Encoder(params), Decoder(params)
        self.total = dict.fromkeys(
            ("frames", "values", "coded", *PARTS), 0.0
        )  # in bits but for the first two

    def code(self, values: np.ndarray, classes: np.ndarray, step: int, *, counted: bool) -> None:
        """Code one frame; raises OscarError unless it comes back."""
        frame = self.encoder.encode(values, step=step, context=classes, width=8 + step.bit_length())
        state = self.decoder.states.get(step) or TableState.initial()
        bits = anatomy(frame, values, classes, state)
        if not np.array_equal(self.decoder.decode(frame, step=step, context=classes), values):
            raise OscarError(f"step {step}: expected the values that were coded, got others: this is a bug")
        if counted:
            bits |= {"frames": 1, "values": values.size, "coded": 8 * len(frame)}
            self.total = {name: so_far + bits[name] for name, so_far in self.total.items()}


def anatomy(frame: bytes, values: np.ndarray, classes: np.ndarray, state: TableState) -> dict[str, float]:
    """Return the bits of each part of an intact frame of `values`, coded by contexts from `state`.

    ideal: of all symbols in coded blocks by the frame's tables, their raw bits, and raw blocks.
    """
    at = HEADER_BYTES
    prefix = int.from_bytes(frame[at : at + PREFIX_BYTES], "little")
    log2, shift, last = prefix & 31, prefix >> 5 & 31, prefix >> 11 & 15
    freq = [frequencies(row, q, last) for q, row in enumerate(state.hist.tolist())]
    at += PREFIX_BYTES
    begin = at
    if prefix >> 10 & 1:
        mask = int.from_bytes(frame[at : at + MASK_BYTES], "little")
        at += MASK_BYTES
        for q in (q for q in range(TABLE_ROWS) if mask >> q & 1):
            row = int.from_bytes(frame[at : at + SENT_ROW_BYTES], "little")
            freq[q] = from_octaves([row >> (4 * s) & 15 for s in range(SYMBOLS)], q, last)
            at += SENT_ROW_BYTES
    parts = {"header": 8.0 * (HEADER_BYTES + PREFIX_BYTES), "tables": 8.0 * (at - begin)}
    starts = range(0, values.size, 1 << log2)
    entries = [
        int.from_bytes(frame[at + DIRECTORY_BYTES * i :][:DIRECTORY_BYTES], "little")
        for i in range(len(starts))
    ]
    parts["directory"] = 8.0 * DIRECTORY_BYTES * len(entries)
    lengths = np.log2(TOTAL / np.maximum(freq, 1))
    ideal, flushes = 0.0, 0
    for start, entry in zip(starts, entries, strict=True):
        if entry & 3 == CODED:
            first, end = entry >> 5 & 127, (entry >> 12 & 127) + 1
            used = slice(start + GROUP * first, min(start + GROUP * end, start + (1 << log2)))
            ideal += code_length(values[used], classes[used], shift, lengths)
            flushes += 1
        elif entry & 3 != CONSTANT:
            ideal += 8 * (entry >> 24)
    return parts | {"ideal": ideal, "flush": 8.0 * FLUSH_BYTES * flushes}


def code_length(values: np.ndarray, classes: np.ndarray, shift: int, lengths: np.ndarray) -> float:
    """Return the bits of whole rows of values (the last may be short) where symbols take `lengths` bits.

    classes: position classes; lengths: float64 [table row][symbol].
    """
    rows = -(-values.size // LANES)
    x, p = np.zeros((2, rows * LANES), np.int64)
    x[: values.size], p[: values.size] = values, classes
    x, p = x.reshape(rows, LANES), p.reshape(rows, LANES)
    mean = (p.sum(axis=1) + LANES // 2) // LANES
    high = np.abs(x >> shift)
    row_class = np.minimum(NARROW_CLASS, np.frexp(high.sum(axis=1))[1])
    for wide, low in enumerate((0, *WIDE_SHIFT[:-1])):
        row_class[np.abs(x >> (shift + low)).max(axis=1) >= LIMIT] = NARROW_CLASS + 1 + wide
    bits = shift + LOW_BITS[row_class]
    symbols = np.searchsorted(BASE, np.abs(x >> bits[:, None]), side="right") - 1
    context = CONTEXTS[row_class[:, None], p, mean[:, None]]
    coded = lengths[context, symbols] + np.array(RAW_BITS)[symbols]
    coded[row_class == 0] = 0.0
    coded += bits[:, None]
    of_rows = lengths[VALUE_ROWS + np.minimum(7, mean), row_class]
    return float(coded.ravel()[: values.size].sum() + of_rows.sum())
