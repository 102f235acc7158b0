"""Mutated states: each is refused with ConfigError, and nothing has changed, or loads and can be worked with.

Saved states of every cluster, codec and scheme, and of a workload, are damaged: keys dropped, added and
exchanged; values of other types; arrays of other shapes, dtypes and extreme values; lists longer and shorter;
NaN; deep nesting. What loads goes through three AllReduces, which may say that ends of a link drifted apart
(an OscarError), and no more. Workers are processes of their own: a crash is counted, not suffered.
"""

from __future__ import annotations

import argparse
import copy
import faulthandler
import logging
import random
import resource
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from oscar.checkpoint import digest
from oscar.config import Config
from oscar.errors import ConfigError, OscarError
from oscar.reducers.cluster import LocalCluster
from oscar.schemes.registry import scheme_names
from oscar.tables import Table
from oscar_lab.trials import _hunt
from oscar_lab.trials._hunt import Chunk, cases, hunt, seed_of
from oscar_lab.trials._ranks import laplace
from oscar_studies.parallel import Tick
from oscar_studies.workloads import make_workload

CHUNK = 500
KEPT = 20
CALLS = 3
ROOM_BYTES = 4 << 30  # more memory that a worker may take: absurd shapes must not take all
OUTCOMES = ("refused", "worked", "told", "crashes", "hangs", "tracebacks", "half_loaded")
TABLE = Table("count:states >12", *(f"{name} >12" for name in OUTCOMES), "per_second >12.0f")
SHAPES = ((13, 5), (), (0,), (31,), (300,))
NODES = 3
DEEP = 12  # no state has more levels


@dataclass
class StateSubject:
    """Something with a state: `make` returns a new one that has done some work, `work` does one step more."""

    name: str
    make: Callable[[], Any]
    work: Callable[[Any, int], None]


def _gradients(iteration: int) -> list[list[np.ndarray]]:
    return [laplace([iteration, node], SHAPES) for node in range(NODES)]


def _cluster(name: str, config: Config) -> StateSubject:
    def make() -> Any:
        cluster = LocalCluster(config)
        for iteration in range(2):
            cluster.allreduce(_gradients(iteration))
        return cluster

    return StateSubject(name, make, lambda cluster, i: cluster.allreduce(_gradients(2 + i)) and None)


def _workload(name: str) -> StateSubject:
    def step(workload: Any, _: int = 0) -> None:
        workload.apply(workload.gradients()[0])

    def make() -> Any:
        workload = make_workload(name, nodes=2, seed=0)
        step(workload)
        return workload

    return StateSubject(f"workload {name}", make, step)


def make_subjects() -> list[StateSubject]:
    """Return everything to attack."""
    feedback = {"error_feedback": True}
    codecs: dict[str, dict[str, Any]] = {
        "asc": {"plan": {"name": "splitter", "granule": 16}, "quantiser": feedback},
        "asc ring": {
            "schedule": {"name": "ring", "subframes": 2},
            "plan": {"name": "snake", "granule": 16},
        },
        "asc pooled": {"asc": {"tables": "pooled"}, "quantiser": {"rounding": "stochastic"}},
        "asc max": {"quantiser": {"scale": "max", "bits": 16, **feedback}},
        "int16": {"method": "int16", "quantiser": feedback},
        "fp32": {"method": "fp32", "schedule": {"name": "ring"}},
    }
    schemes: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in scheme_names()} | {
        "oscar-sw coded": ("oscar-sw", {"coded": True, "relative": True}),
        "oscar-sw-best spread": ("oscar-sw-best", {"spread": True, "coded": True, "period": 3}),
        "sketched-sgd carried": ("sketched-sgd", {"exact": False, "momentum": 0.5}),
        "exdyna released": ("exdyna", {"partition": "released", "controller": "released"}),
        "topk momentum": ("topk", {"momentum": 0.9, "values": "asc"}),
        "dct-threshold released": ("dct-threshold", {"controller": "released"}),
        "qsgd coded": ("qsgd", {"coded": True, "error_feedback": True}),
    }
    result = [_cluster(name, Config.model_validate(changes)) for name, changes in codecs.items()]
    result += [
        _cluster(name, Config(method=method, scheme=options)) for name, (method, options) in schemes.items()
    ]
    return [*result, _workload("numpy-digits")]


# How a tree is damaged.

