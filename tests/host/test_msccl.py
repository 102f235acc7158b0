"""The XML that is exported does the same AllReduce: it is parsed and followed, with links that keep order."""

from __future__ import annotations

from collections import defaultdict
from typing import Any
from xml.etree import ElementTree

import pytest

from oscar.collective.msccl import to_msccl
from oscar.collective.schedule import Schedule
from oscar.collective.schedule_file import FileSchedule
from oscar.collective.schedules import SCHEDULES, make_schedule
from oscar.collective.trees import Direct, Hierarchical

NUMBERS = {"s", "srcoff", "dstoff", "cnt", "depid", "deps", "hasdep"}


def follow(xml: str) -> dict[int, list[int]]:
    """Return what each GPU holds in the end: for each chunk the GPUs it sums, as bits."""
    algo = ElementTree.fromstring(xml)
    assert (algo.get("coll"), algo.get("inplace"), algo.get("redop")) == ("allreduce", "1", "sum")
    chunks, ranks = int(algo.attrib["nchunksperloop"]), int(algo.attrib["ngpus"])
    held = {rank: [1 << rank] * chunks for rank in range(ranks)}
    wires: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    blocks: dict[tuple[int, int], tuple[Any, list[dict[str, Any]]]] = {}
    ends = set()
    for gpu in algo:
        assert gpu.get("i_chunks") == str(chunks)
        for number, tb in enumerate(gpu):
            assert tb.get("id") == str(number)
            rank, send, recv, chan = (
                int(gpu.attrib["id"]),
                *(int(tb.attrib[k]) for k in ("send", "recv", "chan")),
            )
            assert chan < int(algo.attrib["nchannels"])
            assert (rank, send, recv, chan) not in ends  # a channel has one block at each end of a link
            ends.add((rank, send, recv, chan))
            steps = [{k: int(v) if k in NUMBERS else v for k, v in step.attrib.items()} for step in tb]
            assert [step["s"] for step in steps] == list(range(len(steps)))
            assert steps[-1]["type"] != "nop"
            blocks[rank, number] = (send, recv, chan), steps
    done = dict.fromkeys(blocks, 0)
    moved = True
    while moved:
        moved = False
        for (rank, number), ((send, recv, chan), steps) in blocks.items():
            while done[rank, number] < len(steps):
                step = steps[done[rank, number]]
                if step["depid"] >= 0:
                    assert blocks[rank, step["depid"]][1][step["deps"]]["hasdep"] == 1
                    if done[rank, step["depid"]] <= step["deps"]:
                        break
                if step["type"] == "s":
                    wires[rank, send, chan].append(held[rank][step["srcoff"]])
                elif step["type"] in ("r", "rrc"):
                    if not wires[recv, rank, chan]:
                        break
                    came = wires[recv, rank, chan].pop(0)
                    if step["type"] == "rrc":
                        assert not came & held[rank][step["srcoff"]], "a term twice"
                        came |= held[rank][step["srcoff"]]
                    held[rank][step["dstoff"]] = came
                else:
                    assert step["type"] == "nop"
                done[rank, number] += 1
                moved = True
    assert all(done[key] == len(steps) for key, (_, steps) in blocks.items()), "somebody waits for ever"
    assert not any(wires.values())
    return held


@pytest.mark.parametrize("name", [name for name, kind in SCHEDULES.items() if not kind.integers])
@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 7, 8])
def test_what_is_exported_sums_every_chunk_on_every_rank(name: str, nodes: int) -> None:
    for subs in (1, 2, 5):
        schedule = make_schedule(name, nodes, subframes=subs)
        xml = to_msccl(schedule)
        assert xml == to_msccl(make_schedule(name, nodes, subframes=subs))
        held = follow(xml)
        assert held == {rank: [(1 << nodes) - 1] * schedule.chunks * subs for rank in range(nodes)}


@pytest.mark.parametrize("group", [1, 2, 3, 4, 6])
def test_groups_and_files_are_exported(group: int) -> None:
    schedule: Schedule = FileSchedule(6, routes=Hierarchical(6, group=group).routes, title='<mine> & "yours"')
    held = follow(to_msccl(schedule, '<mine> & "yours"'))
    assert held == {rank: [63] * 6 for rank in range(6)}


def test_a_step_that_depends_on_several_waits_for_each() -> None:
    """In direct, an owner's sum is final once all were added, in the order of the schedule."""
    algo = ElementTree.fromstring(to_msccl(Direct(4)))
    sends = [tb for tb in algo[0] if tb.get("chan") == "1" and tb.get("send") != "-1"]
    last = next(
        (tb.get("id"), step.get("s"))
        for tb in algo[0]
        for step in tb
        if step.get("type") == "rrc" and tb.get("recv") == "1"  # rank 1 sends to rank 0 last
    )
    assert [(tb[0].get("depid"), tb[0].get("deps")) for tb in sends] == [last] * 3


@pytest.mark.parametrize("name", ["boomerang", "duplex", "exchange"])
def test_what_is_for_integers_only_is_not_exported(name: str) -> None:
    with pytest.raises(ValueError, match=f"got {name}: its ranks add in different orders.*take ring"):
        to_msccl(make_schedule(name, 4))
