"""The meeting of ranks at a store: each calls those below it and is called by those above, all at once.

Strangers may call, too, in any number and at any speed. They hold up nobody, and take a bounded number of
connections: one too many ends the oldest of its kind, so the next rank that calls gets through.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import selectors
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from oscar.errors import OscarError
from oscar.transports import proofs

DEVICES = "GLOO_SOCKET_IFNAME"  # the variable that names the network device, as for Gloo
MASTER = "MASTER_ADDR"  # torchrun's variable
BACKLOG = 512  # calls that the kernel keeps until this rank takes them
SIOCGIFADDR = 0x8915
CALL_S = 5.0  # seconds to reach an address
CALLER_S = 5.0  # seconds for a caller to prove who it is
ANSWER_S = 30.0  # seconds for one that was called: it may still read the store
AGAIN_S = 0.05  # pause before all addresses of a rank are tried again
TICK_S = 0.05  # longest sleep
STRANGERS = (
    64  # at most, callers that have said nothing, and callers beside the ranks that have proved nothing
)
FILES_FOR_STRANGERS = 8  # of this process's limit of open files, they may take one in so many
ACCEPTED = 16  # calls that are taken before others are heard
NEWS_S = 1.0  # between two looks for a rank that gave up
GAVE_UP = "gave up"  # name in the store
SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def listener() -> socket.socket:
    """Return a socket that listens at a free port of all addresses."""
    with suppress(OSError):
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG)
    return socket.create_server(("", 0), backlog=BACKLOG)


def addresses() -> list[str]:
    """Return addresses under which peers may reach this rank, the likeliest first."""
    named = [address for name in os.environ.get(DEVICES, "").split(",") if (address := _of_device(name))]
    if not named:
        with suppress(OSError, KeyError):  # of the device on the way to the rank that all ranks reach
            info = socket.getaddrinfo(os.environ[MASTER], 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(info[0], socket.SOCK_DGRAM) as probe:
                probe.connect(info[4])  # sends nothing
                named.append(probe.getsockname()[0])
        with suppress(OSError):
            named.append(socket.gethostbyname(socket.gethostname()))
        named.append("127.0.0.1")
    return [*dict.fromkeys(named)]


def resolved(name: str | None) -> list[str]:
    """Return the numeric addresses of a host, none where it is not known; may ask the network."""
    numeric = list[str]()
    with suppress(OSError):
        for info in socket.getaddrinfo(name, 9, type=socket.SOCK_STREAM) if name else ():
            numeric.append(socket.getnameinfo(info[4], socket.NI_NUMERICHOST)[0])
    return numeric


def places(names: Sequence[str], port: int) -> list[tuple[int, Any]]:
    """Return family and socket address of numeric addresses, each once."""
    several: dict[tuple[int, Any], None] = {}
    for name in names:
        with suppress(OSError):
            for info in socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST):
                several[info[0], info[4]] = None
    return [*several]


def _of_device(name: str) -> str | None:
    """Return the IPv4 address of a network device, or None."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        asked = struct.pack("256s", name.strip().encode()[:15])
        return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), SIOCGIFADDR, asked)[20:24])
    return None


def connect(store: Any, rank: int, nodes: int, deadline: float) -> dict[int, socket.socket]:
    """Return a connection to each other rank, by rank; collective. store: of torch, for these ranks alone.

    The store gets addresses and public values (proofs.py), and no secret. Raises RuntimeError (of the store)
    where a rank has not come by `deadline`, of time.monotonic, and OscarError where it came and was not
    reached, and where this rank or another one has no file descriptors left.
    """
    if nodes == 1:
        return {}
    exponent = proofs.Exponent()
    try:
        with listener() as ear:
            mine = {"addresses": addresses(), "port": ear.getsockname()[1], "public": exponent.public}
            store.set(f"at {rank}", json.dumps(mine))
            names = [f"at {each}" for each in range(nodes)]
            store.wait(names, timedelta(seconds=max(0.001, deadline - time.monotonic())))
            cards = [_card(store.get(name), each) for each, name in enumerate(names)]
            with Introductions(ear, rank, cards, _keys(exponent, cards, rank)) as introductions:
                met = introductions.meet(store, deadline)
    except OSError as error:
        if error.errno not in SHORTAGES:
            raise
        why = (
            f"rank {rank} of {nodes} needs {nodes - 1} connections and has no room for one more "
            f"({error.strerror}); raise its limit of {_most_files()} open files (ulimit -n)"
        )
        with suppress(RuntimeError):  # the store has gone
            store.set(GAVE_UP, json.dumps([rank, why]))
            store.set(f"at {rank}", json.dumps({GAVE_UP: why}))  # for those that still wait for it
        raise OscarError(why) from None
    for each in met.values():
        each.setblocking(True)
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return met


