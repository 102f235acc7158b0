"""Makes MyHDL elaborate blocks faster."""

from __future__ import annotations

import inspect
import sys
from types import FrameType, ModuleType

import myhdl._block
import myhdl._instance

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
