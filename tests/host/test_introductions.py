"""The meeting of ranks at a store: who proves nothing is sent away, holds up nobody and takes little."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest

from oscar.errors import OscarError
from oscar.transports import introductions, proofs
from oscar.transports.introductions import Introductions, connect
from oscar.transports.proofs import PRIME, Exponent, called, calling
from support.ranks import on_ranks


class Store:
    """The part of torch's store that ranks meet over."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}

    def set(self, name: str, value: str) -> None:
        self.held[name] = value

    def get(self, name: str) -> bytes:
        return self.held[name].encode()

    def check(self, names: list[str]) -> bool:
        return self.held.keys() >= {*names}

    def wait(self, names: list[str], timeout: timedelta) -> None:
        stop = time.monotonic() + timeout.total_seconds()
        while not self.check(names):
            if time.monotonic() > stop:
                raise RuntimeError("wait timeout")
            time.sleep(0.001)


def test_strangers_are_sent_away_and_all_ranks_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    store, nodes = Store(), 5

    def stranger() -> None:
        store.wait(["at 0"], timedelta(seconds=20))
        port = json.loads(store.get("at 0"))["port"]
        for said in (b"", bytes(range(1, 21)), b"GET / HTTP/1.1\r\n\r\n", proofs.HELLO.pack(bytes(16), 7)):
            with socket.create_connection(("127.0.0.1", port)) as call:
                call.sendall(said)

    def work(rank: int) -> Any:
        if rank == nodes - 1:
            time.sleep(0.2)  # the stranger is first
        return connect(store, rank, nodes, time.monotonic() + 20)

    threading.Thread(target=stranger, daemon=True).start()
    found = on_ranks([*range(nodes)], work)
    for rank, mine in enumerate(found):
        assert mine.keys() == {*range(nodes)} - {rank}
        for peer, call in mine.items():
            call.sendall(bytes([rank, peer]))
    for rank, mine in enumerate(found):
        for peer, call in mine.items():
            assert call.recv(2) == bytes([peer, rank])
            call.close()


def test_a_place_taken_by_a_stranger_is_refused_and_the_error_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    store, heard = Store(), bytearray()
    with socket.create_server(("127.0.0.1", 0)) as thief:

        def listen() -> None:
            with suppress(OSError):
                while True:
                    call, _ = thief.accept()
                    with call:
                        call.sendall(bytes(48))
                        while came := call.recv(100):
                            heard.extend(came)

        threading.Thread(target=listen, daemon=True).start()
        card = {"addresses": ["127.0.0.1"], "port": thief.getsockname()[1], "public": Exponent().public}
        store.set("at 0", json.dumps(card))
        with pytest.raises(
            OscarError, match=r"rank 1 of 2 .* rank 0 .*127.0.0.1 port .*GLOO_SOCKET_IFNAME"
        ) as error:
            connect(store, 1, 2, time.monotonic() + 0.5)
    assert "another process answers" in str(error.value)
    assert heard


def test_a_rank_that_nobody_calls_says_who_is_missing() -> None:
    store = Store()
    store.set("at 1", json.dumps({"addresses": ["127.0.0.1"], "port": 9, "public": Exponent().public}))
    with pytest.raises(OscarError, match=r"rank 1 did not reach rank 0 of 2 .*GLOO_SOCKET_IFNAME"):
        connect(store, 0, 2, time.monotonic() + 0.2)


def test_a_rank_that_does_not_come_is_no_hang() -> None:
    with pytest.raises(RuntimeError, match="wait timeout"):
        connect(Store(), 0, 2, time.monotonic() + 0.2)


def meet(nodes: int, store: Store, late_s: float = 0.0) -> list[Any]:
    """Let ranks meet, all but rank 0 `late_s` later; return their connections, which are closed."""

    def work(rank: int) -> Any:
        if rank:
            store.wait(["at 0"], timedelta(seconds=20))
            time.sleep(late_s)
        return connect(store, rank, nodes, time.monotonic() + 30)

    results = on_ranks([*range(nodes)], work)
    for each in results:
        for call in each.values() if isinstance(each, dict) else ():
            call.close()
    return results


