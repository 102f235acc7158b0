"""Rooms: arrays are taken again when nobody holds them any more, and only then."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from oscar.numerics.tensors import Room, split, why_uncoded


def test_an_array_is_handed_out_again_once_nobody_holds_it_or_a_view() -> None:
    room = Room()
    first = room.take(6, np.float32)
    place = first.ctypes.data
    view = split(first, [(2, 2), (2,)])[1]
    del first
    second = room.take(6, np.float32)
    assert second.ctypes.data != place
    view[:] = 7
    assert room.take(6, np.float32).ctypes.data not in (place, second.ctypes.data)
    del view, second
    kept = {room.take(6, np.float32).ctypes.data for _ in range(5)}
    assert len(kept) == 1
    assert room.take(6, np.int32).dtype == np.int32
    assert room.take(5, np.float32).size == 5


def test_a_room_keeps_no_more_arrays_than_it_is_told() -> None:
    made: list[int] = []

    def make(size: int, dtype: npt.DTypeLike) -> np.ndarray:
        made.append(size)
        return np.empty(size, dtype)

    room = Room(make, most=1)
    held = [room.take(6, np.float32) for _ in range(3)]
    del held
    again = [room.take(6, np.float32) for _ in range(2)]
    assert (len(again), len(made)) == (2, 4)  # of the three, only the last was there to be taken again


def test_memory_that_torch_or_a_buffer_holds_is_in_use() -> None:
    torch = pytest.importorskip("torch")
    room = Room()
    for hold in (memoryview, torch.from_numpy, lambda array: array.reshape(2, 3)[1:].T):
        taken = room.take(6, np.float32)
        taken[:] = 1
        held = hold(taken)
        del taken
        for _ in range(3):
            room.take(6, np.float32)[:] = 2
        assert float(np.asarray(held).sum()) in (6.0, 3.0)


@pytest.mark.parametrize(
    ("dtype", "reason"),
    [
        (np.float32, None),
        (np.float16, None),
        ("torch.bfloat16", None),
        (np.float64, "float64: float32, in which gradients are coded, has neither its range"),
        (np.complex64, "complex64: complex numbers have no codec"),
        (np.complex128, "complex128: complex numbers have no codec"),
        ("torch.float8_e4m3fn", "float8_e4m3fn has no codec"),
    ],
)
def test_every_dtype_of_gradients_is_coded_or_the_reason_is_given(dtype: Any, reason: str | None) -> None:
    given = why_uncoded(dtype if isinstance(dtype, str) else np.dtype(dtype))
    assert given is None if reason is None else str(given).startswith(reason)


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool", "torch.int64", "<U3", "object"])
def test_a_dtype_that_gradients_cannot_have_is_refused(dtype: str) -> None:
    with pytest.raises(TypeError, match="expected floating-point gradients, got"):
        why_uncoded(dtype)
