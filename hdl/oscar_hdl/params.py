"""What a lane is built for: the parameters of its coder, and the width of its values."""

from __future__ import annotations

from dataclasses import dataclass

from oscar_hdl.format2.params import AscParams

COUNT_BITS = 19  # a frame has at most 2^18 values


@dataclass(frozen=True)
class LaneParams:
    """Parameters of a lane.

    block_log2: log2 of the values of a block, 10..12, also the table interval; width_max: bits of the
    widest value, 8..16. Raises ValueError when out of range.
    """

    block_log2: int = 12
    width_max: int = 16

    def __post_init__(self) -> None:
        if not 10 <= self.block_log2 <= 12:
            raise ValueError(f"block_log2 is 10 to 12 in hardware, got {self.block_log2}")
        if not 8 <= self.width_max <= 16:
            raise ValueError(f"width_max is 8 to 16 in hardware, got {self.width_max}")

    @property
    def asc(self) -> AscParams:
        """The parameters of its coder."""
        return AscParams(self.block_log2)

    @property
    def block(self) -> int:
        """Values per block."""
        return 1 << self.block_log2

    @property
    def lag_rows(self) -> int:
        """Rows between the cut, where tables of the next block are fixed, and the end of a block."""
        return self.asc.lag_rows
