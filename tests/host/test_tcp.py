"""TCP connections between ranks: damage, and messages of all sizes, both ways at once, ahead of receives."""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from oscar.transports.base import TransportError
from oscar.transports.line import (
    DIRECT_BYTES,
    EARLY_BYTES,
    EARLY_COST,
    HELPED_BYTES,
    STAGE_BYTES,
    head_of,
)
from oscar.transports.tcp import Lines, TcpTransport, _end
from support.ranks import on_ranks

SIZES = [0, 1, 15, 16, DIRECT_BYTES - 1, DIRECT_BYTES, STAGE_BYTES - 16, STAGE_BYTES, HELPED_BYTES, 5_000_000]


@pytest.fixture
def ends() -> Iterator[list[Lines]]:
    both = [Lines({1 - rank: end}) for rank, end in enumerate(socket.socketpair())]
    yield both
    for end in both:
        end.close()


def post(lines: Lines, peer: int, tag: int, message: bytes) -> None:
    lines.send(peer, tag, (head_of(len(message), tag), message))


def until(happened: Callable[[], Any], *lines: Lines) -> Any:
    """Move bytes until `happened()` is not None and not False; return it."""
    stop = time.monotonic() + 20
    while (result := happened()) is None or result is False:
        assert time.monotonic() < stop
        for each in lines:
            each.pause(0.001)
    return result


def await_one(lines: Lines, peer: int, tag: int) -> memoryview:
    return until(lambda: lines.take(peer, tag), lines)


