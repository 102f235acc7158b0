"""What every transport keeps: order, sizes, sums of a call, and no damaged, forged or oversized message."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from oscar.config import Config
from oscar.errors import PeerError
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.communicator import Communicator
from oscar.transports.base import EXCHANGE_TAG, GATHER_TAGS, STATE_TAG, Notice, Transport, TransportError
from oscar.transports.keyed import KeyedTransport
from oscar.transports.threads import local_transports
from support.methods import gradients
from support.ranks import on_ranks, tcp_transports

KEY = bytes(range(32))


def keyed(make: Callable[[int], list[Any]], pad: float) -> Callable[[int], list[Transport]]:
    """Return a maker of keyed transports over others."""

    def made(nodes: int) -> list[Transport]:
        return on_ranks(make(nodes), lambda end: KeyedTransport(end, KEY, pad=pad, timeout_s=20))

    return made


KINDS: dict[str, Callable[[int], list[Any]]] = {
    "threads": local_transports,
    "tcp": tcp_transports,
    "keyed threads": keyed(local_transports, 0),
    "keyed tcp": keyed(tcp_transports, 0),
    "padded tcp": keyed(tcp_transports, 10),
}
EVERY = pytest.mark.parametrize("kind", KINDS)
FRAME_TAG = 7


def receive(end: Transport, peer: int, tag: int, cap: int) -> memoryview:
    """Wait for one message."""
    end.post_recv(peer, tag, cap)
    return end.wait(peer, tag, time.monotonic() + 20)


@EVERY
def test_transport_keeps_the_order_of_a_tag(kind: str) -> None:
    """Of messages of all sizes, up to the last byte that was announced; other tags do not mix."""
    one, two = KINDS[kind](2)
    sizes = [0, 1, 15, 4096, 100_003, 1_000_000]
    sent = {tag: [os.urandom(size) for size in sizes] for tag in (FRAME_TAG, FRAME_TAG + 1)}

    def work(end: Transport) -> list[bytes]:
        if end is one:
            for pair in zip(*sent.values(), strict=True):
                for tag, message in zip(sent, pair, strict=True):
                    end.post_send(1, tag, message)
            end.flush(time.monotonic() + 20)
            return []
        return [
            bytes(receive(end, 0, tag, len(sent[tag][at])))
            for at in range(len(sizes))
            for tag in sorted(sent)
        ]

    expected = [sent[tag][at] for at in range(len(sizes)) for tag in sorted(sent)]
    assert on_ranks([one, two], work)[1] == expected


@EVERY
def test_transport_gathers_and_hands_over(kind: str) -> None:
    nodes, texts = 4, [b"", b"abc", b"\0" * 64, b"x"]

    def work(end: Transport) -> Any:
        deadline = time.monotonic() + 20
        end.meet(range(nodes))
        gathered = [end.gather(texts[end.rank], 64, deadline, "texts") for _ in range(3)]
        mine = [bytes([end.rank, to]) * to for to in range(nodes)]
        handed = end.hand_over(mine, [64] * nodes, deadline, "parts")
        with pytest.raises(ValueError, match="at most 64 bytes to gather, got 65"):
            end.gather(b"x" * 65, 64, deadline, "too much")
        return gathered, handed

    for rank, (gathered, handed) in enumerate(on_ranks(KINDS[kind](nodes), work)):
        assert gathered == [texts] * 3
        assert handed == [bytes([source, rank]) * rank for source in range(nodes)]


@EVERY
def test_transport_refuses_a_message_beyond_its_room(kind: str) -> None:
    def work(end: Transport) -> Any:
        if end.rank == 0:
            end.post_send(1, FRAME_TAG, bytes(3000))
            end.flush(time.monotonic() + 20)
            return None
        return receive(end, 0, FRAME_TAG, 200)

    error = on_ranks(KINDS[kind](2), work)[1]
    assert isinstance(error, (TransportError, ValueError))
    assert "fit" in str(error)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "first bit": lambda message: bytes([message[0] ^ 1]) + message[1:],
    "last bit": lambda message: message[:-1] + bytes([message[-1] ^ 128]),
    "cut": lambda message: message[:-1],
    "empty": lambda message: b"",
    "zeros": lambda message: bytes(len(message)),
}


@EVERY
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("tag", [GATHER_TAGS[0], EXCHANGE_TAG, STATE_TAG, FRAME_TAG])
def test_transport_tells_damage(kind: str, damage: str, tag: int) -> None:
    """Of frames under a key alone: without one they have a checksum of their own."""
    one, two = KINDS[kind](2)
    if tag == FRAME_TAG and not one.keyed:
        return
    inner = getattr(one, "inner", one)
    send = inner._send
    inner._send = lambda peer, tag, parts: send(peer, tag, (DAMAGES[damage](b"".join(parts)),))
    two.post_recv(0, tag, 100)
    one.post_send(1, tag, b"a message of some bytes")
    inner._send = send
    one.post_send(1, FRAME_TAG + 1, b"")  # takes along what was held back
    with pytest.raises(TransportError, match=r"from rank 0 (was damaged|is not authentic|is not padded)"):
        two.wait(0, tag, time.monotonic() + 20)


@EVERY
def test_transport_that_closes_says_so(kind: str) -> None:
    """To its own rank at once, to others after its last notice."""
    one, two = KINDS[kind](2)
    notice = Notice(rank=1, peer=0, step=3, chunk=2, reason="a bad frame")
    two.abort(notice)
    two.close()
    two.close()
    for call in (lambda: two.post_send(0, FRAME_TAG, b""), lambda: two.post_recv(0, FRAME_TAG, 9)):
        with pytest.raises(TransportError, match="closed"):
            call()
    with pytest.raises(TransportError, match="rank 1 gave up: a bad frame") as caught:
        one.wait(1, FRAME_TAG, time.monotonic() + 20)
    assert caught.value.notice == notice
    with pytest.raises(TransportError, match=r"rank 1 died"):
        one.wait(1, FRAME_TAG, time.monotonic() + 20)
    with pytest.raises(ValueError, match="expected ranks of 0 to 1 to meet, got 2"):
        one.meet([2])


@EVERY
@pytest.mark.parametrize("schedule", ["ring", "direct"])
def test_transport_carries_a_call(kind: str, schedule: str, seed: int) -> None:
    """With the bits and frames of one process; a rank that fails ends the call on all."""
    ends = KINDS[kind](3)
    how = {"security": "aes-gcm", "pad": ends[0].pad or "none"} if ends[0].keyed else {}
    changes = {"nodes": 3, "schedule": {"name": schedule, "subframes": 2}, "transport": how}
    config = Config.model_validate(changes)
    random, cluster = np.random.default_rng(seed), LocalCluster(config)
    calls = [gradients(random) for _ in range(3)]
    expected, all_have_them = [cluster.allreduce(given) for given in calls], threading.Barrier(3, timeout=30)

    def work(end: Transport) -> Any:
        with Communicator(config, end, timeout_s=20) as rank:
            results = [rank.allreduce(given[end.rank]) for given in calls]
            all_have_them.wait()  # else the notice ends a call that another rank is still in
            bad = [np.full(tensor.shape, np.nan, np.float32) for tensor in calls[0][1]]
            with pytest.raises((PeerError, ValueError), match=r"rank 1|node 1"):
                rank.allreduce(bad if end.rank == 1 else calls[0][end.rank])
            return results

    for rank, results in enumerate(on_ranks(ends, work)):
        assert not isinstance(results, BaseException), results
        for result, wanted in zip(results, expected, strict=True):
            assert [mean.tobytes() for mean in result.mean] == [mean.tobytes() for mean in wanted.mean]
            assert result.stats.frames == wanted.stats.frames.of_sender(rank)
