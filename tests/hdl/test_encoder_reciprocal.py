"""The encoder's division is exact: all frequencies, both ends of all quotients."""

from __future__ import annotations

import numpy as np

from oscar_hdl.coder.encode.reciprocal import (
    RECIPROCAL_BITS,
    alignment,
    reciprocal,
    reciprocal_18,
    upper_bits,
)


def test_estimates_are_the_quotient_or_one_less() -> None:
    """An estimate grows with y, so the ends of each quotient are enough."""
    q = np.arange(1 << 14, dtype=np.int64)
    for f in range(1, 1025):
        a, r = alignment(f), reciprocal_18(f)
        for y in (q * f, q * f + f - 1):
            m = y >> a if a >= 0 else y << 1
            assert m.max() < 1 << 18
            off = q - (m * r >> 18)
            assert set(np.unique(off)) <= {0, 1}, f


def test_the_table_keeps_what_f_does_not_say() -> None:
    assert reciprocal(0) == 0
    for f in range(1, 1024):
        assert reciprocal_18(f) == upper_bits(f) << RECIPROCAL_BITS | reciprocal(f)
        assert reciprocal(f) < 1 << RECIPROCAL_BITS
    assert (upper_bits(1024), reciprocal_18(1024)) == (0, 0xFFFF)