def _most_files() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _card(text: bytes, rank: int) -> dict[str, Any]:
    """Return what `rank` wrote to the store. Raises OscarError where it gave up, or runs another release."""
    try:
        card: dict[str, Any] = json.loads(text)
        if GAVE_UP in card:
            raise OscarError(f"rank {rank} gave up: {card[GAVE_UP]}")
        port, public, at = int(card["port"]), str(card["public"]), [str(each) for each in card["addresses"]]
    except (ValueError, TypeError, KeyError) as error:
        raise OscarError(
            f"expected addresses, port and public value of rank {rank} in the store, got something else "
            f"({type(error).__name__}); run one release on all ranks"
        ) from None
    return {"port": port, "public": public, "addresses": at}


def _keys(exponent: proofs.Exponent, cards: Sequence[Mapping[str, Any]], rank: int) -> dict[int, bytes]:
    """Return the key of the pair with each other rank. Raises OscarError for a value that is not one."""
    keys = {}
    for peer, card in enumerate(cards):
        try:
            if peer != rank:
                keys[peer] = exponent.key(card["public"])
        except ValueError as error:
            raise OscarError(f"rank {peer} in the store: {error}; keep others out of the store") from None
    return keys


class Talk:
    """A connection on which a script of proofs.py is under way; it never blocks.

    peer: who answers, where this end called. begun: whether the other end has said something that fits.
    """

    def __init__(
        self, connection: socket.socket, script: proofs.Script, wait_s: float, peer: int = -1
    ) -> None:
        connection.setblocking(False)
        self.socket, self.peer, self._script = connection, peer, script
        self.end = time.monotonic() + wait_s
        self._came, self._wanted, self._turns = b"", 0, 0

    @property
    def begun(self) -> bool:
        return self._turns > 1

    def go_on(self) -> int | None:
        """Go on as far as what came allows; return the other's rank once both have proved theirs, or None.

        Raises OSError where that will not be.
        """
        try:
            while True:
                while len(self._came) < self._wanted:
                    try:
                        part = self.socket.recv(self._wanted - len(self._came))
                    except BlockingIOError:
                        return None
                    if not part:
                        raise ConnectionError("it hung up")
                    self._came += part
                words, self._wanted = self._script.send(self._came) if self._turns else next(self._script)
                self._came = b""
                self._turns += 1
                if words and self.socket.send(words) < len(words):
                    raise ConnectionError("it takes no more bytes")
        except StopIteration as stop:
            return int(stop.value)


class _Call:
    """The calls to one peer: one address after the other, over and over. wrong: what was wrong at each."""

    def __init__(self, peer: int, card: Mapping[str, Any], master: Sequence[str]) -> None:
        self.peer, self.where, self.next, self._turn = peer, "no address", 0.0, 0
        self.wrong: dict[str, object] = {}
        self._places = places([*card["addresses"], *master], card["port"])

    def dial(self) -> socket.socket:
        """Begin to connect to the next address. Raises OSError."""
        if not self._places:
            self.next = time.monotonic() + AGAIN_S
            raise OSError(errno.EADDRNOTAVAIL, "expected numeric addresses in the store")
        family, place = self._places[self._turn % len(self._places)]
        self.where = f"{place[0]} port {place[1]}"
        self.wrong.setdefault(self.where, "no answer yet")
        ends_round = self._turn % len(self._places) == len(self._places) - 1
        connection = socket.socket(family, socket.SOCK_STREAM)
        self._turn += 1
        self.next = time.monotonic() + (AGAIN_S if ends_round else 0.0)
        connection.setblocking(False)
        status = connection.connect_ex(place)
        if status not in (0, errno.EINPROGRESS):
            connection.close()
            raise OSError(status, os.strerror(status))
        return connection


