"""Frames over plain TCP connections between the ranks of a torch.distributed group (extra torch).

torch.distributed only introduces the ranks to each other: addresses, and a secret of each rank, go through
the job's store. Both ends of a connection prove that they know both secrets (HMAC-SHA256 over a nonce of each
end), which never cross it. Strangers are sent away, at either end. Later bytes are in clear (keyed.py seals).
"""

from __future__ import annotations

import fcntl
import hmac
import json
import os
import secrets
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from multiprocessing.connection import wait
from typing import Any

from oscar.errors import OscarError
from oscar.transports.base import CONTROL_TAGS, STATE_TAG, Bytes, Transport, TransportError
from oscar.transports.gloo import first_line, load_torch, meeting, start
from oscar.transports.line import head_of
from oscar.transports.lines import Lines

MAKING = timedelta(minutes=5)  # how late another rank may be to the making of a transport
TRY_S = 5.0  # seconds for one address, and for a caller to say who it is
ANSWER_S = 30.0  # for an answer: those below answer once they have called those below them
LAST_TRY_S = 0.05  # pause before all addresses are tried again
SECRET_BYTES = 16
PROOF_BYTES = 32
DEVICES = "GLOO_SOCKET_IFNAME"  # the variable that names the network device, as for Gloo
MASTER = "MASTER_ADDR"  # torchrun's variable
SIOCGIFADDR = 0x8915
_HELLO = struct.Struct(f"<{SECRET_BYTES}sI")  # nonce and rank of who calls
_PAIR = struct.Struct("<II")
_DONE = b"!"  # who was called takes the connection


class TcpTransport(Transport):
    """One rank of a torch.distributed group (default: all ranks), with a connection to every other rank.

    Making one is collective between the ranks of `group`, in one order on all of these; other ranks have no
    part in it. Starts torch.distributed from torchrun's environment where that has not been done. Raises
    MissingExtraError without torch, OscarError outside torchrun, in a process that is not in `group`, and
    where a rank of it has not come after five minutes.
    """

    def __init__(self, group: Any = None) -> None:
        _, dist = load_torch()
        owns_default = not dist.is_initialized()
        if owns_default:
            start(dist)
        store, ranks, refuse = meeting(group, "tcp")
        rank = ranks.index(dist.get_rank())
        try:
            self._lines = Lines(connect(store, rank, len(ranks), time.monotonic() + MAKING.total_seconds()))
        except (RuntimeError, TimeoutError) as error:  # of the store
            raise refuse(error, MAKING) from None
        self._begin(rank, ranks, dist.group.WORLD if owns_default else None)

    def _begin(self, rank: int, ranks: list[int], default: Any = None) -> None:
        """Take over the connections in `_lines`; default: the job's group, where it ends with this one."""
        self._caps: dict[tuple[int, int], int] = {}
        self._ends_by(_end, self._lines, default)
        super().__init__(rank, len(ranks), members=ranks)

    def _make_room(self, peer: int, tag: int, cap: int) -> None:
        self._caps[peer, tag] = cap
        self._lines.expect(peer, tag, cap)

    def _send(self, peer: int, tag: int, parts: tuple[Bytes, ...]) -> None:
        self._put(peer, tag, (head_of(sum(map(len, parts)), tag), *parts))

    def _put(self, peer: int, tag: int, pieces: tuple[Bytes, ...]) -> None:
        self._lines.send(peer, tag, pieces, held=tag == STATE_TAG)  # the frame that follows takes it along

    def _arrived(self, peer: int, tag: int) -> memoryview | None:
        came = self._lines.take(peer, tag)
        if came is not None:
            if len(came) > self._caps[peer, tag]:
                text = f"rank {peer} sent {len(came)} bytes (tag {tag}), at most {self._caps[peer, tag]} fit"
                raise TransportError(text, peer=peer, kind="aborted", tag=tag)
        elif (lost := self._lines.by_peer[peer].lost) is not None:
            self.dead.setdefault(peer, lost)
        elif (blocked := self._lines.by_peer[peer].blocked) is not None and tag not in CONTROL_TAGS:
            came = self._behind(peer, tag, *blocked)
        return came

    def _behind(self, peer: int, tag: int, other: int, size: int) -> memoryview | None:
        """Return the message, where it came before the connection was blocked by a message of tag `other`.

        Raises TransportError where it did not: it would be behind a message for which this rank, which waits
        here, will never make room.
        """
        came = self._lines.take(peer, tag)
        if came is None and other not in CONTROL_TAGS:
            text = (
                f"expected a message of tag {tag} from rank {peer}, got one of tag {other} and {size} bytes"
            )
            advice = "that this rank does not await; run one release and one program on all ranks"
            raise TransportError(f"{text} {advice}", peer=peer, kind="aborted", tag=tag)
        return came

    def _unsent(self) -> list[tuple[int, int]]:
        return self._lines.unsent()

    def _pause(self, tries: int) -> None:
        self._lines.pause()

    def _glance(self) -> None:
        self._lines.pause(0.0)


