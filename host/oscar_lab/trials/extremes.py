"""Values at the ends of float32, by every method: told or right, and no harm to the calls after."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.config import Config
from oscar.errors import GradientError, GradientOverflowError, OscarWarning
from oscar.numerics.tensors import split
from oscar.reducers.cluster import LocalCluster
from oscar.schemes.registry import method_info, method_names
from oscar.state import crc
from oscar.tables import Row, Table
from oscar_lab.trials._ranks import laplace
from oscar_lab.trials.quantiser import errors

SHAPES = ((16, 24), (40,), ())
SLACK = 16.0  # by how much errors of ordinary calls may exceed those of undisturbed ones: sketches are noisy
MOST = 2.0  # sigma, of an error where a step or a residual is of the call before
WARM = 2  # calls before the first one with extreme values
SHOWN = 10  # wrong outcomes that are printed; the JSON holds all
Random = np.random.Generator


def _signs(random: Random, shape: tuple[int, ...]) -> Array:
    return random.choice([-1.0, 1.0], size=shape)


def _sized(size: float) -> Any:
    return lambda random, shape, node: random.normal(size=shape) * size


def _struck(value: float) -> Any:
    """Ordinary values, and one in each of node 0's tensors that is not."""

    def make(random: Random, shape: tuple[int, ...], node: int) -> Array:
        values = np.asarray(random.laplace(0, 0.02, shape))
        if node == 0:
            values.flat[random.integers(values.size)] = value
        return values

    return make


VALUES: dict[str, Callable[[Random, tuple[int, ...], int], Array]] = {
    "2e38": lambda random, shape, node: np.full(shape, 2e38),
    "+-2e38": lambda random, shape, node: 2e38 * _signs(random, shape),
    "3e38 opposed": lambda random, shape, node: 3e38 * (-1.0) ** node * np.ones(shape),
    "1e38": lambda random, shape, node: 1e38 * _signs(random, shape),
    "1e30": _sized(1e30),
    "one 3e38": _struck(3e38),
    "one Inf": _struck(np.inf),
    "one NaN": _struck(np.nan),
    "zeros": _sized(0.0),
    "denormals": _sized(1e-42),
    "mixed": lambda random, shape, node: _signs(random, shape) * 10.0 ** random.uniform(-44, 38, shape),
}


def extreme(name: str, seed: int, call: int, nodes: int) -> list[list[Array]]:
    """Return gradients [node][tensor], float32, of one of VALUES."""
    which = list(VALUES).index(name)
    draws = [np.random.default_rng([seed, which, call, node]) for node in range(nodes)]
    return [
        [np.asarray(VALUES[name](random, shape, node), np.float32) for shape in SHAPES]
        for node, random in enumerate(draws)
    ]


