"""The two ends of a link direction: frames, sequence numbers, checksums and table sets around a coder."""

from __future__ import annotations

import os
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from oscar.array import Array
from oscar.coding.asc.params import (
    ASC_CODE,
    DIRECTORY_BYTES,
    FORMAT,
    MAX_BLOCK_LOG2,
    PAD,
    PREFIX_BYTES,
    AscParams,
)
from oscar.coding.asc.state import TableState
from oscar.coding.codec import as_values, check_header, check_width, fit_width
from oscar.coding.frame import HEADER_BYTES, Header, pack_frame, put_head, unpack_frame
from oscar.errors import ConfigError, FrameError, OscarError
from oscar.numerics.tensors import Room
from oscar.state import Reader, Saved, Stateful

MAX_STEP = 0xFFFF  # the header has 16 bits for a step
MOST_FRAMES = 16  # of an end, whose memory is kept
SHORT = 1 << 15  # bytes of a frame that is copied: finding memory that nobody holds takes longer

Implementation = Literal["compiled", "reference"]


class Coder(Protocol):
    """An implementation of the payload coder: reference or compiled, or of tensors on a GPU.

    classes: uint8 position classes 0..15, one for each value, or None. `state.hist` learns unless a call
    raises.
    """

    def encode(
        self, values: np.ndarray, classes: np.ndarray | None, width: int, state: TableState
    ) -> bytes | memoryview:
        """Return the payload of `values`, contiguous int8, int16 or int32 that fit `width` bits."""

    def decode(
        self,
        payload: memoryview,
        count: int,
        classes: np.ndarray | None,
        width: int,
        state: TableState,
        out: np.ndarray,
        plus: np.ndarray | None,
    ) -> None:
        """Write the values of `payload` to `out`, int16 or int32; raises FrameError.

        plus: what they are added to, like `out` or the same array; None: to nothing.
        """

    def work(self, _: object = None) -> np.ndarray | None:
        """Return the NIC's work for the last encoded payload (`turns.cells_of`); None if it had no values."""


def make_coder(params: AscParams, implementation: Implementation = "compiled") -> Coder:
    """Return a coder of payloads for `params`.

    Args:
        implementation: "compiled" (numba) for use, or "reference" (plain integers, slow) to check
            against.

    Raises:
        ValueError: For another name.
        OscarError: If numba's JIT is disabled.

    >>> make_coder(AscParams(), "reference").params.context
    'class'
    """
    if implementation == "reference":
        from oscar.coding.asc.reference import ReferenceCoder

        return ReferenceCoder(params)
    if implementation == "compiled":
        if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
            raise OscarError("the compiled coder cannot run while NUMBA_DISABLE_JIT is set; unset it")
        from oscar.coding.asc.compiled.coder import CompiledCoder

        return CompiledCoder(params)
    raise ValueError(f'implementation must be "compiled" or "reference", got {implementation!r}')


def _read_fingerprint(link: _Link, saved: Saved) -> int:
    fingerprint = saved.integer(0, 0xFFFFFFFF)
    if fingerprint == link.params.fingerprint_of(FORMAT - 1):
        raise ConfigError(
            f"{saved.path}: expected state of ASC's format {FORMAT}, got that of format {FORMAT - 1}: "
            "start the links anew, at both ends"
        )
    if fingerprint != link.fingerprint:
        raise ConfigError(
            f"{saved.path}: state was saved under other parameters than {link.params}; load it with the same"
        )
    return link.fingerprint


def _read_states(link: _Link, saved: Saved) -> dict[int, TableState]:
    last = MAX_STEP if link.params.tables == "step" else 0
    keys = saved.keys(lambda key: type(key) is int and 0 <= key <= last, f"steps of 0 to {last}")
    states = {key: TableState.initial() for key in keys}
    for key, state in states.items():
        state.load_state_dict(saved[key])
    return states


