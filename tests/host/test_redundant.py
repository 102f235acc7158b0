"""Redundant tasks: no rank waits for a slow one, a death is survived and reported, and all bits are equal."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from needs import needs
from oscar import Config
from oscar.collective.check import check
from oscar.collective.redundant import Redundant
from oscar.errors import CautionWarning, ConfigError, PeerError
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.communicator import Communicator
from oscar.reducers.copies import AHEAD
from oscar.reducers.tasks import TaskCommunicator
from oscar.transports.base import TASK_TAG, Transport
from oscar.transports.threads import local_transports
from oscar_lab.lab.launch import launch
from oscar_lab.trials.redundancy import Died, die_at
from oscar_studies.ranks import RankRun, summarise
from support.ranks import on_ranks, tcp_transports

NODES, TASKS, SLOW = 4, 12, 3  # a part has three tasks
SPIKE = 5  # the step whose gradients are so much larger that ranks agree on new step sizes
Bits = list[bytes]


def config(copies: int = 2, **more: Any) -> Config:
    return Config(nodes=NODES, schedule={"name": "redundant", "copies": copies}, **more)


MAKERS: dict[str, Callable[[int], Sequence[Transport]]] = {"threads": local_transports, "tcp": tcp_transports}


def gradient(seed: int, step: int, task: int) -> list[np.ndarray]:
    draw = np.random.default_rng([seed, step, task])
    size = (1 + task) * (300.0 if step == SPIKE else 1.0)
    return [size * draw.standard_normal(700, np.float32), draw.standard_normal((3, 5), np.float32)]


def bits_of(means: Sequence[np.ndarray]) -> bytes:
    return b"".join(mean.tobytes() for mean in means)


def in_one_process(seed: int, steps: int, **more: Any) -> Bits:
    cluster = LocalCluster(Config(nodes=TASKS, **more))
    gradients = [[gradient(seed, step, task) for task in range(TASKS)] for step in range(steps)]
    return [bits_of(cluster.allreduce(each).mean) for each in gradients]


def cut_off(transport: Transport, back: Callable[[], bool]) -> None:
    """Let copies of tasks, from and to this rank, wait until `back()`."""
    send, look = transport._send, transport.look
    waiting: list[Any] = []

    def delayed(peer: int, tag: int, parts: Any) -> None:
        waiting.append((peer, tag, parts))
        while waiting and (tag != TASK_TAG or back()):
            send(*waiting.pop(0))

    transport._send = delayed  # type: ignore[method-assign]
    transport.look = lambda peer, tag: look(peer, tag) if back() else None  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("nodes", "copies", "pieces"), [(1, 1, 1), (2, 2, 1), (4, 2, 3), (5, 3, 2), (5, 5, 7)]
)
def test_the_schedule_keeps_the_rules_and_spreads_backups(nodes: int, copies: int, pieces: int) -> None:
    schedule = Redundant(nodes, subframes=2, copies=copies, pieces=pieces)
    check(schedule)
    for task in range(schedule.tasks):
        assert len(set(schedule.ranks_of(task))) == copies
        assert schedule.ranks_of(task)[0] == task // pieces
    for rank in range(nodes):
        mine = [task for task in range(schedule.tasks) if rank in schedule.ranks_of(task)[1:]]
        assert sorted(schedule.backups(rank)) == mine
        for part in range(nodes):
            first = [task for task in schedule.part(part) if schedule.ranks_of(task)[1:2] == (rank,)]
            assert len(first) <= -(-pieces // max(1, nodes - 1))


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"schedule": {"name": "redundant", "copies": 0}}, "schedule.copies: .*1, got 0"),
        ({"schedule": {"name": "redundant", "copies": 2.5}}, "schedule.copies: .*integer"),
        ({"schedule": {"name": "redundant", "copies": "two"}}, "schedule.copies: .*integer"),
        ({"schedule": {"name": "redundant", "pieces": 0}}, "schedule.pieces: .*1, got 0"),
        ({"schedule": {"name": "direct", "copies": 3}}, "copies is for the schedule redundant"),
        ({"schedule": "redundant", "quantiser": {"error_feedback": True}}, "error feedback"),
        ({"schedule": "redundant", "method": "lhc"}, "the scheme lhc"),
    ],
)
def test_wrong_options_are_refused(keys: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Config(**keys)


def test_a_schedule_that_does_not_fit_the_ranks_or_the_call_is_refused_by_all() -> None:
    for kind, given, text in [
        (TaskCommunicator, config(copies=5), "copies of 1 to 4, the ranks, got 5"),
        (TaskCommunicator, Config(nodes=NODES), "expected the schedule redundant, got network"),
        (Communicator, config(), "take oscar.reducers.tasks.TaskCommunicator"),
        (TaskCommunicator, config(method="fp32"), "lossless integer codec"),
    ]:
        for error in on_ranks(local_transports(NODES), lambda t, kind=kind, given=given: kind(given, t)):
            assert isinstance(error, ConfigError)
            assert text in str(error)


@pytest.mark.parametrize("transport", MAKERS)
def test_others_go_on_without_a_slow_rank_which_then_catches_up(transport: str, seed: int) -> None:
    """The slow rank computes nothing until the others are as far ahead as they may be."""
    steps, ahead = 8, 1 + AHEAD
    entered, gate = threading.Event(), threading.Event()
    finished = threading.Barrier(NODES - 1, action=gate.set)

    def work(transport: Transport) -> tuple[Bits, list[int]]:
        result, counts = [], []
        with TaskCommunicator(config(), transport) as communicator:
            for step in range(steps):

                def compute(task: int, step: int = step) -> list[np.ndarray]:
                    if step == 1 and transport.rank == SLOW:
                        entered.set()
                        assert gate.wait(60)
                    assert step != 1 or entered.wait(60)
                    return gradient(seed, step, task)

                reduced = communicator.allreduce_tasks(compute)
                result.append(bits_of(reduced.mean))
                counts.append(len(reduced.stats.tasks.computed))
                if transport.rank != SLOW and step == ahead:
                    finished.wait(60)
            communicator.drain()
        return result, counts

    ranks = on_ranks(MAKERS[transport](NODES), work)
    expected = in_one_process(seed, steps)
    assert [bits for bits, _ in ranks] == [expected] * NODES
    assert ranks[SLOW][1][1:ahead] == [1, *[0] * (ahead - 2)]  # it only follows the calls that it missed
    for step in range(1, ahead):
        assert sum(ranks[rank][1][step] for rank in range(SLOW)) >= TASKS


@pytest.mark.parametrize("codec", ["asc", "int16"])
def test_a_late_copy_is_drained_and_leaves_equal_tables(codec: str, seed: int) -> None:
    """In every other call the slow rank's part leaves only when the others have ended the call without it."""
    steps = 7
    ended = [threading.Event() for _ in range(steps)]

    def work(transport: Transport) -> tuple[Bits, int, dict[str, Any]]:
        result, drained, step = [], 0, 0
        if transport.rank == SLOW:
            cut_off(transport, lambda: step % 2 == 0 or ended[step].is_set())
        with TaskCommunicator(config(method=codec), transport) as communicator:
            for step in range(steps):
                reduced = communicator.allreduce_tasks(lambda task, step=step: gradient(seed, step, task))
                ended[step].set()
                result.append(bits_of(reduced.mean))
                drained += reduced.stats.tasks.drained
            communicator.drain()
            state = communicator.state_dict()["states"][0]["links"]
        return result, drained + communicator.copies.counts.drained, state

    ranks = on_ranks(local_transports(NODES), work)
    expected = in_one_process(seed, steps, method=codec)
    for bits, _, state in ranks:
        assert bits == expected
        np.testing.assert_equal(state, ranks[0][2])
    assert all(drained >= 2 for _, drained, _ in ranks[:SLOW])


