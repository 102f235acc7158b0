"""The handshake: ranks compare settings that must be equal; all raise the same error where they differ."""

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
CAP = 1 << 16  # most bytes of a greeting
MAX_TEXT = 1 << 20  # most bytes of an unpacked greeting; as objects of Python it takes up to 30 times as much
NEWS = b"OSCAR new shapes 1\n"  # begins the message that a rank with new shapes sends in place of digests
STATE_CAP = 2048  # most bytes of digests, and of news
KEY_CHARS = 100  # characters of a key in news


def flatten(section: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return nested mappings as one, keys joined by dots."""
    flat: dict[str, Any] = {}
    for key, value in section.items():
        name = f"{prefix}.{key}"
        flat.update(flatten(value, name) if isinstance(value, Mapping) else {name: value})
    return flat


def fingerprint(pairs: Mapping[str, Any]) -> str:
    """Return 16 hexadecimal digits that identify `pairs`."""
    return hashlib.sha256(json.dumps(dict(pairs)).encode()).hexdigest()[:16]


def compare(
    transport: Transport, pairs: Mapping[str, Any], deadline: float, what: str, *, advice: str
) -> None:
    """Gather every rank's `pairs`; raise ConfigError on all ranks for the first difference to rank 0.

    pairs: JSON values by key, in the same order on all ranks. A greeting that is too long is compared by its
    fingerprint. A process outside of this transport's members is reported before any other difference.
    Raises TransportError as `Transport.gather` does.
    """
    members = list(transport.members)
    mine = _pack(pairs, members, transport.rank)
    mine = mine or _pack({"greeting": fingerprint(pairs)}, members, transport.rank)
    arrived = _Greetings(transport.gather(mine, CAP, deadline, what))
    difference = misplaced(arrived, members)
    if difference is not None:
        advice = "make the transports of a group on all of its ranks, on no other, in one order"
    else:
        difference = first_difference(_Greetings(arrived.messages, "pairs"))
    if difference is not None:
        transport.part(deadline)
        raise ConfigError(f"{what}: {difference}; {advice}")


def misplaced(greetings: Sequence[Mapping[str, Any] | None], members: Sequence[int]) -> str | None:
    """Return in words the first process that is not at its position in `members`, or None."""
    for rank, arrived in enumerate(greetings):
        if arrived is not None and (arrived["group"] != members or arrived["process"] != members[rank]):
            expected = f"expected process {members[rank]} of the group {members} as rank {rank}"
            return f"{expected}, got process {arrived['process']} of the group {arrived['group']}"
    return None


@dataclass(frozen=True)
class Subject:
    """The input of a rank's call: the key of its state as text, and the shapes [tensor]."""

    key: str
    shapes: Sequence[tuple[int, ...]]

    def news(self, before: Sequence[tuple[int, ...]]) -> bytes:
        """Return the message about new shapes; it names the first tensor whose shape differs from before."""
        pairs = zip_longest(self.shapes, before)
        at = next((i for i, (shape, old) in enumerate(pairs) if shape != old), 0)
        shape = list(self.shapes[at]) if at < len(self.shapes) else None
        content = {"key": self.key[:KEY_CHARS], "tensors": len(self.shapes), "at": at, "shape": shape}
        return NEWS + json.dumps(content).encode()

    def against(self, news: bytes) -> str:
        """Return in words how the `news` of another rank differ from this rank's shapes."""
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
    """Checks that the previous rank has the same replicated state, or the same new shapes.

    message: this rank's message to the next one: 4 bytes for each part of the state, or its new shapes. It is
    sent before the first frame of a call. The previous rank's message is read before the first frame is
    decoded. This costs one small message and no extra wait. A rank that alone has new shapes is found this
    way.
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
        """Return the check of a state. parts: digests by name, in the same order on all ranks."""
        return cls(transport, struct.pack(f"<{len(parts)}I", *parts.values()))

    def receive(self, deadline: float) -> bytes | None:
        """Return the previous rank's message at the first call, then None. Raises as `wait` does."""
        if not self.pending:
            return None
        arrived = self.transport.wait(self.left, STATE_TAG, deadline, "the digest of the replicated state")
        self.pending = False
        return bytes(arrived)

    def difference(self, names: Sequence[str], subject: Subject | None, deadline: float) -> str | None:
        """Return in words how the previous rank differs, or None. names: names of the state's parts."""
        arrived = self.receive(deadline)
        if arrived is None or arrived == self.message:
            return None
        if arrived.startswith(NEWS) and subject is not None:
            return f"rank {self.left} came with other shapes than this rank: {subject.against(arrived)}"
        result = "number of its parts"
        if len(arrived) == len(self.message):
            words = zip(
                names, struct.iter_unpack("<I", self.message), struct.iter_unpack("<I", arrived), strict=True
            )
            result = ", ".join(name for name, ours, theirs in words if ours != theirs)
        return f"rank {self.left} has another replicated state than this rank, in its {result}"


def first_difference(greetings: Sequence[Mapping[str, Any] | None]) -> str | None:
    """Return in words the first rank and key that differ from rank 0, or None. None: unreadable greeting."""
    for rank, arrived in enumerate(greetings):
        if arrived is None:
            return f"rank {rank} sent a greeting of another format"
    first = greetings[0] or {}
    for rank, arrived in enumerate(greetings):
        for key in [*first, *(key for key in arrived or {} if key not in first)]:
            ours, theirs = (json.dumps(g[key]) if g and key in g else "nothing" for g in (first, arrived))
            if ours != theirs:
                return f"rank {rank} has {key} = {theirs}, rank 0 has {ours}"
    return None


class _Greetings(Sequence[Any]):
    """The greetings in messages of all ranks, or a part of each. Each is unpacked when it is looked at.

    So memory is that of two greetings, whatever a peer sent.
    """

    def __init__(self, messages: Sequence[bytes], part: str | None = None) -> None:
        self.messages, self._part = messages, part

    def __len__(self) -> int:
        return len(self.messages)

    def __getitem__(self, rank: Any) -> Any:
        content = _unpack(self.messages[rank])
        return content if content is None or self._part is None else content[self._part]


def _pack(pairs: Mapping[str, Any], members: Sequence[int], rank: int) -> bytes:
    """Return the greeting with `pairs`, or nothing where it is too long."""
    content = {"group": list(members), "process": members[rank], "pairs": dict(pairs)}
    text = json.dumps(content).encode()
    packed = MAGIC + zlib.compress(text)
    return packed if len(text) <= MAX_TEXT and len(packed) <= CAP else b""


def _unpack(message: bytes) -> dict[str, Any] | None:
    if not message.startswith(MAGIC):
        return None
    try:
        content = json.loads(zlib.decompressobj().decompress(message[len(MAGIC) :], MAX_TEXT))
    except (ValueError, zlib.error, RecursionError):  # RecursionError: lists nested 5,000 deep
        return None
    whole = isinstance(content, dict) and content.keys() == {"group", "process", "pairs"}
    return content if whole and isinstance(content["pairs"], dict) else None