class StoreTransport(TcpTransport):
    """One rank of `nodes` that meet at a store of torch.distributed, which need not be initialised.

    store: one that all ranks reach, with a prefix that no other meeting has. timeout_s: for others to come.
    Raises MissingExtraError without torch, OscarError where a rank has not come by then or the store is gone.
    """

    def __init__(self, store: Any, rank: int, nodes: int, *, timeout_s: float) -> None:
        load_torch()
        try:
            self._lines = Lines(connect(store, rank, nodes, time.monotonic() + timeout_s))
        except (RuntimeError, TimeoutError) as error:  # of the store
            raise OscarError(
                f"rank {rank} of {nodes} could not meet the others at the store within {timeout_s:g} s "
                f"({first_line(error)}); start all ranks, and keep the store alive"
            ) from None
        self._begin(rank, list(range(nodes)))


def _end(lines: Lines, default: Any) -> None:
    """Close all connections, and end torch.distributed where we began it; nothing in a forked child."""
    if lines.dropped:
        return
    lines.close()
    if default is not None:
        _, dist = load_torch()
        if dist.is_initialized() and dist.group.WORLD is default:
            dist.destroy_process_group()


def connect(store: Any, rank: int, nodes: int, deadline: float) -> dict[int, socket.socket]:
    """Return a connection to each other rank, by rank; collective. store: of torch, for these ranks alone.

    A rank calls those below it and is called by those above. Raises RuntimeError (of the store) where one has
    not come by `deadline`, of time.monotonic, and OscarError where it came and was not reached.
    """
    if nodes == 1:
        return {}
    with _listener() as listener, _Callers(listener) as callers:
        mine = {
            "addresses": _addresses(),
            "port": listener.getsockname()[1],
            "secret": secrets.token_hex(SECRET_BYTES),
        }
        store.set(f"at {rank}", json.dumps(mine))
        names = [f"at {each}" for each in range(nodes)]
        store.wait(names, timedelta(seconds=_left(deadline)))
        cards = [json.loads(store.get(name)) for name in names]
        found: dict[int, socket.socket] = {}
        try:
            for peer in range(rank):
                found[peer] = _call(cards, peer, rank, deadline)
            while missing := [peer for peer in range(rank + 1, nodes) if peer not in found]:
                if time.monotonic() >= deadline:
                    absent = ", ".join(f"rank {peer}" for peer in missing)
                    raise _unreached(f"{absent} did not reach rank {rank} of {nodes}", _places(mine))
                for caller in callers.speaking(_left(deadline)):
                    peer = _who(caller, rank, cards)
                    if peer in found:  # it gave the first call up
                        found[peer].close()
                    if peer >= 0:
                        found[peer] = caller
                    else:
                        caller.close()
        except BaseException:
            for each in found.values():
                each.close()
            raise
    for each in found.values():
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found


