"""Gradients that grow, fall or vanish for some calls: is each call's mean right, and does training recover?

A small network is trained on two ranks. Its gradients grow on one rank or on all, for one call or three, and
the loop applies the step or skips it; or losses take turns, or a tensor's gradient is zero for some calls.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.config import Config
from oscar.errors import OscarError, OscarWarning
from oscar.numerics.tensors import split
from oscar.reducers.cluster import LocalCluster
from oscar.schemes.registry import method_info, method_names, scheme_class
from oscar.tables import Row, Table

SIZES = 10.0, 100.0, 1e3, 1e4, 1e8
RUNS = 1, 5, 20  # calls for which a tensor's gradient is zero
INPUTS, HIDDEN, OUTPUTS, BATCH = 32, 64, 4, 32
BEGIN = 25  # the first call that differs
CLIP = 4.0  # largest norm of an applied gradient, in norms of the first one
MOST_ERROR, MOST_LOSS = 3.0, 1.1  # against the usual error, and the loss of the uncompressed training
DENSITY = 0.25  # of sparsifiers: small networks need it (docs/results/accuracy.md)
RATIO = 6.0  # of sketches: the noise of smaller ones keeps itself up at RATE once a spike has raised the loss
NO_FEEDBACK = ("terngrad",)  # its roundings leave more than the gradient, and what waits would grow
SHOWN = 10
MEASURED = 5  # calls at the end of a training after which the loss is measured
RATE = 1.0  # of gradient descent
UNCOMPRESSED = "fp32"


@dataclass(frozen=True)
class SpikeCase:
    """What happens to the gradients from call BEGIN on.

    size: factor. everyone: on all ranks, not on rank 0 alone. calls: how many differ. skipped: the loop skips
    their steps. kind: "spike", "turns" (every other call is `size` times as large) or "zeros" (of a tensor).
    """

    kind: str = "calm"
    size: float = 1.0
    everyone: bool = True
    calls: int = 0
    skipped: bool = False

    @property
    def name(self) -> str:
        """The case in words."""
        if self.kind != "spike":
            return {"calm": "calm", "turns": f"turns {self.size:g}:1"}.get(self.kind, f"zeros {self.calls}")
        return (
            f"{self.size:g} {'all' if self.everyone else 'one'} {self.calls} "
            f"{'skipped' if self.skipped else 'applied'}"
        )

    @property
    def rate(self) -> float:
        """The rate of gradient descent. With turns it suits the large gradients.

        At a rate that suits the small ones, each large step is as long as CLIP allows. Then the training does
        not converge, and exact means that differ by 1e-4 change its last loss by a tenth.
        """
        return RATE / self.size if self.kind == "turns" else RATE

    def factor(self, call: int, rank: int) -> float:
        """Return by what the gradient of a rank is multiplied."""
        here = BEGIN <= call < BEGIN + self.calls
        if self.kind == "turns":
            return self.size if call % 2 else 1.0
        return self.size if self.kind == "spike" and here and (self.everyone or rank == 0) else 1.0


def cases(sizes: Sequence[float]) -> Iterator[SpikeCase]:
    """Yield all cases but the calm one."""
    for size in sizes:
        for everyone in (False, True):
            for calls in (1, 3):
                for skipped in (False, True):
                    yield SpikeCase("spike", size, everyone, calls, skipped)
    yield SpikeCase("turns", 1e3)
    for calls in RUNS:
        yield SpikeCase("zeros", calls=calls)


class Network:
    """A perceptron that learns random targets, the same for every method."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng([seed, 1])
        teacher = random.normal(0, INPUTS**-0.5, (INPUTS, OUTPUTS))
        self.seed, self.teacher = seed, teacher
        self.weights = [
            random.normal(0, INPUTS**-0.5, (INPUTS, HIDDEN)),
            np.zeros(HIDDEN),
            random.normal(0, HIDDEN**-0.5, (HIDDEN, OUTPUTS)),
            np.zeros(OUTPUTS),
        ]

    def gradients(self, call: int, rank: int) -> list[Array]:
        """Return the gradient of a batch, float64 [tensor]."""
        return self._pass([call, rank], BATCH)[1]

    @property
    def loss(self) -> float:
        """The loss on held-out samples."""
        return self._pass([1 << 31, 0], 1024)[0]

    def _pass(self, key: Sequence[int], batch: int) -> tuple[float, list[Array]]:
        first, bias, second, shift = self.weights
        x = np.random.default_rng([self.seed, 2, *key]).normal(size=(batch, INPUTS))
        hidden = np.tanh(x @ first + bias)
        error = hidden @ second + shift - np.tanh(x @ self.teacher)
        back = 2 * error / error.size
        inner = (back @ second.T) * (1 - hidden**2)
        loss = float(np.mean(error**2))
        return loss, [x.T @ inner, inner.sum(axis=0), hidden.T @ back, back.sum(axis=0)]


