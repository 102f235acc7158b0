"""The ring schedule: every chunk reaches every node once, and every send has its receive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain, pairwise

import numpy as np
import pytest

from oscar.coding.registry import make_codec
from oscar.collective.actions import MAX_SUBFRAMES, SENDS, Action, Op, Phase
from oscar.collective.gather import BOOMERANG, DUPLEX, FORWARD, Gather
from oscar.collective.local import LocalRun
from oscar.collective.node import Layout, Node
from oscar.collective.ring import ring_actions

GATHERS = {"forward": FORWARD, "lossy": Gather(adopt=True), "boomerang": BOOMERANG, "duplex": DUPLEX}
cases = pytest.mark.parametrize(
    ("gather", "nodes", "subs"),
    [(g, n, k) for g in GATHERS for n in range(1, 10) for k in range(1, 5)],
)


def schedule(gather: str, nodes: int, subs: int) -> list[list[Action]]:
    return [list(ring_actions(rank, nodes, subframes=subs, gather=GATHERS[gather])) for rank in range(nodes)]


def run(actions: list[list[Action]], perform) -> None:
    """Let every rank act until it waits, in turns; `perform(rank, action)` returns whether it could."""
    at = [0] * len(actions)
    moved = True
    while moved:
        moved = False
        for rank, mine in enumerate(actions):
            while at[rank] < len(mine) and perform(rank, mine[at[rank]]):
                at[rank] += 1
                moved = True
    assert at == [len(mine) for mine in actions], "somebody waits for ever"


@cases
def test_every_send_has_its_receive_posted_before_anything_is_sent(gather, nodes, subs):
    actions = schedule(gather, nodes, subs)
    posted, sent, awaited = Counter(), Counter(), Counter()

    def frame(sender: int, receiver: int, a: Action) -> tuple[int, ...]:
        return sender, receiver, a.tag, a.phase, a.step, a.chunk, a.sub, a.source, a.table, a.terms

    for rank, mine in enumerate(actions):
        ops = [a.op for a in mine]
        assert Op.POST_RECV not in ops[ops.count(Op.POST_RECV) :]
        for a in mine:
            if a.op is Op.POST_RECV:
                posted[frame(a.peer, rank, a)] += 1
            elif a.op is Op.WAIT:
                awaited[frame(a.peer, rank, a)] += 1
            elif a.op in SENDS:
                sent[frame(rank, a.peer, a)] += 1
    assert posted == sent == awaited
    assert set(sent.values()) <= {1}
    assert len({key[:3] for key in sent}) == len(sent) == 2 * nodes * (nodes - 1) * subs


@cases
def test_every_chunk_reaches_every_node_exactly_once(gather, nodes, subs):
    """A symbolic AllReduce: a value counts the nodes whose terms it holds."""
    chunks = [(c, k) for c in range(nodes) for k in range(subs)]
    prefix = [{key: Counter([rank]) for key in chunks} for rank in range(nodes)]
    suffix = [{key: Counter() for key in chunks} for _ in range(nodes)]
    wires, received, coded = {}, {}, {}

    def summands(a: Action) -> Counter[int]:
        return Counter(rank for rank in range(nodes) if a.terms >> rank & 1)

    def perform(rank: int, a: Action) -> bool:
        key, slot = (a.chunk, a.sub), (rank, a.phase, a.step, a.sub)
        back = a.phase is Phase.ALL_GATHER and GATHERS[gather].boomerang
        if a.op is Op.ENCODE:
            coded[rank] = suffix[rank][key] + Counter([rank]) if back else prefix[rank][key].copy()
            assert coded[rank] == summands(a)
        elif a.op is Op.SEND:
            wires[rank, a.peer, a.tag] = coded[rank]
        elif a.op is Op.FORWARD:
            wires[rank, a.peer, a.tag] = received[rank, a.phase, a.step - 1, a.sub]
        elif a.op is Op.WAIT:
            if (a.peer, rank, a.tag) not in wires:
                return False
            received[slot] = wires.pop((a.peer, rank, a.tag))
            assert received[slot] == summands(a)
        elif a.op is Op.DECODE_ADD and back:
            assert not suffix[rank][key]
            suffix[rank][key] = received[slot]
        elif a.op is Op.DECODE_ADD:
            prefix[rank][key] = prefix[rank][key] + received[slot]
        elif a.op is Op.DECODE:
            prefix[rank][key] = received[slot]
        elif a.op is Op.ADOPT:
            prefix[rank][key] = coded[rank]
        return True

    run(schedule(gather, nodes, subs), perform)
    assert not wires
    everyone = Counter(range(nodes))
    for rank in range(nodes):
        assert all(prefix[rank][key] + suffix[rank][key] == everyone for key in chunks)


@cases
def test_what_a_frame_adds_was_lacking_and_nothing_lacks_in_the_end(gather, nodes, subs):
    everyone = (1 << nodes) - 1
    for rank, mine in enumerate(schedule(gather, nodes, subs)):
        held = {(c, k): 1 << rank for c in range(nodes) for k in range(subs)}
        for a in mine:
            if a.op is Op.DECODE_ADD:
                assert a.workers > 0
                assert not a.terms & held[a.chunk, a.sub]
                held[a.chunk, a.sub] |= a.terms
            elif a.op in (Op.DECODE, Op.ADOPT):
                assert a.terms == everyone
                held[a.chunk, a.sub] = a.terms
            elif a.op is Op.ENCODE:
                assert a.terms >> rank & 1
                assert not a.terms & ~held[a.chunk, a.sub]
        assert set(held.values()) == {everyone}


@cases
def test_a_table_codes_one_sum_and_its_source_is_who_coded_it(gather, nodes, subs):
    """Else a table would mix different sums, or a decoder would use another table than the encoder did."""
    actions = schedule(gather, nodes, subs)
    coded = {}
    for rank, mine in enumerate(actions):
        for a in (a for a in mine if a.op is Op.ENCODE):
            assert a.table == a.ring_step(nodes)
            assert (a.phase, rank, a.table, a.sub) not in coded
            coded[a.phase, rank, a.table, a.sub] = a.chunk, a.terms
    for a in chain(*actions):
        assert coded[a.phase, a.source, a.table, a.sub] == (a.chunk, a.terms)


@pytest.mark.parametrize("gather", GATHERS)
def test_a_frame_coded_is_sent_before_the_next_is_coded(gather):
    for mine in schedule(gather, 5, 3):
        for now, after in pairwise(mine):
            if now.op is Op.ENCODE:
                assert after.op is Op.SEND
                assert (after.phase, after.step, after.sub) == (now.phase, now.step, now.sub)


def test_tags_fit_16_bits_and_differ_up_to_256_nodes():
    tags = [
        Action(Op.SEND, phase, step, 0, sub).tag
        for phase in Phase
        for step in range(255)
        for sub in range(MAX_SUBFRAMES)
    ]
    assert len(set(tags)) == len(tags)
    assert max(tags) < 1 << 16


@pytest.mark.parametrize(("rank", "nodes", "subs"), [(0, 0, 1), (3, 3, 1), (-1, 3, 1), (0, 2, 0), (0, 2, 65)])
def test_what_is_no_ring_is_refused(rank, nodes, subs):
    with pytest.raises(ValueError, match="expected 0 <= rank < nodes"):
        next(ring_actions(rank, nodes, subframes=subs))


def test_what_is_no_gather_is_refused():
    with pytest.raises(ValueError, match="gather must be one of forward, boomerang, duplex, got 'both'"):
        Gather("both")
    for name in ("boomerang", "duplex"):
        with pytest.raises(ValueError, match=f"adopt: the {name} gather sends no final frames"):
            Gather(name, adopt=True)


def test_a_rank_refuses_frames_that_nobody_made_room_for():
    nodes = [Node(rank, 2, make_codec("asc"), apart=False, width=lambda workers: 16) for rank in range(2)]
    sender, receiver = LocalRun(nodes, [[], []], steps=1, subframes=1).ranks
    with pytest.raises(ValueError, match="no receive was posted"):
        sender.post_send(1, 5, b"abc")
    receiver.post_recv(0, 5, 2)
    with pytest.raises(ValueError, match=r"rank 0 sent 3 bytes to rank 1 .* at most 2 bytes fit"):
        sender.post_send(1, 5, b"abc")
    sender.post_send(1, 5, b"ab")


def direct_actions(rank: int, nodes: int) -> Iterator[Action]:
    """Every rank pushes each chunk straight to its owner, who sends the sum's one frame to all."""
    scatter, gather, every = Phase.REDUCE_SCATTER, Phase.ALL_GATHER, (1 << nodes) - 1
    others = [(rank + 1 + step) % nodes for step in range(nodes - 1)]
    for step, peer in enumerate(others):
        yield Action(Op.POST_RECV, scatter, nodes - 2 - step, rank, 0, peer, peer, 0, 1 << peer)
        yield Action(Op.POST_RECV, gather, nodes - 2 - step, peer, 0, peer, peer, 1, every)
    for step, peer in enumerate(others):
        yield Action(Op.ENCODE, scatter, step, peer, 0, peer, rank, 0, 1 << rank)
        yield Action(Op.SEND, scatter, step, peer, 0, peer, rank, 0, 1 << rank)
    for step, peer in enumerate(others):
        yield Action(Op.WAIT, scatter, nodes - 2 - step, rank, 0, peer, peer, 0, 1 << peer)
        yield Action(Op.DECODE_ADD, scatter, nodes - 2 - step, rank, 0, peer, peer, 0, 1 << peer)
    yield Action(Op.ENCODE, gather, 0, rank, 0, -1, rank, 1, every)
    for step, peer in enumerate(others):
        yield Action(Op.SEND, gather, step, rank, 0, peer, rank, 1, every)
    for step, peer in enumerate(others):
        yield Action(Op.WAIT, gather, nodes - 2 - step, peer, 0, peer, peer, 1, every)
        yield Action(Op.DECODE, gather, nodes - 2 - step, peer, 0, peer, peer, 1, every)


