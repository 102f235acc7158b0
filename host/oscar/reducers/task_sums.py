"""What becomes of the messages of tasks: payloads of a task or of a whole part, and the answer of all parts.

A part is the tasks of one rank. Payloads follow from the tasks' values and the tables alone: a part has the
same bytes, and moves its tables on alike, whoever computed it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.coding.frame import noticed, parted, peek
from oscar.collective.redundant import Redundant
from oscar.errors import ConfigError, FrameError
from oscar.schemes.base import Channel, Message
from oscar.state import Saved

Part = Message | bytes  # a task's message as it was computed here, or its payload as it arrived


class Tables:
    """One set of a codec's tables for each part; equal on all ranks.

    They are states of link ends, which one encoder and one decoder take in turn.
    """

    def __init__(self, channel: Channel, schedule: Redundant, rank: int) -> None:
        codec = channel.codec.of(rank)
        self.channel, self.pieces = channel, schedule.pieces
        self._encoder, self._decoder = codec.make_encoder(), codec.make_decoder()
        self.states = dict.fromkeys(range(schedule.nodes), self._encoder.snapshot())

    def width(self, sub: int) -> int:
        """Return the bits of a raw value of a task (sub 1 and more), or of a whole part (0)."""
        return self.channel.width(1 if sub else self.pieces)

    def encode(
        self, part: int, sub: int, values: Array, context: Array | None, notice: int
    ) -> tuple[bytes, Any]:
        """Return a frame, and the state of the tables after it."""
        end = self._encoder
        end.restore(self.states[part])
        frame = end.encode(values, step=0, context=context, width=self.width(sub), chunk=part, sub=sub)
        return bytes(noticed(frame, notice)), end.snapshot()

    def decode(
        self, part: int, sub: int, payload: bytes, context: Array | None, onto: Array
    ) -> tuple[int, Any]:
        """Add a frame's values to `onto`; return its notice, and the state of the tables after it.

        Raises FrameError unless it is this frame.
        """
        end: Any = self._decoder
        end.restore(self.states[part])
        frame: Any
        frame, notice = parted(payload)
        if self.channel.codec.decodes_into:
            end.decode(frame, step=0, context=context, out=onto, add=True)
        else:
            values = end.decode(frame, step=0, context=context)
            if values.shape != onto.shape:
                raise FrameError(f"frame has {values.size} values, expected {onto.size}")
            onto += values.astype(onto.dtype, copy=False)
        head = peek(frame)
        given, expected = (head.width, head.chunk, head.sub), (self.width(sub), part, sub)
        if given != expected:
            raise FrameError(f"frame has (width, chunk, sub-frame) {given}, expected {expected}")
        return notice, end.snapshot()

    def state_dict(self) -> dict[int, Any]:
        """Return a copy of the tables of all parts."""
        result = {}
        for part, token in self.states.items():
            self._encoder.restore(token)
            result[part] = self._encoder.state_dict()
        return result

    def load_state_dict(self, saved: Saved) -> None:
        """Load a state of `state_dict`. Raises ConfigError, and changes nothing, if it does not fit."""
        fresh = {}
        for part in saved.keys(self.states.__contains__, f"parts of 0 to {len(self.states) - 1}"):
            self._encoder.load_state_dict(saved[part])
            fresh[part] = self._encoder.snapshot()
        if fresh.keys() != self.states.keys():
            raise ConfigError(
                f"{saved.path}: expected the tables of {len(self.states)} parts, got {len(fresh)}: "
                "load the state of the same schedule"
            )
        self.states = fresh


class Sums(ABC):
    """The messages of all tasks in one round, as far as they have been added."""

    @abstractmethod
    def pack(self, task: int, message: Message) -> bytes:
        """Return the payload of one task."""

    @abstractmethod
    def join(self, part: int, tasks: Sequence[Part]) -> bytes:
        """Add all tasks of a part; return the payload of the whole part. Raises FrameError."""

    @abstractmethod
    def add(self, part: int, payload: bytes) -> None:
        """Add a whole part. Raises FrameError."""

    @abstractmethod
    def answer(self) -> Any:
        """Return what the scheme gets back; all parts have been added."""


class Gathered(Sums):
    """Bytes of every task, `size` each, which are not combined."""

    def __init__(self, schedule: Redundant, size: int) -> None:
        self.schedule, self.size = schedule, size
        self.parts: dict[int, bytes] = {}

    def pack(self, task: int, message: Message) -> bytes:
        return message.data.tobytes()

    def join(self, part: int, tasks: Sequence[Part]) -> bytes:
        payload = b"".join(each if isinstance(each, bytes) else each.data.tobytes() for each in tasks)
        self.add(part, payload)
        return payload

    def add(self, part: int, payload: bytes) -> None:
        if len(payload) != self.size * self.schedule.pieces:
            raise FrameError(f"it has {len(payload)} bytes, expected {self.size} for each task")
        self.parts[part] = payload

    def answer(self) -> list[Array]:
        joined = b"".join(self.parts[part] for part in range(self.schedule.nodes))
        return list(np.frombuffer(joined, np.uint8).reshape(self.schedule.tasks, self.size))


class Plain(Sums):
    """Integers that are not coded."""

    def __init__(self, count: int) -> None:
        self.total = np.zeros(count, np.int32)

    def pack(self, task: int, message: Message) -> bytes:
        return message.data.astype("<i4").tobytes()

    def join(self, part: int, tasks: Sequence[Part]) -> bytes:
        total = np.zeros_like(self.total)
        for each in tasks:
            total += self._values(each) if isinstance(each, bytes) else each.data
        payload = total.astype("<i4").tobytes()
        self.add(part, payload)
        return payload

    def add(self, part: int, payload: bytes) -> None:
        self.total += self._values(payload)

    def _values(self, payload: bytes) -> Array:
        if len(payload) != 4 * self.total.size:
            raise FrameError(f"it has {len(payload)} bytes, expected 4 for each of {self.total.size} values")
        return np.frombuffer(payload, "<i4")

    def answer(self) -> Array:
        return self.total


class Coded(Sums):
    """Integers in frames. The frame of a whole part moves its tables on; that of one task does not."""

    def __init__(self, tables: Tables, message: Message, dtype: Any) -> None:
        self.tables, self.context = tables, message.context
        if self.context is None and tables.channel.codec.uses_context:
            self.context = np.zeros(message.data.size, np.uint8)
        self.total, self.notice = np.zeros(message.data.size, dtype), 0

    def pack(self, task: int, message: Message) -> bytes:
        part, piece = divmod(task, self.tables.pieces)
        return self.tables.encode(part, piece + 1, message.data, self.context, message.notice or 0)[0]

    def join(self, part: int, tasks: Sequence[Part]) -> bytes:
        total, joined = np.zeros_like(self.total), 0
        for sub, each in enumerate(tasks, 1):
            if isinstance(each, bytes):
                joined |= self.tables.decode(part, sub, each, self.context, total)[0]
            else:
                total += each.data
                joined |= each.notice or 0
        payload, self.tables.states[part] = self.tables.encode(part, 0, total, self.context, joined)
        self.total += total
        self.notice |= joined
        return payload

    def add(self, part: int, payload: bytes) -> None:
        notice, self.tables.states[part] = self.tables.decode(part, 0, payload, self.context, self.total)
        self.notice |= notice

    def answer(self) -> tuple[Array, int]:
        return self.total, self.notice
