"""The exact scheme on a GPU against the host's: every bit of means, messages and state, step for step.

Kernels run in Triton's interpreter on the CPU; tests/host/test_ddp_gpu.py has a card, where there is one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from needs import needs
from oscar.coding.asc.params import AscParams
from oscar.coding.registry import make_codec
from oscar.collective import threaded
from oscar.collective.schedules import make_schedule
from oscar.config import Config
from oscar.errors import ConfigError, GradientError, PeerError
from oscar.numerics.quantiser import QuantiserParams
from oscar.reducers.communicator import Communicator
from oscar.reducers.on_device import TILE, why_on_host
from oscar.reducers.reducer import advance
from oscar.schemes.exact import Exact, ExactOptions
from oscar.state import crc
from oscar.transports.threads import local_transports

needs("torch", "gpu")
import torch  # noqa: E402

from oscar.adapters.torch.jobs import Job  # noqa: E402
from oscar.adapters.torch.layout import BucketLayout  # noqa: E402
from oscar.adapters.torch.staging import OnGpu, Staging  # noqa: E402

CPU = torch.device("cpu")
SHAPES = [(20, 10), (7,), (150,)]


@pytest.fixture(autouse=True, scope="module")
def interpreted() -> Iterator[None]:
    """Let kernels of this process be interpreted, one at a time: the interpreter is for one thread."""
    from triton.runtime.interpreter import GridExecutor

    launch, lock = GridExecutor.__call__, threading.Lock()

    def alone(*args: Any, **kwargs: Any) -> Any:
        with lock:
            return launch(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")  # Triton asks when kernels' modules are imported, and later
        patch.setattr(GridExecutor, "__call__", alone)
        yield


def assert_same(one: Any, two: Any, path: str = "") -> None:
    """Compare two trees with all bits of their arrays."""
    if isinstance(one, dict):
        assert one.keys() == two.keys(), path
        for key in one:
            assert_same(one[key], two[key], f"{path}.{key}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(two), path
        for at, pair in enumerate(zip(one, two, strict=True)):
            assert_same(*pair, f"{path}[{at}]")
    elif isinstance(one, np.ndarray):
        assert (one.dtype, one.tobytes()) == (two.dtype, two.tobytes()), path
    else:
        assert one == two, path


def taken(values: Any) -> np.ndarray:
    """Return a copy of an array, or of a tensor, as an array."""
    return np.array(values.numpy() if isinstance(values, torch.Tensor) else values)


class Pair:
    """Two workers with the replicated state of one process; sums are added by hand, so nothing is coded."""

    def __init__(self, params: QuantiserParams, plan: str, sizes: Sequence[int], device: Any) -> None:
        options = ExactOptions(make_codec("asc"), params, make_schedule("direct", 2), plan, 64)
        shapes: Any = [(size,) for size in sizes]
        if device is None:
            self.scheme: Exact = Exact(options, shapes=shapes, nodes=2, seed=0)
        else:
            from oscar_gpu.exact import GpuExact, GpuOptions

            there = GpuOptions.of(options, AscParams(), device)
            self.scheme = GpuExact(there, shapes=shapes, nodes=2, seed=0)
        self.device = device
        self.workers = [self.scheme.make_worker(rank) for rank in range(2)]

    def step(self, gradients: Sequence[Sequence[np.ndarray]]) -> dict[str, Any]:
        """Reduce once; return all that there is to compare."""
        scheme, every = self.scheme, list(gradients)
        if self.device is not None:
            every = [[torch.from_numpy(tensor.copy()) for tensor in mine] for mine in every]
        running = [scheme.start(worker, mine) for worker, mine in zip(self.workers, every, strict=True)]
        answer, totals, seen = None, [], []
        while (messages := [advance(one, answer) for one in running])[0] is not None:
            seen += [taken(part) for message in messages for part in (message.data, message.context)]
            seen += [message.notice for message in messages]
            if messages[0].op == "agree":
                answer = [message.data for message in messages]
            else:
                answer = messages[0].data + messages[1].data
            if messages[0].coded:
                answer = answer, messages[0].notice | messages[1].notice
            totals.append(answer)
        mean = taken(scheme.finish(totals))
        scheme.forget()
        losses = [worker.saturation for worker in self.workers]
        for worker in self.workers:
            worker.commit()
        return {
            "seen": seen,
            "mean": mean,
            "clipped": [(loss.values, loss.tensor) for loss in losses],
            "energy": [round(loss.energy, 9) for loss in losses],
            "digests": scheme.digests(),
            "scheme": scheme.state_dict(),
            "workers": [worker.state_dict() for worker in self.workers],
        }


def gradients_of(random: np.random.Generator, sizes: Sequence[int], step: int) -> list[list[np.ndarray]]:
    """Return both workers' tensors; some steps bring zeros, a jump, values that saturate, or small ones."""
    every = [[random.laplace(0, 0.02, size).astype(np.float32) for size in sizes] for _ in range(2)]
    tensor, kind = int(random.integers(len(sizes))), int(random.integers(6)) if step else 5
    for mine in every:
        if kind == 0:
            mine[tensor][:] = 0
        elif kind == 1:
            mine[tensor] *= np.float32(40)
        elif kind == 2:
            mine[tensor][: 1 + mine[tensor].size // 50] = -3e7
        elif kind == 3:
            mine[tensor] *= np.float32(1e-40)
    if kind == 4:
        every[0][tensor] *= np.float32(0.05)  # one worker gives notice, the sums do not confirm it
    return every


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("plan", ["interleave", "splitter"])
@pytest.mark.parametrize("scale", ["sigma", "max"])
def test_messages_means_and_state_are_those_of_the_host(plan: str, scale: Any, seed: int) -> None:
    random = np.random.default_rng([seed, len(plan), len(scale)])
    sizes = [*random.integers(1, 900, 3).tolist(), 0, 1, int(random.integers(1100, 1500))]
    params = QuantiserParams(scale=scale, error_feedback=bool(random.integers(2)))
    host, device = Pair(params, plan, sizes, None), Pair(params, plan, sizes, CPU)
    for step in range(5):
        gradients = gradients_of(random, sizes, step)
        assert_same(device.step(gradients), host.step(gradients), f"step {step}")


def test_a_call_that_fails_leaves_the_state_as_it_was() -> None:
    from oscar_gpu.exact import GpuExact

    pair, random = (
        Pair(QuantiserParams(error_feedback=True), "interleave", [50, 300], CPU),
        np.random.default_rng(1),
    )
    assert isinstance(pair.scheme, GpuExact)
    for step in range(2):
        pair.step(gradients_of(random, [50, 300], step))
    before = pair.scheme.state_dict(), [worker.state_dict() for worker in pair.workers]
    token = pair.scheme.snapshot(), [worker.snapshot() for worker in pair.workers]
    digest = pair.scheme.digests()
    bad = gradients_of(random, [50, 300], 0)
    bad[1][1][7] = np.nan
    with pytest.raises(GradientError, match=r"node 1, tensor 1: 1 of 300 .* flat index 7 \(nan\)"):
        pair.step(bad)
    pair.scheme.forget()
    pair.step(gradients_of(random, [50, 300], 0))
    pair.scheme.restore(token[0])
    for worker, own in zip(pair.workers, token[1], strict=True):
        worker.restore(own)
    assert_same((pair.scheme.state_dict(), [worker.state_dict() for worker in pair.workers]), before)
    assert pair.scheme.digests() == digest


def every_second(values: np.ndarray) -> torch.Tensor:
    """Return the values as a tensor with others between them."""
    room = torch.full((*values.shape, 2), 9.0)
    room[..., 0] = torch.from_numpy(values)
    return room[..., 0]


def run(places: str, config: Config, steps: int = 2) -> list[Any]:
    """Let ranks reduce where `places` says, by step: h is the host, d a device; return means and states."""
    found: list[Any] = [None] * config.nodes

    def rank(number: int, transport: Any) -> None:
        random, out = np.random.default_rng(number), []
        with Communicator(config, transport) as communicator:
            assert communicator.why_on_host(SHAPES) is None
            for step in range(steps):
                own: Any = [random.laplace(0, 0.02, shape).astype(np.float32) for shape in SHAPES]
                on_device = places[(number * steps + step) % len(places)] == "d"
                tensors = [every_second(tensor) for tensor in own] if on_device else own
                result = communicator.allreduce(tensors, device=CPU if on_device else None)
                out.append(([taken(mean) for mean in result.mean], result.stats.sent_bytes))
            found[number] = out, communicator.state_dict()

    threads = [threading.Thread(target=rank, args=pair) for pair in enumerate(local_transports(config.nodes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("nodes", [2, 3])
def test_ranks_on_a_host_and_on_a_gpu_share_an_allreduce_and_may_change_places(
    nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threaded, "LEAST_VALUES", 1)  # ranks on a host code in threads
    config = Config.model_validate({"nodes": nodes, "threads": 2, "quantiser": {"error_feedback": True}})
    assert_same(run("dhhd", config), run("h", config))


def test_a_gradient_that_is_not_finite_ends_the_call_on_all_ranks() -> None:
    config, raised = Config(nodes=2), [None, None]

    def rank(number: int, transport: Any) -> None:
        tensor = torch.ones(40)
        tensor[3] = torch.inf if number else 1.0
        with Communicator(config, transport) as communicator:
            try:
                communicator.allreduce([tensor], device=CPU)
            except (GradientError, PeerError) as error:
                raised[number] = type(error)  # type: ignore[call-overload]

    threads = [threading.Thread(target=rank, args=pair) for pair in enumerate(local_transports(2))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert raised == [PeerError, GradientError]


@pytest.mark.parametrize(
    ("changes", "nodes", "values", "reason"),
    [
        ({}, 2, 1000, None),
        ({"method": "int16"}, 2, 1000, "the method is int16"),
        ({"quantiser": {"rounding": "stochastic"}}, 2, 1000, "quantiser.rounding is stochastic"),
        ({"quantiser": {"bits": 16}}, 2, 1000, "sums of 2 ranks need 17 bits"),
        ({"quantiser": {"step": "value"}}, 2, 1000, "quantiser.step is value"),
        ({"nic": "reference"}, 2, 1000, "nic is reference"),
        ({"plan": {"name": "splitter", "granule": 100}}, 2, 1000, "plan.granule is 100"),
        ({"plan": {"granule": 100}}, 2, 1000, None),
        ({}, 2, 1 << 29, "536,870,912 values are too many or none"),
        ({}, 2, 0, "0 values are too many or none"),
    ],
)
def test_what_has_to_be_coded_on_the_host(changes: Any, nodes: int, values: int, reason: str | None) -> None:
    config = Config.model_validate({"nodes": nodes, **changes})
    assert why_on_host(config, make_schedule("direct", nodes), nodes, values) == reason


def test_what_cannot_be_reduced_there_is_refused_before_others_wait() -> None:
    (transport,) = local_transports(1)
    with Communicator(Config(nodes=1, method="fp32"), transport) as communicator:
        with pytest.raises(ConfigError, match="reduced on cpu: the method is fp32; give arrays"):
            communicator.allreduce([torch.ones(40)], device=CPU)
        with pytest.raises(TypeError, match=r"tensor 1: expected a torch.Tensor on cpu, got <.*ndarray"):
            communicator.allreduce([torch.ones(3), np.ones(3, np.float32)], device="cpu")
        assert communicator.failed is None


def test_schedules_that_keep_sums_apart_are_for_the_host() -> None:
    said = why_on_host(Config(nodes=4), make_schedule("boomerang", 4), 4, 1000)
    assert said == "the schedule boomerang keeps sums apart"


def test_blocks_of_a_plan_fill_the_tiles_of_kernels() -> None:
    from oscar_gpu.quantiser_kernels import SIZE

    assert SIZE == TILE


def job_of(buffer: Any, mark: Any) -> Job:
    layout = BucketLayout([(5, 4), (20,)], None)
    return Job(None, buffer, mark, (0, 40), layout, last=True, measure=False, forget=False, new=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_bucket_is_reduced_where_it_is(dtype: Any) -> None:
    """One rank, so that nothing is coded; the stream is nobody's."""
    config = Config.model_validate({"nodes": 1, "quantiser": {"error_feedback": True}})
    staging: Any = SimpleNamespace(beside=lambda device, mark: nullcontext())
    (one,), (two,) = local_transports(1), local_transports(1)
    with Communicator(config, one) as device, Communicator(config, two) as host:
        gpu = OnGpu(device, staging, wanted=True)
        for step in range(2):
            buffer = torch.from_numpy(np.random.default_rng(step).laplace(0, 0.02, 40)).to(dtype)
            parts = [part.float().numpy().copy() for part in buffer.split([20, 20])]
            job = job_of(buffer, object())
            assert gpu.serves(job)
            assert gpu.reduce(job).values == 40
            shaped = [parts[0].reshape(5, 4), parts[1]]
            mean = np.concatenate([part.ravel() for part in host.allreduce(shaped).mean])
            assert torch.equal(buffer, torch.from_numpy(mean).to(dtype))
        assert not OnGpu(device, staging, wanted=False).serves(job)
        assert not gpu.serves(job_of(buffer, None))  # of the CPU


def test_why_a_bucket_goes_through_the_host_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    (transport,) = local_transports(1)
    with Communicator(Config(nodes=1, method="int16"), transport) as communicator:
        gpu: Any = OnGpu(communicator, Staging(), wanted=True)
        assert [gpu.serves(job_of(torch.zeros(40), object())) for _ in range(3)] == [False] * 3
    told = [record.message.partition(": ")[2] for record in caplog.records if record.name == "oscar.ddp"]
    assert told == ["the method is int16"]


@pytest.mark.parametrize("size", [0, 1, 63, 64, 8191, 8193, 20_000])
def test_the_checksum_of_bytes_on_a_gpu(size: int, seed: int) -> None:
    from oscar_gpu import crc as device

    data = np.random.default_rng([seed, size]).integers(0, 256, size).astype(np.uint8)
    assert device.finish(device.start(torch.from_numpy(data)), size) == crc(data)