@pytest.mark.parametrize("codec", ["int16", "asc"])
def test_nodes_perform_a_schedule_that_is_no_ring(codec: str) -> None:
    """Tables of one receiver's link tell nothing to another's: each has an encoder of its own."""
    chosen, random = make_codec(codec), np.random.default_rng(0)
    ranks = range(4)
    nodes = [Node(rank, 4, chosen, apart=False, width=lambda _: 16) for rank in ranks]
    for _ in range(3):
        values = [np.rint(random.laplace(0, 8, 8000)).astype(np.int32) for _ in ranks]
        for node, own in zip(nodes, values, strict=True):
            node.begin(own, np.zeros(8000, np.uint8), Layout((0, 2000, 4000, 6000, 8000), 1))
        LocalRun(nodes, [direct_actions(rank, 4) for rank in ranks], steps=3, subframes=1).run()
        assert all(np.array_equal(node.result(), np.sum(values, axis=0)) for node in nodes)


@pytest.mark.parametrize("gather", [FORWARD, BOOMERANG, DUPLEX], ids=lambda gather: gather.name)
@pytest.mark.parametrize("codec", ["int16", "zstd", "asc"])
def test_sums_that_fit_int16_may_be_kept_as_int16(codec: str, gather: Gather, seed: int) -> None:
    chosen, random = make_codec(codec), np.random.default_rng(seed)
    count, bounds = 13_000, (0, 4200, 9000, 13_000)
    kinds = {dtype: [Node(r, 3, chosen, apart=gather.boomerang, width=lambda _: 16) for r in range(3)]
             for dtype in (np.int16, np.int32)}  # fmt: skip
    for _ in range(2):
        values = random.integers(-9000, 9000, (3, count))
        for dtype, nodes in kinds.items():
            for node, own in zip(nodes, values, strict=True):
                node.begin(own.astype(dtype), np.zeros(count, np.uint8), Layout(bounds, 2))
            programs = [ring_actions(rank, 3, subframes=2, gather=gather) for rank in range(3)]
            LocalRun(nodes, programs, steps=4, subframes=2).run()
            assert all(node.result().dtype == dtype for node in nodes)
            assert all(np.array_equal(node.result(), values.sum(axis=0)) for node in nodes)