@contextmanager
def strangers(store: Store, count: int, words: bytes, *, every_s: float = 0.0) -> Iterator[None]:
    """Call rank 0 `count` times, say `words`, a byte after every `every_s`, and hang up at the end only."""
    calls, end = list[socket.socket](), threading.Event()

    def work() -> None:
        store.wait(["at 0"], timedelta(seconds=20))
        place = ("127.0.0.1", json.loads(store.get("at 0"))["port"])
        with suppress(OSError):  # rank 0 has met all and listens no more
            for _ in range(count):
                calls.append(socket.create_connection(place))
                calls[-1].sendall(b"" if every_s else words)
        for byte in words if every_s else b"":
            end.wait(every_s)
            for call in calls:
                with suppress(OSError):
                    call.send(bytes([byte]))

    caller = threading.Thread(target=work, daemon=True)
    caller.start()
    yield
    end.set()
    caller.join(20)
    for call in calls:
        call.close()


HELLO_OF_1 = proofs.HELLO.pack(bytes(16), 1)


@pytest.mark.parametrize(
    ("words", "every_s"),
    [(b"", 0.0), (HELLO_OF_1, 0.1), (HELLO_OF_1, 0.0), (HELLO_OF_1 + bytes(31), 0.0)],
    ids=["silent", "slow", "claims to be a rank", "and stops within its proof"],
)
def test_hundreds_of_callers_hold_up_nobody_and_take_few_connections(
    monkeypatch: pytest.MonkeyPatch, words: bytes, every_s: float
) -> None:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    for name in ("CALLER_S", "ANSWER_S", "CALL_S"):
        monkeypatch.setattr(introductions, name, 1e6)  # nobody is sent away for being slow
    most, accept = [0], Introductions._accept

    def counted(self: Introductions) -> None:
        accept(self)
        most[0] = max(most[0], len(self._talks))

    monkeypatch.setattr(Introductions, "_accept", counted)
    store = Store()
    with strangers(store, 400, words, every_s=every_s):
        results = meet(3, store, late_s=0.3)
    assert [{*each} for each in results] == [{1, 2}, {0, 2}, {0, 1}], results
    assert 20 < most[0] <= 2 * introductions.STRANGERS + 2


@pytest.mark.parametrize(
    ("words", "more"), [(b"", 0), (HELLO_OF_1, 1)], ids=["silent", "claims to be a rank"]
)
def test_the_oldest_of_too_many_callers_go(words: bytes, more: int) -> None:
    with introductions.listener() as ear:
        place = ("127.0.0.1", ear.getsockname()[1])
        most = introductions.STRANGERS + more
        with Introductions(ear, 0, [{}, {}], {1: bytes(32)}) as meeting:
            calls = list[socket.socket]()
            for _ in range(most + 5):
                calls.append(socket.create_connection(place))
                calls[-1].sendall(words)
            stop = time.monotonic() + 20
            while sum(map(call_ended, calls)) < 5:
                assert time.monotonic() < stop
                meeting._accept()
                for talk in [*meeting._talks]:
                    meeting._hear(talk)
            assert [call_ended(call) for call in calls] == [True] * 5 + [False] * most
            for call in calls:
                call.close()


def call_ended(call: socket.socket) -> bool:
    """Return whether the other end has hung up; what it said before is dropped."""
    call.setblocking(False)
    with suppress(BlockingIOError):
        while call.recv(100):
            continue
        return True
    return False


class Few(socket.socket):
    """A listener of a process with room for few connections."""

    room = 0

    def accept(self) -> tuple[socket.socket, Any]:
        self.taken = [each for each in self.__dict__.setdefault("taken", []) if each.fileno() >= 0]
        if len(self.taken) >= self.room:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        connection, place = super().accept()
        self.taken.append(connection)
        return connection, place


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> type[Few]:
    make = introductions.listener
    monkeypatch.setattr(introductions, "listener", lambda: Few(fileno=make().detach()))
    return Few


def test_with_few_file_descriptors_strangers_are_let_go(
    monkeypatch: pytest.MonkeyPatch, few: type[Few]
) -> None:
    monkeypatch.setattr(few, "room", 5)
    store = Store()
    with strangers(store, 100, b""):
        assert [{*each} for each in meet(2, store, late_s=0.2)] == [{1}, {0}]


