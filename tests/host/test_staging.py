"""A GPU's copies under a torch.cuda that only writes down what it is asked: streams, events, order, memory.

No GPU is needed; tests/host/test_ddp_gpu.py has one.
"""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from needs import needs

needs("torch")
import torch  # noqa: E402

from oscar.adapters.torch import staging as staging_module  # noqa: E402
from oscar.adapters.torch.staging import Staging  # noqa: E402

DEVICE = torch.device("cuda", 1)


class Far(torch.Tensor):
    """A tensor that says it is on a GPU; copies to and from it are written down."""

    log: ClassVar[list[Any]] = []

    @property
    def device(self) -> Any:
        return DEVICE

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.copy_:
            to, source = args
            cls.log.append(("copy", to.dtype, source.dtype, (kwargs or {}).get("non_blocking", False)))
        return super().__torch_function__(func, types, args, kwargs or {})


class Cuda:
    """What Staging asks of torch.cuda."""

    def __init__(self, log: list[Any]) -> None:
        self.log = log
        self.made = 0

    def Stream(self, device: Any) -> Any:
        self.made += 1
        return SimpleNamespace(
            device=device,
            wait_event=lambda event: self.log.append(("wait", event)),
            synchronize=lambda: self.log.append("synchronize"),
        )

    def current_stream(self, device: Any) -> Any:
        return SimpleNamespace(record_event=lambda: ("event of backward", device))

    @contextmanager
    def device(self, device: Any) -> Any:
        self.log.append(("device", device))
        yield

    @contextmanager
    def stream(self, stream: Any) -> Any:
        self.log.append("own stream")
        yield
        self.log.append("left")


@pytest.fixture
def staging(monkeypatch: pytest.MonkeyPatch) -> Staging:
    found = Staging()
    found.log = log = []  # type: ignore[attr-defined]
    found.pinned = pinned = []  # type: ignore[attr-defined]
    monkeypatch.setattr(Far, "log", log)

    def empty(size: int, *, dtype: Any, pin_memory: bool) -> Any:
        assert pin_memory
        pinned.append(size)
        return torch.empty(size, dtype=dtype)

    found._torch = SimpleNamespace(
        cuda=Cuda(log), empty=empty, from_numpy=torch.from_numpy, uint8=torch.uint8, futures=torch.futures
    )
    return found


def far(values: np.ndarray, dtype: Any = torch.float32) -> Any:
    return torch.from_numpy(values).to(dtype).as_subclass(Far)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_copies_run_on_their_own_stream_after_the_event_and_cross_in_the_buckets_dtype(
    staging: Any, dtype: Any
) -> None:
    values = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
    buffer = far(values, dtype)
    mark = staging.mark(buffer)
    found = staging.fetch(buffer, mark)
    assert np.array_equal(found, buffer.as_subclass(torch.Tensor).float().numpy().ravel())
    assert found.dtype == np.float32
    order = [("device", DEVICE), "own stream", ("wait", ("event of backward", DEVICE))]
    order += [("copy", dtype, dtype, True), "synchronize", "left"]
    assert staging.log == order
    staging.log.clear()
    staging.put(buffer, found * 2)
    assert staging.log == [order[0], order[1], *order[3:]]
    expected = torch.from_numpy(found * 2).to(dtype).reshape(3, 4)
    assert torch.equal(buffer.as_subclass(torch.Tensor), expected)
    assert staging._torch.cuda.made == 1


def test_pinned_memory_is_kept_and_never_handed_out_twice(staging: Any) -> None:
    buffers = [far(np.full(5, rank, np.float32)) for rank in range(2)]
    for _ in range(4):
        held = [staging.fetch(buffer, staging.mark(buffer)) for buffer in buffers]
        assert [one.tolist() for one in held] == [
            [0.0] * 5,
            [1.0] * 5,
        ]  # the second copy left the first alone
        del held
    for buffer in buffers:
        staging.put(buffer, np.ones(5, np.float32))
    assert staging.pinned == [20, 20]
    other = far(np.ones(5, np.float32), torch.bfloat16)
    staging.fetch(other, staging.mark(other))
    assert staging.pinned == [20, 20, 10]


def test_pinned_memory_of_buckets_that_are_gone_is_given_back(
    staging: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Buckets are made anew, with other sizes: what the old ones had goes, also where all sizes are new."""
    monkeypatch.setattr(staging_module, "KEPT_COPIES", 10)
    for first in (1, 4):
        for _ in range(8):
            for size in range(first, first + 3):
                buffer = far(np.zeros(size, np.float32))
                staging.put(buffer, staging.fetch(buffer, staging.mark(buffer)))
    assert staging.pinned == [4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24]  # what came is held while it goes
    assert sorted(staging._rooms) == [16, 20, 24]


def test_buffers_on_the_cpu_touch_no_cuda(staging: Any) -> None:
    buffer = torch.ones(4)
    assert staging.mark(buffer) is None
    found = staging.fetch(buffer, None)
    staging.put(buffer, found * 3)
    assert buffer.tolist() == [3.0] * 4
    assert staging.log == staging.pinned == []