def config_of(method: str) -> Config:
    """Return the configuration of a method, with error feedback where that helps."""
    changes: dict[str, Any] = {"method": method}
    if method_info(method).codec is None:
        known = scheme_class(method).Options.__dataclass_fields__
        options: dict[str, Any] = {}
        if method == "zen":
            options["values"] = "asc"
        if method in ("s2-reducer", "count-sketch"):
            options["ratio"] = RATIO
        if "density" in known:
            options["density"] = DENSITY
        if "error_feedback" in known and method not in NO_FEEDBACK:
            options["error_feedback"] = True
        changes["scheme"] = options
    else:
        changes["quantiser"] = {"error_feedback": True}
    return Config.model_validate(changes)


def train(method: str, case: SpikeCase, *, calls: int, nodes: int, seed: int, blind: bool = False) -> Row:
    """Return the errors of all calls, and the loss at the end of a training.

    blind: the method receives the gradients without their factor, and its error is multiplied instead. This
    is what a method would do on which the size of a gradient had no influence.

    whole: the error of each call's mean, over the norm of the true mean. errors: less the norm of the mean
    residual before the call, which feedback owes, over the norm of the true mean or, if that is larger, of
    both together: what is owed travels with the same relative error. With zeros, both are of the tensor that
    is zero for some calls.
    """
    network, cluster = Network(seed), LocalCluster(config_of(method))
    whole: list[float] = []
    errors: list[float] = []
    losses: list[float] = []
    shapes, most = [weight.shape for weight in network.weights], 0.0
    for call in range(calls):
        given = [
            [np.asarray(t * case.factor(call, rank), np.float32) for t in network.gradients(call, rank)]
            for rank in range(nodes)
        ]
        idle = case.kind == "zeros" and BEGIN <= call < BEGIN + case.calls
        if idle:
            for mine in given:
                mine[0] = np.zeros_like(mine[0])
        wide = ([mine[t].astype(np.float64) for mine in given] for t in range(len(shapes)))
        true = [np.asarray(np.mean(tensors, axis=0)) for tensors in wide]
        owed = _owed(cluster, shapes)
        if blind:
            mean = _blind_mean(cluster, [network.gradients(call, rank) for rank in range(nodes)], true)
        else:
            mean = cluster.allreduce(given).mean
        which = slice(0, 1) if case.kind == "zeros" else slice(None)
        if not idle:
            lacking = _norm([np.asarray(a - b) for a, b in zip(mean[which], true[which], strict=True)])
            size = max(_norm(true[which]), 1e-30)
            whole.append(lacking / size)
            both = _norm([np.asarray(a + b) for a, b in zip(true[which], owed[which], strict=True)])
            errors.append(max(0.0, lacking - _norm(owed[which])) / max(size, both))
        most = most or CLIP * _norm(true)
        skipped = case.skipped and BEGIN <= call < BEGIN + case.calls
        if not skipped:
            rate = min(case.rate, most / max(_norm(mean), 1e-30))
            for weight, gradient in zip(network.weights, mean, strict=True):
                weight -= rate * gradient
        if call >= calls - MEASURED:
            losses.append(network.loss)
    return {"whole": whole, "errors": errors, "loss": float(np.mean(losses))}


def _blind_mean(cluster: LocalCluster, calm: Sequence[Sequence[Array]], true: Sequence[Array]) -> list[Array]:
    """Return the true mean, plus the error of the mean of `calm` gradients, scaled to it."""
    usual = [np.asarray(np.mean(tensors, axis=0)) for tensors in zip(*calm, strict=True)]
    mean = cluster.allreduce([[np.asarray(t, np.float32) for t in mine] for mine in calm]).mean
    factor = _norm(true) / max(_norm(usual), 1e-30)
    return [np.asarray(t + factor * (m - u)) for t, m, u in zip(true, mean, usual, strict=True)]