def ordinary(seed: int, call: int, nodes: int) -> list[list[Array]]:
    """Return gradients [node][tensor], float32, as trainings have them."""
    return [laplace([seed, call, node], SHAPES) for node in range(nodes)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--methods", nargs="+", choices=method_names(), default=method_names(), metavar="NAME"
    )
    parser.add_argument("--values", nargs="+", choices=list(VALUES), default=list(VALUES), metavar="NAME")
    parser.add_argument("--calls", type=int, default=10, help="with extreme values; default: %(default)s")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--feedback", action="store_true", help="error feedback of codecs, too")
    parser.add_argument("--seed", type=int, default=0)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Print what every method made of every kind of values; "ok" tells whether nothing was wrong."""
    print(f"# {args.nodes} nodes, {args.calls} calls with extreme values, an ordinary call after each")
    print("# told: all of them raised GradientError. a/b: they gave finite means; a is the largest error of")
    print("# these, b that of the ordinary calls, in the sigma of what came and what waited in residuals;")
    print("# calm: of the same ordinary calls alone; *: some were told. wrong: a mean that is not finite;")
    print("# another error; state that moved in a call that was refused, that does not load, or that goes on")
    print(f"# with other bits; b over {SLACK:g} times calm (or {MOST:g}, where steps or residuals are kept)")
    table = Table("method <17", *(f"{name} >15" for name in args.values), "calm >8")
    print(table.heading)
    how = {"calls": args.calls, "nodes": args.nodes, "seed": args.seed, "feedback": args.feedback}
    rows: list[Row] = []
    for method in args.methods:
        mine = [measure(method, [name], **how) for name in args.values]
        calm = max(row["calm_error"] for row in mine)
        cells = {row["values"]: happened(row) for row in mine}
        print(table.line({"method": method, "calm": f"{calm:.2g}"}, **cells), flush=True)
        rows += mine
    wrong = [f"{row['method']}, {row['values']}: {why}" for row in rows for why in row["wrong"]]
    print(f"# {len(rows)} of method and values, {len(wrong)} wrong")
    for line in wrong[:SHOWN]:
        print(f"# wrong: {line}")
    return {"ok": not wrong, "rows": rows, "wrong": wrong}


def happened(row: Row) -> str:
    """Return a row of `measure` in a word."""
    if row["wrong"]:
        return "wrong"
    if not row["mean"]:
        return "told"
    return f"{row['own_error']:.2g}/{row['next_error']:.2g}" + ("*" if row["refused"] else "")


def measure(
    method: str, names: Sequence[str], *, calls: int, nodes: int = 2, seed: int = 0, feedback: bool = False
) -> Row:
    """Return what `method` made of `calls` gradients of VALUES, `names` in turn, ordinary ones between."""
    config = Config.model_validate({"method": method, "quantiser": {"error_feedback": feedback}})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OscarWarning)
        return _Bench(config, names, nodes, seed).measure(calls)


class _Bench:
    """A cluster that gets extreme values, and one that is spared them."""

    def __init__(self, config: Config, names: Sequence[str], nodes: int, seed: int) -> None:
        self.config, self.names, self.nodes, self.seed = config, names, nodes, seed
        self.struck, self.calm = LocalCluster(config), LocalCluster(config)
        self.apart = False  # a call with extreme values succeeded: states differ from then on
        self.wrong: list[str] = []
        self.own_errors: list[float] = []
        self.next_errors: list[float] = []
        self.calm_errors: list[float] = []

    def measure(self, calls: int) -> Row:
        for call in range(WARM):
            self._ordinary(call)
        self.next_errors, self.calm_errors = [], []
        refused = sum(self._extreme(call) for call in range(calls))
        most, bound = max(self.next_errors, default=0.0), SLACK * max(self.calm_errors)
        codec = method_info(self.config.method).codec
        if codec is None or codec.domain == "int":
            bound = max(MOST, bound)
        if most > bound:
            self.wrong.append(f"an ordinary call is {most:.3g} sigma off, over {bound:.3g}")
        return {
            "method": self.config.method,
            "values": ", ".join(self.names),
            "refused": refused,
            "mean": len(self.own_errors),
            "own_error": max(self.own_errors, default=None),
            "next_error": max(self.next_errors, default=None),
            "calm_error": max(self.calm_errors, default=None),
            "wrong": self.wrong,
        }

    def _extreme(self, call: int) -> bool:
        """Make a call with extreme values, and an ordinary one; return whether the former was refused."""
        name = self.names[call % len(self.names)]
        given, before, refused = extreme(name, self.seed, call, self.nodes), self._state(), False
        due = self._due(given)
        try:
            mean = self.struck.allreduce(given).mean
            self.apart = True
            self._check(call, due, mean, self.own_errors)
        except GradientError as error:
            refused = True
            finite = all(np.isfinite(tensor).all() for node in given for tensor in node)
            if isinstance(error, GradientOverflowError) != finite:
                self.wrong.append(f"call {call}: raised {error!r}")
            if self._state() != before:
                self.wrong.append(f"call {call}: the state moved in a call that was refused")
        except Exception as error:
            self.wrong.append(f"call {call}: raised {error!r}")
        self._ordinary(WARM + call)
        return refused

    def _ordinary(self, call: int) -> None:
        given = ordinary(self.seed, call, self.nodes)
        due = self._due(given)
        calm = self.calm.allreduce(given).mean
        self.calm_errors.append(max(errors(given, calm)))
        loaded = LocalCluster(self.config)
        try:
            loaded.load_state_dict(self.struck.state_dict())
            again = loaded.allreduce(given).mean
            mean = self.struck.allreduce(given).mean
        except Exception as error:
            self.wrong.append(f"ordinary call {call}: raised {error!r}")
            return
        if not _same(again, mean):
            self.wrong.append(f"ordinary call {call}: a state that was loaded goes on with other bits")
        if not (self.apart or _same(calm, mean)):
            self.wrong.append(f"ordinary call {call}: other bits than without what was refused")
        self._check(call, due, mean, self.next_errors)

    def _waiting(self) -> list[list[Array]]:
        """Return what waits at every node [node][tensor], nothing where nothing does."""
        state = self.struck.state
        workers = [] if state is None else state.workers
        kept = [worker.residual for worker in workers if worker.residual is not None]
        return [split(residual, SHAPES) for residual in kept]

    def _due(self, given: list[list[Array]]) -> list[list[Array]]:
        """Return what a call is to bring: the gradients and what waits, float64."""
        waiting = self._waiting()
        if not waiting:
            return given
        pairs = zip(given, waiting, strict=True)
        return [
            [np.add(a, b, dtype=np.float64) for a, b in zip(own, late, strict=True)] for own, late in pairs
        ]

    def _check(self, call: int, given: list[list[Array]], mean: list[Array], result: list[float]) -> None:
        if not all(np.isfinite(tensor).all() for tensor in mean):
            self.wrong.append(f"call {call}: a mean that is not finite")
            return
        result.append(max(errors(given, mean)))

    def _state(self) -> int:
        return crc(self.struck.state_dict())


def _same(one: list[Array], other: list[Array]) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True))
