"""One node of an AllReduce: performs actions on its values with its own link tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from oscar.coding.codec import Codec, LinkDecoder, LinkEncoder
from oscar.coding.frame import peek
from oscar.collective.ring import MAX_SUBFRAMES, Action, Op, Phase
from oscar.errors import FrameError, PeerError
from oscar.state import Saved

MIN_SUBFRAME = 4096  # values; smaller sub-frames cost more in flushes and headers than overlap gains


@dataclass(frozen=True)
class Layout:
    """Where chunks and sub-frames lie in plan order; the same on all nodes."""

    bounds: tuple[int, ...]
    subframes: int

    def span(self, chunk: int, sub: int) -> tuple[int, int]:
        """Return the range of values of a sub-frame; empty when the chunk is too short for it."""
        low, high = self.bounds[chunk], self.bounds[chunk + 1]
        size = max(-(-(high - low) // self.subframes), min(high - low, MIN_SUBFRAME))
        return min(high, low + sub * size), min(high, low + (sub + 1) * size)


class Node:
    """Values, partial sums and link tables of one rank; `perform` does one action.

    The links outlive an AllReduce, `begin` hands in the values of one and `result` returns its sums.
    With `boomerang` (duplex or not) residuals are kept apart from partial sums: neither is ever sent as
    part of the other, so the two may arrive in either order. `width(terms)` is the raw width in bits of a sum
    of that many workers' values.
    """

    def __init__(
        self, rank: int, nodes: int, codec: Codec, *, boomerang: bool, width: Callable[[int], int]
    ) -> None:
        self.rank, self.nodes, self.codec = rank, nodes, codec
        self.boomerang, self.width = boomerang, width
        self.encoders: dict[Phase, LinkEncoder] = {phase: codec.make_encoder() for phase in Phase}
        self.decoders: dict[tuple[Phase, int], LinkDecoder] = {}
        self._frames: dict[tuple[Phase, int], bytes] = {}
        self.clocks: list[tuple[Action, int]] = []  # of a device that counts them, since `begin`
        self.local = self.work = np.zeros(0, np.int32)
        self.suffix: np.ndarray | None = None

    def begin(self, local: np.ndarray, classes: np.ndarray | None, layout: Layout) -> None:
        """Start an AllReduce over `local` (plan order; kept, and unchanged) with position `classes`."""
        self.local, self.classes, self.layout = local, classes, layout
        if self.work.shape != local.shape or self.work.dtype != local.dtype:
            self.work = np.empty_like(local)  # kept from call to call, so that pages stay mapped
            self.suffix = np.empty_like(local) if self.boomerang else None
        self.work[:] = local
        if self.suffix is not None:
            self.suffix[:] = 0
        self._frames.clear()
        self.clocks = []

    def result(self) -> np.ndarray:
        """Return the sums in plan order and the dtype of `begin`; final once all actions are performed.

        With boomerang, the prefix summed here plus the suffix received. The split differs from node to
        node, so the sums are bit-identical only because integers are exact in any association. Without it,
        an array that the next `begin` writes to.
        """
        return self.work if self.suffix is None else self.work + self.suffix

    def count(self, action: Action) -> int:
        """Return how many values the action's sub-frame has."""
        low, high = self.layout.span(action.chunk, action.sub)
        return high - low

    def table_step(self, action: Action) -> int:
        """Return the step number that selects tables: the whole AllReduce's, one for all forwarded frames."""
        if action.phase is Phase.REDUCE_SCATTER:
            return action.step
        return self.nodes - 1 + (action.step if self.boomerang else 0)

    def terms(self, action: Action) -> int:
        """Return how many workers' values are summed in the action's frame."""
        if action.phase is Phase.ALL_GATHER and not self.boomerang:
            return self.nodes
        return action.step + 1

    def cap(self, action: Action) -> int:
        """Return the bytes that the action's frame never exceeds, on any node."""
        return self.codec.max_frame(self.count(action), self.width(self.terms(action)))

    def _decoder(self, action: Action) -> LinkDecoder:
        forwarded = action.phase is Phase.ALL_GATHER and not self.boomerang
        key = (action.phase, action.chunk if forwarded else -1)
        if key not in self.decoders:
            self.decoders[key] = self.codec.make_decoder()
        return self.decoders[key]

    def _context(self, low: int, high: int) -> np.ndarray | None:
        return None if self.classes is None else self.classes[low:high]

    def receive(self, action: Action, frame: bytes) -> None:
        """Keep the frame that a WAIT waited for."""
        self._frames[self._key(action)] = frame

    def perform(self, action: Action) -> bytes | None:
        """Do one action; return the frame of a SEND or FORWARD.

        Raises PeerError when a received frame does not decode.
        """
        return self._HANDLERS[action.op](self, action)

    def _key(self, action: Action, back: int = 0) -> tuple[Phase, int]:
        return action.phase, (action.step - back) * MAX_SUBFRAMES + action.sub

    def _encode(self, action: Action) -> None:
        low, high = self.layout.span(action.chunk, action.sub)
        values = self.work[low:high]
        if action.phase is Phase.ALL_GATHER and self.suffix is not None:
            values = self.suffix[low:high] + self.local[low:high]  # the owner has received nothing: 0
        self._out = self.encoders[action.phase].encode(
            values,
            step=self.table_step(action),
            context=self._context(low, high),
            width=self.width(self.terms(action)),
            chunk=action.chunk,
            sub=action.sub,
        )
        self._count_clocks(action, self.encoders[action.phase])

    def _count_clocks(self, action: Action, link: LinkEncoder | LinkDecoder) -> None:
        if self.codec.clocks is not None:
            self.clocks.append((action, self.codec.clocks(link)))

    def _send(self, action: Action) -> bytes:
        return self._out

    def _forward(self, action: Action) -> bytes:
        return self._frames[self._key(action, back=1)]

    def _decode(self, action: Action, frame: bytes) -> np.ndarray:
        low, high = self.layout.span(action.chunk, action.sub)
        step, at = self.table_step(action), action.ring_step(self.nodes)
        decoder = self._decoder(action)
        try:
            values = decoder.decode(frame, step=step, context=self._context(low, high))
            self._check_place(action, frame, high - low)
        except FrameError as error:
            raise PeerError(
                f"rank {self.rank}: frame from rank {action.peer} at step {at}, chunk {action.chunk}, "
                f"sub-frame {action.sub} is bad: {error}",
                rank=self.rank,
                peer=action.peer,
                step=at,
                chunk=action.chunk,
            ) from error
        self._count_clocks(action, decoder)
        return values

    def _check_place(self, action: Action, frame: bytes, count: int) -> None:
        """Raise FrameError unless an intact frame is the one that this action is about."""
        head = peek(frame)
        came = (head.count, head.width, head.chunk, head.sub)
        expected = (count, self.width(self.terms(action)), action.chunk, action.sub)
        if came != expected:
            raise FrameError(
                f"frame has (count, width, chunk, sub-frame) {came}, expected {expected}: "
                "sent to the wrong place, or by a node with another configuration"
            )

    def _decode_add(self, action: Action) -> None:
        low, high = self.layout.span(action.chunk, action.sub)
        values = self._decode(action, self._frames.pop(self._key(action)))
        if action.phase is Phase.ALL_GATHER and self.suffix is not None:
            self.suffix[low:high] = values
        else:
            self.work[low:high] += values.astype(self.work.dtype, copy=False)

    def _adopt(self, action: Action) -> None:
        low, high = self.layout.span(action.chunk, action.sub)
        self.work[low:high] = self._decode(action, self._out)

    def _decode_final(self, action: Action) -> None:
        low, high = self.layout.span(action.chunk, action.sub)
        self.work[low:high] = self._decode(action, self._frames.pop(self._key(action)))

    def _nothing(self, action: Action) -> None:
        return None

    _HANDLERS: dict[Op, Any] = {  # noqa: RUF012 - a constant table of methods
        Op.POST_RECV: _nothing,
        Op.WAIT: _nothing,
        Op.ENCODE: _encode,
        Op.SEND: _send,
        Op.FORWARD: _forward,
        Op.DECODE_ADD: _decode_add,
        Op.DECODE: _decode_final,
        Op.ADOPT: _adopt,
    }

    def links(self) -> dict[Any, Any]:
        """Return every link end by a key that names it."""
        return {**{("encode", phase): e for phase, e in self.encoders.items()}, **self.decoders}

    def state_dict(self) -> dict[Any, Any]:
        """Return a copy of the state of all link ends."""
        return {key: link.state_dict() for key, link in self.links().items()}

    def load_state_dict(self, state: Any) -> None:
        """Take over what `state_dict` returned; link ends made since then are dropped.

        Raises ConfigError, and changes nothing, where it is none.
        """
        saved = Saved.of(state)
        encoders = {phase: self.codec.make_encoder() for phase in Phase}
        ends: dict[Any, Any] = {("encode", phase): end for phase, end in encoders.items()}
        keys = saved.keys(lambda key: key in ends or key in self._possible(), "ends of links")
        decoders = {key: self.codec.make_decoder() for key in keys if key not in ends}
        for key, end in (ends | decoders).items():
            end.load_state_dict(saved[key])
        self.encoders = encoders
        self.decoders = {(Phase(phase), at): end for (phase, at), end in decoders.items()}

    def _possible(self) -> set[tuple[Phase, int]]:
        """Return the keys that decoders may have: see `_decoder`."""
        forwarded = [] if self.boomerang else [(Phase.ALL_GATHER, chunk) for chunk in range(self.nodes)]
        back = [(Phase.ALL_GATHER, -1)] if self.boomerang else []
        return {(Phase.REDUCE_SCATTER, -1), *forwarded, *back}

    def snapshot(self) -> dict[Any, Any]:
        """Return a cheap token of all link ends for `restore`."""
        return {key: link.snapshot() for key, link in self.links().items()}

    def restore(self, token: dict[Any, Any]) -> None:
        """Go back to the link ends of `snapshot`; those made since then are dropped."""
        self.decoders = {key: d for key, d in self.decoders.items() if key in token}
        for key, link in self.links().items():
            link.restore(token[key])
