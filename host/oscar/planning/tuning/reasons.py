"""Why a policy is as it is: what each group's next best option would cost, and what bounds the iteration."""

from __future__ import annotations

from dataclasses import dataclass

from oscar.planning.tuning.policy import Policy, PolicyProblem
from oscar.timeline.graph import COMPUTE, LANES, PORT


@dataclass(frozen=True)
class Reason:
    """A group: its first tensor and the one behind its last, its option, and the next best with its loss."""

    begin: int
    stop: int
    values: int
    option: str
    ready_s: float
    end_s: float
    second: str | None
    loss_s: float

    @property
    def text(self) -> str:
        """One line."""
        who = (
            f"tensors {self.begin} to {self.stop - 1}"
            if self.stop - self.begin > 1
            else f"tensor {self.begin}"
        )
        when = f"ready at {self.ready_s * 1e3:.2f} ms, reduced at {self.end_s * 1e3:.2f} ms"
        line = f"{who}, {self.values:,} values: {self.option}; {when}"
        return (
            line if self.second is None else f"{line}; {self.second} would cost {self.loss_s * 1e3:+.3f} ms"
        )


def reasons(problem: PolicyProblem, policy: Policy) -> list[Reason]:
    """Return a reason for each group."""
    total, starts = problem.played(policy)
    found = []
    for at, (begin, stop, option) in enumerate(policy.groups):
        values = sum(problem.sizes[begin:stop])
        last = problem.steps(begin, stop, option)
        others = {}
        for other, rival in enumerate(problem.options):
            if other != option:
                changed = Policy(policy.stops, (*policy.options[:at], other, *policy.options[at + 1 :]))
                others[rival.name] = problem.time(changed) - total
        second = min(others, key=others.__getitem__) if others else None
        end = float(starts[at, len(last)]) + last[-1].seconds
        loss = others[second] if second else 0.0
        ready = float(problem.ready_s[stop - 1])
        found.append(Reason(begin, stop, values, problem.options[option].name, ready, end, second, loss))
    return found


def verdict(problem: PolicyProblem, policy: Policy) -> str:
    """Return in one line what bounds the iteration, and what compression does for it."""
    timeline = problem.timeline(policy)
    total, backward = timeline.total_s, float(problem.ready_s[-1])
    use = {name: share for name, share in timeline.use().items() if share > 0}
    lanes = ", ".join(f"{name} {share:.0%}" for name, share in use.items())
    raw = [seconds for name, seconds in problem.uniform().items() if _raw(problem, name)]
    text = f"{total * 1e3:.2f} ms, {(total - backward) * 1e3:.2f} ms behind the backward pass; busy: {lanes}"
    coded = sum(problem.options[option].compresses for option in policy.options)
    if not raw:
        return text
    gain = min(raw) / total
    if coded:
        return f"{text}; {coded} of {len(policy.stops)} groups compressed, {gain:.2f}x none compressed"
    cheapest = min(
        (s for name, s in problem.uniform().items() if not _raw(problem, name)), default=float("inf")
    )
    if timeline.loads()[PORT] < timeline.loads()[COMPUTE]:
        why = f"the {LANES[PORT]} has time to spare"
    else:
        why = f"coding takes longer than it saves on the {LANES[PORT]}"
    return f"{text}; none compressed: {why}; the best codec for all would take {cheapest * 1e3:.2f} ms"


def _raw(problem: PolicyProblem, name: str) -> bool:
    return not next(option for option in problem.options if option.name == name).compresses
