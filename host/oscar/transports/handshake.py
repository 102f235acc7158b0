"""The handshake: all ranks compare what must be equal, and all raise the same error where it is not."""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from oscar.errors import ConfigError
from oscar.transports.base import STATE_TAG, Transport

MAGIC = b"OSCAR greeting 2\n"  # begins this module's messages in every release
CAP = 1 << 16  # bytes of a greeting
MAX_TEXT = 1 << 22  # characters that a greeting may unpack to
NEWS = b"OSCAR new shapes 1\n"  # begins what a rank with new shapes sends in place of digests
STATE_CAP = 2048  # bytes of either
KEY_CHARS = 100  # of a key in it


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


@dataclass(frozen=True)
class Subject:
    """What a rank reduces: the key of its state, in words, and the shapes [tensor] that it has."""

    key: str
    shapes: Sequence[tuple[int, ...]]

    def news(self, before: Sequence[tuple[int, ...]]) -> bytes:
        """Return the message that tells of shapes that are new, and name the first that was not so before."""
        pairs = zip_longest(self.shapes, before)
        at = next((i for i, (shape, old) in enumerate(pairs) if shape != old), 0)
        shape = list(self.shapes[at]) if at < len(self.shapes) else None
        content = {"key": self.key[:KEY_CHARS], "tensors": len(self.shapes), "at": at, "shape": shape}
        return NEWS + json.dumps(content).encode()

    def against(self, news: bytes) -> str:
        """Return how `news` of another rank differ from this, in words."""
        try:
            content = json.loads(news[len(NEWS) :])
            key, tensors, at, shape = (content[name] for name in ("key", "tensors", "at", "shape"))
            mine = self.shapes[at] if at < len(self.shapes) else None
        except (ValueError, TypeError, KeyError, RecursionError):
            return "new shapes, in a message of another format"
        if key != self.key[:KEY_CHARS]:
            return (
                f"key {key} with {tensors} tensors, tensor {at} of shape {shape}, here it is key {self.key}"
            )
        if tensors != len(self.shapes):
            return (
                f"{tensors} tensors, here there are {len(self.shapes)}; tensor {at} is {_said(shape, mine)}"
            )
        return f"tensor {at} of shape {_said(shape, mine)}"


def _said(theirs: Any, mine: Any) -> str:
    one, two = ("missing" if shape is None else list(shape) for shape in (theirs, mine))
    return f"{one}, here it is {two}"


class StateCheck:
    """Whether the rank before does the same: 4 bytes of each part of its replicated state, or its new shapes.

    message: this rank's, for the next one. It is sent before the first frame of a call, and that of the rank
    before is looked at before the first one is decoded. That costs one small message, and no wait. A rank
    whose shapes are new sends these in its place: where they are new on it alone, the next rank finds out.
    """

    def __init__(self, transport: Transport, message: bytes) -> None:
        self.transport, self.message = transport, message
        self.left, right = (transport.rank - 1) % transport.nodes, (transport.rank + 1) % transport.nodes
        self.pending = transport.nodes > 1
        if self.pending:
            transport.post_recv(self.left, STATE_TAG, STATE_CAP)
            transport.post_send(right, STATE_TAG, message)

    @classmethod
    def of_state(cls, transport: Transport, parts: Mapping[str, int]) -> StateCheck:
        """Return the check of `parts`: digests by name, in an order that is equal on all ranks."""
        return cls(transport, struct.pack(f"<{len(parts)}I", *parts.values()))

    def came(self, deadline: float) -> bytes | None:
        """Return what the rank before has sent, once, or None; raises TransportError like `wait`."""
        if not self.pending:
            return None
        came = self.transport.wait(self.left, STATE_TAG, deadline, "the digest of the replicated state")
        self.pending = False
        return bytes(came)

    def difference(self, names: Sequence[str], subject: Subject | None, deadline: float) -> str | None:
        """Return in words how the rank before differs, or None; names: of the parts, in their order."""
        came = self.came(deadline)
        if came is None or came == self.message:
            return None
        if came.startswith(NEWS) and subject is not None:
            return f"rank {self.left} came with other shapes than this rank: {subject.against(came)}"
        found = "number of its parts"
        if len(came) == len(self.message):
            words = zip(
                names, struct.iter_unpack("<I", self.message), struct.iter_unpack("<I", came), strict=True
            )
            found = ", ".join(name for name, ours, theirs in words if ours != theirs)
        return f"rank {self.left} has another replicated state than this rank, in its {found}"


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
