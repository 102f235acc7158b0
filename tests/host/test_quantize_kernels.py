"""The compiled rounding equals the passes in NumPy, bit for bit, at every exponent and at the limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from oscar import quantize
from oscar.quantize import QuantiserParams, WorkerQuantiser

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
    came = compiled.quantise([tensor, tensor[:3]], [exponent, None])
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        patch.setattr(quantize, "NORMAL_EXPONENTS", range(0))
        expected = plain.quantise([tensor, tensor[:3]], [exponent, None])
    assert np.array_equal(came, expected)
    assert compiled.clipped == plain.clipped
    for worker in (compiled, plain):
        worker.commit()
    if feedback:
        bits_of = [worker.residual.view(np.uint32) for worker in (compiled, plain)]
        assert np.array_equal(*bits_of)
