"""Retuning: the link that groups' times show, and another policy only where it gains."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from oscar.config import Config
from oscar.errors import ConfigError
from oscar.planning.tuning.options import MethodPrice, measured, options
from oscar.planning.tuning.policy import PolicyFile
from oscar.planning.tuning.retune import FAST_BPS, Fit, Retuner, Seen, fitted
from oscar.timeline.engine import PORT
from oscar.timeline.link import LinkModel

NODES = 4
CONFIG = Config(nodes=NODES)
TENSORS = tuple((f"t{at}", size) for at, size in enumerate((1000, 200_000, 3000, 400_000, 64)))
MADE = {"compute_ms": 20.0, "gbps": 10.0, "latency_us": 10.0}


@cache
def prices() -> list[MethodPrice]:
    return [measured(method, NODES, CONFIG, native=False) for method in ("fp32", "asc", "bf16")]


def policy(*groups: tuple[int, str], **made: Any) -> PolicyFile:
    return PolicyFile(TENSORS, groups, {**MADE, **made})


def seen(link: LinkModel, file: PolicyFile, slower: float = 1.0, once_s: float = 0.0) -> list[Seen]:
    """What groups would take on a link that is as the model has it, with coding that is slower."""
    known = {one.name: one for one in options(prices(), NODES, link, ("ring", "direct"), dominated=True)}
    found, begin = [], 0
    for stop, option in file.groups:
        values = sum(size for _, size in TENSORS[begin:stop])
        steps = known[option].seconds(values)
        port, coding = (sum(s.seconds for s in steps if (s.lane == PORT) == own) for own in (True, False))
        found.append(Seen(option, values, port, slower * coding + once_s))
        begin = stop
    return found


def test_link_and_coding_are_found_again_from_what_groups_take(seed: int) -> None:
    random = np.random.default_rng(seed)
    file = policy((1, "fp32 ring"), (3, "asc same direct"), (4, "asc same ring"), (5, "fp32 ring"))
    for _ in range(20):
        link = LinkModel.of(gbps=10 ** random.uniform(-2, 1.5), latency_us=10 ** random.uniform(0, 3))
        slower, once_s = random.uniform(0.5, 5), random.uniform(0, 1e-3)
        saw = seen(link, file, slower, once_s)
        found = fitted(saw, prices(), NODES, Fit(LinkModel.of(gbps=1, latency_us=50)))
        again = fitted(saw, prices(), NODES, found)
        assert again.link.bandwidth_bps == pytest.approx(link.bandwidth_bps, rel=0.02)
        assert again.link.latency_s == pytest.approx(link.latency_s, rel=0.02)
        assert (again.slower, again.once_s) == (
            pytest.approx(slower, rel=0.02),
            pytest.approx(once_s, rel=0.1),
        )


def test_one_group_tells_the_rate_at_the_latency_of_before() -> None:
    link, file = LinkModel.of(gbps=0.1, latency_us=50), policy((5, "fp32 ring"))
    before = Fit(LinkModel.of(gbps=1, latency_us=50), slower=2.0)
    found = fitted(seen(link, file), prices(), NODES, before)
    assert found.link.latency_s == pytest.approx(50e-6)
    assert found.link.bandwidth_bps == pytest.approx(link.bandwidth_bps, rel=0.01)
    assert found.slower == pytest.approx(1.0)
    quick = fitted([Seen("fp32 ring", 600_000, 0.0, 0.0)], prices(), NODES, found)
    assert quick.link.bandwidth_bps == FAST_BPS
    assert fitted([], prices(), NODES, found) == found


def test_another_policy_is_taken_where_it_gains_and_kept_then() -> None:
    first = policy((5, "fp32 direct"))
    retuner = Retuner(first, CONFIG)
    assert retuner.retune(first, seen(LinkModel.of(gbps=10, latency_us=10), first)) is None  # as foreseen
    slow = LinkModel.of(gbps=0.05, latency_us=10)
    found = retuner.retune(first, seen(slow, first))
    assert found is not None
    assert found.before_s > 1.05 * found.time_s
    assert any(option.startswith("asc") for _, option in found.policy.groups)
    assert retuner.retune(found.policy, seen(slow, found.policy)) is None  # on the same link it stays


def test_a_policy_that_was_slower_is_left_and_not_tried_again_on_this_link() -> None:
    first, slow = policy((5, "fp32 direct")), LinkModel.of(gbps=0.05, latency_us=10)
    retuner = Retuner(first, CONFIG)
    found = retuner.retune(first, seen(slow, first), took_s=0.1)
    assert found is not None
    back = retuner.retune(found.policy, seen(slow, found.policy), took_s=0.2)
    assert back is not None
    assert back.policy == first
    assert (back.before_s, back.time_s) == (0.2, 0.1)
    for _ in range(2):
        assert retuner.retune(first, seen(slow, first), took_s=0.1) is None
    slower = LinkModel.of(gbps=0.02, latency_us=10)
    assert retuner.retune(first, seen(slower, first), took_s=0.3) is not None


def test_a_run_that_goes_on_does_not_try_again_what_was_slower() -> None:
    first, slow = policy((5, "fp32 direct")), LinkModel.of(gbps=0.05, latency_us=10)
    retuner = Retuner(first, CONFIG)
    found = retuner.retune(first, seen(slow, first), took_s=0.1)
    assert found is not None
    assert retuner.retune(found.policy, seen(slow, found.policy), took_s=0.2, compute_s=0.03) is not None
    saved = retuner.state_dict()
    resumed = Retuner(first, CONFIG)
    resumed.load_state_dict(saved)
    assert repr(resumed.state_dict()) == repr(saved)
    assert (resumed.fit, resumed.expected_s) == (retuner.fit, retuner.expected_s)
    assert resumed.retune(first, seen(slow, first), took_s=0.1) is None
    anew = Retuner(first, CONFIG)
    assert anew.retune(first, seen(slow, first), took_s=0.1) is not None  # it would be tried again


@pytest.mark.parametrize(
    ("path", "damage", "told"),
    [
        (("fit",), [1e9, 0.0, 1.0], "state.fit: expected 4 items"),
        (("fit", 0), float("nan"), r"state.fit\[0\]: expected a number"),
        (("ready_s",), np.zeros(3), "state.ready_s: expected float64"),
        (("ready_s",), np.array([1.0, 2, 1, 3, 4]), "state.ready_s: expected times that never fall"),
        (("ready_s",), np.zeros(5), "state.ready_s: expected a last time above 0"),
        (("expected_s",), "soon", "state.expected_s: expected a number"),
        (("tried_bps",), -1.0, "state.tried_bps: expected a number"),
        (("tried", 0, 0), [[4, "fp32 ring"]], r"state.tried\[0\]\[0\]: expected groups that cover 5"),
        (("tried", 0, 0), [[5, "zen same ring"]], r"state.tried\[0\]\[0\]: expected options .* got zen"),
        (("tried", 0, 0), [[5, "zst same ring"]], r"state.tried\[0\]\[0\]: expected options .*zst"),
        (("tried", 0, 1), "[1]", r"state.tried\[0\]\[1\]: expected how"),
        (("tried", 0, 2), None, r"state.tried\[0\]\[2\]: expected a number"),
    ],
)
def test_a_damaged_state_is_refused_by_its_path(path: tuple[Any, ...], damage: Any, told: str) -> None:
    first, slow = policy((5, "fp32 direct")), LinkModel.of(gbps=0.05, latency_us=10)
    retuner = Retuner(first, CONFIG)
    retuner.retune(first, seen(slow, first), took_s=0.1)
    before, broken = retuner.state_dict(), retuner.state_dict()
    inner: Any = broken
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = damage
    with pytest.raises(ConfigError, match=told):
        retuner.load_state_dict(broken)
    assert repr(retuner.state_dict()) == repr(before)


def test_nothing_changes_for_less_than_the_gain() -> None:
    first, slow = policy((5, "fp32 direct")), LinkModel.of(gbps=0.05, latency_us=10)
    gained = Retuner(first, CONFIG).retune(first, seen(slow, first))
    assert gained is not None
    factor = gained.before_s / gained.time_s
    assert Retuner(first, CONFIG, gain=1.01 * factor).retune(first, seen(slow, first)) is None


@pytest.mark.parametrize(
    ("file", "told"),
    [
        (replace(policy((5, "fp32 ring")), made={}), "policy that says its compute_ms, got None"),
        (policy((5, "zen same ring")), "do not depend on what is zero, got zen"),
        (policy((5, "fp32 ring"), ready_ms=[1, 2]), "ready_ms with a time for each of 5 tensors"),
        (policy((5, "fp32 ring"), ready_ms=[1, 2, 3, 2, 5]), "in the order of the backward pass"),
        (policy((5, "fp32 ring"), ready_ms="soon"), "ready_ms with a time for each tensor, got 'soon'"),
    ],
)
def test_a_policy_that_says_too_little_is_refused(file: PolicyFile, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Retuner(file, CONFIG)
