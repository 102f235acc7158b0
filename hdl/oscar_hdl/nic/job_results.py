"""What one of several encoders says of its last job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myhdl import always, block


@block
def job_results(
    clk: Any, unit: Any, jobs: Sequence[Any], finished: Any, constant: Any, low: Any, bits: Any, seeds: Any,
    first: Any, last: Any, length: Any,
) -> Any:  # fmt: skip
    """Give the results of jobs[unit], one clock later; finished: it is idle; low: the lowest bit of value."""
    idles = [job.idle for job in jobs]
    constants = [job.constant for job in jobs]
    values = [job.value for job in jobs]
    all_bits = [job.bits for job in jobs]
    all_seeds = [job.seeds for job in jobs]
    firsts = [job.first for job in jobs]
    lasts = [job.last for job in jobs]
    lengths = [job.bytes for job in jobs]

    @always(clk.posedge)
    def choose():
        finished.next = idles[int(unit)]
        constant.next = constants[int(unit)]
        low.next = values[int(unit)][0]
        bits.next = all_bits[int(unit)]
        seeds.next = all_seeds[int(unit)]
        first.next = firsts[int(unit)]
        last.next = lasts[int(unit)]
        length.next = lengths[int(unit)]

    return choose
