"""Reciprocals by which the encoder divides (asc.md, "The coder": floor(y / f)), in plain integers."""

RECIPROCAL_BITS = 16  # kept in the table; two more follow from f
PRODUCT_SHIFT = 18  # of the product, to the quotient's estimate
CLASSES = ((384, 8), (48, 5), (6, 2), (1, -1))  # the least f of a class, and its a


def alignment(f: int) -> int:
    """Return a, by which y is shifted right (left by 1 if it is -1) before it is multiplied."""
    return next(a for least, a in CLASSES if f >= least)


def reciprocal_18(f: int) -> int:
    """Return the factor of the multiplication, R = floor((2^(18 + a) - 1) / f), for f of 1..1024.

    The quotient of 14 bits is q = floor(y / f) for y < f·2^14, and its estimate floor(M·R / 2^18) with
    M = floor(y / 2^a). It is q or q - 1, so that one correction is enough. Let p = f / 2^a: it is 1.5..12 but
    in the last class, where M = 2y is exact and p is 2..10.

    * Both factors are rounded down, so the estimate is never above q.
    * M < p·2^14 < 2^18, and R < 2^18 / p < 2^18: both fit 18 bits.
    * M is too small by less than 1, which takes less than R / 2^18 < 1 / p from the product; R is too small
      by 1 at most (it is (2^(18 + a) - 1 - rest) / f, rest < f), which takes M / 2^18 < p / 16. The sum is
      below 1 / 1.5 + 1.5 / 16 < .77 at one end, below 1 / 12 + 12 / 16 < .84 at the other, and smaller in
      between; below 10 / 16 in the last class. So the estimate is above q - 1 - .84 before it is rounded
      down, and q - 1 or q after.

    The two upper bits of R follow from p: 2 for p < 2 (R < 2^18 / 1.5 < 3·2^16), 1 for 2 <= p < 4, else 0.
    (R is below 2^18 / p even where that is whole, because of the 1 taken from 2^(18 + a).)
    """
    return ((1 << (PRODUCT_SHIFT + alignment(f))) - 1) // f


def reciprocal(f: int) -> int:
    """Return the 16 bits R that the table of the encoder keeps beside f of 0..1023 (0 for f = 0)."""
    return reciprocal_18(f) & ((1 << RECIPROCAL_BITS) - 1) if f else 0


def upper_bits(f: int) -> int:
    """Return the two bits of reciprocal_18 above those that the table keeps, by f alone."""
    ratio = 2 * f >> (alignment(f) + 1)  # floor(f / 2^a)
    return 2 if ratio < 2 else 1 if ratio < 4 else 0
