"""The examples in the docstrings of the public API run, and every public name has one."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pydoc
import re
from pathlib import Path
from typing import Any

import pytest

from needs import needs

ROOT = Path(__file__).parents[2]
NAMES = re.findall(
    r"^::: (\S+)$", (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8"), re.MULTILINE
)
HOOKS = ("oscar.torch_ddp.", "oscar.torch_fsdp.", "oscar.adapters.torch.")
TORCH = tuple(name for name in NAMES if name.startswith(HOOKS))
TORCHFT = tuple(name for name in NAMES if name.startswith("oscar.torchft."))
ELSEWHERE = {  # these need a launcher, or the example of another name returns one
    "oscar.transports.mpi.MpiTransport",
    "oscar.transports.tcp.TcpTransport",
    "oscar.transports.base.Transport",
    "oscar.collective.schedule_file.FileSchedule",
    "oscar.collective.schedule_file.write_schedule",
    "oscar.collective.frames.AllReduceResult",
    "oscar.collective.frames.Stats",
    "oscar.collective.frames.Moved",
    "oscar.reducers.communicator.PeerResult",
    "oscar.reducers.communicator.PeerStats",
    "oscar.errors",
}
PENDING = (  # names in these have no examples yet; take each out once it has
    "oscar.asc.", "oscar.coding.", "oscar.planning.", "oscar_studies.workloads.",
    "oscar.timeline.link.", "oscar.timeline.replay.", "oscar.transports.keyed.",
    "oscar_studies.merging.", "oscar_studies.profiler_traces.",
)  # fmt: skip


def home(name: str) -> Any:
    """Return the module that defines a public name, or the module of that name."""
    found: Any = pydoc.locate(name)
    assert found is not None, name
    return found if inspect.ismodule(found) else importlib.import_module(found.__module__)


@pytest.mark.parametrize("name", NAMES)
def test_examples_run(name: str) -> None:
    if name in TORCH:
        needs("torch")
    if name in TORCHFT:
        needs("torchft")
    done = doctest.testmod(home(name))
    assert done.failed == 0


@pytest.mark.parametrize(
    "name", [n for n in NAMES if n not in {*TORCH, *TORCHFT} | ELSEWHERE and not n.startswith(PENDING)]
)
def test_every_public_name_shows_its_use(name: str) -> None:
    assert ">>> " in (pydoc.locate(name).__doc__ or "")
