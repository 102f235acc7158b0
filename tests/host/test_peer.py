"""One rank over a transport: the bits of the in-process cluster, and the errors when a rank fails."""

from __future__ import annotations

import json
import re
import threading
import time
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest

from oscar.checkpoint import digest
from oscar.coding.registry import make_codec
from oscar.config import Config
from oscar.errors import ConfigError, PeerError, SaturationWarning
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.communicator import Communicator, PeerResult
from oscar.reducers.party import Party, greeting
from oscar.reducers.remote_wire import FIRST_ROOM, RemoteWire
from oscar.schemes.base import Message
from oscar.transports import handshake
from oscar.transports.base import (
    CONTROL_CAP,
    EXCHANGE_TAG,
    GATHER_TAGS,
    Notice,
    Transport,
    TransportError,
)
from oscar.transports.handshake import first_difference
from oscar.transports.threads import ThreadTransport, local_transports
from support.gradients import laplace
from support.ranks import on_ranks

NEVER_S = 90.0  # a deadline beyond that of `on_ranks`: a rank that waits for it hangs
SHAPES: list[tuple[int, ...]] = [(61, 43), (), (0,), (129,), (800,)]


def gradients(nodes: int, iteration: int = 0) -> list[list[np.ndarray]]:
    return [laplace(rank, iteration, SHAPES) for rank in range(nodes)]


def config(**changes: Any) -> Config:
    base = {"plan": {"name": "splitter", "granule": 64}, "quantiser": {"error_feedback": True}}
    return Config.model_validate(base | changes)


def test_ranks_compare_the_width_that_auto_means() -> None:
    codec = make_codec("asc")
    for nodes, bits in ((2, 12), (64, 10)):
        auto, given = (greeting(config(quantiser={"bits": width}), codec, nodes) for width in ("auto", bits))
        assert auto["quantiser.bits"] == bits
        assert auto == given


def test_keys_have_state_of_their_own_and_shapes_may_change() -> None:
    chosen = config()
    buckets, small = [LocalCluster(chosen) for _ in range(2)], [[np.ones(5, np.float32)]] * 3

    def work(transport: ThreadTransport) -> list[PeerResult]:
        rank, communicator = transport.rank, Communicator(chosen, transport, timeout_s=20)
        one = [communicator.allreduce(gradients(3, i)[rank], key="a") for i in range(2)]
        two = [communicator.allreduce(gradients(3, i)[rank], key="b") for i in (7, 8)]
        return [*one, *two, communicator.allreduce(small[rank], key="a")]

    ranks = on_ranks(local_transports(3), work)
    expected = [buckets[b].allreduce(gradients(3, i)) for b, i in ((0, 0), (0, 1), (1, 7), (1, 8))]
    expected.append(buckets[0].allreduce(small))
    for results in ranks:
        assert [r.sums.tobytes() for r in results] == [e.sums.tobytes() for e in expected]
        assert [r.stats.reset for r in results] == [False] * 4 + [True]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"quantiser": {"coarseness": 0.5}}, "rank 2 has quantiser.coarseness = 0.5, rank 0 has 0.125"),
        ({"seed": 3}, "rank 2 has seed = 3, rank 0 has 0"),
        ({"method": "int16"}, 'rank 2 has method = "int16", rank 0 has "asc"'),
    ],
)
def test_other_configurations_are_found_by_all_ranks(change: dict[str, Any], text: str) -> None:
    def work(transport: ThreadTransport) -> None:
        Communicator(config(**(change if transport.rank == 2 else {})), transport, timeout_s=20)

    for error in on_ranks(local_transports(4), work):
        assert isinstance(error, ConfigError)
        assert text in str(error)


