"""The recipes of docs/how-to/frameworks.md for Accelerate and Lightning, on two real ranks."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

from needs import needs
from oscar.errors import OscarError

needs("torch")

ROOT = Path(__file__).parents[2]
LIMIT_S = 240
TOLD = """
import os
said = "hook", {state}.backwards, {state}.sent_bytes, {state}.nodes, {state}.error
os.write(1, "\\n{{}}\\n".format(" ".join(map(str, said))).encode())  # at once: ranks share the pipe
"""


def recipe(framework: str) -> str:
    """Return the program below a heading of the page."""
    page = (ROOT / "docs" / "how-to" / "frameworks.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {framework}\n.*?^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def run(command: list[str], folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    environment["PYTHONWARNINGS"] = "default"  # these frameworks have their own
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("framework", ["Accelerate", "Lightning"])
def test_a_recipe_trains_through_the_hook(framework: str, tmp_path: Path) -> None:
    """Three backwards of nine values and more: the first goes as DDP sends it, the others are coded."""
    needs("frameworks")
    state = "trainer.strategy.hook_state" if framework == "Lightning" else "state"
    script = tmp_path / "recipe.py"
    script.write_text(recipe(framework) + TOLD.format(state=state))
    launch = [] if framework == "Lightning" else ["-m", "torch.distributed.run", "--nproc-per-node", "2"]
    output = run([sys.executable, *launch, str(script)], tmp_path)
    told = re.findall(r"^hook (\d+) (\d+) (\d+) (\w+)$", output, re.MULTILINE)
    assert len(told) == 2, output
    for backwards, sent_bytes, nodes, error in told:
        assert (backwards, nodes, error) == ("3", "2", "None")
        assert int(sent_bytes) > 0


def test_a_state_of_before_the_process_group_starts_with_it() -> None:
    """Until then it can go to other processes, keeps what it is to load, and says what it misses."""
    import torch

    from oscar.torch_ddp import OscarState

    state = OscarState(bypass="never")
    assert pickle.loads(pickle.dumps(state)).config == state.config
    with pytest.raises(OscarError, match=r"expected torch.distributed to be initialised"):
        state.state_dict()
    assert state.policy is None
    state.load_state_dict({"format": 7})
    closed = OscarState()
    closed.close()
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(OscarError, match=r"state.codec: expected a value, got none"):
            state.start()
        assert (state.rank, state.nodes) == (0, 1)
        with pytest.raises(OscarError, match=r"the hook failed before .*state.codec"):
            state.state_dict()  # a run without what it was to resume from
        state.close()
        OscarState().close()
        with pytest.raises(OscarError, match="this state is closed"):
            closed.start()
    finally:
        torch.distributed.destroy_process_group()
