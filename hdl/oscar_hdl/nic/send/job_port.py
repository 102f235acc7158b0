"""An encoder's job as the sender sees it: fields as signals, and results as one word."""

from __future__ import annotations

from typing import Any

from myhdl import always_comb, block, concat

RESULT_BITS = 43


@block
def job_port(
    job: Any, base: Any, start: Any, values: Any, row: Any, bank: Any, thinning: Any, idle: Any, bads: Any,
    result: Any,
) -> Any:  # fmt: skip
    """Connect an EncoderJob and its block's first row. bads: it ends now, and is bad, a bit for each bank.

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
        bads.next[0] = job.done and job.bad and not bank
        bads.next[1] = job.done and job.bad and bank
        result.next = concat(
            job.idle, job.bytes, job.last, job.first, job.seeds, job.bits, job.value[0], job.constant
        )

    return connect