def test_another_release_and_another_model_are_found_by_all_ranks() -> None:
    def release(transport: ThreadTransport) -> None:
        Communicator(config(), transport, extra={"oscar": "9.9"} if transport.rank == 1 else None)

    def model(transport: ThreadTransport) -> None:
        communicator = Communicator(config(), transport)
        communicator.allreduce([np.zeros(3 + (transport.rank == 1), np.float32)])

    for error in on_ranks(local_transports(3), release):
        assert 'rank 1 has oscar = "9.9"' in str(error)
    for error in on_ranks(local_transports(3), model):
        assert isinstance(error, ConfigError)
        assert "shapes: rank 1 has tensor 0 = [4], rank 0 has [3]; run one model" in str(error)
    for other in (b"[" * 5000, b'{"a": 1}', b'{"group": [0, 1], "process": 1, "pairs": []}'):
        nested = handshake.MAGIC + zlib.compress(other)
        assert first_difference([{"a": 1}, handshake._unpack(nested)]) == (
            "rank 1 sent a greeting of another format"
        )
    assert first_difference([{"a": 1}, {"a": 1, "b": 2}]) == "rank 1 has b = 2, rank 0 has nothing"


def test_greetings_that_grow_when_unpacked_take_the_memory_of_few() -> None:
    members = [0] * 10
    text = json.dumps({"group": members, "process": 0, "pairs": {"a": ["?"]}}).replace(
        '"?"', "[]," * 5000 + "0"
    )
    texts = text.encode(), text[:-3].encode(), bytes(64 << 20)
    whole, cut, bomb = (handshake.MAGIC + zlib.compress(each) for each in texts)
    mine = handshake._pack({"a": 1}, members, 0)
    for last, most in ((cut, 1.5e6), (bomb, 4e6)):  # all of the first would take 2.6 MB
        tracemalloc.start()
        try:
            line = Alike([mine, *[whole] * 8, last])
            with pytest.raises(ConfigError, match="rank 9 sent a greeting of another format"):
                handshake.compare(line, {"a": 1}, 0.0, "handshake", advice="")
            assert tracemalloc.get_traced_memory()[1] < most
        finally:
            tracemalloc.stop()
    pairs = {"long": "x" * (2 * handshake.MAX_TEXT)}  # packed, it fits; unpacked, it does not
    for changed in (pairs, {"long": "y" + "x" * (2 * handshake.MAX_TEXT - 1)}):
        ends = local_transports(2)
        results = on_ranks(
            ends,
            lambda end, other=changed: handshake.compare(
                end, other if end.rank else pairs, time.monotonic() + 20, "handshake", advice="run one"
            ),
        )
        if changed is pairs:
            assert results == [None, None]
        else:
            assert all("rank 1 has greeting = " in str(error) for error in results), results


class Alike(Transport):
    """A rank of one process that hears the messages that it was given."""

    rank, members = 0, (0,) * 10
    _make_room = _send = _arrived = _unsent = _pause = close = None  # type: ignore[assignment]

    def __init__(self, messages: list[bytes]) -> None:
        self.messages = messages

    def gather(self, mine: bytes, cap: int, deadline: float, what: str) -> list[bytes]:
        assert len(mine) <= cap
        return self.messages

    def part(self, deadline: float) -> None:
        return


@pytest.mark.parametrize(("op", "parts"), [("gather", ()), ("exchange", (5, 5))])
def test_a_length_that_no_rank_can_have_makes_no_room(op: Any, parts: tuple[int, ...]) -> None:
    posted = list[int]()

    def work(transport: ThreadTransport) -> Any:
        wire, room = RemoteWire(Party(transport, 20.0), {}), transport._make_room
        transport._make_room = lambda *where: posted.append(where[-1]) or room(*where)  # type: ignore
        wire.values = 1000
        gather = wire._gather_bytes
        if transport.rank == 1:
            huge = (12 << 30).to_bytes(8, "little")
            wire._gather_bytes = lambda mine, cap: gather(  # type: ignore[method-assign]
                huge + bytes(FIRST_ROOM) if op == "gather" else huge + huge, cap
            )
        return wire.combine([Message("x", np.zeros(10, np.uint8), op, 8, parts=parts)])

    for error in on_ranks(local_transports(2), work):
        assert isinstance(error, PeerError), error
        assert f"rank 1 announced {12 << 30} bytes of 1000 values, expected 1064576 at most" in str(error)
    assert max(posted) < 1 << 20