class Introductions:
    """One rank's part in a meeting. It knows all cards, and the key of the pair with each other rank."""

    def __init__(
        self,
        ear: socket.socket,
        rank: int,
        cards: Sequence[Mapping[str, Any]],
        keys: Mapping[int, bytes],
    ) -> None:
        ear.setblocking(False)
        self._ear, self._rank, self._cards, self._keys = ear, rank, cards, keys
        self._above = {peer: key for peer, key in keys.items() if peer > rank}
        master = resolved(os.environ.get(MASTER))  # reaches its host, whatever that takes for its address
        self._calls = {peer: _Call(peer, cards[peer], master) for peer in range(rank)}
        self._talks: dict[Talk, None] = {}  # an ordered set, the oldest first
        self._met: dict[int, socket.socket] = {}
        files = _most_files()
        self._strangers = STRANGERS if files < 0 else min(STRANGERS, max(1, files // FILES_FOR_STRANGERS))
        self._selector = selectors.PollSelector()  # takes no file descriptor itself

    def __enter__(self) -> Introductions:
        self._selector.register(self._ear, selectors.EVENT_READ)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for talk in self._talks:
            talk.socket.close()
        if kind is not None:
            for each in self._met.values():
                each.close()

    def meet(self, store: Any, deadline: float) -> dict[int, socket.socket]:
        """Return a connection to each other rank. Raises as `connect` does."""
        look = time.monotonic() + NEWS_S
        while len(self._met) < len(self._keys):
            now = time.monotonic()
            if now >= deadline:
                raise self._unreached()
            if now >= look:
                look = now + NEWS_S
                with suppress(RuntimeError):  # the store has gone, which matters no more
                    if store.check([GAVE_UP]):
                        rank, why = json.loads(store.get(GAVE_UP))
                        raise OscarError(f"rank {rank} gave up: {why}")
            for talk in [talk for talk in self._talks if now > talk.end]:
                self._drop(talk, TimeoutError("timed out"))
            self._dial(now, deadline)
            for key, _ in self._selector.select(min(TICK_S, deadline - now)):
                if key.fileobj is self._ear:
                    self._accept()
                elif key.data in self._talks:
                    self._hear(key.data)
        return self._met

    def _dial(self, now: float, deadline: float) -> None:
        """Call the ranks below that are neither met nor being called."""
        busy = {talk.peer for talk in self._talks}
        for peer, call in self._calls.items():
            if peer in self._met or peer in busy or now < call.next:
                continue
            try:
                connection = call.dial()
            except OSError as error:
                if error.errno in SHORTAGES:
                    self._make_room(error)
                call.wrong[call.where] = error
                continue
            script = proofs.calling(self._keys[peer], peer, self._rank)
            self._begin(Talk(connection, script, min(CALL_S, deadline - now), peer), selectors.EVENT_WRITE)

    def _begin(self, talk: Talk, event: int) -> None:
        self._talks[talk] = None
        self._selector.register(talk.socket, event, talk)

    def _accept(self) -> None:
        """Take calls, and let go of the oldest that are too many."""
        for _ in range(ACCEPTED):
            try:
                connection, _ = self._ear.accept()
            except OSError as error:
                if error.errno in SHORTAGES:
                    self._make_room(error)
                return  # else nobody calls any more
            talk = Talk(connection, proofs.called(self._above), CALLER_S)
            self._begin(talk, selectors.EVENT_READ)
            self._hear(talk)
            for begun, most in ((False, self._strangers), (True, self._strangers + len(self._above))):
                callers = [talk for talk in self._talks if talk.peer < 0 and talk.begun == begun]
                for oldest in callers[: max(0, len(callers) - most)]:
                    self._drop(oldest)

    def _make_room(self, error: OSError) -> None:
        """Let go of the oldest caller that has not proved anything. Raises `error` where there is none."""
        callers = [talk for talk in self._talks if talk.peer < 0]
        if not callers:
            raise error
        self._drop(next((talk for talk in callers if not talk.begun), callers[0]))

    def _hear(self, talk: Talk) -> None:
        """Go on with a talk, whose other end has connected or said something."""
        try:
            calls = self._selector.get_key(talk.socket).events == selectors.EVENT_WRITE
            if talk.peer >= 0 and not talk.begun and calls:  # it is reached, or cannot be; its answer is due
                if status := talk.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    raise OSError(status, os.strerror(status))
                self._selector.modify(talk.socket, selectors.EVENT_READ, talk)
                talk.end = time.monotonic() + ANSWER_S
            peer = talk.go_on()
        except OSError as error:
            self._drop(talk, error)
            return
        if peer is not None:
            self._selector.unregister(talk.socket)
            del self._talks[talk]
            if peer in self._met:  # it gave its first call up
                self._met[peer].close()
            self._met[peer] = talk.socket

    def _drop(self, talk: Talk, error: OSError | None = None) -> None:
        self._selector.unregister(talk.socket)
        del self._talks[talk]
        talk.socket.close()
        if talk.peer >= 0:
            call = self._calls[talk.peer]
            call.wrong[call.where] = error

    def _unreached(self) -> OscarError:
        """Return the error for ranks that were not met in time."""
        nodes = len(self._cards)
        below = next((call for peer, call in self._calls.items() if peer not in self._met), None)
        if below is not None:
            text = f"rank {self._rank} of {nodes} did not reach rank {below.peer}"
            tried = [f"{where} ({error})" for where, error in below.wrong.items()]
        else:
            absent = ", ".join(f"rank {peer}" for peer in self._above if peer not in self._met)
            text, card = f"{absent} did not reach rank {self._rank} of {nodes}", self._cards[self._rank]
            tried = [f"{address} port {card['port']}" for address in card["addresses"]]
        return OscarError(
            f"{text} in time, at {', '.join(tried)}; set {DEVICES} on every rank to the network device that "
            f"all ranks share, and let TCP pass between them"
        )
