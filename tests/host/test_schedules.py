"""Schedules: every chunk reaches every rank, each term once; what breaks a rule is refused by its place."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from random import Random
from typing import Any

import numpy as np
import pytest

from oscar.coding.registry import make_codec
from oscar.collective.actions import MAX_SLOTS, MAX_SUBFRAMES, SENDS, Action, Op, Phase
from oscar.collective.check import check, check_programs
from oscar.collective.exchange import ExchangeSchedule
from oscar.collective.local import LocalRun, add_up, association
from oscar.collective.node import ChunkLayout, Node
from oscar.collective.routes import Routed, Routes, Transfer
from oscar.collective.schedule import Schedule
from oscar.collective.schedule_file import FileSchedule
from oscar.collective.schedules import GROUPED, SCHEDULES, make_schedule
from oscar.collective.trees import Direct, Hierarchical, Star, Switch
from oscar.errors import ConfigError

PLACE = r"rank \d+, step \d+ of the (reduce-scatter|all-gather), chunk \d+"
Programs = list[list[Action]]


def every(nodes: int, subs: int, *, adopt: bool = False) -> list[Schedule]:
    """All schedules between so many ranks: every group of those that have some, and two roots of star."""
    found: list[Schedule] = []
    for name, kind in SCHEDULES.items():
        if kind in GROUPED:
            lossy = adopt and not kind.integers
            found += [kind(nodes, subs, lossy, group=group) for group in range(1, nodes + 1)]
        elif kind is Star:
            found += [Star(nodes, subs, adopt, root=root) for root in {0, nodes - 1}]
        else:
            found.append(make_schedule(name, nodes, subframes=subs, adopt=adopt))
    return found


def sends_of_a_chunk(schedule: Schedule) -> int:
    """N - 1 there and as many back; groups that exchange sums each send theirs to all others."""
    if isinstance(schedule, ExchangeSchedule):
        groups = len(schedule.groups)
        return 2 * (schedule.nodes - groups) + groups * (groups - 1)
    return 2 * (schedule.nodes - 1)


def programs(schedule: Schedule) -> Programs:
    return [list(schedule.actions(rank)) for rank in range(schedule.nodes)]


@pytest.mark.parametrize(("ranks", "slices"), [(1, 1), (2, 3), (4, 4), (8, 3)])
def test_slices_of_a_switch_add_and_are_no_terms(ranks: int, slices: int) -> None:
    for adopt, subs in ((False, 1), (True, 3)):
        schedule = make_schedule("switch", ranks, subframes=subs, adopt=adopt, slices=slices)
        check(schedule)
        assert schedule.nodes == ranks + slices
        assert schedule.most_terms == ranks
        every = programs(schedule)
        assert sum(a.op in SENDS for a in chain(*every)) == 2 * ranks * slices * subs
        assert not any(a.op is Op.ADOPT for a in chain(*every))
        sums = {a.terms for mine in every[ranks:] for a in mine if a.op is Op.SEND}
        assert sums == {(1 << ranks) - 1}
    short = [mine[:-1] if rank == ranks else mine for rank, mine in enumerate(every)]
    with pytest.raises(ConfigError, match="expected a frame from rank"):
        check_programs(schedule, short)


@pytest.mark.parametrize("subs", [1, 3])
@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5, 6, 9])
def test_every_schedule_keeps_the_rules(nodes: int, subs: int) -> None:
    for adopt in (False, True):
        for schedule in every(nodes, subs, adopt=adopt):
            check(schedule)
            sends = sum(a.op in SENDS for a in chain(*programs(schedule)))
            assert sends == sends_of_a_chunk(schedule) * schedule.chunks * subs
            for rank in range(nodes):
                assert all(rank in schedule.peers(peer) for peer in schedule.peers(rank))


def test_tags_of_256_ranks_stay_below_those_of_transports() -> None:
    assert MAX_SLOTS * MAX_SUBFRAMES == 32_640
    for name in ("ring", "duplex", "star"):
        actions = list(make_schedule(name, 256).actions(0))
        tags = [(a.peer, a.tag) for a in actions if a.op in SENDS]
        assert len(set(tags)) == len(tags)
        assert max(a.slot for a in actions) < MAX_SLOTS


def test_equal_schedules_have_equal_digests_and_others_do_not() -> None:
    schedules = [s for nodes in (3, 4) for subs in (1, 2) for s in every(nodes, subs)]
    assert len({s.digest for s in schedules}) == len(schedules)
    assert Direct(4, 2).digest == Direct(4, 2).digest
    assert Direct(4, 2).digest != Direct(4, 2, adopt=True).digest


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Direct(0), "expected 1 to 1024 nodes"),
        (lambda: Direct(2, 65), "1 to 64 subframes, got nodes=2, subframes=65"),
        (lambda: next(Direct(3).actions(3)), "expected a rank of 0 to 2, got 3"),
        (lambda: next(make_schedule("ring", 3).actions(-1)), "expected a rank of 0 to 2, got -1"),
        (lambda: Star(3, root=3), "expected a root of 0 to 2, got 3; set schedule.root to"),
        (lambda: make_schedule("hierarchical", 3, group=4), "1 to 3 ranks, got 4; set schedule.group to"),
        (lambda: make_schedule("exchange", 3, group=0), "1 to 3 ranks, got 0; set schedule.group to"),
        (lambda: ExchangeSchedule(3, group=4), "exchange: expected groups of 1 to 3 ranks, got 4"),
        (lambda: ExchangeSchedule(3, 1, True), "expected a lossless codec, got adopt"),
        (
            lambda: make_schedule("switch", 3, slices=0),
            "slices of 1 to 2, got 0; they are the last",
        ),
        (lambda: Switch(3, slices=3), "expected slices of 1 to 2, got 3"),
        (lambda: SCHEDULES["duplex"](3, 1, True), "sends no final frames; take the ring"),
        (lambda: make_schedule("both", 3), "schedule must be one of ring, .*, got 'both'"),
    ],
)
def test_what_is_no_schedule_is_refused(make: Callable[[], object], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make()


# ------------------------------------------------------------------------------------------ what is special


def test_direct_sends_one_workers_values_and_meets_no_other_frame_at_a_port() -> None:
    for step in range(6):
        sent = [
            [a for a in Direct(7).actions(rank) if a.op is Op.SEND and a.step == step and not a.phase]
            for rank in range(7)
        ]
        assert [[a.peer for a in mine] for mine in sent] == [[(rank + 1 + step) % 7] for rank in range(7)]
        assert all(a.terms == 1 << rank for rank, mine in enumerate(sent) for a in mine)


@pytest.mark.parametrize(("nodes", "group"), [(8, 4), (9, 3), (7, 3), (9, 2)])
def test_a_chunk_crosses_into_each_other_group_once(nodes: int, group: int) -> None:
    actions = programs(Hierarchical(nodes, group=group))
    for phase in Phase:
        crossing = [
            (a.chunk, (rank // group, a.peer // group)[phase])
            for rank, mine in enumerate(actions)
            for a in mine
            if a.op in SENDS and a.phase is phase and rank // group != a.peer // group
        ]
        assert len(set(crossing)) == len(crossing) == nodes * (-(-nodes // group) - 1)


@pytest.mark.parametrize(("nodes", "group"), [(8, 4), (9, 3), (7, 3), (9, 2)])
def test_groups_exchange_each_others_sums_and_nothing_else(nodes: int, group: int) -> None:
    schedule = ExchangeSchedule(nodes, group=group)
    for rank, mine in enumerate(programs(schedule)):
        crossing = [a for a in mine if a.op in SENDS and rank // group != a.peer // group]
        sums = [sum(1 << r for r in ranks) for ranks in schedule.groups if rank in ranks]
        assert {a.terms for a in crossing} == set(sums)
        assert not any(a.phase for a in crossing)


def test_duplex_takes_the_boomerangs_actions_in_turns_of_phases() -> None:
    actions = [a for a in make_schedule("duplex", 4, subframes=2).actions(1) if a.op is Op.ENCODE]
    assert [a.phase for a in actions] == [Phase.REDUCE_SCATTER, Phase.ALL_GATHER] * 6
    assert [a.step for a in actions] == [0] * 4 + [1] * 4 + [2] * 4
    for rank in range(4):
        boomerang, duplex = (set(make_schedule(n, 4).actions(rank)) for n in ("boomerang", "duplex"))
        assert boomerang == duplex


def test_sends_without_inputs_run_ahead_of_arrivals() -> None:
    ops = [a.op for a in Direct(4, 5).actions(0) if a.op is not Op.POST_RECV]
    first = ops[: ops.index(Op.WAIT)]
    assert len(first) == 2 * 3 * 5  # sub-frames to each of three, coded and sent
    assert first == [Op.ENCODE, Op.SEND] * (len(first) // 2)


def test_the_order_of_additions_is_that_of_the_owner() -> None:
    assert association(make_schedule("ring", 4))[0] == (3, (2, (1, 0)))
    assert association(Direct(4))[0] == (((0, 3), 2), 1)
    assert association(Hierarchical(4, group=2))[0] == ((0, 1), (2, 3))
    deep = association(make_schedule("ring", 256))[7]
    assert add_up(deep, list(range(256))) == 255 * 128
    for name in ("duplex", "exchange"):
        with pytest.raises(ValueError, match=f"got {name}: each rank adds its own way"):
            association(make_schedule(name, 3))


# ------------------------------------------------------------------------------------------------ corruptions


def pick(random: Random, mine: Programs, *ops: Op) -> tuple[int, int, Action]:
    """Return rank, place and action of one of these kinds."""
    found = [(r, i, a) for r, program in enumerate(mine) for i, a in enumerate(program) if a.op in ops]
    return random.choice(found)


def drop_a_send(random: Random, mine: Programs) -> None:
    rank, at, _ = pick(random, mine, *SENDS)
    del mine[rank][at]


def send_before_coding(random: Random, mine: Programs) -> None:
    rank, at, _ = pick(random, mine, Op.ENCODE)
    mine[rank][at : at + 2] = mine[rank][at : at + 2][::-1]


def swap_two_encodes(random: Random, mine: Programs) -> None:
    """Two sub-frames of a table trade places, and what follows them: decoders expect the first one first."""
    rank, at, first = pick(random, mine, Op.ENCODE)
    same = [i for i, a in enumerate(mine[rank]) if a.op is Op.ENCODE and a._replace(sub=first.sub) == first]
    one, other = (at, next(i for i in same if i != at))
    a, b = mine[rank][one], mine[rank][other]
    mine[rank] = [x._replace(sub={a.sub: b.sub, b.sub: a.sub}.get(x.sub, x.sub)) if i in (one, other) else x
                  for i, x in enumerate(mine[rank])]  # fmt: skip


def add_a_term_twice(random: Random, mine: Programs) -> None:
    """A rank sends what it has in the end to another, who has it all."""
    a, b = random.sample(range(len(mine)), 2)
    again = Action(
        Op.POST_RECV, Phase.REDUCE_SCATTER, 99, 0, 0, a, a, 99, (1 << len(mine)) - 1, MAX_SLOTS - 1
    )
    mine[b] = [again, *mine[b], again._replace(op=Op.WAIT), again._replace(op=Op.DECODE_ADD)]
    mine[a] += [again._replace(op=op, peer=b) for op in (Op.ENCODE, Op.SEND)]


def wrong_table(random: Random, mine: Programs) -> None:
    rank, at, action = pick(random, mine, Op.ENCODE, Op.SEND, Op.WAIT, Op.DECODE_ADD)
    mine[rank][at] = action._replace(table=action.table + 1)


def wrong_peer(random: Random, mine: Programs) -> None:
    rank, at, action = pick(random, mine, Op.POST_RECV, Op.WAIT, *SENDS)
    others = [peer for peer in range(len(mine)) if peer not in (rank, action.peer)]
    mine[rank][at] = action._replace(peer=random.choice(others))


def no_such_peer(random: Random, mine: Programs) -> None:
    rank, at, action = pick(random, mine, Op.POST_RECV, Op.WAIT, *SENDS)
    mine[rank][at] = action._replace(peer=random.choice([rank, -1, len(mine)]))


def missing_post(random: Random, mine: Programs) -> None:
    rank, at, _ = pick(random, mine, Op.POST_RECV)
    del mine[rank][at]


def late_post(random: Random, mine: Programs) -> None:
    rank, at, _ = pick(random, mine, Op.POST_RECV)
    mine[rank].append(mine[rank].pop(at))


def tag_collision(random: Random, mine: Programs) -> None:
    """A frame takes the slot of another on its link, at both ends."""
    rank, _, one = pick(random, mine, *SENDS)
    slots = {a.slot for a in mine[rank] if a.op in SENDS and a.peer == one.peer and a.slot != one.slot}
    other = random.choice(sorted(slots))
    for at, peer, ops in ((rank, one.peer, SENDS), (one.peer, rank, (Op.POST_RECV, Op.WAIT))):
        mine[at] = [
            a._replace(slot=other) if a.op in ops and (a.peer, a.slot) == (peer, one.slot) else a
            for a in mine[at]
        ]


def slot_too_large(random: Random, mine: Programs) -> None:
    rank, at, action = pick(random, mine, *SENDS)
    mine[rank][at] = action._replace(slot=MAX_SLOTS)


def deadlock(random: Random, mine: Programs) -> None:
    """All ranks wait before they send."""
    early = (Op.POST_RECV, Op.WAIT)
    for program in mine:
        program.sort(key=lambda a: early.index(a.op) if a.op in early else 2)


def wrong_terms(random: Random, mine: Programs) -> None:
    """A frame claims a term too few or too many, at both ends."""
    _, _, one = pick(random, mine, Op.ENCODE)
    bit = 1 << random.randrange(len(mine))
    for program in mine:
        program[:] = [
            a._replace(terms=a.terms ^ bit or bit << 1)
            if (a.phase, a.source, a.chunk, a.sub) == (one.phase, one.source, one.chunk, one.sub)
            else a
            for a in program
        ]


def missing_rank(random: Random, mine: Programs) -> None:
    mine[random.randrange(len(mine))] = []


def forget_to_add(random: Random, mine: Programs) -> None:
    rank, at, _ = pick(random, mine, Op.DECODE_ADD)
    del mine[rank][at]


def forget_the_final_frame(random: Random, mine: Programs) -> None:
    rank, at, _ = pick(random, mine, Op.DECODE)
    del mine[rank][at]


def decode_twice(random: Random, mine: Programs) -> None:
    rank, at, action = pick(random, mine, Op.DECODE_ADD, Op.DECODE)
    mine[rank].insert(at, action)


CORRUPTIONS = [
    drop_a_send, send_before_coding, swap_two_encodes, add_a_term_twice, wrong_table, wrong_peer,
    no_such_peer, missing_post, late_post, tag_collision, slot_too_large, deadlock, wrong_terms,
    missing_rank, forget_to_add, forget_the_final_frame, decode_twice,
]  # fmt: skip
FORWARD_ONLY = {add_a_term_twice, forget_the_final_frame}  # what only schedules with final frames have


@pytest.mark.parametrize("corrupt", CORRUPTIONS, ids=lambda corrupt: corrupt.__name__)
def test_a_corrupted_schedule_is_refused_with_its_place(corrupt: Callable[..., None], seed: int) -> None:
    random = Random(seed)
    for _ in range(20):
        schedule = random.choice(every(random.randint(3, 6), random.randint(2, 4)))
        mine = programs(schedule)
        while corrupt in FORWARD_ONLY and schedule.integers:
            schedule = random.choice(every(random.randint(3, 6), 2))
            mine = programs(schedule)
        if corrupt is tag_collision and isinstance(schedule, (Star, Hierarchical, ExchangeSchedule)):
            mine = programs(schedule := Direct(schedule.nodes, schedule.subframes))
        check_programs(schedule, mine)
        corrupt(random, mine)
        with pytest.raises(ConfigError, match=PLACE):
            check_programs(schedule, mine)


def given(owners: tuple[int, ...], reduce: str, gather: str, *, nodes: int = 3) -> Routed:
    """Return routes from words like "0:12": chunk 0 from rank 1 to rank 2."""
    rows = [[Transfer(int(w[0]), int(w[2]), int(w[3])) for w in text.split()] for text in (reduce, gather)]
    return FileSchedule(nodes, routes=Routes(nodes, owners, tuple(rows[0]), tuple(rows[1])))


@pytest.mark.parametrize(
    ("reduce", "gather", "match"),
    [
        ("0:10 0:20", "0:01 0:02", None),
        ("0:21 0:10", "0:01 0:12", None),
        (
            "0:10 0:21",
            "0:01 0:12",
            r"rank 1, step 0 of the reduce-scatter, chunk 0, .*terms of the sum, ranks 1, 2, got rank 1",
        ),
        ("0:10 0:20", "0:12 0:01", "chunk 0, sub-frame 0: expected a frame from rank 1, got none"),
        (
            "0:10 0:10",
            "0:01 0:02",
            r"rank 0, step 1 of the reduce-scatter, chunk 0.*each term once, got rank 1",
        ),
        ("0:12 0:21", "0:01 0:02", PLACE),
        ("0:10 0:20", "0:01 0:01", PLACE),
        (
            "0:10 0:20",
            "0:01",
            "rank 2, step 0 of the all-gather, chunk 0.*whole sum in the end, ranks 0, 1 are",
        ),
    ],
)
def test_routes_that_lead_elsewhere_are_refused(reduce: str, gather: str, match: str | None) -> None:
    if match is None:
        check(given((0,), reduce, gather))
    else:
        with pytest.raises(ConfigError, match=match):
            check(given((0,), reduce, gather))


# ------------------------------------------------------------------------------------------------------ nodes


def reduce(schedule: Schedule, nodes: list[Node], values: np.ndarray, bounds: tuple[int, ...]) -> LocalRun:
    """Reduce values[rank] on `nodes`."""
    for node, own in zip(nodes, values, strict=True):
        node.begin(own.copy(), np.zeros(own.size, np.uint8), ChunkLayout(bounds, schedule.subframes))
    run = LocalRun(nodes, programs(schedule))
    run.run()
    return run


def ranks(schedule: Schedule, codec: str, *, width: int = 16) -> list[Node]:
    chosen = make_codec(codec)
    return [Node(r, schedule.nodes, chosen, apart=schedule.apart, width=lambda _: width)
            for r in range(schedule.nodes)]  # fmt: skip


def cuts(random: np.random.Generator, chunks: int, count: int) -> tuple[int, ...]:
    """Return bounds of chunks, some of them empty or of one value."""
    inner = np.sort(
        random.choice([0, 1, count // 2, count // 2 + 1, *random.integers(0, count, 4)], chunks - 1)
    )
    return 0, *(int(cut) for cut in inner), count


@pytest.mark.parametrize("dtype", [np.int16, np.int32])
@pytest.mark.parametrize("codec", ["int16", "zstd", "asc"])
def test_nodes_add_up_exactly_whatever_the_schedule_and_the_cuts(codec: str, dtype: Any, seed: int) -> None:
    """In the dtype that they are given; links go on where they were."""
    random = np.random.default_rng(seed)
    for nodes in (2, 3, 5):
        for schedule in every(nodes, int(random.integers(1, 6))):
            mine = ranks(schedule, codec)
            for _ in range(2):
                values = np.rint(random.laplace(0, 8, (nodes, 6_000))).astype(dtype)
                run = reduce(schedule, mine, values, cuts(random, schedule.chunks, 6_000))
                assert all(node.result().dtype == dtype for node in mine)
                assert all(np.array_equal(node.result(), values.sum(axis=0, dtype=dtype)) for node in mine)
                frames = run.log.frames()
                assert frames.values == sends_of_a_chunk(schedule) * 6_000
                assert set(frames["phase"]) == {a.phase for a in chain(*programs(schedule))}


MIXED = "0:21 0:10 1:10 1:20 2:01 2:12"  # link 1 -> 0 carries one worker's values, and sums of two


def test_a_link_keeps_one_order_for_all_its_tables(seed: int) -> None:
    """New tables take over what those of fewer workers have learnt, so both ends must have learnt it."""
    routes = given((0, 0, 2), MIXED, "0:01 0:02 1:01 1:12 2:20 2:21").routes
    schedule, random = FileSchedule(3, 3, routes=routes), np.random.default_rng(seed)
    check(schedule)
    mine = ranks(schedule, "asc")
    for _ in range(2):
        values = np.rint(random.laplace(0, 8, (3, 40_000))).astype(np.int32)
        reduce(schedule, mine, values, (0, 13_000, 26_000, 40_000))
        assert all(np.array_equal(node.result(), values.sum(axis=0)) for node in mine)
    late = programs(schedule)
    pushes = [a for a in late[1] if a.op in (Op.ENCODE, Op.SEND) and (a.phase, a.chunk, a.sub) == (0, 1, 2)]
    late[1] = [a for a in late[1] if a not in pushes]
    last = max(at for at, a in enumerate(late[1]) if a.op is Op.SEND and not a.phase)
    late[1][last + 1 : last + 1] = pushes
    with pytest.raises(ConfigError, match="frames are decoded in the order in which they were coded"):
        check_programs(schedule, late)


@pytest.mark.parametrize("name", ["switch", *(name for name, kind in SCHEDULES.items() if not kind.integers)])
def test_floats_are_added_in_the_order_that_is_told(name: str, seed: int) -> None:
    random, schedule = np.random.default_rng(seed), make_schedule(name, 5, subframes=2)
    values = (random.standard_normal((5, 30_000)) * 10.0 ** random.integers(-6, 6, (5, 1))).astype(np.float32)
    values = np.vstack([values, np.zeros((schedule.nodes - 5, 30_000), np.float32)])  # of a slice
    bounds = cuts(random, schedule.chunks, 30_000)
    mine = ranks(schedule, "fp32", width=32)
    reduce(schedule, mine, values, bounds)
    for chunk, tree in enumerate(association(schedule)):
        span = slice(bounds[chunk], bounds[chunk + 1])
        assert all(np.array_equal(node.result()[span], add_up(tree, values[:, span])) for node in mine)


def test_a_rank_refuses_frames_that_nobody_made_room_for() -> None:
    sender, receiver = LocalRun(ranks(Direct(2), "asc"), [[], []]).ranks
    with pytest.raises(ValueError, match="no receive was posted"):
        sender.post_send(1, 5, b"abc")
    receiver.post_recv(0, 5, 2)
    with pytest.raises(ValueError, match=r"rank 0 sent 3 bytes to rank 1 .* at most 2 bytes fit"):
        sender.post_send(1, 5, b"abc")
    sender.post_send(1, 5, b"ab")
