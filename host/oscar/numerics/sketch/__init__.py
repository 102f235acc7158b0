"""Count sketches of integers, linear to the bit, without tables (docs/reference/schemes.md)."""

from oscar.numerics.sketch.count_sketch import CountSketch
from oscar.numerics.sketch.hashing import RUN, SketchHashes

__all__ = ["RUN", "CountSketch", "SketchHashes"]
