"""The error of a transport that gives up, and the notice that tells the other ranks."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from oscar.errors import OscarError

CONTROL_CAP = 4096  # bytes of a control message
REASON_CHARS = 2000  # characters of a notice's reason; as JSON, printable text of this length fits the cap

Kind = Literal["dead", "silent", "aborted"]


@dataclass(frozen=True)
class Notice:
    """A rank's notice that it gives up.

    rank: rank that noticed the fault. peer: rank at fault (-1: none). step, chunk: place in the AllReduce
    (-1: none). reason: the whole message.
    """

    rank: int
    peer: int
    step: int
    chunk: int
    reason: str

    def pack(self) -> bytes:
        """Return the notice as a control message; cut a reason that is too long."""
        fields = asdict(self)
        for length in (REASON_CHARS, REASON_CHARS // 8):
            fields["reason"] = self.reason[:length]
            message = json.dumps({"abort": fields}).encode()
            if len(message) <= CONTROL_CAP:
                break
        return message

    @classmethod
    def unpack(cls, fields: Any) -> Notice:
        """Return the notice with fields that `pack` wrote. Raises TypeError or KeyError for other fields."""
        kinds = {"rank": int, "peer": int, "step": int, "chunk": int, "reason": str}
        if any(type(fields[name]) is not kind for name, kind in kinds.items()):
            raise TypeError("expected four integers and a text")
        return cls(**fields)


class TransportError(OscarError):
    """A peer is dead, is silent past the deadline, or gave up.

    peer: the rank at fault. tag: tag of the awaited or unsent message. notice: the notice of a peer that gave
    up, else None.
    """

    def __init__(
        self, text: str, *, peer: int, kind: Kind, tag: int = -1, notice: Notice | None = None
    ) -> None:
        super().__init__(text)
        self.peer, self.kind, self.tag, self.notice = peer, kind, tag, notice
