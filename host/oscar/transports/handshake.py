"""The handshake: all ranks compare what must be equal, and all raise the same error where it is not."""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from oscar.errors import ConfigError
from oscar.transports.base import STATE_TAG, Transport

MAGIC = b"OSCAR greeting 2\n"  # begins this module's messages in every release
CAP = 1 << 16  # bytes of a greeting
MAX_TEXT = 1 << 22  # characters that a greeting may unpack to


def flatten(section: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return nested mappings as one, keys joined by dots."""
    flat: dict[str, Any] = {}
    for key, value in section.items():
        name = f"{prefix}.{key}"
        flat.update(flatten(value, name) if isinstance(value, Mapping) else {name: value})
    return flat


def fingerprint(pairs: Mapping[str, Any]) -> str:
    """Return 16 hexadecimal digits that differ where `pairs` do."""
    return hashlib.sha256(json.dumps(dict(pairs)).encode()).hexdigest()[:16]


def compare(
    transport: Transport, pairs: Mapping[str, Any], deadline: float, what: str, *, advice: str
) -> None:
    """Gather every rank's `pairs` and raise ConfigError on all ranks with the first difference to rank 0.

    pairs: JSON values by key, in an order that is equal on all ranks. A greeting that is too long is compared
    by its fingerprint. Greetings of processes that are not this transport's members are found first. Raises
    TransportError like `Transport.gather`.
    """
    members = list(transport.members)
    mine = _pack(pairs, members, transport.rank)
    if len(mine) > CAP:
        mine = _pack({"greeting": fingerprint(pairs)}, members, transport.rank)
    came = [_unpack(text) for text in transport.gather(mine, CAP, deadline, what)]
    difference = misplaced(came, members)
    if difference is not None:
        advice = "make the transports of a group on all of its ranks, on no other, in one order"
    else:
        difference = first_difference([None if one is None else one["pairs"] for one in came])
    if difference is not None:
        transport.part(deadline)
        raise ConfigError(f"{what}: {difference}; {advice}")


def misplaced(greetings: Sequence[Mapping[str, Any] | None], members: Sequence[int]) -> str | None:
    """Return which greeting comes from a process that is not in its place among `members`, or None."""
    for rank, came in enumerate(greetings):
        if came is not None and (came["group"] != members or came["process"] != members[rank]):
            expected = f"expected process {members[rank]} of the group {members} as rank {rank}"
            return f"{expected}, got process {came['process']} of the group {came['group']}"
    return None


class StateCheck:
    """Whether the rank before has the same replicated state: 4 bytes of each part pass to the next rank.

    parts: digests by name, in an order that is equal on all ranks. It is made before the first frame of a
    call, and asked before the first one is decoded. That costs one small message, and no wait.
    """

    def __init__(self, transport: Transport, parts: Mapping[str, int]) -> None:
        self.transport, self.parts = transport, dict(parts)
        self.left, right = (transport.rank - 1) % transport.nodes, (transport.rank + 1) % transport.nodes
        self._pack = struct.Struct(f"<{len(self.parts)}I")
        self.pending = transport.nodes > 1
        if self.pending:
            transport.post_recv(self.left, STATE_TAG, self._pack.size)
            transport.post_send(right, STATE_TAG, self._pack.pack(*self.parts.values()))

    def describe(self, found: str) -> str:
        """Return a sentence about what `difference` found."""
        return f"rank {self.left} has another replicated state than this rank, in its {found}"

    def difference(self, deadline: float) -> str | None:
        """Return the names of the parts that differ, or None; raises TransportError like `wait`."""
        if not self.pending:
            return None
        came = self.transport.wait(self.left, STATE_TAG, deadline, "the digest of the replicated state")
        self.pending = False
        if len(came) != self._pack.size:
            return "number of its parts"
        pairs = zip(self.parts.items(), self._pack.unpack(came), strict=True)
        return ", ".join(name for (name, ours), theirs in pairs if ours != theirs) or None


def first_difference(greetings: Sequence[Mapping[str, Any] | None]) -> str | None:
    """Return which rank differs from rank 0 in which key, or None; an unreadable greeting is None."""
    for rank, came in enumerate(greetings):
        if came is None:
            return f"rank {rank} sent a greeting of another format"
    first = greetings[0] or {}
    for rank, came in enumerate(greetings):
        for key in [*first, *(key for key in came or {} if key not in first)]:
            ours, theirs = (json.dumps(g[key]) if g and key in g else "nothing" for g in (first, came))
            if ours != theirs:
                return f"rank {rank} has {key} = {theirs}, rank 0 has {ours}"
    return None


def _pack(pairs: Mapping[str, Any], members: Sequence[int], rank: int) -> bytes:
    content = {"group": list(members), "process": members[rank], "pairs": dict(pairs)}
    return MAGIC + zlib.compress(json.dumps(content).encode())


def _unpack(message: bytes) -> dict[str, Any] | None:
    if not message.startswith(MAGIC):
        return None
    try:
        content = json.loads(zlib.decompressobj().decompress(message[len(MAGIC) :], MAX_TEXT))
    except (ValueError, zlib.error, RecursionError):  # RecursionError: lists nested 5,000 deep
        return None
    whole = isinstance(content, dict) and content.keys() == {"group", "process", "pairs"}
    return content if whole and isinstance(content["pairs"], dict) else None
