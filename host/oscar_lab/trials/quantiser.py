"""What the quantiser loses and what its width costs: workloads and hostile gradients, 8 bits and the default.

Errors are root mean squares of (mean - exact mean) over the values of a tensor, in its sigma: the root mean
square of one worker's values in that iteration. All pass through a whole AllReduce.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from oscar.config import Config
from oscar.errors import SaturationWarning
from oscar.reducers.cluster import LocalCluster
from oscar.tables import Row, Table
from oscar_lab.sources import add_source, open_source
from oscar_studies.workloads import exact_mean

Gradients = list[list[np.ndarray]]  # [node][tensor]
Random = np.random.Generator
BAR = 0.03  # sigma, that the mean of a tensor may be off
SIZE = 20_000
TABLE = Table(
    "gradient:#gradient <26", "quantiser <9", "bits_per_value:bits/val >8.3f", "first:error 0 >8.4f",
    "most:1 on >7.4f", "over >4", "clipped_energy:cut off >8.1e",
)  # fmt: skip
STRUCK = 5  # the iteration in which something happens


def _outliers(level: float, *, workers: int = 256, every: int = 1) -> Any:
    """Six values of `level` sigma, in the first workers, in every so many iterations."""

    def make(random: Random, iteration: int, node: int) -> np.ndarray:
        values = random.normal(size=SIZE)
        if node < workers and iteration % every == every - 1:
            values[random.integers(SIZE, size=6)] = level * random.choice([-1, 1], size=6)
        return values

    return make


def _rows(random: Random, iteration: int, node: int) -> np.ndarray:
    """An embedding's gradient: 8 of 400 rows, of sizes that differ."""
    values = np.zeros((400, 50))
    values[random.integers(400, size=8)] = random.normal(size=(8, 50)) * np.exp(random.normal(size=(8, 1)))
    return values.reshape(-1)


def _alone(random: Random, iteration: int, node: int) -> np.ndarray:
    """One value that is not zero, elsewhere in every iteration: sqrt(20,000) = 141 sigma."""
    values = np.zeros(SIZE)
    values[random.integers(SIZE)] = random.normal()
    return values


def _sized(size: Callable[[int, int], float], count: int = SIZE) -> Any:
    """Normal values of a size by (iteration, node)."""
    return lambda random, iteration, node: random.normal(size=count) * size(iteration, node)


def _opposed(random: Random, iteration: int, node: int) -> np.ndarray:
    """Workers that nearly cancel each other."""
    common = np.random.default_rng(iteration).normal(size=SIZE)
    return np.asarray(common * (-1) ** node + 0.01 * random.normal(size=SIZE))


HOSTILE: dict[str, Callable[[Random, int, int], np.ndarray]] = {
    "normal": _sized(lambda i, n: 1.0),
    "51 sigma, one worker": _outliers(51, workers=1),
    "51 sigma, all workers": _outliers(51),
    "51 sigma, every third": _outliers(51, every=3),
    "200 sigma, one worker": _outliers(200, workers=1),
    "200 sigma, all workers": _outliers(200),
    "200 sigma, every third": _outliers(200, every=3),
    "Student t, 2.5 degrees": lambda random, i, n: random.standard_t(2.5, SIZE),
    "embedding rows": _rows,
    "one value": _alone,
    "constant": lambda random, i, n: np.full(SIZE, 3e-3),
    "three values": _sized(lambda i, n: 1.0, 3),
    "10^-node": _sized(lambda i, n: 10.0**-n),
    "workers in turn x 100": _sized(lambda i, n: 100.0 if n == i % 2 else 1.0),
    "workers cancel": _opposed,
    "x 100 once": _sized(lambda i, n: 100.0 if i == STRUCK else 1.0),
    "x 100 for good": _sized(lambda i, n: 100.0 if i >= STRUCK else 1.0),
    "x 100 every other": _sized(lambda i, n: 100.0 if i % 2 else 1.0),
    "/ 100 for good": _sized(lambda i, n: 0.01 if i >= STRUCK else 1.0),
}


def hostile(name: str, seed: int, iteration: int, nodes: int) -> Gradients:
    """Return an iteration's gradients [node][one tensor], float32."""
    which = list(HOSTILE).index(name)
    draws = [np.random.default_rng([seed, which, iteration, node]) for node in range(nodes)]
    return [[HOSTILE[name](random, iteration, node).astype(np.float32)] for node, random in enumerate(draws)]


def errors(gradients: Gradients, mean: Sequence[np.ndarray]) -> list[float]:
    """Return the error of every tensor that is not empty, in its sigma; 0 where all workers have zeros."""
    out = []
    for every, got in zip(zip(*gradients, strict=True), mean, strict=True):
        exact = np.mean([tensor.astype(np.float64) for tensor in every], axis=0)
        sigma = np.sqrt(np.mean([np.mean(np.square(tensor, dtype=np.float64)) for tensor in every]))
        if got.size:
            out.append(float(np.sqrt(np.mean((got - exact) ** 2)) / sigma) if sigma else 0.0)
    return out


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--models", nargs="*", default=["numpy-lm"], metavar="NAME", help="default: %(default)s"
    )
    parser.add_argument("--bits", nargs="+", default=["8", "auto"], metavar="B", help="8 to 16, or auto")
    parser.add_argument("--iterations", type=int, default=10)
    add_source(parser)


def _sources(args: argparse.Namespace) -> Iterator[tuple[str, Iterator[Gradients]]]:
    for model in args.models:
        workload = open_source(args, model)

        def train(workload: Any = workload) -> Iterator[Gradients]:
            for _ in range(args.iterations):
                gradients = workload.gradients()
                yield gradients
                workload.apply(exact_mean(gradients))

        yield workload.name, train()
    for name in HOSTILE:
        yield name, (hostile(name, args.seed, i, args.nodes) for i in range(args.iterations))


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Print the table; return it as rows."""
    print(f"# {args.nodes} nodes, {args.iterations} iterations, seed {args.seed}; codec asc, default plan")
    print("# error of the worst tensor in sigma, in iteration 0 and from 1 on; over: iterations from 1 on in")
    print(f"# which it is over {BAR}; cut off: the largest share of a gradient's energy that saturated")
    print(TABLE.heading)
    rows: list[Row] = []
    for name, gradients in _sources(args):
        given = list(gradients)
        for bits in args.bits:
            row = measure(given, bits if bits == "auto" else int(bits))
            rows.append({"gradient": name, **row})
            first, *later = row["errors"]
            over = sum(error > BAR for error in later)
            print(TABLE.line(rows[-1], first=first, most=max(later, default=0.0), over=over))
    return {"nodes": args.nodes, "seed": args.seed, "rows": rows}


def measure(gradients: Sequence[Gradients], bits: int | str) -> dict[str, Any]:
    """Reduce all gradients by a quantiser of `bits`; errors: of the worst tensor in each iteration."""
    cluster = LocalCluster(Config.model_validate({"quantiser": {"bits": bits}}))
    worst, rates, cut = [], [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SaturationWarning)  # the table says so
        for given in gradients:
            result = cluster.allreduce(given)
            worst.append(max(errors(given, result.mean), default=0.0))
            rates.append(result.stats.bits_per_value)
            cut.append(result.stats.clipped_energy)
    return {
        "quantiser": cluster.params.name,
        "bits_per_value": float(np.mean(rates[2:] or rates)),
        "errors": worst,
        "clipped_energy": max(cut),
    }
