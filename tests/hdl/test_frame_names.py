"""frame_names against a queue: names leave in the order in which they came, and none is lost."""

from __future__ import annotations

from collections import deque

import pytest

from oscar_hdl.nic.receive.frame_names import frame_names
from oscar_hdl.nic.receive.ports import CameFrame, OldestFrame
from oscar_hdl.streams.bundles import bit
from oscar_sim.cycles import CycleSimulator
from oscar_sim.seeds import dice

pytestmark = pytest.mark.usefixtures("seed")

BITS = {
    "peer": 8, "step": 16, "chunk": 16, "sub": 8, "width": 8, "sequence": 16, "checksum": 16, "count": 19,
    "more": 1, "length": 20,
}  # fmt: skip


@pytest.mark.parametrize(("coming", "going"), [(1.0, 1.0), (1.0, 0.02), (0.05, 1.0), (0.3, 0.1)])
def test_names_leave_in_order(coming: float, going: float) -> None:
    rng = dice(f"frame_names {coming} {going}")
    clk, rst, gone, came, oldest = bit(), bit(), bit(), CameFrame(), OldestFrame()
    waiting: deque[dict[str, int]] = deque()
    seen = {"most": 0, "left": 0, "resets": 0, "coming": 0}
    since, late, number, allowed, told, put, left = 0, 0, 0, True, 0, 99, 0

    def named(of: CameFrame | OldestFrame) -> dict[str, int]:
        return {name: int(getattr(of, name)) for name in BITS}

    def reset() -> None:
        nonlocal number, allowed, told, put
        waiting.clear()
        number, allowed, told, put = 0, True, 0, 99
        seen["resets"] += 1

    def each() -> None:
        nonlocal since, late, number, allowed, told, put, left
        left += 1
        if gone and not rst:
            waiting.popleft()
            number += 1
            seen["left"] += 1
            left = 0
        put = 0 if came.put else put + 1
        if came.push and not rst:
            waiting.append(named(came))
            put = 99
            seen["most"] = max(seen["most"], len(waiting))
        told += int(oldest.arrived)
        if rst:
            reset()
        elif not gone:  # told once of each frame that stood at the head
            assert told - number == int(oldest.there)
        if oldest.there and not (rst or gone):
            assert oldest.number == number & 255
            assert named(oldest) == waiting[0]
        if not waiting and 2 <= put < 99 and left > 2:  # one that comes, and may be lost
            assert named(oldest) == named(came)
            seen["coming"] += 1
        late = late + 1 if waiting and not oldest.there and not gone else 0
        assert late <= 3
        since = 0 if came.push else since + 1
        allowed = not came.push and (allowed or not came.full)
        rst.next = again = rng.random() < 0.002
        begins = since >= 3 and allowed and not again and rng.random() < coming
        came.push.next = not again and 0 < put < 99 and rng.random() < 0.3
        came.put.next = begins = begins and not came.push.next and (put >= 99 or rng.random() < 0.1)
        if begins:
            for name, bits in BITS.items():
                getattr(came, name).next = rng.getrandbits(bits)
        gone.next = bool(oldest.there and not gone and not rst and not again and rng.random() < going)

    simulator = CycleSimulator(frame_names(clk, rst, came, gone, oldest), clk, each)
    simulator.run(6000)
    assert seen["left"] > 20
    assert seen["resets"]
    assert seen["coming"] or going < 1.0
    assert len(waiting) <= 16
    if coming > 0.2 > going:
        assert seen["most"] == 16