_NEST = object()  # stands for a list in a list, 5,000 times over
_ODD: tuple[Any, ...] = (
    None, True, -1, 1 << 40, 1 << 63, 10**400, 0.5, float("nan"), float("inf"), "text", b"bytes", [], {}, (),
    np.zeros(3, np.float32), np.zeros((), np.int64), np.int64(3), np.array(["text"]),
    np.array([None, {}], object), _NEST,
)  # fmt: skip


def _odd(dice: random.Random) -> Any:
    """Return a fresh value that no state holds in most places."""
    odd = dice.choice(_ODD)
    if odd is not _NEST:
        return copy.deepcopy(odd)
    tree: Any = []
    for _ in range(5000):
        tree = [tree]
    return tree


def _mutate(dice: random.Random, tree: Any) -> Any:
    """Damage one place of `tree`, which may be changed; return the whole."""
    places = list(_places(tree, []))
    kind = dice.choice(sorted({type(value).__name__ for _, value in places}))  # arrays are few, integers many
    path, value = dice.choice([place for place in places if type(place[1]).__name__ == kind])
    if dice.random() < 0.1:  # exchange it with another
        other = dice.choice(places)[1]
        return _put(tree, path, other)
    if dice.random() < 0.15:
        return _put(tree, path, _odd(dice))
    if isinstance(value, np.ndarray):
        return _put(tree, path, _damaged_array(dice, value))
    if isinstance(value, dict):
        _damage_dict(dice, value)
        return tree
    if isinstance(value, (list, tuple)):
        return _put(tree, path, _damaged_list(dice, value))
    if isinstance(value, bool) or value is None:
        return _put(tree, path, _odd(dice))
    if type(value) in (int, float):
        steps = (value + 1, value - 1, -value, 1 << 31, -(1 << 31), (1 << 62) - 1, 0, 65536, 1e308)
        return _put(tree, path, dice.choice(steps))
    if isinstance(value, str):
        return _put(tree, path, dice.choice((value * 2, value[1:])))
    return _put(tree, path, _odd(dice))


def _places(tree: Any, path: list[Any]) -> Any:
    yield path, tree
    if len(path) > DEEP:
        return
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _places(value, [*path, key])
    elif isinstance(tree, (list, tuple)):
        for index, value in enumerate(tree):
            yield from _places(value, [*path, index])


def _put(tree: Any, path: list[Any], value: Any) -> Any:
    """Return `tree` with `value` at `path`."""
    if not path:
        return value
    here = path[0]
    changed = _put(tree[here], path[1:], value)
    if isinstance(tree, tuple):
        return (*tree[:here], changed, *tree[here + 1 :])
    tree[here] = changed
    return tree


def _damage_dict(dice: random.Random, value: dict[Any, Any]) -> None:
    keys = list(value)
    odd = dice.choice(("foreign", -1, 1 << 20, 3, (0, 7), (9, -1), ("encode", 2), None, 0.5))
    what = dice.randrange(4)
    if not keys or what == 0:
        value[odd] = value[dice.choice(keys)] if keys else _odd(dice)
    elif what == 1:
        del value[dice.choice(keys)]
    elif what == 2:
        value[odd] = value.pop(dice.choice(keys))
    else:
        one, two = dice.choice(keys), dice.choice(keys)
        value[one], value[two] = value[two], value[one]


def _damaged_list(dice: random.Random, value: Any) -> Any:
    items = list(value)
    what = dice.randrange(5)
    if what == 0 and items:
        del items[dice.randrange(len(items))]
    elif what == 1:
        items.append(dice.choice(items) if items else _odd(dice))
    elif what == 2 and items:
        items[dice.randrange(len(items))] = _odd(dice)
    elif what == 3:
        dice.shuffle(items)
    else:
        return tuple(items) if isinstance(value, list) else items
    return type(value)(items)


