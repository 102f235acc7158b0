"""What a transport says when it gives up: the error here, and the notice that tells other ranks."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from oscar.errors import OscarError

CONTROL_CAP = 4096  # bytes of a control message
REASON_CHARS = 2000  # of a notice; as JSON, printable text of this length fits the cap

Kind = Literal["dead", "silent", "aborted"]


@dataclass(frozen=True)
class Notice:
    """Why a rank gives up: who noticed, which peer is at fault (-1: none), where, and the whole text."""

    rank: int
    peer: int
    step: int
    chunk: int
    reason: str

    def pack(self) -> bytes:
        """Return the control message; a reason that is too long is cut."""
        fields = asdict(self)
        for length in (REASON_CHARS, REASON_CHARS // 8):
            fields["reason"] = self.reason[:length]
            message = json.dumps({"abort": fields}).encode()
            if len(message) <= CONTROL_CAP:
                break
        return message

    @classmethod
    def unpack(cls, fields: Any) -> Notice:
        """Return the notice of which `pack` wrote these fields; raises TypeError or KeyError for others."""
        kinds = {"rank": int, "peer": int, "step": int, "chunk": int, "reason": str}
        if any(type(fields[name]) is not kind for name, kind in kinds.items()):
            raise TypeError("expected four integers and a text")
        return cls(**fields)


class TransportError(OscarError):
    """A peer is dead, silent past the deadline, or gave up; `notice` says why it gave up.

    tag: of the message that was waited for, or could not be sent.
    """

    def __init__(
        self, text: str, *, peer: int, kind: Kind, tag: int = -1, notice: Notice | None = None
    ) -> None:
        super().__init__(text)
        self.peer, self.kind, self.tag, self.notice = peer, kind, tag, notice