@pytest.mark.parametrize(("op", "met", "sends"), [
    ("sum", False, 4), ("sum", True, 4), ("gather", False, 2), ("gather", True, 2), ("exchange", True, 4),
])  # fmt: skip
def test_wire_refuses_a_buffer_that_is_cut_short(op: Any, met: bool, sends: int) -> None:
    """Whichever of a rank's messages it is, and though its seal is right."""
    data = np.zeros(12, np.float32) if op == "sum" else np.zeros(12, np.uint8)
    message = Message("x", data, op, 32 if op == "sum" else 8, parts=(4, 4, 4) if op == "exchange" else ())
    for cut in range(sends):

        def work(transport: ThreadTransport, cut: int = cut) -> Any:
            wire, send, sent = RemoteWire(Party(transport, 20.0), {}), transport.post_send, []

            def shorter(peer: int, tag: int, frame: Any) -> None:
                if tag in (*GATHER_TAGS, EXCHANGE_TAG):
                    sent.append(tag)
                    frame = bytes(frame)[: -1 if len(sent) == cut + 1 else None]
                send(peer, tag, frame)

            transport.meet(range(3))
            wire._all_met = met
            if transport.rank == 1:
                transport.post_send = shorter  # type: ignore[method-assign]
            try:
                return wire.combine([message])
            finally:
                transport.close()  # others wait for it no longer

        errors = [error for error in on_ranks(local_transports(3), work) if isinstance(error, PeerError)]
        assert any(
            re.search(r"rank \d sent \d+ bytes, expected \d+: it is at another", str(e)) for e in errors
        )


def test_ranks_of_two_groups_that_got_connected_are_told_so() -> None:
    pairs = [local_transports(2), local_transports(2)]
    for transports, groups in zip(pairs, [((0, 2), (1, 3)), ((0, 2), (0, 5))], strict=True):
        for transport, group in zip(transports, groups, strict=True):
            transport.members = group
        zero, one = on_ranks(transports, lambda transport: Communicator(config(), transport, timeout_s=20))
        assert isinstance(zero, ConfigError)
        assert isinstance(one, ConfigError)
        expected = (
            f"expected process 2 of the group [0, 2] as rank 1, got process {groups[1][1]} of the group"
        )
        assert (
            f"handshake: {expected} {list(groups[1])}; make the transports of a group on all of its"
            in str(zero)
        )
        assert "got process 0 of the group [0, 2]" in str(one)


def test_a_gather_that_fails_is_told_to_all() -> None:
    def work(transport: ThreadTransport) -> Any:
        communicator = Communicator(config(), transport, timeout_s=NEVER_S)
        if transport.rank == 2:
            transport.close()
            return None
        with pytest.raises(PeerError) as caught:
            communicator.gather(b"x", 1)
        with pytest.raises(PeerError, match="failed before"):
            communicator.gather(b"x", 1)
        return caught.value.peer

    assert on_ranks(local_transports(5), work) == [2, 2, None, 2, 2]


def test_a_rank_in_another_call_is_named_with_what_it_waits_for() -> None:
    def work(transport: ThreadTransport) -> None:
        communicator = Communicator(config(), transport, timeout_s=5)
        communicator.allreduce([np.ones(50, np.float32)])
        if transport.rank:
            communicator.gather(b"x", 1)
        else:
            communicator.allreduce([np.ones(50, np.float32)])

    errors = on_ranks(local_transports(2), work)
    assert all(isinstance(error, PeerError) for error in errors)
    assert "it is alive, and itself waits for" in str(errors[0])


def test_a_rank_that_comes_after_the_deadline_raises_as_those_that_waited() -> None:
    """It has all frames that it needs; what the others cannot use is no result. The text names the option."""
    gone = threading.Event()

    def work(transport: ThreadTransport) -> tuple[PeerError, bool]:
        communicator = Communicator(config(schedule={"name": "direct"}), transport, timeout_s=3)
        communicator.allreduce([np.ones(50, np.float32)])
        before = digest(communicator.state_dict())
        if transport.rank == 0:
            assert gone.wait(20)
        try:
            communicator.allreduce([np.ones(50, np.float32)])
        except PeerError as error:
            return error, before == digest(communicator.state_dict())
        finally:
            gone.set()
        raise AssertionError("a call that other ranks gave up had a result")

    late, waited = on_ranks(local_transports(2), work)
    assert late[1] is waited[1] is True
    for error, _ in (late, waited):
        assert "the deadline is 3 s (transport.timeout_s)" in str(error)


