"""Keyed frames: the same bits at 16 bytes a message, and what is not authentic is refused and named."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from oscar.config import Config
from oscar.errors import ConfigError, PeerError
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.communicator import Communicator
from oscar.transports.base import CONTROL_TAGS, GATHER_TAGS, Notice, TransportError
from oscar.transports.keyed import MAX_MESSAGES, TAG_BYTES, KeyedTransport, read_key, secured
from oscar.transports.threads import ThreadTransport, local_transports
from support.gradients import laplace
from support.ranks import on_ranks

KEY = bytes(range(32))
CONFIG = Config.model_validate({"schedule": {"subframes": 2}})


def gradients(nodes: int, iteration: int) -> list[list[np.ndarray]]:
    return [laplace(rank, iteration, [(30_000,)]) for rank in range(nodes)]


def reduce(transport: Any, key: bytes = KEY, timeout_s: float = 20) -> Any:
    keyed = KeyedTransport(transport, key, timeout_s=timeout_s)
    communicator = Communicator(CONFIG, keyed, timeout_s=20)
    return [communicator.allreduce(gradients(3, i)[transport.rank]) for i in range(3)]


class Spy(ThreadTransport):
    """Keeps what it sent, and may change or repeat it."""

    @staticmethod
    def change(number: int, frame: bytes) -> bytes:
        return frame

    def _send(self, peer: int, tag: int, parts: tuple[Any, ...]) -> None:
        kept = self.__dict__.setdefault("kept", [])
        if tag not in CONTROL_TAGS:
            kept.append((tag, b"".join(parts)))
            parts = (self.change(len(kept) - 1, b"".join(parts)),)
        super()._send(peer, tag, parts)


def spies(change: Callable[[int, bytes], bytes] | None = None, rank: int = 1) -> list[Spy]:
    ends = local_transports(3)
    for end in ends:
        end.__class__ = Spy
    if change is not None:
        ends[rank].change = change  # type: ignore[attr-defined]
    return ends  # type: ignore[return-value]


def test_sums_and_sizes_are_those_of_plain_frames() -> None:
    cluster, transports = LocalCluster(CONFIG), spies()
    expected = [cluster.allreduce(gradients(3, i)) for i in range(3)]
    for rank, results in enumerate(on_ranks(transports, reduce)):
        for came, result in zip(results, expected, strict=True):
            assert np.array_equal(came.sums, result.sums)
            assert came.stats.frames == result.stats.frames.of_sender(rank)
        frames = [frame for tag, frame in transports[rank].kept if tag < GATHER_TAGS[0]]
        sealed = sorted(len(frame) for frame in frames[-8:])
        plain = sorted(expected[2].stats.frames.of_sender(rank)["bytes"])
        assert sealed == [size + TAG_BYTES for size in plain]


def test_nothing_is_sent_twice_in_the_same_bits() -> None:
    first, second = spies(), spies()
    on_ranks(first, reduce)
    on_ranks(second, reduce)
    frames = [frame for end in (*first, *second) for _, frame in end.kept]
    crossing = 2 * 3  # a rank's part of the session crosses two links, and so does its greeting about the key
    assert len(frames) - len(set(frames)) == 2 * crossing


def test_a_frame_that_is_played_again_is_refused() -> None:
    kept: dict[int, bytes] = {}
    ends = spies()

    def again(number: int, frame: bytes) -> bytes:
        """Send the frames of the second call once more in the third."""
        kept[number] = frame
        tag = ends[1].kept[number][0]
        before = [n for n in range(number) if ends[1].kept[n][0] == tag]
        return kept[before[-1]] if len(before) == 2 and tag < 1000 else frame

    ends[1].change = again  # type: ignore[method-assign]
    errors = on_ranks(ends, reduce)
    assert all(isinstance(error, PeerError) for error in errors), errors
    assert "changed, cut short or sent before" in str(errors[2])


def test_frames_of_an_earlier_session_are_refused() -> None:
    def session(transport: Any) -> Any:
        keyed = KeyedTransport(transport, KEY, timeout_s=20)
        if transport.rank == 0:
            keyed.post_send(1, 7, b"pay 100")
            return None
        keyed.post_recv(0, 7, 64)
        return bytes(keyed.wait(0, 7, float("inf")))

    def two() -> list[Any]:
        ends = local_transports(2)
        for end in ends:
            end.__class__ = Spy
        return ends

    first, second = two(), two()
    assert on_ranks(first, session)[1] == b"pay 100"
    old = first[0].kept[-1][1]
    second[0].change = lambda number, frame: old if number == 2 else frame
    (_, error) = on_ranks(second, session)
    assert isinstance(error, TransportError)
    assert "message 0 of tag 7 from rank 0 is not authentic" in str(error)


def test_another_key_is_found_at_the_start_by_all_ranks_alike() -> None:
    errors = on_ranks(spies(), lambda t: reduce(t, KEY if t.rank != 1 else os.urandom(32)))
    assert all(isinstance(error, ConfigError) for error in errors), errors
    (text,) = {str(error) for error in errors}
    assert re.match('keys: rank 1 has check value = "[0-9a-f]{16}", rank 0 has "', text)
    assert text.endswith("; start all ranks with the same key and the same transport.pad")


def test_a_rank_without_a_key_is_named() -> None:
    def work(transport: Any) -> Any:
        return reduce(transport) if transport.rank else Communicator(CONFIG, transport, timeout_s=20)

    errors = on_ranks(spies(), work)
    assert isinstance(errors[0], ConfigError)
    assert all("rank 0 speaks without a key; set transport.security alike" in str(e) for e in errors[1:])


def keyed_pair() -> list[KeyedTransport]:
    return on_ranks(local_transports(2), lambda end: KeyedTransport(end, KEY, timeout_s=20))


def test_no_nonce_is_used_twice_under_one_key() -> None:
    """AES-GCM with a nonce used twice tells the sum of both messages, and how to forge others."""
    nonces = list[bytes]()

    def work(end: Any) -> None:
        keyed = KeyedTransport(end, KEY, timeout_s=50)
        cipher = keyed._aead

        def encrypt(nonce: bytes, message: Any, more: None) -> bytes:
            nonces.append(bytes(nonce))
            return bytes(cipher.encrypt(nonce, message, more))

        keyed._aead = SimpleNamespace(encrypt=encrypt, decrypt=cipher.decrypt)
        communicator = Communicator(CONFIG, keyed, timeout_s=50)
        for i in range(2):
            communicator.allreduce(gradients(3, i)[end.rank])
        keyed.meet(range(3))
        keyed.hand_over([b"alike"] * 3, [8] * 3, time.monotonic() + 50, "a message to each")

    assert on_ranks(local_transports(3), work) == [None] * 3
    assert len(nonces) > 50
    assert len({*nonces}) == len(nonces)


def test_a_message_on_another_tag_or_to_another_rank_is_refused() -> None:
    ends = on_ranks(local_transports(3), lambda end: KeyedTransport(end, KEY, timeout_s=20))
    inside = [end.inner for end in ends]
    (sealed,) = ends[0]._seal(1, 7, b"pay 100")
    for sender, receiver, tag in ((0, 1, 8), (0, 2, 7), (2, 1, 7)):
        ends[receiver].post_recv(sender, tag, 64)
        inside[sender].post_send(receiver, tag, bytes(sealed))
        with pytest.raises(
            TransportError, match=f"message 0 of tag {tag} from rank {sender} is not authentic"
        ):
            ends[receiver].wait(sender, tag, time.monotonic() + 20)


def test_a_session_ends_before_its_nonces_are_used_up() -> None:
    one, two = keyed_pair()
    one._sent[1, 7] = two._opened[0, 7] = MAX_MESSAGES - 1
    two.post_recv(0, 7, 64)
    one.post_send(1, 7, b"the last one")
    assert two.wait(0, 7, time.monotonic() + 20) == b"the last one"
    with pytest.raises(TransportError, match="the key of this session is used up; start again"):
        one.post_send(1, 7, b"one more")


def test_a_message_that_was_interrupted_uses_its_number_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next message, of other text, would have the nonce of one that may have left."""
    one, two = keyed_pair()
    send = one.inner._send

    def interrupted(peer: int, tag: int, parts: tuple[Any, ...]) -> None:
        send(peer, tag, parts)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(one.inner, "_send", interrupted)
        with pytest.raises(KeyboardInterrupt):
            one.post_send(1, 7, b"first")
    one.post_send(1, 7, b"second")
    came = []
    for _ in range(2):
        two.post_recv(0, 7, 10)
        came.append(bytes(two.wait(0, 7, time.monotonic() + 20)))
    assert came == [b"first", b"second"]