class _Link(Stateful):
    """One end of a link direction: a table set for each step, or one for all steps if they are pooled."""

    STATE: ClassVar[dict[str, Reader]] = {"fingerprint": _read_fingerprint, "states": _read_states}

    def __init__(
        self,
        params: AscParams | None = None,
        *,
        implementation: Implementation = "compiled",
        coder: Coder | None = None,
    ) -> None:
        self.params = params or AscParams()
        self.fingerprint = self.params.fingerprint
        self.states: dict[int, TableState] = {}
        self._implementation: Implementation = implementation
        self._coder = coder

    @property
    def coder(self) -> Coder:
        """The coder, made at its first use. Links may share one; a reference coder serves one thread."""
        if self._coder is None:
            self._coder = make_coder(self.params, self._implementation)
        return self._coder

    def _key(self, step: int) -> int:
        if not 0 <= step <= MAX_STEP:
            raise ValueError(f"step is 0 to {MAX_STEP}, got {step}")
        return step if self.params.tables == "step" else 0

    def _state(self, key: int) -> TableState:
        """Return a copy of the table set for the next frame."""
        if key in self.states:
            return self.states[key].copy()
        nearest = max((k for k in self.states if k < key), default=None)
        if nearest is None:
            return TableState.initial()
        state = self.states[nearest].copy()  # sums of one worker more spread only a little wider
        state.sequence = 0
        return state

    def _classes(self, context: Array | None, count: int) -> np.ndarray | None:
        if context is None or not self.params.uses_position:
            return None
        classes = np.asarray(context)
        if classes.shape != (count,) or classes.dtype.kind not in "iu":
            raise ValueError(
                f"context is one integer class 0..15 for each of {count} values, "
                f"got {classes.dtype} of shape {classes.shape}"
            )
        negative = classes.dtype.kind == "i" and bool((classes < 0).any())
        if count and (negative or int(classes.max()) > 15):
            raise ValueError(f"context classes are 0..15, got {classes.min()}..{classes.max()}")
        return np.ascontiguousarray(classes, np.uint8)

    def checksum(self, step: int) -> int:
        """Return the 16-bit checksum of the tables with which the next frame of `step` is coded."""
        return self._state(self._key(step)).checksum(self.params)


class Encoder(_Link):
    """The sending end of a link direction.

    Args:
        params: Coding parameters, equal at both ends.
        implementation: "compiled" or "reference".
        coder: A coder to share with other links.

    >>> sender, receiver = Encoder(AscParams()), Decoder(AscParams())
    >>> frame = sender.encode(np.array([3, -1, 0, 2]), step=0)
    >>> receiver.decode(frame, step=0)
    array([ 3, -1,  0,  2], dtype=int32)
    """

    def encode(
        self,
        values: Array,
        *,
        step: int,
        context: Array | None = None,
        width: int | None = None,
        chunk: int = 0,
        sub: int = 0,
    ) -> bytes:
        """Return the frame of `values`, 1-D integers; frames of a step are decoded in the same order.

        Raises TypeError or ValueError unless `values` are 1-D integers of that width.

        Args:
            step: Step of the AllReduce, which selects the table set.
            context: Position class 0..15 of each value, which the receiver must know too; None for no
                positions.
            width: Bits of a raw value, 1 to 32, by default the least of 8, 16, 24, 32 that fits.
            chunk: Chunk number for the header.
            sub: Sub-frame number for the header.
        """
        array, bits = self._values(values, width)
        count = len(array)
        classes = self._classes(context, count)
        key = self._key(step)
        state = self._state(key)
        head = Header(ASC_CODE, step, count, chunk, sub, bits, state.sequence, state.checksum(self.params))
        frame = self._frame(head, array, classes, state)
        state.sequence = (state.sequence + 1) & 0xFFFF
        self.states[key] = state
        return frame

    def _frame(self, head: Header, array: Array, classes: Array | None, state: TableState) -> bytes:
        return pack_frame(head, self.coder.encode(array, classes, head.width, state))

    def _values(self, values: Array, width: int | None) -> tuple[Array, int]:
        """Return what the coder takes, and the width."""
        array = as_values(values, "int", narrow=True)
        return array, fit_width(array, None) if width is None else check_width(width)