LONE = {  # what one rank comes with alone, where the others have one tensor of 50 under the key a
    "other shape": ("a", [51], "tensor 0 of shape [51], here it is [50]"),
    "more tensors": ("a", [50, 7], "2 tensors, here there are 1; tensor 1 is [7], here it is missing"),
    "no tensors": ("a", [], "0 tensors, here there are 1; tensor 0 is missing, here it is [50]"),
    "new key": ("b", [50], "key b with 1 tensors, tensor 0 of shape [50], here it is key a"),
}


@pytest.mark.parametrize("method", ["asc", "fp32", "powersgd"])
@pytest.mark.parametrize("name", LONE)
def test_shapes_that_are_new_on_one_rank_alone_are_told_by_all(name: str, method: str) -> None:
    key, sizes, said = LONE[name]

    def work(transport: ThreadTransport) -> PeerError:
        communicator = Communicator(config(method=method), transport, timeout_s=NEVER_S)
        for _ in range(2):
            communicator.allreduce([np.ones(50, np.float32)], key="a")
        before, alone = digest(communicator.state_dict()), transport.rank == 2
        given = [np.ones(size, np.float32) for size in (sizes if alone else [50])]
        with pytest.raises(PeerError) as caught:
            communicator.allreduce(given, key=key if alone else "a")
        assert digest(communicator.state_dict()) == before
        return caught.value

    for error in on_ranks(local_transports(4), work):
        assert f"rank 3: rank 2 came with other shapes than this rank: {said};" in str(error)
        assert error.peer == 2


def test_a_notice_fits_its_message_whatever_the_reason() -> None:
    for reason in ("x" * 9000, "\x00" * 9000, "Ω" * 9000):
        assert len(Notice(1, 2, 3, 4, reason).pack()) <= CONTROL_CAP


def test_a_warning_that_is_an_error_comes_when_the_call_has_happened_on_all_ranks() -> None:
    given = [[np.zeros(900, np.float32), np.ones(9, np.float32)] for _ in range(2)]
    given[1][0][5] = 30.0
    chosen = config(quantiser={"bits": 8})

    def work(transport: ThreadTransport) -> tuple[bool, PeerResult]:
        communicator, told = Communicator(chosen, transport, timeout_s=20), False
        try:
            communicator.allreduce(given[transport.rank])
        except SaturationWarning:
            communicator.notice.told = told = True
        return told, communicator.allreduce(given[transport.rank])

    cluster = LocalCluster(chosen)
    with pytest.warns(SaturationWarning):
        expected = [cluster.allreduce(given) for _ in range(2)][1]
    (first, one), (second, two) = on_ranks(local_transports(2), work)
    assert (first, second) == (False, True)
    for result in (one, two):
        assert result.stats.iteration == 1
        assert all(np.array_equal(a, b) for a, b in zip(result.mean, expected.mean, strict=True))


def test_no_rank_leaves_a_comparison_before_all_have_what_they_compare() -> None:
    class Line(Transport):
        """Two greetings differ; then the other rank has gone."""

        calls, rank, members = 0, 0, (0, 1)
        _make_room = _send = _arrived = _unsent = _pause = close = None  # type: ignore[assignment]

        def __init__(self) -> None:
            return

        def gather(self, mine: bytes, cap: int, deadline: float, what: str) -> list[bytes]:
            self.calls += 1
            if self.calls == 2:
                raise TransportError("rank 1 died", peer=1, kind="dead")
            return [mine, handshake._pack({"seed": 1}, self.members, 1)]

    line = Line()
    with pytest.raises(ConfigError, match="rank 1 has seed = 1, rank 0 has 0"):
        handshake.compare(line, {"seed": 0}, 0.0, "handshake", advice="")
    assert line.calls == 2
