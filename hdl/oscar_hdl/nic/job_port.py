"""An encoder's job as the sender sees it: fields that are alike for all, and results as one word."""

from __future__ import annotations

from typing import Any

from myhdl import always_comb, block, concat

RESULT_BITS = 43


@block
def job_port(
    job: Any, base: Any, bank: Any, thinning: Any, start: Any, values: Any, row: Any, idle: Any, bad: Any,
    result: Any,
) -> Any:  # fmt: skip
    """Connect an EncoderJob and its block's first row. bad: it ends now, and is.

    result: constant, value[0], bits u4, seeds u3, first u7, last u7, bytes u19, idle, the first one lowest.
    """

    @always_comb
    def connect():
        job.start.next = start
        job.values.next = values
        job.bank.next = bank
        job.thinning.next = thinning
        base.next = row
        idle.next = job.idle
        bad.next = job.done and job.bad
        result.next = concat(
            job.idle, job.bytes, job.last, job.first, job.seeds, job.bits, job.value[0], job.constant
        )

    return connect
