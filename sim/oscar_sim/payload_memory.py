"""A payload in a memory of 16-bit words behind a read port (docs/hardware.md, asc_decoder)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from myhdl import block, instance

from oscar_hdl.payload_reader import OUTSTANDING
from oscar_sim.bench import Pause, never


@block
def payload_memory(
    clk: Any, rst: Any, rd_valid: Any, rd_ready: Any, rd_addr: Any, rd_data: Any, rd_data_valid: Any,
    words: Callable[[], Sequence[int]], latency: int = 5, pause: Pause = never,
) -> Any:  # fmt: skip
    """Answer reads of words(), asked at each read, after `latency` clocks or (pause) more.

    Checks that no read is beyond the payload, that a read holds still until it is taken, and that at most
    OUTSTANDING are outstanding.
    """

    @instance
    def answer():
        due: deque[list[int]] = deque()
        waiting = None
        while True:
            yield clk.posedge
            if rst:
                due.clear()
                rd_ready.next, rd_data_valid.next, waiting = False, False, None
                continue
            now = int(rd_addr) if rd_valid else None
            if waiting is not None and now != waiting:
                raise AssertionError(f"a read of {waiting} became one of {now}")
            waiting = None
            if rd_valid and rd_ready:
                payload = words()
                if now >= len(payload):
                    raise AssertionError(f"read {now} of {len(payload)} words")
                due.append([latency, payload[now]])
            elif rd_valid:
                waiting = now
            for item in due:
                item[0] -= 1
            rd_data_valid.next = bool(due) and due[0][0] <= 0 and not pause()
            if rd_data_valid.next:
                rd_data.next = due.popleft()[1]
            outstanding = len(due) + bool(rd_data_valid.next)
            if outstanding > OUTSTANDING:
                raise AssertionError(f"{outstanding} reads are outstanding")
            rd_ready.next = not pause()

    return answer