def test_without_a_file_descriptor_all_ranks_say_so(monkeypatch: pytest.MonkeyPatch, few: type[Few]) -> None:
    monkeypatch.setattr(introductions, "NEWS_S", 0.1)
    monkeypatch.setattr(few, "room", 0)
    errors = meet(2, Store())
    assert all(isinstance(error, OscarError) for error in errors), errors
    text = str(errors[0])
    assert text.startswith(
        "rank 0 of 2 needs 1 connections and has no room for one more (Too many open files)"
    )
    assert "ulimit -n" in text
    assert str(errors[1]) == f"rank 0 gave up: {text}"


def test_a_rank_that_cannot_even_listen_tells_those_that_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    make = introductions.listener

    def listener() -> socket.socket:
        if threading.current_thread() in first:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return make()

    first, store = list[threading.Thread](), Store()
    monkeypatch.setattr(introductions, "listener", listener)

    def work(rank: int) -> Any:
        if rank == 0:
            first.append(threading.current_thread())
        return connect(store, rank, 3, time.monotonic() + 30)

    for error in on_ranks([0, 1, 2], work):
        assert isinstance(error, OscarError), error
        assert "raise its limit of" in str(error)


def test_a_caller_that_proves_nothing_in_its_time_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(introductions, "CALLER_S", 0.05)
    monkeypatch.setattr(introductions, "NEWS_S", 0.05)
    store = Store()

    def work(rank: int) -> Any:
        if rank:
            store.wait(["at 0"], timedelta(seconds=20))
            store.set("at 1", json.dumps(json.loads(store.get("at 0")) | {"public": Exponent().public}))
            with socket.create_connection(("127.0.0.1", json.loads(store.get("at 0"))["port"]), 20) as call:
                call.sendall(HELLO_OF_1[:9])
                heard = call.recv(1)
            store.set(introductions.GAVE_UP, json.dumps([1, "enough"]))
            return heard
        return connect(store, 0, 2, time.monotonic() + 50)

    error, heard = on_ranks([0, 1], work)
    assert heard == b""
    assert str(error) == "rank 1 gave up: enough"