@pytest.mark.filterwarnings("ignore:rank .* died:oscar.errors.CautionWarning")
@pytest.mark.parametrize("transport", MAKERS)
def test_a_death_between_any_two_messages_is_survived_and_reported(transport: str, seed: int) -> None:
    steps, draw = 9, random.Random(f"{seed} {transport}")
    victim, last = draw.randrange(NODES), draw.randrange(6, 3 * steps - 2)  # before it ends the last call
    naps = [draw.choice([0.0, 0.002]) for _ in range(NODES)]

    def work(transport: Transport) -> tuple[Bits, tuple[int, ...]]:
        if transport.rank == victim:
            die_at(transport, last)
        communicator, result = TaskCommunicator(config(), transport), []
        for step in range(steps):

            def compute(task: int, step: int = step) -> list[np.ndarray]:
                threading.Event().wait(naps[transport.rank])
                return gradient(seed, step, task)

            reduced = communicator.allreduce_tasks(compute)
            result.append(bits_of(reduced.mean))
        communicator.drain()
        return result, tuple(communicator.copies.dead)

    ranks = on_ranks(MAKERS[transport](NODES), work)
    expected = in_one_process(seed, steps)
    for rank, outcome in enumerate(ranks):
        assert isinstance(outcome, Died) if rank == victim else outcome == (expected, (victim,))


