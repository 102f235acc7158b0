"""The compiled passes equal those in NumPy, bit for bit, at every exponent and at the limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from oscar.numerics import quantiser
from oscar.numerics.quantiser import QuantiserParams, WorkerQuantiser
from oscar.numerics.quantiser_kernels import FLOAT32_MAX, add_bounded, all_finite, squares_of_changes
from oscar.numerics.steps import StepTracker

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(deadline=None)  # the first call compiles
@given(
    arrays(np.float32, st.integers(0, 40), elements=floats | st.sampled_from([0.5, -0.5, 1.5, 127.5, -0.0])),
    st.integers(-140, 140),
    st.sampled_from([8, 12, 16]),
    st.booleans(),
)
def test_the_kernel_equals_numpy(tensor: np.ndarray, exponent: int, bits: int, feedback: bool) -> None:
    params = QuantiserParams(bits=bits, error_feedback=feedback)
    compiled, plain = WorkerQuantiser(params, 0), WorkerQuantiser(params, 0)
    exponent = min(exponent, params.max_exponent)
    for given_now in (tensor, tensor[::-1].copy()):  # the second one meets a residual
        came = compiled.quantise([given_now, given_now[:3]], [exponent, None])
        with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
            patch.setattr(quantiser, "NORMAL_EXPONENTS", range(0))
            expected = plain.quantise([given_now, given_now[:3]], [exponent, None])
        assert np.array_equal(came, expected)
        assert compiled.saturation == plain.saturation
        for worker in (compiled, plain):
            worker.commit()
        if feedback:
            bits_of = [worker.residual.view(np.uint32) for worker in (compiled, plain)]
            assert np.array_equal(*bits_of)


@settings(deadline=None)
@given(arrays(np.float32, st.integers(1, 40), elements=st.floats(width=32)))
def test_what_is_not_finite_is_found(values: np.ndarray) -> None:
    assert all_finite(values) == np.isfinite(values).all()


@settings(deadline=None)
@given(arrays(np.float32, 24, elements=floats), arrays(np.float32, 24, elements=floats))
def test_residuals_are_added_within_float32(tensor: np.ndarray, residual: np.ndarray) -> None:
    out = np.empty_like(tensor)
    add_bounded(tensor, residual, out)
    with np.errstate(over="ignore"):
        expected = np.clip(tensor + residual, -FLOAT32_MAX, FLOAT32_MAX)
    assert np.array_equal(out.view(np.uint32), expected.view(np.uint32))


@settings(deadline=None)
@given(arrays(np.int16, 24), arrays(np.int16, 24), st.integers(-140, 118), st.sampled_from([1, 2, 3, 7, 256]))
def test_means_and_squares_are_those_of_wide_numbers(
    sums: np.ndarray, before: np.ndarray, exponent: int, nodes: int
) -> None:
    tracker = StepTracker(QuantiserParams(), [sums.size], nodes)
    tracker.exponents = [exponent]
    with np.errstate(over="ignore"):
        expected = np.ldexp(sums.astype(np.float64) / nodes, exponent).astype(np.float32)
    assert np.array_equal(tracker.dequantise(sums).view(np.uint32), expected.view(np.uint32))
    for left, right in ((0, 0), (1, 0), (0, 1)):
        pairs = [(int(a), int(b)) for a, b in zip(sums, before, strict=True)]
        squares = sum(a * a for a, _ in pairs), sum(((a << left) - (b << right)) ** 2 for a, b in pairs)
        assert squares_of_changes(sums, before, left, right) == squares