def _owed(cluster: LocalCluster, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Return the mean of what waits in the residuals, float64 [tensor]."""
    workers = [] if cluster.state is None else cluster.state.workers
    waiting = [worker.residual for worker in workers if worker.residual is not None]
    if not waiting:
        return [np.zeros(shape) for shape in shapes]
    total: Array = np.asarray(np.sum(waiting, axis=0, dtype=np.float64)) / len(workers)
    return [np.asarray(part) for part in split(total, shapes)]


def _norm(tensors: Sequence[Array]) -> float:
    return float(np.sqrt(sum(np.vdot(t.astype(np.float64), t.astype(np.float64)) for t in tensors)))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--methods", nargs="+", choices=method_names(), default=method_names(), metavar="NAME"
    )
    parser.add_argument("--sizes", nargs="+", type=float, default=list(SIZES), metavar="FACTOR")
    parser.add_argument("--calls", type=int, default=70, help="of a training; default: %(default)s")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Print the worst error and the worst loss of every method; "ok" tells whether all are within bounds."""
    how = {"calls": args.calls, "nodes": args.nodes, "seed": args.seed}
    every = list(cases(args.sizes))
    print(f"# {args.nodes} ranks, {args.calls} calls, {len(every)} cases from call {BEGIN} on")
    print("# usual: median relative error of a call's mean in a calm training. error: the worst call of all")
    print("# cases, less what feedback owes, over usual. loss: the worst final loss over that of the same")
    print("# uncompressed training. calm: that of the calm training. own: the worst loss after a spike, over")
    print("# that where the method receives the gradients without it, and its error is multiplied instead")
    table = Table(
        "method <17", "usual >7.3g", "error >9.3g", "error_case:in <20", "loss >9.3g", "loss_case:in <20",
        "calm_loss:calm >6.3g", "own_loss:own >9.3g",
    )  # fmt: skip
    print(table.heading)
    plain = {case: train(UNCOMPRESSED, case, **how)["loss"] for case in (SpikeCase(), *every)}
    rows: list[Row] = []
    for method in args.methods:
        rows.append(measure(method, every, plain, how))
        print(table.line(rows[-1]), flush=True)
    wrong = [f"{row['method']}: {row['wrong']}" for row in rows if row["wrong"]]
    print(f"# error beyond {MOST_ERROR:g} times or loss beyond {MOST_LOSS:g} times: {len(wrong)} methods")
    for line in wrong[:SHOWN]:
        print(f"# wrong: {line}")
    return {"ok": not wrong, "rows": rows, "wrong": wrong}


def measure(
    method: str, every: Sequence[SpikeCase], plain: dict[SpikeCase, float], how: dict[str, Any]
) -> Row:
    """Return the worst error and loss of a method. plain: the losses of uncompressed trainings."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", OscarWarning)
        calm = train(method, SpikeCase(), **how)
        usual = float(np.median(calm["whole"][2:]))
        errors, losses, refused = {}, {}, ""
        for case in every:
            try:
                one = train(method, case, **how)
            except OscarError as error:
                refused = f"{case.name}: {type(error).__name__}"
                continue
            errors[case.name] = _ratio(max(one["errors"][BEGIN:], default=0.0), max(usual, 1e-6))
            losses[case.name] = _ratio(one["loss"], plain[case])
        spikes = {case.name: case for case in every if case.kind == "spike" and case.name in losses}
        slowest = max(spikes, key=losses.__getitem__)
        blind = _ratio(train(method, spikes[slowest], **how, blind=True)["loss"], plain[spikes[slowest]])
    worst, late = max(errors, key=errors.__getitem__), max(losses, key=losses.__getitem__)
    beyond = [name for name in errors if errors[name] > MOST_ERROR]
    slow = [name for name in losses if losses[name] > MOST_LOSS]
    wrong = [refused] * bool(refused) + [f"error: {', '.join(beyond)}"] * bool(beyond)
    wrong += [f"loss: {', '.join(slow)}"] * bool(slow)
    return {
        "method": method,
        "usual": usual,
        "error": errors[worst],
        "error_case": worst,
        "loss": losses[late],
        "loss_case": late,
        "calm_loss": _ratio(calm["loss"], plain[SpikeCase()]),
        "blind_loss": blind,
        "own_loss": _ratio(losses[slowest], blind),
        "errors": errors,
        "losses": losses,
        "wrong": "; ".join(wrong),
    }


def _ratio(one: float, other: float) -> float:
    """Return one / other; infinite for what is not finite."""
    return one / other if np.isfinite(one) and other > 0 else float("inf")