def test_a_rank_that_comes_late_hears_no_false_alarm() -> None:
    """Ranks that wait for a late one send signs of life in plain text; later it reads keyed text alone."""

    def work(transport: Any) -> Any:
        time.sleep(3 if transport.rank == 1 else 0)
        return reduce(transport, timeout_s=5)

    cluster, ranks = LocalCluster(CONFIG), on_ranks(spies(), work)
    for i in range(3):
        expected = cluster.allreduce(gradients(3, i))
        assert all(np.array_equal(results[i].sums, expected.sums) for results in ranks)


def test_what_a_neighbour_said_under_the_key_is_known_on_leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = keyed_pair()
    two.abort(Notice(rank=1, peer=-1, step=-1, chunk=-1, reason="enough" * 600))
    with pytest.raises(TransportError, match="rank 1 gave up: enough"):
        one.wait(1, 5, time.monotonic() + 20)
    left = []
    monkeypatch.setattr(one.inner, "leave", lambda status: left.append((status, one.inner.was_told)))
    one.leave(75)
    assert left == [(75, True)]


def test_plain_text_is_refused_where_keyed_frames_are_asked_for(tmp_path: Path) -> None:
    asks, place = Config.model_validate({"transport": {"security": "aes-gcm"}}), tmp_path / "key"
    place.write_text(KEY.hex())
    with pytest.raises(ConfigError, match=r"would send in plain text: make a keyed one .* with .*secured\("):
        Communicator(asks, local_transports(2)[0], timeout_s=20)
    made = on_ranks(
        local_transports(2), lambda end: Communicator(asks, secured(end, "aes-gcm", key=str(place)))
    )
    assert all(isinstance(communicator, Communicator) for communicator in made), made
    padded = Config.model_validate({"transport": {"security": "aes-gcm", "pad": 10}})
    for error in on_ranks(keyed_pair(), lambda end: Communicator(padded, end, timeout_s=20)):
        assert isinstance(error, ConfigError)
        assert "transport.pad is 10 per cent, the transport pads by 0: give" in str(error)


