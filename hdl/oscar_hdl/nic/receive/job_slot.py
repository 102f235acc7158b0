"""What a decoder is told about its block, until it is done."""

from __future__ import annotations

from typing import Any

from myhdl import always, block

from oscar_hdl.coder.ports import DecoderJob


@block
def job_slot(
    clk: Any, rst: Any, starts: Any, n: int, bank: Any, thinning: Any, entry: Any,
    values: Any, row: Any, job: DecoderJob, base: Any,
) -> Any:  # fmt: skip
    """Start a job with entry u48 of values u18 from `row` on, where bit n of `starts` (strobes) is 1."""

    @always(clk.posedge)
    def hold():
        job.start.next = starts[n]
        if starts[n]:
            job.bank.next = bank
            job.thinning.next = thinning
            job.values.next = values
            job.seeds.next = entry[5:2]
            job.first.next = entry[12:5]
            job.last.next = entry[19:12]
            job.odd.next = entry[24]
            base.next = row
        if rst:
            job.start.next = False

    return hold
