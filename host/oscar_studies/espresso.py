"""Espresso's selection, as published (arXiv 2205.14465, EuroSys'23) and as its simulator was released."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod

import numpy as np

from oscar.errors import ConfigError
from oscar.planning.tuning import select
from oscar.planning.tuning.policy import Option, Policy, PolicyProblem
from oscar.planning.tuning.select import Finder
from oscar.timeline.engine import CODEC

COMBINATIONS = 20_000  # of offloaded tensors; with more, one group is decided after another
HALF, COMPRESSED, TWO_LEVEL = 2**17, 2**20, 2**23  # values above which the simulator takes them, over PCIe


def published(problem: PolicyProblem) -> tuple[Policy, int]:
    """Return what the published rule selects, one tensor a group, and how many policies were tried.

    From none compressed: tensors by size, the largest first, of equals the nearest to the output layer. Those
    before the last bubble stay as they are; of the others each takes the option of the training's processor
    with the shortest iteration, and bubbles are found anew. What is compressed may then go to the other one.
    """
    chosen, tried = _uncompressed(problem), 1
    able = [at for at, option in enumerate(problem.options) if _stays(option)]
    for tensor in sorted(range(len(chosen)), key=lambda at: (-problem.sizes[at], at)):
        if tensor < problem.bubble(_alone(chosen)):
            continue
        kept = chosen[tensor]
        times = [problem.time(_alone(_with(chosen, tensor, option))) for option in (kept, *able)]
        chosen[tensor] = (kept, *able)[int(np.argmin(times))]
        tried += len(times)
    policy, more = offloaded(problem, _alone(chosen))
    return policy, tried + more


def released(problem: PolicyProblem) -> tuple[Policy, int]:
    """Return what the released simulator selects: by thresholds of size, kept where an iteration gains."""
    chosen, sizes = _uncompressed(problem), problem.sizes
    half = _first(problem, lambda option: option.name.startswith(("fp16", "bf16")))
    two = _first(problem, lambda option: option.name.startswith("two-level"))
    coded = _first(problem, lambda o: o.compresses and not o.name.startswith(("bf16", "two-level")))
    for tensor in range(problem.bubble(_alone(chosen)), len(sizes)):
        if half is not None and sizes[tensor] > HALF:
            chosen[tensor] = half
    bubble, best, tried = problem.bubble(_alone(chosen)), problem.time(_alone(chosen)), 2
    for tensor in sorted(range(bubble, len(sizes)), key=lambda at: (-sizes[at], -at)):
        option = two if sizes[tensor] > TWO_LEVEL and two is not None else coded
        if sizes[tensor] <= COMPRESSED or option is None:
            break
        trial = _with(chosen, tensor, option)
        seconds = problem.time(_alone(trial))
        tried += 1
        if seconds < best:
            chosen, best = trial, seconds
    policy, more = offloaded(problem, _alone(chosen), farthest=False)
    return policy, tried + more


def offloaded(problem: PolicyProblem, policy: Policy, *, farthest: bool = True) -> tuple[Policy, int]:
    """Return the policy with the best part of its compression on the other processor.

    Of groups of one size and option only those farthest from the output layer, or the nearest to it, go. All
    combinations of how many are tried; where these are more than COMBINATIONS, one kind after another.
    """
    names = {option.name: at for at, option in enumerate(problem.options)}
    kinds: dict[tuple[int, int], list[int]] = {}
    for at, (begin, stop, option) in enumerate(policy.groups):
        if problem.options[option].on_other().name in names and _stays(problem.options[option]):
            kinds.setdefault((problem.counted(begin, stop, option), option), []).append(at)
    moves = [
        (own[::-1] if farthest else own, names[problem.options[option].on_other().name])
        for (_, option), own in sorted(kinds.items(), reverse=True)
        if problem.options[option].compresses
    ]
    counts = [range(len(own) + 1) for own, _ in moves]
    if prod(len(some) for some in counts) <= COMBINATIONS:
        return _best(problem, policy, [_moved(policy, moves, some) for some in product(*counts)])
    tried = 0
    for own, other in moves:
        policy, more = _best(
            problem, policy, [_moved(policy, [(own, other)], [n]) for n in range(len(own) + 1)]
        )
        tried += more
    return policy, tried


def _moved(policy: Policy, moves: Sequence[tuple[list[int], int]], counts: Sequence[int]) -> Policy:
    options = list(policy.options)
    for (own, other), count in zip(moves, counts, strict=True):
        for at in own[:count]:
            options[at] = other
    return Policy(policy.stops, tuple(options))


def _best(problem: PolicyProblem, policy: Policy, trials: Sequence[Policy]) -> tuple[Policy, int]:
    return min([policy, *trials], key=problem.time), len(trials)


def _stays(option: Option) -> bool:
    """Whether nothing of it is on the other processor."""
    return all(step.lane != CODEC for step in option.steps)


def _first(problem: PolicyProblem, matches: Callable[[Option], bool]) -> int | None:
    result = (at for at, option in enumerate(problem.options) if _stays(option) and matches(option))
    return next(result, None)


def _uncompressed(problem: PolicyProblem) -> list[int]:
    """Return the option without compression for each tensor, or the first that this one can take."""
    raw = _first(problem, lambda option: not option.compresses)
    if raw is None:
        raise ConfigError("expected an option without compression, which this selector begins with, got none")
    return [int(no.argmin()) if no[raw] else raw for no in problem.mask.T]


def _alone(options: Sequence[int]) -> Policy:
    return Policy(tuple(range(1, len(options) + 1)), tuple(options))


def _with(options: Sequence[int], at: int, option: int) -> list[int]:
    return [*options[:at], option, *options[at + 1 :]]


SELECTORS: dict[str, Finder] = {
    **select.SELECTORS,
    "espresso": published,
    "espresso-released": released,
}