def test_a_key_that_nothing_would_use_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"a key is named, but transport\.security is none"):
        Config.model_validate({"transport": {"key": "a-file"}})


def test_keys_are_read_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("OSCAR_KEY", raising=False)
    with pytest.raises(ConfigError, match="openssl rand -hex 32"):
        read_key(None)
    monkeypatch.setenv("OSCAR_KEY", KEY.hex())
    assert read_key(None) == KEY
    place = tmp_path / "key"
    place.touch(0o600)
    place.write_text(KEY[::-1].hex() + "\n")
    assert read_key(str(place)) == KEY[::-1]
    assert not caplog.records
    place.chmod(0o644)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert read_key(str(place)) == KEY[::-1]
    assert not caplog.records
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert read_key(str(place)) == KEY[::-1]
    assert [record.getMessage() for record in caplog.records] == [
        f"{place}: others can read this key; chmod 600 it"
    ]
    for text in ("secret" * 10, KEY.hex()[2:], "ü"):
        place.write_text(text)
        with pytest.raises(ConfigError, match="key") as caught:
            read_key(str(place))
        assert text not in str(caught.value)
    with pytest.raises(ConfigError, match="looks like a key itself") as caught:
        read_key(KEY.hex())  # in the place of a path
    assert KEY.hex() not in str(caught.value)
    with pytest.raises(ValueError, match="a key of 32 bytes, got 31"):
        KeyedTransport(local_transports(2)[0], KEY[1:])