def test_a_death_that_leaves_no_copy_is_an_error_on_all_ranks(seed: int) -> None:
    def work(transport: Transport) -> None:
        communicator = TaskCommunicator(config(copies=1), transport, timeout_s=30)
        communicator.allreduce_tasks(lambda task: gradient(seed, 0, task))
        if transport.rank == 1:
            transport.close()
            raise Died
        communicator.allreduce_tasks(lambda task: gradient(seed, 1, task))

    for rank, error in enumerate(on_ranks(local_transports(NODES), work)):
        assert isinstance(error, Died if rank == 1 else PeerError)
        assert rank == 1 or (
            error.peer == 1 and "no copy of task 3 is left, as ranks 1 are dead" in str(error)
        )


def test_a_death_warns_once(seed: int) -> None:
    def work(transport: Transport) -> None:
        communicator = TaskCommunicator(config(), transport)
        for step in range(3):
            if transport.rank == 1 and step == 1:
                transport.close()
                return
            communicator.allreduce_tasks(lambda task, step=step: gradient(seed, step, task))
        communicator.drain()

    with pytest.warns(CautionWarning, match="rank 1 died; the others compute its tasks") as caught:
        assert on_ranks(local_transports(NODES), work) == [None] * NODES
    assert len(caught) == NODES - 1


def test_copies_that_differ_are_an_error(seed: int) -> None:
    """The slow rank's part, of another gradient, leaves only when the others have ended the call."""
    ended: list[int] = []

    def work(transport: Transport) -> None:
        step = 0
        if transport.rank == SLOW:
            cut_off(transport, lambda: step == 0 or len(ended) == NODES - 1)
        communicator = TaskCommunicator(config(), transport, timeout_s=30)
        for step in range(2):
            wrong = transport.rank == SLOW and step == 1
            communicator.allreduce_tasks(lambda task, s=seed + wrong, step=step: gradient(s, step, task))
        ended.append(transport.rank)
        communicator.drain()

    errors = on_ranks(local_transports(NODES), work)
    assert all(isinstance(error, PeerError) for error in errors[:SLOW])
    assert any("the copies of the part of rank 3 from ranks" in str(error) for error in errors)


def test_states_that_differ_are_an_error(seed: int) -> None:
    def work(transport: Transport) -> None:
        communicator = TaskCommunicator(config(), transport, timeout_s=30)
        communicator.allreduce_tasks(lambda task: gradient(seed, 0, task))
        communicator.drain()
        if transport.rank == 2:
            communicator.states[0].scheme.iteration += 1
        communicator.allreduce_tasks(lambda task: gradient(seed, 1, task))
        communicator.drain()

    errors = on_ranks(local_transports(NODES), work)
    assert all(isinstance(error, PeerError) for error in errors)
    assert any("another replicated state" in str(error) for error in errors)


def test_a_training_of_a_worker_equals_that_of_one_process() -> None:
    given = config(iterations=3, workload={"name": "numpy-digits", "options": {"hidden": 16, "batch": 4}})

    def work(transport: Transport) -> tuple[RankRun, Any]:
        run = RankRun(given, transport)
        run.run()
        return run, run.reports()

    run, logs = on_ranks(local_transports(NODES), work)[0]
    report = summarise(given, run, logs, check=3)
    assert report["ok"], report["wrong"]
    assert report["checked"] == 3


STRUCK = """
import os, signal, sys
from oscar.cli import main
from oscar.reducers.tasks import TaskCommunicator
reduce, calls = TaskCommunicator.allreduce_tasks, []
def struck(self, compute, **how):
    calls.append(0)
    if len(calls) == 3 and self.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return reduce(self, compute, **how)
TaskCommunicator.allreduce_tasks = struck
sys.exit(main(sys.argv[1:]))
"""


def test_processes_over_mpi_train_on_without_one_that_is_killed(tmp_path: Path) -> None:
    needs("mpi")
    given, report, script = tmp_path / "c.yaml", tmp_path / "report.json", tmp_path / "struck.py"
    given.write_text(
        "iterations: 6\nschedule: {name: redundant}\n"
        "workload: {name: numpy-digits, options: {hidden: 16, batch: 4}}\n"
    )
    script.write_text(STRUCK)
    program = [str(script), "worker", str(given), "--transport", "mpi", "--json", str(report)]
    ended = launch("mpi", 3, program, limit_s=120.0, token=str(given))
    assert ended.status == 0, ended.output
    assert not ended.orphans
    assert "rank 1 died; the others compute its tasks" in ended.output
    result = json.loads(report.read_text())
    assert (result["ok"], result["lost"], len(result["iterations"])) == (True, 1, 6)