def test_messages_of_all_sizes_cross_at_once_and_computing_ranks_hold_up_nobody(
    ends: list[Lines], seed: int
) -> None:
    dice = random.Random(seed)
    sizes = [dice.choice(SIZES) for _ in range(40)]
    sent = [
        [(tag % 3, bytes([rank, tag]) * (size // 2)) for tag, size in enumerate(sizes)] for rank in (0, 1)
    ]

    def work(rank: int) -> None:
        end, peer = ends[rank], 1 - rank
        naps = random.Random(seed + rank)
        for tag, message in sent[rank]:
            post(end, peer, tag, message)
        for tag, message in sent[peer]:
            end.expect(peer, tag, len(message))
            time.sleep(naps.choice([0, 0, 0.003]))
            assert await_one(end, peer, tag) == message
        until(lambda: not end.unsent(), end)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
        assert not thread.is_alive()
    assert not any(end.unsent() for end in ends)


def test_a_large_message_moves_while_both_ranks_compute(ends: list[Lines]) -> None:
    one, two = ends
    two.expect(0, 7, 20_000_000)
    post(one, 1, 7, bytes(20_000_000))
    stop = time.monotonic() + 20
    while two.take(0, 7) is None:  # nobody pauses
        assert time.monotonic() < stop
        time.sleep(0.01)
    assert not one.unsent()


def test_what_is_held_leaves_with_the_next_message_or_when_the_rank_waits(ends: list[Lines]) -> None:
    sender, receiver = ends
    calls: list[int] = []
    line, push = sender.by_peer[1], sender.by_peer[1]._push
    line._push = lambda pieces: calls.append(len(pieces)) or push(pieces)  # type: ignore[method-assign,func-returns-value]
    sender.send(1, 3, (head_of(2, 3), b"ab"), held=True)
    assert sender.unsent() == [(1, 3)]
    assert not calls
    post(sender, 1, 4, b"cde")
    assert calls == [4]  # both messages in one call
    assert sender.unsent() == []
    sender.send(1, 3, (head_of(1, 3), b"f"), held=True)
    sender.pause()
    assert len(calls) == 2
    assert [bytes(await_one(receiver, 0, tag)) for tag in (3, 4, 3)] == [b"ab", b"cde", b"f"]


def test_a_look_without_a_pause_moves_what_is_there(ends: list[Lines]) -> None:
    sender, receiver = ends
    poll, waits = receiver._poll, list[float]()
    receiver._poll = SimpleNamespace(  # type: ignore[assignment]
        poll=lambda most_ms: waits.append(most_ms) or poll.poll(most_ms), modify=poll.modify
    )
    receiver.pause(0.0)
    assert waits == [0.0]
    post(sender, 1, 5, b"abc")
    stop = time.monotonic() + 20
    while (came := receiver.take(0, 5)) is None:
        assert time.monotonic() < stop
        receiver.pause(0.0)
    assert bytes(came) == b"abc"


def test_what_was_sent_before_an_end_still_arrives(ends: list[Lines]) -> None:
    one, two = ends
    post(one, 1, 5, b"last words")
    one.close()
    assert await_one(two, 0, 5) == b"last words"
    lose(two, 0)
    post(two, 0, 5, b"to nobody")
    assert not two.unsent()


@pytest.mark.parametrize("place", [0, 7, 8, 12, 15])
def test_a_damaged_head_ends_the_connection(ends: list[Lines], place: int) -> None:
    one, two = ends
    head = bytearray(head_of(3, 9))
    head[place] ^= 4
    two.send(0, 9, (head[:5],))
    one.pause()
    assert one.by_peer[1].lost is None
    two.send(0, 9, (head[5:], b"abc"))
    one.pause()
    assert "CRC-32 does not fit" in str(one.by_peer[1].lost)
    assert one.take(1, 9) is None


def lose(lines: Lines, peer: int) -> str:
    return str(until(lambda: lines.by_peer[peer].lost, lines))


@pytest.mark.parametrize("half", [False, True])
def test_after_damage_a_last_notice_leaves_but_never_within_a_message(ends: list[Lines], half: bool) -> None:
    one, two = ends
    if half:  # nobody reads it yet, so it cannot be sent whole meanwhile
        post(one, 1, 7, bytes(20_000_000))
        assert one.unsent()
    two.send(0, 9, (bytes(15) + b"!",))
    assert "CRC-32" in lose(one, 1)
    post(one, 1, 5, b"notice")
    if not half:
        assert await_one(two, 0, 5) == b"notice"
        return
    two.expect(0, 7, 20_000_000)
    assert "closed" in lose(two, 0)
    assert two.take(0, 5) is None
    assert two.take(0, 7) is None


def test_a_message_above_its_cap_gets_no_room(ends: list[Lines]) -> None:
    one, two = ends
    two.expect(0, 5, 10)
    post(one, 1, 5, bytes(10))
    assert await_one(two, 0, 5) == bytes(10)
    post(one, 1, 5, bytes(11))  # for a receive that may have a larger cap
    assert await_one(two, 0, 5) == bytes(11)
    two.expect(0, 5, 10)
    one.send(1, 5, (head_of(1 << 62, 5),))
    assert lose(two, 0) == f"it sent {1 << 62} bytes (tag 5), at most 10 fit"


HUGE = 1 << 26  # small enough for a machine on which a rank makes room for it by mistake


def test_a_head_that_nobody_awaits_takes_no_memory_and_costs_no_processor_time(ends: list[Lines]) -> None:
    one, two = ends
    tracemalloc.start()
    try:
        one.send(1, 5, (head_of(HUGE, 5), bytes(100)))
        until(lambda: two.by_peer[0].blocked, two)
        assert two.by_peer[0].blocked == (5, HUGE)
        assert two.by_peer[0].lost is None
        post(one, 1, 9, bytes(100))
        two.pause(0)
        assert two._poll.poll(0) == []  # nobody looks for what has no room
        assert tracemalloc.get_traced_memory()[1] < 2 * STAGE_BYTES
    finally:
        tracemalloc.stop()
    two.expect(0, 5, 10)
    assert "at most 10 fit" in str(two.by_peer[0].lost)


def test_messages_ahead_of_their_receives_wait_in_the_socket_and_arrive_in_order(
    ends: list[Lines], seed: int
) -> None:
    """A peer may be ahead by some calls; what it may fill here is bounded by what was awaited."""
    dice = random.Random(seed)
    sent = [(dice.randrange(4), os.urandom(dice.choice(SIZES) // 4)) for _ in range(60)]
    one, two = ends
    for tag, message in sent:
        post(one, 1, tag, message)
    largest = dict[int, int]()
    for tag, message in sent:
        for _ in range(dice.randrange(3)):
            one.pause(0)
            two.pause(0)
        waiting = [each for queue in two.by_peer[0].arrived.values() for each in queue]
        assert sum(len(body) for body, _ in waiting) <= sum(largest.values()) + EARLY_BYTES
        two.expect(0, tag, len(message))
        largest[tag] = max(len(message), largest.get(tag, 0))
        assert until(lambda tag=tag: two.take(0, tag), one, two) == message
    assert two.by_peer[0].blocked is None


def test_small_messages_that_nobody_awaits_are_few(ends: list[Lines]) -> None:
    one, two = ends
    line = two.by_peer[0]
    for tag in range(5000):
        post(one, 1, tag, b"")
    until(lambda: line.blocked, one, two)
    assert sum(map(len, line.arrived.values())) == EARLY_BYTES // EARLY_COST
    for tag in range(5000):  # none is lost
        two.expect(0, tag, 0)
        assert await_one(two, 0, tag) == b""
        one.pause(0)


def test_a_peer_that_goes_while_it_is_blocked_is_noticed(ends: list[Lines]) -> None:
    one, two = ends
    one.send(1, 5, (head_of(HUGE, 5),))
    until(lambda: two.by_peer[0].blocked, two)
    one.close()
    post(two, 0, 5, b"to nobody")
    assert lose(two, 0)


def test_a_wait_behind_a_message_that_nobody_awaits_ends_at_once() -> None:
    def work(end: Any) -> Any:
        transport = object.__new__(TcpTransport)
        transport._lines = Lines({1 - end[0]: end[1]})
        transport._begin(end[0], [0, 1])
        if end[0] == 1:
            transport.post_send(0, 7, b"early enough")
            transport._lines.send(0, 5, (head_of(HUGE, 5),))
            transport.post_send(0, 8, b"too late")
            transport.flush(time.monotonic() + 20)
        for tag in (7, 8) if end[0] == 0 else ():
            transport.post_recv(1, tag, 100)
            held.append(bytes(transport.wait(1, tag, time.monotonic() + 50)))
        return transport

    held = list[bytes]()
    error, _ = on_ranks([*enumerate(socket.socketpair())], work)
    assert held == [b"early enough"]
    assert isinstance(error, TransportError)
    assert str(error).startswith(
        f"expected a message of tag 8 from rank 1, got one of tag 5 and {HUGE} bytes"
    )


def test_a_collection_in_the_helper_may_close_its_lines(
    ends: list[Lines], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = ends
    closed = threading.Event()

    def pull() -> None:  # the collector runs at an allocation in here
        two.close()
        closed.set()

    monkeypatch.setattr(two.by_peer[0], "pull", pull)
    two.expect(0, 7, HELPED_BYTES)
    post(one, 1, 7, b"any")
    assert closed.wait(20)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # of Python 3.12
def test_a_child_that_ends_while_the_helper_held_the_lock_is_no_hang(ends: list[Lines]) -> None:
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with ends[0]._lock:
            held.set()
            go_on.wait(20)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(20)
    child = os.fork()
    if not child:
        signal.alarm(20)  # ends a child that hangs
        try:
            _end(ends[0], object())  # as weakref.finalize does
            ends[0].close()
            os._exit(0)
        finally:
            os._exit(2)
    go_on.set()
    holder.join()
    assert os.waitpid(child, 0)[1] == 0
