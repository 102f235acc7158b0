"""The two ends of a link direction: frames, sequence, checksums and per-step state around a coder."""

from __future__ import annotations

from typing import ClassVar, Protocol

import numpy as np

from oscar.array import Array
from oscar.coding.codec import as_values, check_header, fit_width
from oscar.coding.frame import HEADER_BYTES, Header, pack_frame, unpack_frame
from oscar.errors import ConfigError, FrameError
from oscar.state import Reader, Saved, Stateful
from oscar_hdl.format2.params import BLOCK_HEADER_BYTES, AscParams
from oscar_hdl.format2.reference import ReferenceCoder
from oscar_hdl.format2.state import TableState

ASC_CODE = 16  # codec byte of ASC frames
MAX_STEP = 0xFFFF


class Coder(Protocol):
    """What codes payloads: the plain-integer reference, or a simulated lane in its place."""

    def encode(self, values: np.ndarray, classes: np.ndarray, width: int, state: TableState) -> bytes: ...

    def decode(
        self, payload: memoryview, count: int, classes: np.ndarray, width: int, state: TableState
    ) -> np.ndarray: ...


def _read_fingerprint(link: _Link, saved: Saved) -> int:
    if saved.integer(0, 0xFFFFFFFF) != link.fingerprint:
        raise ConfigError(
            f"{saved.path}: state was saved under other parameters than {link.params}; load it with the same"
        )
    return link.fingerprint


def _read_states(link: _Link, saved: Saved) -> dict[int, TableState]:
    keys = saved.keys(lambda key: type(key) is int and 0 <= key <= MAX_STEP, f"steps of 0 to {MAX_STEP}")
    states = {key: TableState.initial() for key in keys}
    for key, state in states.items():
        state.load_state_dict(saved[key])
    return states


class _Link(Stateful):
    """State per step of one link direction. coder: by default the reference."""

    STATE: ClassVar[dict[str, Reader]] = {"fingerprint": _read_fingerprint, "states": _read_states}

    def __init__(self, params: AscParams | None = None, *, coder: Coder | None = None) -> None:
        self.params = params or AscParams()
        self.fingerprint = self.params.fingerprint
        self.states: dict[int, TableState] = {}
        self.coder = coder or ReferenceCoder(self.params)

    def _state(self, step: int) -> TableState:
        if not 0 <= step <= MAX_STEP:
            raise ValueError(f"step is 0 to {MAX_STEP}, got {step}")
        if step in self.states:
            return self.states[step].copy()
        nearest = max((k for k in self.states if k < step), default=None)
        if nearest is None:
            return TableState.initial()
        state = self.states[nearest].copy()  # one more worker only spreads sums a little wider
        state.sequence = 0
        return state

    def _classes(self, context: Array | None, count: int) -> np.ndarray:
        if context is None:
            return np.zeros(count, np.uint8)
        classes = np.asarray(context)
        if classes.shape != (count,) or classes.dtype.kind not in "iu":
            raise ValueError(
                f"context is one integer class 0..15 for each of {count} values, "
                f"got {classes.dtype} of shape {classes.shape}"
            )
        negative = classes.dtype.kind == "i" and bool((classes < 0).any())
        if count and (negative or int(classes.max()) > 15):
            raise ValueError(f"context classes are 0..15, got {classes.min()}..{classes.max()}")
        return np.multiply(classes, 16, dtype=np.uint8, casting="unsafe")

    def checksum(self, step: int) -> int:
        """Return the 16-bit checksum of the tables the next frame of `step` is coded with."""
        return self._state(step).checksum(self.params)


class Encoder(_Link):
    """The sending end: `Encoder(AscParams()).encode(values, step=2, context=classes_or_None)` -> bytes."""

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
        """Return the frame of 1-D integer `values` that the next `decode` of the same step expects.

        step: AllReduce step, which selects the tables; context: position class 0..15 of each value, known
        to the receiver; width: bits of a raw value, 1..16, by default the smaller of 8 and 16 that fits.
        Raises TypeError or ValueError on values that are not 1-D integers of that width.
        """
        array = as_values(values, "int")
        bits = fit_width(array, width)
        classes = self._classes(context, array.size)
        state = self._state(step)
        head = Header(
            ASC_CODE, step, array.size, chunk, sub, bits, state.sequence, state.checksum(self.params)
        )
        frame = pack_frame(head, self.coder.encode(array, classes, bits, state))
        self.states[step] = state
        return frame


class Decoder(_Link):
    """The receiving end; a frame that raises leaves its state as it was."""

    def decode(self, frame: bytes, *, step: int, context: Array | None = None) -> np.ndarray:
        """Return the int32 values of `frame`, 1-D; raises FrameError on anything but the expected frame.

        A `context` without one class for each value of the frame raises FrameError too. A `context` that is
        no integer array of 0..15 raises ValueError.
        """
        head, payload = unpack_frame(frame)
        state = self._state(step)
        check_header(head, codec=ASC_CODE, step=step, sequence=state.sequence)
        if head.checksum != state.checksum(self.params):
            raise FrameError(
                f"tables of step {step} have checksum 0x{state.checksum(self.params):04x} here and "
                f"0x{head.checksum:04x} at the sender: parameters differ or the ends drifted apart; "
                "reset both"
            )
        blocks = -(-head.count // self.params.block)
        if blocks * BLOCK_HEADER_BYTES > len(payload):
            raise FrameError(f"{len(payload)} bytes cannot hold the {head.count} values announced")
        if context is not None and len(context) != head.count:
            raise FrameError(f"frame carries {head.count} values, {len(context)} were expected here")
        values = self.coder.decode(payload, head.count, self._classes(context, head.count), head.width, state)
        self.states[step] = state
        return values


def max_frame(params: AscParams, count: int, width: int) -> int:
    """Return the bytes that a frame never exceeds, the same on all nodes: a receiver makes room for them."""
    return HEADER_BYTES + params.max_payload(count, width)