def test_no_secret_is_in_the_store_or_on_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, keys, said = list[bytes](), list[bytes](), list[bytes]()
    bits, digest, go_on = proofs.secrets.randbits, proofs.hmac.digest, introductions.Talk.go_on

    def recorded(count: int) -> int:
        number = bits(count)
        drawn.append(number.to_bytes(count // 8, "big"))
        return number

    def keyed(key: bytes, text: bytes, how: str) -> bytes:
        keys.append(key)
        return digest(key, text, how)

    class Heard(socket.socket):
        __slots__ = ()

        def send(self, words: bytes) -> int:  # type: ignore[override]
            said.append(words)
            return super().send(words)

    def heard(self: Any) -> Any:
        if not isinstance(self.socket, Heard):
            self.socket.__class__ = Heard
        return go_on(self)

    monkeypatch.setattr(proofs.secrets, "randbits", recorded)
    monkeypatch.setattr(
        proofs.secrets, "token_hex", lambda count: recorded(8 * count).to_bytes(count, "big").hex()
    )
    monkeypatch.setattr(proofs.hmac, "digest", keyed)
    monkeypatch.setattr(introductions.Talk, "go_on", heard)
    store = Store()
    assert [{*each} for each in meet(3, store)] == [{1, 2}, {0, 2}, {0, 1}]
    assert len(drawn) == 3
    assert len({*keys}) == 3  # one of each pair
    everything = " ".join(store.held.values()).encode() + b"".join(said) + b"".join(said).hex().encode()
    for secret in (*drawn, *keys):
        number = int.from_bytes(secret, "big")
        for form in (secret, secret.hex().encode(), str(number).encode(), f"{number:x}".encode()):
            assert form not in everything


def wrong_proofs(right: bytes, other: bytes, role: bytes) -> dict[str, Callable[[bytes, bytes], bytes]]:
    """Return proofs that must be refused, of the nonces and of what the other end said."""
    opposite = {b"caller": b"called", b"called": b"caller"}[role]
    return {
        "zeros": lambda nonces, heard: bytes(proofs.PROOF_BYTES),
        "noise": lambda nonces, heard: bytes(range(proofs.PROOF_BYTES)),
        "of another pair": lambda nonces, heard: proofs._proof(role, other, nonces),
        "of the other end": lambda nonces, heard: proofs._proof(opposite, right, nonces),
        "sent back": lambda nonces, heard: heard[-proofs.PROOF_BYTES :].ljust(proofs.PROOF_BYTES),
        "of an earlier nonce of the caller": lambda nonces, heard: proofs._proof(
            role, right, bytes(proofs.NONCE_BYTES) + nonces[proofs.NONCE_BYTES :]
        ),
        "of an earlier nonce of who is called": lambda nonces, heard: proofs._proof(
            role, right, nonces[: proofs.NONCE_BYTES] + bytes(proofs.NONCE_BYTES)
        ),
    }


def test_a_caller_is_taken_only_with_a_proof_of_the_rank_that_it_claims_to_be() -> None:
    zero, one, two = Exponent(), Exponent(), Exponent()
    keys = {1: zero.key(one.public), 2: zero.key(two.public)}

    def outcome(proof: Callable[[bytes, bytes], bytes]) -> tuple[bytes, int]:
        script, nonce = called(keys), bytes(range(proofs.NONCE_BYTES))
        assert next(script) == (b"", proofs.HELLO.size)
        answer, wanted = script.send(proofs.HELLO.pack(nonce, 1))
        assert wanted == proofs.PROOF_BYTES
        return script.send(proof(nonce + answer[: proofs.NONCE_BYTES], answer))

    right, other = one.key(zero.public), two.key(zero.public)
    assert outcome(lambda nonces, _: proofs._proof(b"caller", right, nonces)) == (proofs.DONE, 0)
    for name, proof in wrong_proofs(right, other, b"caller").items():
        with pytest.raises(ConnectionError, match="does not prove that it is rank 1"):
            raise AssertionError(name, outcome(proof))


def test_who_is_called_is_taken_only_with_a_proof_and_an_acknowledgement() -> None:
    zero, one, two = Exponent(), Exponent(), Exponent()
    right, other = zero.key(one.public), zero.key(two.public)

    def outcome(proof: Callable[[bytes, bytes], bytes], done: bytes = proofs.DONE) -> int:
        script, nonce = calling(one.key(zero.public), 0, 1), bytes(range(proofs.NONCE_BYTES))
        hello, wanted = next(script)
        assert wanted == proofs.NONCE_BYTES + proofs.PROOF_BYTES
        nonces = hello[: proofs.NONCE_BYTES] + nonce
        script.send(nonce + proof(nonces, hello))
        with pytest.raises(StopIteration) as end:
            script.send(done)
        return int(end.value.value)

    def prove(nonces: bytes, _: bytes) -> bytes:
        return proofs._proof(b"called", right, nonces)

    assert outcome(prove) == 0
    with pytest.raises(ConnectionError, match="no acknowledgement"):
        outcome(prove, b"?")
    for name, proof in wrong_proofs(right, other, b"called").items():
        with pytest.raises(ConnectionError, match="another process answers"):
            raise AssertionError(name, outcome(proof))


def test_the_group_is_that_of_a_safe_prime_and_other_values_are_refused() -> None:
    assert PRIME.bit_length() == 8 * proofs.PUBLIC_BYTES
    for number in (PRIME, PRIME // 2):  # Fermat's test: a wrong digit is found
        assert pow(3, number - 1, number) == 1
    one, two = Exponent(), Exponent()
    shared = pow(int(two.public, 16), one._exponent, PRIME)
    values = [*sorted([one.public, two.public]), shared.to_bytes(proofs.PUBLIC_BYTES, "big").hex()]
    text = proofs.CONTEXT + bytes.fromhex("".join(values))
    assert one.key(two.public) == two.key(one.public) == hashlib.sha256(text).digest()
    for value in (0, 1, PRIME - 1, PRIME, PRIME + 1):
        with pytest.raises(ValueError, match="expected a public value"):
            one.key(value.to_bytes(proofs.PUBLIC_BYTES, "big").hex())
    for text in ("", two.public[2:], two.public + "00", "z" * 2 * proofs.PUBLIC_BYTES):
        with pytest.raises(ValueError, match=r"expected a public value|hexadecimal"):
            one.key(text)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"port": 9, "public": "aa", "addresses": []}'])
def test_a_card_of_another_form_is_an_error_that_names_the_rank(text: str) -> None:
    store = Store()
    store.set("at 1", text)
    with pytest.raises(OscarError, match=r"rank 1 in the store"):
        connect(store, 0, 2, time.monotonic() + 20)
