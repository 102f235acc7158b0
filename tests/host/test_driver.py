"""A board's driver in the time model: by hand, and the same by one rank and by all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oscar.collective.ring import Duplex, Ring
from oscar.collective.schedule import Schedule
from oscar.collective.trees import Direct
from oscar.timeline.choose import choose
from oscar.timeline.clocks import Stage, Terms
from oscar.timeline.driver import Driver
from oscar.timeline.equal import assumed_frames, equal_time
from oscar.timeline.link import LinkModel, Pipeline
from oscar.timeline.replay import replay, time_of
from oscar_lab.rivals.by_frame import allreduce
from oscar_sim.seeds import dice

NOTHING = Stage(0.0, Terms(), Terms())  # a NIC that takes no time
DRIVER = Driver(command_s=3e-6, notice_s=1e-6, load_s=2e-9, read_s=5e-9)
FREE = LinkModel(1e18, 0.0, coder=Pipeline(NOTHING, NOTHING, 1e-30), driver=DRIVER)
BUSY = LinkModel.of(
    gbps=10,
    latency_us=3,
    coder=Pipeline(
        Stage(100.0, Terms(bound=1.5, once=300.0), Terms(bound=0.75, once=200.0)),
        Stage(200.0, Terms(bound=2.0, once=100.0), Terms(bound=1.0, once=150.0)),
        clock_s=4e-8,
        units=4,
        block=2048,
    ),
    driver=DRIVER,
)
BY_LIST = Driver(0.0, 0.0, 2e-9, 5e-9, ask_s=1e-6, armed_s=2e-5, end_s=3e-6, by_list=True)
LISTED = replace(BUSY, driver=BY_LIST)


@pytest.mark.parametrize("schedule", [Direct(2), Ring(2)])
def test_two_ranks_by_hand(schedule: Schedule) -> None:
    """Two chunks of 1,000 values: what each command waits for, in us, where all but the driver is free.

    Push: 2 to load it, 3 to give the command: 5. Add: the frame is noticed at 6; own values are there at 4;
    given at 9. Sum: noticed at 10, given at 13, and read until 15. Adopt: noticed at 14, given at 17. The
    host notices that at 18 and reads it until 23.
    """
    assert equal_time(schedule, 2000, FREE) * 1e6 == pytest.approx(23, abs=0.01)


def test_what_a_driver_takes_adds_up_where_one_thing_is_slow() -> None:
    """Of 4 ranks, direct: 3 pushes, 3 sums, 1 frame for all, 3 to adopt, 10 commands; 4 chunks to load."""

    def only(**slow: float) -> float:
        costs = dict.fromkeys(("command_s", "notice_s", "load_s", "read_s"), 0.0) | slow
        return equal_time(Direct(4), 4000, LinkModel(1e18, 0.0, coder=FREE.coder, driver=Driver(**costs)))

    assert only() * 1e6 == pytest.approx(0, abs=0.01)
    assert only(command_s=1e-6) * 1e6 == pytest.approx(10, abs=0.01)
    assert only(load_s=1e-9) * 1e6 == pytest.approx(4, abs=0.01)
    assert only(read_s=1e-9) * 1e6 == pytest.approx(
        4, abs=0.01
    )  # a chunk that was summed, three that were adopted
    assert only(notice_s=1e-6) * 1e6 == pytest.approx(4, abs=0.01)  # push came, was added; sum came, adopted


def test_commands_that_take_no_time_are_no_list() -> None:
    """They are given in the order of the actions; with a list, encoders and decoders do not wait for it."""

    def time_s(**change: object) -> float:
        return equal_time(Ring(4, 2), 80_000, replace(BUSY, driver=replace(DRIVER, **change)))

    assert time_s(command_s=0.0) == pytest.approx(time_s(command_s=1e-15))
    assert time_s(command_s=0.0, by_list=True) < 0.99 * time_s(command_s=0.0)


@pytest.mark.parametrize("ask_s", [0.0, 1e-6])
def test_sums_are_read_while_values_are_loaded(ask_s: float) -> None:
    """What is loaded last, a piece of each chunk, is read behind all loads, and no more; the list ends later.

    A driver that asks has asked in vain when the first sum comes. It asks again, and then while it reads.
    """
    driver = Driver(0.0, 0.0, 1e-7, 1e-7, ask_s, end_s=3e-6, by_list=True)
    for pieces in (1, 2, 4, 5):
        time_s = equal_time(Direct(2, pieces), 200, replace(FREE, driver=driver)) * 1e6
        assert time_s == pytest.approx(20 + max(3, 2e6 * ask_s + 20 / pieces), abs=0.01)


def test_one_rank_models_all_of_direct_and_ring_with_their_driver(seed: int) -> None:
    drawn = dice(f"driver {seed}")
    for _ in range(12):
        for kind in (Direct, Ring):
            schedule = kind(drawn.randrange(2, 9), drawn.randrange(1, 5))
            values = schedule.nodes * schedule.subframes * drawn.randrange(1, 9000)
            frames = assumed_frames(schedule, values, lambda terms: 1.2 + 0.3 * terms)
            whole = replay(schedule, frames, BUSY)
            how = {"bits": lambda terms: 1.2 + 0.3 * terms, "header_bytes": 24}
            assert equal_time(schedule, values, BUSY, **how) == whole.total_s, schedule
            by_list = replay(schedule, frames, LISTED)
            assert equal_time(schedule, values, LISTED, **how) == by_list.total_s, schedule


def test_what_has_no_driver_is_told() -> None:
    """A NIC's memory holds one sum of a value: a schedule that keeps two is not chosen, and has no driver."""
    assert choose([Duplex(8), Ring(8)], 10**6, BUSY) == "ring"
    frames, alone = assumed_frames(Duplex(3), 999), replace(BUSY, driver=None)
    for ask in (time_of, lambda *case: replay(*case).total_s):
        assert ask(Duplex(3), frames, BUSY) == ask(Duplex(3), frames, alone)
    with pytest.raises(ValueError, match="expected a link without a driver"):
        allreduce(Direct(3), assumed_frames(Direct(3), 999), BUSY)
    with pytest.raises(ValueError, match="expected a NIC"):
        LinkModel(driver=DRIVER)