class _Callers:
    """Those who call a listener, until they speak: who is silent holds up nobody."""

    def __init__(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._listener, self._silent = listener, dict[socket.socket, float]()  # and until when each may be

    def __enter__(self) -> _Callers:
        return self

    def __exit__(self, *_: object) -> None:
        for caller in self._silent:
            caller.close()

    def speaking(self, wait_s: float) -> list[socket.socket]:
        """Return who has something to say, for the caller to close; waits for `wait_s` or TRY_S at most."""
        ready = wait([self._listener, *self._silent], min(wait_s, TRY_S))
        speaking = [each for each in self._silent if each in ready]
        for each in speaking:
            del self._silent[each]
        for each, end in [*self._silent.items()]:
            if time.monotonic() > end:
                del self._silent[each]
                each.close()
        if self._listener in ready:
            with suppress(BlockingIOError):  # it has gone again
                self._silent[self._listener.accept()[0]] = time.monotonic() + TRY_S
        return speaking


def _left(deadline: float) -> float:
    return max(0.001, deadline - time.monotonic())


def _places(card: Mapping[str, Any]) -> list[str]:
    return [f"{address} port {card['port']}" for address in card["addresses"]]


def _unreached(what: str, tried: Sequence[str]) -> OscarError:
    return OscarError(
        f"{what} in time, at {', '.join(tried)}; set {DEVICES} on every rank to the network device that "
        f"all ranks share, and let TCP pass between them"
    )


def _listener() -> socket.socket:
    with suppress(OSError):
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


def _addresses() -> list[str]:
    """Return addresses under which peers may reach this rank, the likeliest first."""
    found = [address for name in os.environ.get(DEVICES, "").split(",") if (address := _of_device(name))]
    if not found:
        with suppress(OSError, KeyError):  # of the device on the way to the rank that all ranks reach
            info = socket.getaddrinfo(os.environ[MASTER], 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(info[0], socket.SOCK_DGRAM) as probe:
                probe.connect(info[4])  # sends nothing
                found.append(probe.getsockname()[0])
        with suppress(OSError):
            found.append(socket.gethostbyname(socket.gethostname()))
        found.append("127.0.0.1")
    return [*dict.fromkeys(found)]


def _of_device(name: str) -> str | None:
    """Return the IPv4 address of a network device, or None."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        asked = struct.pack("256s", name.strip().encode()[:15])
        return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), SIOCGIFADDR, asked)[20:24])
    return None


def _call(cards: Sequence[Mapping[str, Any]], peer: int, rank: int, deadline: float) -> socket.socket:
    """Return a connection to `peer`, once both ends have proved who they are.

    Raises OscarError with what went wrong at each address where that takes until `deadline`.
    """
    card, met = cards[peer], os.environ.get(MASTER)  # reaches its host, whatever that takes for its address
    wrong: dict[str, OSError] = {}  # by address
    while not wrong or time.monotonic() < deadline:
        for address in (*card["addresses"], *([] if met is None else [met])):
            try:
                called = socket.create_connection((address, card["port"]), min(TRY_S, _left(deadline)))
            except OSError as error:
                wrong[address] = error
                continue
            try:
                _introduce(called, cards, peer, rank, min(ANSWER_S, _left(deadline)))
            except OSError as error:
                called.close()
                wrong[address] = error
            else:
                return called
        time.sleep(min(LAST_TRY_S, _left(deadline)))
    tried = [f"{address} port {card['port']} ({error})" for address, error in wrong.items()]
    raise _unreached(f"rank {rank} of {len(cards)} did not reach rank {peer}", tried)


def _introduce(
    called: socket.socket, cards: Sequence[Mapping[str, Any]], peer: int, rank: int, wait_s: float
) -> None:
    """Prove that this is `rank`. Raises OSError unless who was called is `peer` and takes the connection."""
    nonce = secrets.token_bytes(SECRET_BYTES)
    called.sendall(_HELLO.pack(nonce, rank))
    answer = _exactly(called, SECRET_BYTES + PROOF_BYTES, wait_s)
    nonces = nonce + answer[:SECRET_BYTES]
    if not hmac.compare_digest(answer[SECRET_BYTES:], _proof(b"called", nonces, cards, peer, rank)):
        raise ConnectionError("another process answers")
    called.sendall(_proof(b"caller", nonces, cards, peer, rank))
    if _exactly(called, len(_DONE), wait_s) != _DONE:
        raise ConnectionError("it sent no acknowledgement")


def _who(caller: socket.socket, rank: int, cards: Sequence[Mapping[str, Any]]) -> int:
    """Return the rank above this `rank` that calls and was told so, or -1 for a stranger or one that left."""
    with suppress(OSError):
        theirs, peer = _HELLO.unpack(_exactly(caller, _HELLO.size, TRY_S))
        if rank < peer < len(cards):
            nonce = secrets.token_bytes(SECRET_BYTES)
            nonces = theirs + nonce
            caller.sendall(nonce + _proof(b"called", nonces, cards, rank, peer))
            told = _exactly(caller, PROOF_BYTES, TRY_S)
            if hmac.compare_digest(told, _proof(b"caller", nonces, cards, rank, peer)):
                caller.sendall(_DONE)
                return int(peer)
    return -1


def _proof(role: bytes, nonces: bytes, cards: Sequence[Mapping[str, Any]], called: int, caller: int) -> bytes:
    """Return what only who knows both ranks' secrets can say, in this role and to these nonces."""
    key = bytes.fromhex(cards[called]["secret"] + cards[caller]["secret"])
    return hmac.digest(key, role + nonces + _PAIR.pack(called, caller), "sha256")


def _exactly(connection: socket.socket, size: int, wait_s: float) -> bytes:
    """Return the next `size` bytes. Raises OSError where they have not come after `wait_s`."""
    came, deadline = b"", time.monotonic() + wait_s
    while len(came) < size:
        if time.monotonic() >= deadline:
            raise TimeoutError("timed out")
        connection.settimeout(_left(deadline))
        part = connection.recv(size - len(came))
        if not part:
            raise ConnectionError("it hung up")
        came += part
    return came
