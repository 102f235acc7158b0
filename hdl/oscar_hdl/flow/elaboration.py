"""Makes MyHDL elaborate blocks faster, and reads what it elaborated."""

from __future__ import annotations

import inspect
import sys
from types import FrameType, ModuleType
from typing import Any

import myhdl._block
import myhdl._instance
from myhdl._block import _Block

DEPTH = 6  # frames that MyHDL looks at, its own among them


def shallow_stacks() -> None:
    """Let MyHDL see the nearest frames alone; a second call changes nothing.

    MyHDL asks `inspect.stack()` once for each block and twice for each process, for the frame of the function
    around it. That reads the source of every frame down to `main`: most of the time of an elaboration under
    pytest.
    """
    shallow = ModuleType("inspect")
    vars(shallow).update(vars(inspect), stack=_stack)
    for module in (myhdl._block, myhdl._instance):
        module.inspect = shallow


def _stack() -> list[tuple[FrameType, str, int, str, None, None]]:
    """Return the nearest frames as `inspect.stack` does, without their sources."""
    found = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(found) < DEPTH:
        code = frame.f_code
        found.append((frame, code.co_filename, frame.f_lineno, code.co_name, None, None))
        frame = frame.f_back
    return found


def driven(item: Any) -> set[int]:
    """Return the ids of the signals that the processes of a block drive."""
    if isinstance(item, _Block):
        return set().union(*map(driven, item.subs))
    outputs = [item.symdict[name] for name in item.outputs | item.inouts]
    return {id(s) for one in outputs for s in (one if isinstance(one, list) else [one])}
