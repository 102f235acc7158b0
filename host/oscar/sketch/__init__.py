"""Count sketches of integers, linear to the bit, with hashes that need no tables (docs/schemes.md)."""

from oscar.sketch.count_sketch import CountSketch
from oscar.sketch.hashing import RUN, SketchHashes

__all__ = ["RUN", "CountSketch", "SketchHashes"]
