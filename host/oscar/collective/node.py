"""A node of an AllReduce: performs actions on its values with its own link state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.coding.codec import Codec, LinkDecoder, LinkEncoder
from oscar.coding.frame import noticed, parted, peek, unpack_frame
from oscar.collective.actions import Action, Op, Phase
from oscar.errors import FrameError, PeerError
from oscar.numerics.meanwhile import Meanwhile
from oscar.state import Saved

MIN_SUBFRAME = 4096  # values; for smaller sub-frames, headers and flushes cost more than overlap gains

CODES = Op.ENCODE, Op.DECODE_ADD, Op.DECODE, Op.ADOPT  # what reads or changes a partial sum

# A link end: "encode" with the receiver's rank (-1: several receivers), or "decode" with the encoder's rank.
End = tuple[str, Phase, int]


@dataclass(frozen=True)
class ChunkLayout:
    """The positions of chunks and sub-frames in plan order; equal on all nodes.

    Attributes:
        bounds: First value of each chunk, then the number of values.
        subframes: Number of sub-frames of each chunk.
    """

    bounds: tuple[int, ...]
    subframes: int

    def span(self, chunk: int, sub: int) -> tuple[int, int]:
        """Return (first, end) of a sub-frame's values; an empty range where the chunk is too short for it."""
        span = self._spans.get((chunk, sub))
        if span is None:
            low, high = self.bounds[chunk], self.bounds[chunk + 1]
            size = max(-(-(high - low) // self.subframes), min(high - low, MIN_SUBFRAME))
            span = self._spans[chunk, sub] = min(high, low + sub * size), min(high, low + (sub + 1) * size)
        return span

    @cached_property
    def _spans(self) -> dict[tuple[int, int], tuple[int, int]]:
        return {}


class Node:
    """The values, partial sums and link ends of one rank. `perform` performs one action.

    `begin` hands in the values of one AllReduce, `result` returns its sums. Link ends live on from one
    AllReduce to the next. Each phase has one encoder for each receiver and one decoder for each rank that
    encodes. An end has one set of tables for each table number of the actions.

    Args:
        rank: This node's rank.
        nodes: Number of ranks.
        codec: Codec of the frames.
        apart: Store the sums of the all-gather apart from the partial sums of the reduce-scatter. Neither is
            sent as part of the other, so they may arrive in any order.
        width: Returns the raw width, in bits, of a sum over the given number of workers.
        weighs: Count a NIC's work for each frame that is coded here, if the codec gives it.
        keeps: Leave the values of `begin` as they are. Otherwise sums take their place, unless `apart`.
    """

    def __init__(
        self,
        rank: int,
        nodes: int,
        codec: Codec,
        *,
        apart: bool,
        width: Callable[[int], int],
        weighs: bool = True,
        keeps: bool = True,
    ) -> None:
        self.rank, self.nodes, self.codec = rank, nodes, codec
        self.apart, self.width, self._in_place = apart, width, not keeps and not apart
        self._weigh = codec.work if weighs else None
        self.ends: dict[End, Any] = {}
        self._frames: dict[tuple[Phase, int, int, int], Any] = {}
        self._waits: dict[tuple[Phase, int, int, int], Action] = {}  # the WAIT that brought a frame
        self.clocks: list[tuple[Action, int]] = []  # a device's clock cycles by action, since `begin`
        # NIC work of the frames coded here, for codecs that give it.
        self._work: dict[tuple[Phase, int, int, int], Array | None] = {}
        self.local = self.work = self._spare = np.zeros(0, np.int32)
        self.suffix: Array | None = None
        # Sub-frames for which `work` and `suffix` hold values. For all others the partial sum is `local` and
        # the suffix is 0, which saves copying them.
        self._summed: set[tuple[int, int]] = set()
        self._arrived: set[tuple[int, int]] = set()
        self._notice = 0  # of this node's values
        # Notices of partial sums, by (apart, chunk, sub-frame). They go where the values go.
        self._notices: dict[tuple[bool, int, int], int] = {}
        self._left: Counter[tuple[int, int]] = Counter()  # actions of CODES until a sub-frame's sum is final
        self._meanwhile: Meanwhile | None = None

    def begin(self, local: Array, classes: Array | None, layout: ChunkLayout, notice: int = 0) -> None:
        """Start an AllReduce.

        Args:
            local: Values in plan order, not written to unless sums take their place.
            classes: Position classes in plan order, or None.
            layout: Where chunks and sub-frames begin.
            notice: Two bits about these values (oscar.numerics.renewal).
        """
        self._notice = notice
        self._notices.clear()
        self.local, self.classes, self.layout = local, classes, layout
        if self._in_place:
            self.work = local
        elif self.work.shape != local.shape or self.work.dtype != local.dtype:
            self.work = np.empty_like(local)  # reused from call to call, so that pages stay mapped
            self.suffix = np.empty_like(local) if self.apart else None
            self._spare = self.work[:0]
        self._summed.clear()
        self._arrived.clear()
        self._frames.clear()
        self._waits.clear()
        self._work.clear()
        self._left.clear()
        self._meanwhile = None
        self.clocks = []

    def watch(self, actions: Iterable[Action], meanwhile: Meanwhile) -> None:
        """Report each sub-frame whose sum is final to `meanwhile`. actions: all that follow."""
        self._left = Counter((action.chunk, action.sub) for action in actions if action.op in CODES)
        self._meanwhile = meanwhile

    def result(self) -> Array:
        """Return the sums in plan order, in the dtype of `begin`; final once all actions are performed.

        Sums that were stored apart are added here: the prefix summed on this node and the received suffix.
        Each node splits the sum at another place. The results are still bit-identical, because integer
        addition is exact in any order. The returned array is overwritten after the next `begin`, or is that
        of this one.
        """
        for chunk in range(len(self.layout.bounds) - 1):
            for sub in range(self.layout.subframes):
                self._complete(chunk, sub)
        self._frames.clear()
        return self.work

    @property
    def notice(self) -> int:
        """The notices of all ranks, joined; complete once all actions are performed."""
        return reduce(or_, self._notices.values(), self._notice)

    def _complete(self, chunk: int, sub: int) -> None:
        """Put the sum of a sub-frame, which is final, into `work`."""
        low, high = self.layout.span(chunk, sub)
        if self.suffix is not None and (chunk, sub) in self._arrived:
            np.add(self._prefix(chunk, sub), self.suffix[low:high], out=self.work[low:high])
        elif (chunk, sub) not in self._summed and not self._in_place:
            self.work[low:high] = self.local[low:high]
        self._summed.add((chunk, sub))
        self._arrived.discard((chunk, sub))

    def _prefix(self, chunk: int, sub: int) -> Array:
        """Return the partial sum of a sub-frame: this node's values until other values were added."""
        low, high = self.layout.span(chunk, sub)
        return (self.work if (chunk, sub) in self._summed else self.local)[low:high]

    def count(self, action: Action) -> int:
        """Return the number of values in the action's sub-frame."""
        low, high = self.layout.span(action.chunk, action.sub)
        return high - low

    def coding_work(self, action: Action) -> Array | None:
        """Return a NIC's work for the action's frame; None unless coded here by a codec that gives it."""
        return self._work.get(self.frame_key(action))

    def cap(self, action: Action) -> int:
        """Return an upper bound of the action's frame in bytes, valid on every node."""
        return self.codec.max_frame(self.count(action), self.width(action.workers))

    def receive(self, action: Action, frame: bytes) -> None:
        """Store the frame that a WAIT has received."""
        self._frames[self.frame_key(action)] = frame
        self._waits[self.frame_key(action)] = action

    def perform(self, action: Action) -> bytes | None:
        """Perform one action; return the frame of a SEND or FORWARD.

        Raises PeerError for a received frame that does not decode.
        """
        frame = self.code(action)
        self.note(action)
        return frame

    def code(self, action: Action) -> bytes | None:
        """Do what `perform` does but for `note`. Threads may do so at once for other link ends and places."""
        frame: bytes | None = self._HANDLERS[action.op](self, action)
        return frame

    def note(self, action: Action) -> None:
        """Note that an action is done: the sum at its place may be final."""
        if self._left and action.op in CODES:
            place = action.chunk, action.sub
            self._left[place] -= 1
            if self._left[place] == 0 and self._meanwhile is not None:
                self._complete(*place)
                self._meanwhile.final(self.work, *self.layout.span(*place))

    def end_of(self, action: Action) -> End:
        """Return which link end codes the frame of `action`, one of CODES; make it at its first use."""
        kind, rank = ("encode", action.peer) if action.op is Op.ENCODE else ("decode", action.source)
        self._end(kind, action.phase, rank)
        return kind, action.phase, rank

    def frame_key(self, action: Action) -> tuple[Phase, int, int, int]:
        """Return the key under which the action's frame is stored, coded here or received."""
        return action.phase, action.source, action.chunk, action.sub

    def _context(self, low: int, high: int) -> Array | None:
        return None if self.classes is None else self.classes[low:high]

    def _apart(self, action: Action) -> Array | None:
        """Return the array for sums that are stored apart if the action's phase uses it, else None."""
        return self.suffix if action.phase is Phase.ALL_GATHER else None

    def _end(self, kind: str, phase: Phase, source: int) -> Any:
        """Return a link end; make it at its first use."""
        key = (kind, phase, source)
        if key not in self.ends:
            self.ends[key] = self._make(kind)
        return self.ends[key]

    def _make(self, kind: str) -> LinkEncoder | LinkDecoder:
        return self.codec.make_encoder() if kind == "encode" else self.codec.make_decoder()

    def _encode(self, action: Action) -> None:
        low, high = self.layout.span(action.chunk, action.sub)
        values, apart = self._prefix(action.chunk, action.sub), self._apart(action)
        if apart is not None:
            values = self.local[low:high]
            if (action.chunk, action.sub) in self._arrived:  # the first sender has received nothing
                if self._spare.size < high - low:
                    self._spare = np.empty(high - low, self.local.dtype)
                values = np.add(values, apart[low:high], out=self._spare[: high - low])
        end: LinkEncoder = self._end("encode", action.phase, action.peer)
        frame = end.encode(
            values,
            step=action.table,
            context=self._context(low, high),
            width=self.width(action.workers),
            chunk=action.chunk,
            sub=action.sub,
        )
        summed = self._notices.get((apart is not None, action.chunk, action.sub), 0)
        self._frames[self.frame_key(action)] = noticed(frame, self._notice | summed)
        if self._weigh is not None:
            self._work[self.frame_key(action)] = self._weigh(end)
        self._count_clocks(action, end)

    def _count_clocks(self, action: Action, link: LinkEncoder | LinkDecoder) -> None:
        if self.codec.clocks is not None:
            self.clocks.append((action, self.codec.clocks(link)))

    def _send(self, action: Action) -> bytes:
        return self._frames[self.frame_key(action)]

    def _forward(self, action: Action) -> bytes:
        """Return a received frame to pass on. Check it first, so that the next rank cannot blame this one."""
        frame, wait = self._frames[self.frame_key(action)], self._waits[self.frame_key(action)]
        try:
            unpack_frame(frame)
        except FrameError as error:
            raise self._bad(wait, error) from error
        return frame

    def _bad(self, action: Action, error: FrameError) -> PeerError:
        """Return the error of a received frame that does not fit `action`."""
        peer = action.source if action.peer < 0 else action.peer
        return PeerError(
            f"rank {self.rank}: frame from rank {peer} at {action.place}, "
            f"sub-frame {action.sub} is bad: {error}",
            rank=self.rank,
            peer=peer,
            step=action.step,
            chunk=action.chunk,
        )

    def _decode(self, action: Action, frame: Any, into: Array, *, plus: Array | None = None) -> None:
        """Decode a frame into its sub-frame of `into` (plan order). plus: values to add, or None."""
        low, high = self.layout.span(action.chunk, action.sub)
        end: Any = self._end("decode", action.phase, action.source)
        out, known = into[low:high], {"step": action.table, "context": self._context(low, high)}
        try:
            frame, notice = parted(frame)
            if self.codec.decodes_into:
                in_out = plus is None or self._in_place or (action.chunk, action.sub) in self._summed
                end.decode(frame, **known, out=out, add=plus is not None, plus=None if in_out else plus)
                self._check_place(action, frame, high - low)
            else:
                values = end.decode(frame, **known)
                self._check_place(action, frame, high - low)
                if plus is None:
                    out[:] = values
                else:
                    np.add(plus, values.astype(out.dtype, copy=False), out=out)
        except FrameError as error:
            raise self._bad(action, error) from error
        if notice:
            place = into is self.suffix, action.chunk, action.sub
            self._notices[place] = self._notices.get(place, 0) | notice
        self._count_clocks(action, end)

    def _check_place(self, action: Action, frame: bytes, count: int) -> None:
        """Raise FrameError unless an intact frame belongs to this action."""
        head = peek(frame)
        given = (head.count, head.width, head.chunk, head.sub)
        expected = (count, self.width(action.workers), action.chunk, action.sub)
        if given != expected:
            raise FrameError(
                f"frame has (count, width, chunk, sub-frame) {given}, expected {expected}: "
                "it went to the wrong place, or its sender has another configuration"
            )

    def _decode_add(self, action: Action) -> None:
        place, apart = (action.chunk, action.sub), self._apart(action)
        frame = self._frames.pop(self.frame_key(action))
        if apart is None or self._left[place] == 1:  # nothing else needs the suffix alone
            self._decode(action, frame, self.work, plus=self._prefix(*place))
            self._summed.add(place)
        else:
            self._decode(action, frame, apart)
            self._arrived.add(place)

    def _adopt(self, action: Action) -> None:
        self._finish(action, self._frames[self.frame_key(action)])

    def _decode_final(self, action: Action) -> None:
        self._finish(action, self._frames.pop(self.frame_key(action)))

    def _finish(self, action: Action, frame: bytes) -> None:
        self._decode(action, frame, self.work)
        self._summed.add((action.chunk, action.sub))

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

    def saturated(self) -> Array:
        """Return the sums of Codec.saturated over all encoders since they were made, float64 [2]."""
        total = np.zeros(2)
        if self.codec.saturated is not None:
            encoders = [end for (kind, *_), end in self.ends.items() if kind == "encode"]
            total += np.sum([self.codec.saturated(end) for end in encoders] or [(0, 0)], axis=0)
        return total

    def state_dict(self) -> dict[Any, Any]:
        """Return a copy of the state of all link ends."""
        return {key: end.state_dict() for key, end in self.ends.items()}

    def load_state_dict(self, state: Any) -> None:
        """Load a state that `state_dict` returned; drop link ends made since then.

        Raises ConfigError, and changes nothing, where `state` does not fit.
        """
        saved = Saved.of(state)
        ends = {key: self._make(key[0]) for key in saved.keys(self._is_end, "ends of links")}
        for key, end in ends.items():
            end.load_state_dict(saved[key])
        self.ends = {(kind, Phase(phase), source): end for (kind, phase, source), end in ends.items()}

    def _is_end(self, key: Any) -> bool:
        """Return True if `key` names a link end that this node may have."""
        if type(key) is not tuple or len(key) != 3 or key[1] not in tuple(Phase):
            return False
        first = {"decode": 0, "encode": -1}.get(key[0], self.nodes)
        return isinstance(key[2], int) and first <= key[2] < self.nodes

    def snapshot(self) -> dict[Any, Any]:
        """Return a cheap token of all link ends, for `restore`."""
        return {key: end.snapshot() for key, end in self.ends.items()}

    def restore(self, token: dict[Any, Any]) -> None:
        """Restore the link ends of a `snapshot`; drop link ends made since then."""
        self.ends = {key: end for key, end in self.ends.items() if key in token}
        for key, end in self.ends.items():
            end.restore(token[key])
