"""Frames over plain TCP connections between the ranks of a torch.distributed group (extra torch).

torch.distributed only introduces the ranks to each other: addresses, and a secret of each rank, go through
the job's store. Who does not know the secrets is sent away, so a port may be found by strangers.
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
from typing import Any

from oscar.errors import OscarError
from oscar.transports.base import Bytes, Transport, TransportError
from oscar.transports.gloo import first_line, load_torch, meeting, start
from oscar.transports.lines import Lines, head_of

MAKING = timedelta(minutes=5)  # how late another rank may be to the making of a transport
TRY_S = 5.0  # seconds for one address, and for a caller to say who it is
ANSWER_S = 30.0  # for an answer: those below answer once they have called those below them
LAST_TRY_S = 0.05  # pause before all addresses are tried again
SECRET_BYTES = 16
DEVICES = "GLOO_SOCKET_IFNAME"  # the variable that names the network device, as for Gloo
MASTER = "MASTER_ADDR"  # torchrun's variable
SIOCGIFADDR = 0x8915
_HELLO = struct.Struct(f"<{SECRET_BYTES}sI")  # secret of the rank that is called, and who calls
_DONE = b"!"


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
        except (RuntimeError, TimeoutError) as error:
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
        self._lines.send(peer, tag, pieces)

    def _arrived(self, peer: int, tag: int) -> memoryview | None:
        came = self._lines.take(peer, tag)
        if came is not None:
            if len(came) > self._caps[peer, tag]:
                text = f"rank {peer} sent {len(came)} bytes (tag {tag}), at most {self._caps[peer, tag]} fit"
                raise TransportError(text, peer=peer, kind="aborted", tag=tag)
        elif (lost := self._lines.by_peer[peer].lost) is not None:
            self.dead.setdefault(peer, lost)
        return came

    def _unsent(self) -> list[tuple[int, int]]:
        return self._lines.unsent()

    def _pause(self, tries: int) -> None:
        self._lines.pause()


class StoreTransport(TcpTransport):
    """One rank of `nodes` that meet at a store of torch.distributed, which need not be initialised.

    store: one that all ranks reach, with a prefix that no other meeting has. timeout_s: for others to come.
    Raises MissingExtraError without torch, OscarError where a rank has not come by then or the store is gone.
    """

    def __init__(self, store: Any, rank: int, nodes: int, *, timeout_s: float) -> None:
        load_torch()
        try:
            self._lines = Lines(connect(store, rank, nodes, time.monotonic() + timeout_s))
        except (RuntimeError, TimeoutError) as error:
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

    A rank calls those below it and is called by those above. Raises RuntimeError (of the store) or
    TimeoutError where one has not come by `deadline`, of time.monotonic.
    """
    if nodes == 1:
        return {}
    with _listener() as listener:
        secret = secrets.token_bytes(SECRET_BYTES)
        mine = {"addresses": _addresses(), "port": listener.getsockname()[1], "secret": secret.hex()}
        store.set(f"at {rank}", json.dumps(mine))
        names = [f"at {each}" for each in range(nodes)]
        store.wait(names, timedelta(seconds=max(0.001, deadline - time.monotonic())))
        cards = [json.loads(store.get(name)) for name in names]
        found: dict[int, socket.socket] = {}
        try:
            for peer in range(rank):
                found[peer] = _call(cards[peer], rank, secret, deadline)
            while len(found) < nodes - 1:
                listener.settimeout(_left(deadline))
                caller, _ = listener.accept()
                peer = _who(caller, secret, cards)
                if rank < peer < nodes and peer not in found:
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


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


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


def _call(card: Mapping[str, Any], rank: int, secret: bytes, deadline: float) -> socket.socket:
    """Return a connection to the rank of this card, once both have shown the secret of the other."""
    met = os.environ.get(MASTER)  # reaches its host, whatever that takes for its own address
    while True:
        for address in (*card["addresses"], *([] if met is None else [met])):
            with suppress(OSError):
                called = socket.create_connection((address, card["port"]), min(TRY_S, _left(deadline)))
                if _answers(called, card["secret"], rank, secret, min(ANSWER_S, _left(deadline))):
                    return called
                called.close()
        time.sleep(min(LAST_TRY_S, _left(deadline)))


def _answers(called: socket.socket, theirs: str, rank: int, secret: bytes, wait_s: float) -> bool:
    """Return whether who was called is the rank with the secret `theirs`, and knows ours."""
    with suppress(OSError):
        called.sendall(_HELLO.pack(bytes.fromhex(theirs), rank))
        called.settimeout(wait_s)
        if hmac.compare_digest(called.recv(SECRET_BYTES, socket.MSG_WAITALL), secret):
            called.sendall(_DONE)
            return True
    return False


def _who(caller: socket.socket, secret: bytes, cards: Sequence[Mapping[str, Any]]) -> int:
    """Return the rank that calls, or -1 where it does not know our secret, or has gone again."""
    with suppress(OSError):
        caller.settimeout(TRY_S)
        hello = caller.recv(_HELLO.size, socket.MSG_WAITALL)
        told, rank = _HELLO.unpack(hello.ljust(_HELLO.size))
        if hmac.compare_digest(told, secret) and rank < len(cards):
            caller.sendall(bytes.fromhex(cards[rank]["secret"]))
            return rank if caller.recv(len(_DONE)) == _DONE else -1
    return -1