def _damaged_array(dice: random.Random, value: np.ndarray) -> Any:
    """Return an array of another shape, dtype or content."""
    if value.dtype.kind not in "fiu":  # of a mutation before
        return _odd(dice)
    what = dice.randrange(8)
    if what == 0 and value.ndim and len(value):
        return np.delete(value, dice.randrange(len(value)), axis=0)
    if what == 1 and value.ndim:
        return np.concatenate(
            [value, value[:1] if len(value) else np.zeros((1, *value.shape[1:]), value.dtype)]
        )
    if what == 2:
        return value.reshape(-1) if value.ndim != 1 else value.reshape(1, -1)
    if what == 3:
        return value.astype(
            dice.choice(("i1", "u1", "i2", "u2", "i4", "i8", "f4", "f8", "?", "O", ">i8", "c16"))
        )
    if what == 4:
        return value.tolist()
    if what == 5 and value.ndim:
        return np.repeat(value, 2, axis=0)[::2]  # the same, not contiguous
    changed = value.copy()
    flat, kind = changed.reshape(-1), value.dtype.kind
    for _ in range(dice.choice((1, 1, 3, flat.size))):
        if not flat.size:
            break
        at = dice.randrange(flat.size)
        if kind == "f":
            flat[at] = dice.choice((np.nan, np.inf, -np.inf, 3e38, -3e38, -1.0, 0.0, 1e-45))
        else:
            limits = np.iinfo(value.dtype)
            flat[at] = dice.choice((limits.min, limits.max, 0, 1, 15, 16, limits.max // 2, int(flat[at]) ^ 1))
    return changed


# What becomes of a damaged tree.


class _Attack:
    """One subject, its intact state, and what became of mutated ones."""

    def __init__(self, subject: StateSubject) -> None:
        self.subject = subject
        self.holder = subject.make()
        self.state = self.holder.state_dict()
        self.intact = digest(self.state)

    def strike(self, dice: random.Random) -> tuple[str, str]:
        """Load one mutated state; return one of OUTCOMES, and what happened where it is a fault."""
        tree = copy.deepcopy(self.state)
        for _ in range(dice.choice((1, 1, 1, 2, 3))):
            tree = _mutate(dice, tree)
        try:
            self.holder.load_state_dict(tree)
        except ConfigError as error:
            if digest(self.holder.state_dict()) != self.intact:
                self.holder = self.subject.make()
                return "half_loaded", str(error)
            return "refused", ""
        except Exception as error:
            self.holder = self.subject.make()
            return "tracebacks", f"load: {error!r}"
        try:
            for call in range(CALLS):
                self.subject.work(self.holder, call)
            outcome = "worked", ""
        except OscarError:
            outcome = "told", ""
        except Exception as error:
            outcome = "tracebacks", f"work: {error!r}"
        self.holder.load_state_dict(self.state)
        if digest(self.holder.state_dict()) != self.intact:
            return "half_loaded", "the intact state came back as another"
        return outcome


class _Judge:
    """Strikes the subjects, the same way for the same name; memory is bounded once all kernels are there."""

    def __init__(self) -> None:
        logging.disable(logging.CRITICAL)
        warnings.simplefilter("ignore")
        np.seterr(all="ignore")
        self.attacks = [_Attack(subject) for subject in make_subjects()]
        for attack in self.attacks:
            attack.subject.work(attack.holder, 0)
            attack.holder.load_state_dict(attack.state)
        with open("/proc/self/statm", encoding="ascii") as statm:
            taken = int(statm.read().split()[0]) * resource.getpagesize()
        most = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (taken + ROOM_BYTES, most))
        faulthandler.enable()

    def __call__(self, name: str, count: int, tick: Tick) -> Chunk:
        chunk = Chunk()
        for case, dice in cases(name, count, tick):
            attack = dice.choice(self.attacks)
            outcome, why = attack.strike(dice)
            chunk.tally[outcome] += 1
            if why:
                chunk.faults.append(f"{attack.subject.name}, {case}: {outcome}: {why[:300]}")
        return chunk


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this trial."""
    _hunt.add_arguments(parser, count=10_000, of="mutated states")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Strike `args.count` times and print a table; "ok" tells whether nothing was wrong."""
    seed = seed_of(args)
    print(f"# mutate_states: count {args.count}, seed {seed}, jobs {args.jobs}")
    found, seconds = hunt(_Judge, args.count, seed=seed, size=CHUNK, jobs=args.jobs)
    tally, faults = found.tally, [*found.lost, *found.faults][:KEPT]
    result = {"count": args.count, "seed": seed, **{name: tally[name] for name in OUTCOMES}}
    rate = found.cases / seconds if seconds else 0.0
    print(TABLE.heading, TABLE.line(result, per_second=rate), sep="\n")
    for fault in faults:
        print(f"# {fault}")
    bad = ("crashes", "hangs", "tracebacks", "half_loaded")
    return {**result, "ok": not any(tally[name] for name in bad), "faults": faults}