class Decoder(_Link):
    """The receiving end of a link direction; parameters as for `Encoder`.

    A frame that raises leaves the tables unchanged.

    >>> sender, receiver = Encoder(AscParams()), Decoder(AscParams())
    >>> total = np.array([10, 20], np.int32)
    >>> receiver.decode(sender.encode(np.array([1, 2]), step=0), step=0, out=total, add=True)
    array([11, 22], dtype=int32)
    """

    def decode(
        self,
        frame: bytes,
        *,
        step: int,
        context: Array | None = None,
        out: Array | None = None,
        add: bool = False,
        plus: Array | None = None,
    ) -> Array:
        """Return the values of `frame`, 1-D.

        Args:
            step: Step that the frame must be of.
            context: Position classes as the sender had them.
            out: An int16 or int32 array for the values, by default a new int32 one.
            add: Add the values to those in `plus`, an array like `out`, or in `out` where there is no `plus`.

        Raises:
            FrameError: For any frame but the expected one, also if `context` does not have one class for each
                value or `out` does not fit; `out` may hold some of the values then.
            ValueError: If `context` has other numbers than 0..15, or if `out` is not contiguous, writeable,
                and of one of those types.
        """
        self._check_arrays(out, plus, add)
        head, payload = unpack_frame(frame)
        key = self._key(step)
        state = self._state(key)
        check_header(head, codec=ASC_CODE, step=step, sequence=state.sequence)
        if head.checksum != state.checksum(self.params):
            if head.checksum == state.checksum(self.params, FORMAT - 1):
                raise FrameError(
                    f"expected a frame of ASC's format {FORMAT}, got one of format {FORMAT - 1}: "
                    "install the same version of OSCAR at both ends"
                )
            raise FrameError(
                f"tables of step {step} have checksum 0x{state.checksum(self.params):04x} here and "
                f"0x{head.checksum:04x} at the sender: parameters differ or the ends drifted apart; "
                "reset both"
            )
        blocks = -(-head.count >> MAX_BLOCK_LOG2)  # least possible number of blocks
        if blocks * DIRECTORY_BYTES + PREFIX_BYTES * (head.count > 0) > len(payload):
            raise FrameError(f"{len(payload)} bytes cannot hold the {head.count} values announced")
        if context is not None and len(context) != head.count:
            raise FrameError(f"frame carries {head.count} values, {len(context)} were expected here")
        if out is None:
            out = np.empty(head.count, np.int32)
        elif out.shape != (head.count,) or (out.itemsize == 2 and head.width > 16):
            raise FrameError(
                f"frame carries {head.count} values of {head.width} bits, "
                f"expected {len(out)} that fit {out.dtype}"
            )
        classes = self._classes(context, head.count)
        held = None if not add else out if plus is None else plus
        self.coder.decode(payload, head.count, classes, head.width, state, out, held)
        state.sequence = (state.sequence + 1) & 0xFFFF
        self.states[key] = state
        return out

    def _check_arrays(self, out: Array | None, plus: Array | None, add: bool) -> None:
        """Raise ValueError unless `decode` may write to `out` and add what is in `plus`."""
        if (out is None and add) or (plus is not None and not add):
            raise ValueError("add puts values onto what is in `plus` or `out`: hand in add and out")
        for name, array in (("out", out), ("plus", plus)):
            if array is not None and not self._takes_values(array):
                raise ValueError(
                    f"{name} is a contiguous, writeable array of int16 or int32, "
                    f"got {getattr(array, 'dtype', type(array))}"
                )
        if out is not None and plus is not None and (plus.shape, plus.dtype) != (out.shape, out.dtype):
            raise ValueError(
                f"plus is an array like out, {out.dtype} of shape {out.shape}, "
                f"got {plus.dtype} of shape {plus.shape}"
            )

    def _takes_values(self, out: object) -> bool:
        """Return whether kernels may write to `out` as flat integers of 16 or 32 bits."""
        good = isinstance(out, np.ndarray) and out.dtype in (np.int16, np.int32)
        return good and out.flags.c_contiguous and out.flags.writeable and out.dtype.isnative  # type: ignore[attr-defined]


def _plain_classes(link: _Link, context: Array | None, count: int) -> Array | None:
    """Return what `_Link._classes` does; classes that are uint8 already are not looked through.

    Kernels clamp what they make of a class, so that one beyond 15 codes badly and reads nothing wrong.
    """
    ready = isinstance(context, np.ndarray) and context.dtype == np.uint8 and context.flags.c_contiguous
    if ready and context.shape == (count,):  # type: ignore[union-attr]
        return context if link.params.uses_position else None
    return _Link._classes(link, context, count)


class InnerEncoder(Encoder):
    """The sending end of the compiled coder within an AllReduce, whose position classes are our own.

    Long frames are in memory that is used again once nobody holds them.
    """

    def __init__(self, params: AscParams, coder: Coder) -> None:
        super().__init__(params, coder=coder)
        self._frames = Room(most=MOST_FRAMES)

    def _frame(self, head: Header, array: Array, classes: Array | None, state: TableState) -> Any:
        coder: Any = self.coder
        most = max_frame(self.params, head.count, head.width)
        if most <= SHORT:
            return pack_frame(head, coder.encode(array, classes, head.width, state))
        memory = self._frames.take(most + PAD, np.uint8)
        payload = coder.encode(array, classes, head.width, state, into=memory[HEADER_BYTES:])
        return put_head(head, memory[: HEADER_BYTES + len(payload)].data).toreadonly()

    _classes = _plain_classes


class InnerDecoder(Decoder):
    """The receiving end of the compiled coder within an AllReduce, whose arrays and classes are our own."""

    _classes = _plain_classes

    def _check_arrays(self, out: Array | None, plus: Array | None, add: bool) -> None:
        """Leave unchecked what a node hands in."""


def max_frame(params: AscParams, count: int, width: int) -> int:
    """Return the bytes that a frame of `count` values of `width` bits never exceeds.

    All nodes get the same number, so a receiver can make room before it knows the frame.

    >>> max_frame(AscParams(block_log2=14), count=1000, width=16)
    2293
    """
    return HEADER_BYTES + params.max_payload(count, width)
