"""What every adapter of PyTorch keeps: one mean on all ranks, its state, and nothing of what it refuses.

All ranks are processes of this file (`main`); they are started once and write what they saw.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from needs import needs
from oscar.config import Config
from oscar.reducers.cluster import LocalCluster
from oscar.state import crc
from oscar_sim.seeds import told
from support.methods import gradients
from support.torch_ranks import Bucket, start

needs("torch")
import torch  # noqa: E402
from torch import distributed as dist  # noqa: E402

RANKS, CALLS, SAVED, SPIKE = 2, 8, 3, 6
SHAPES = [(48, 40), (300,), (7, 5, 3)]
CONFIG = Config.model_validate({
    "quantiser": {"error_feedback": True}, "transport": {"timeout_s": 20.0, "survive": False},
})  # fmt: skip


# What a rank does. An adapter has `reduce(tensors [rank][tensor])`, which returns this rank's means.


class Adapter:
    """One of the ways in which a script of PyTorch reduces gradients."""

    state: Any

    def reduce(self, given: list[list[np.ndarray]]) -> list[np.ndarray]:
        """Return the means."""
        raise NotImplementedError

    def close(self) -> None:
        """End the connections."""
        self.state.close()


class Ddp(Adapter):
    """The hook, with buckets as DDP hands them over; its first backward is not coded."""

    def __init__(self, config: Config = CONFIG) -> None:
        from oscar.adapters.torch import OscarState

        self.model = torch.nn.ParameterList([torch.zeros(shape) for shape in SHAPES])
        self.state = OscarState(config, **self.options())
        self.reduce([[np.zeros(shape, np.float32) for shape in SHAPES]] * RANKS)

    def options(self) -> dict[str, Any]:
        """Return the options of the state."""
        return {"bypass": "never"}

    def reduce(self, given: list[list[np.ndarray]]) -> list[np.ndarray]:
        from oscar.adapters.torch import oscar_hook

        bucket = Bucket(given[self.state.rank][::-1], list(self.model)[::-1])
        flat = oscar_hook(self.state, bucket).wait().numpy().copy()
        parts = np.split(flat, np.cumsum([np.prod(shape) for shape in SHAPES[::-1]])[:-1])
        return [part.reshape(shape) for part, shape in zip(parts[::-1], SHAPES, strict=True)]


class Policy(Ddp):
    """The hook under a policy of two groups."""

    def options(self) -> dict[str, Any]:
        from oscar.planning.tuning.policy import PolicyFile

        tensors = tuple((name, each.numel()) for name, each in self.model.named_parameters())[::-1]
        made = {"compute_ms": 1.0, "gbps": 10.0, "latency_us": 10.0}
        groups = (1, "asc same ring"), (len(SHAPES), "asc:c=1/4 other direct")
        return {"policy": PolicyFile(tensors, groups, made), "model": self.model}


class Fsdp(Adapter):
    """FSDP2 between two hosts of one rank each."""

    def __init__(self, config: Config = CONFIG) -> None:
        from torch.distributed.fsdp import fully_shard

        from oscar.torch_fsdp import between_hosts

        mesh = dist.device_mesh.init_device_mesh("cpu", (RANKS, 1), mesh_dim_names=("hosts", "inside"))
        self.model = torch.nn.ParameterList([torch.zeros(shape) for shape in SHAPES])
        fully_shard(self.model, mesh=mesh["inside"])
        self.state = between_hosts(self.model, mesh["hosts"], config)

    def reduce(self, given: list[list[np.ndarray]]) -> list[np.ndarray]:
        tensors = given[self.state.rank]
        flat = torch.from_numpy(np.concatenate([tensor.ravel() for tensor in tensors]))
        self.state.reduce("", flat)
        parts = np.split(flat.numpy(), np.cumsum([tensor.size for tensor in tensors])[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, SHAPES, strict=True)]


class Tasks(Adapter):
    """Tasks that both ranks can compute; task t has the gradient of rank t."""

    def __init__(self, config: Config = CONFIG) -> None:
        from oscar.torch_ddp import OscarTasks

        self.model = torch.nn.ParameterList([torch.zeros(shape) for shape in SHAPES])
        redundant = config.variant(schedule={"name": "redundant"}, quantiser={"error_feedback": False})
        self.state = OscarTasks(self.model, redundant)

    def reduce(self, given: list[list[np.ndarray]]) -> list[np.ndarray]:
        def run(task: int) -> None:
            for parameter, gradient in zip(self.model, given[task], strict=True):
                parameter.grad = torch.from_numpy(gradient.copy())

        self.state.backward(run)
        return [parameter.grad.numpy() for parameter in self.model]


class Torchft(Adapter):
    """The process group for torchft, which keeps no state across quorums."""

    quorums = 0

    def __init__(self, config: Config = CONFIG) -> None:
        from oscar.torchft import ProcessGroupOscar

        ports = [0]
        if dist.get_rank() == 0:
            self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            ports = [self.store.port]
        dist.broadcast_object_list(ports)
        Torchft.quorums += 1
        self.state = ProcessGroupOscar(config, timeout=timedelta(seconds=20), least=1, ordered=True)
        where = f"127.0.0.1:{ports[0]}/{Torchft.quorums}"
        self.state.configure(where, f"r{dist.get_rank()}", dist.get_rank(), RANKS)

    def reduce(self, given: list[list[np.ndarray]]) -> list[np.ndarray]:
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.AVG
        tensors = [torch.from_numpy(tensor.copy()) for tensor in given[dist.get_rank()]]
        for work in [self.state.allreduce([tensor], options) for tensor in tensors]:
            work.wait()
        if (error := self.state.errored()) is not None:
            raise error
        return [tensor.numpy() for tensor in tensors]

    def close(self) -> None:
        self.state.shutdown()


ADAPTERS: dict[str, Callable[..., Adapter]] = {
    "ddp": Ddp, "policy": Policy, "fsdp": Fsdp, "tasks": Tasks, "torchft": Torchft,
}  # fmt: skip
HERE = [name for name in ADAPTERS if name != "torchft" or find_spec("torchft")]
RESUMED = ["ddp", "policy", "fsdp", "tasks"]
DAMAGES: dict[str, Callable[[Any], Any]] = {
    "none": lambda state: {},
    "no mapping": lambda state: 5,
    "another method": lambda state: {**state, "codec": "fp32"},
    "no codec": lambda state: {**state, "codec": torch.ones(2)},
    "another format": lambda state: {**state, "format": 0},
    "no arrays": lambda state: {**state, "arrays": {}},
    "short arrays": lambda state: {
        **state, "arrays": {dtype: array[:-1] for dtype, array in state["arrays"].items()}
    },
    "cut tree": lambda state: {**state, "tree": state["tree"][:-1]},
    "deep tree": lambda state: {**state, "tree": "[" * 5000},
    "another rank": lambda state: {**state, "tree": state["tree"].replace('"rank", ', '"rank", 1')},
}  # fmt: skip


def calls() -> list[list[list[np.ndarray]]]:
    """Return gradients [call][rank][tensor]; rank 0's are 10,000 times as large in one call."""
    random, result = np.random.default_rng(told()), []
    for call in range(CALLS):
        mine = gradients(random, RANKS, SHAPES)
        if call == SPIKE:
            mine[0] = [tensor * np.float32(1e4) for tensor in mine[0]]
        result.append(mine)
    return result


def raised(call: Callable[[], Any]) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def opened(state: Any) -> Any:
    """Return the tensors and texts of a saved state; FSDP's is a file of one rank."""
    ((key, held),) = state.items() if len(state) == 1 else [("", state)]
    return torch.load(io.BytesIO(held), weights_only=True) if key else held


def closed_again(whole: Any, state: Any) -> Any:
    """Return a changed state in the form of `whole`."""
    if len(whole) != 1 or not isinstance(state, dict):
        return state
    file = io.BytesIO()
    torch.save(state, file)
    return dict.fromkeys(whole, file.getvalue())


def digest_of(whole: Any) -> int:
    state = opened(whole)
    return crc([state["tree"], [array.numpy() for array in state["arrays"].values()]])


def played(name: str) -> dict[str, Any]:
    make, given, seen = ADAPTERS[name], calls(), dict[str, Any]()
    adapter, states = make(), []
    seen["means"] = []
    for call in range(CALLS):
        if call == SAVED and name in RESUMED:
            states.append(adapter.state.state_dict())
        before = crc([[tensor.copy() for tensor in mine] for mine in given[call]])
        seen["means"].append(adapter.reduce(given[call]))
        assert crc([list(mine) for mine in given[call]]) == before
    adapter.close()
    if states:
        file = io.BytesIO()
        torch.save(states[0], file)
        file.seek(0)
        adapter = make()
        adapter.reduce(given[0])  # what it learns from this is replaced
        adapter.state.load_state_dict(torch.load(file, weights_only=True))
        seen["resumed"] = [adapter.reduce(given[call]) for call in range(SAVED, SAVED + 2)]
        whole = adapter.state.state_dict()
        kept, seen["refused"] = digest_of(whole), {}
        for damage, change in DAMAGES.items():
            bad = closed_again(whole, change(dict(opened(whole))))
            seen["refused"][damage] = raised(lambda bad=bad: adapter.state.load_state_dict(bad))
            assert digest_of(adapter.state.state_dict()) == kept, damage
        adapter.state.load_state_dict(whole)
        seen["after"] = adapter.reduce(given[SAVED + 2])
        adapter.close()
    seen["closed"] = raised(lambda: adapter.reduce(given[0]))
    adapter = make()
    largest = [[np.full_like(tensor, 3.4e38) for tensor in mine] for mine in given[0]]
    seen["largest"] = adapter.reduce(largest)
    bad = [[tensor.copy() for tensor in mine] for mine in given[1]]
    bad[1][1][5] = np.nan
    seen["nan"] = [raised(lambda given=given: adapter.reduce(given)) for given in (bad, given[1])]
    adapter.close()
    seen["differing"] = raised(lambda: make(CONFIG.variant(seed=dist.get_rank())))
    seen["keyed"] = raised(lambda: make(CONFIG.variant(transport={"security": "aes-gcm", "key": "file:/k"})))
    return seen


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    results = {name: played(name) for name in HERE}
    torch.save(results, folder / f"rank-{dist.get_rank()}.pt")
    dist.barrier()
    dist.destroy_process_group()


# What is tested.


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory, seed: int) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("adapters")
    start(__file__, "all", folder, [0] * RANKS)
    return [torch.load(folder / f"rank-{rank}.pt", weights_only=False) for rank in range(RANKS)]


EVERY = pytest.mark.parametrize("name", HERE)


@EVERY
def test_adapter_has_one_mean_on_all_ranks(ranks: list[dict[str, Any]], name: str, seed: int) -> None:
    """Near that of the gradients in every call, that of a spike and the next one, too."""
    one, other = (rank[name]["means"] for rank in ranks)
    assert crc(one) == crc(other)
    errors = []
    for mean, given in zip(one, calls(), strict=True):
        true = [np.mean([mine[t].astype(float) for mine in given], axis=0) for t in range(len(SHAPES))]
        pairs = list(zip(mean, true, strict=True))
        errors.append(max(np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in pairs))
    assert min(errors) > 1e-4
    assert max(errors) < BOUNDS.get(name, 0.15), errors


BOUNDS = {"policy": 0.3}


@pytest.mark.filterwarnings("ignore::oscar.errors.SaturationWarning")  # feedback drops a part
@pytest.mark.parametrize("name", [name for name in HERE if name != "policy"])
def test_adapter_has_the_bits_of_one_process(ranks: list[dict[str, Any]], name: str, seed: int) -> None:
    changes = {"quantiser": {"error_feedback": name != "tasks"}}
    clusters = [LocalCluster(CONFIG.variant(**changes)) for _ in (SHAPES if name == "torchft" else [0])]
    order = slice(None, None, -1 if name == "ddp" else 1)  # of tensors in a bucket
    for mean, given in zip(ranks[0][name]["means"], calls(), strict=True):
        parts = [given] if len(clusters) == 1 else [[[mine[t]] for mine in given] for t in range(len(SHAPES))]
        wanted = [
            each
            for cluster, part in zip(clusters, parts, strict=True)
            for each in cluster.allreduce([mine[order] for mine in part]).mean[order]
        ]
        assert [each.tobytes() for each in mean] == [each.tobytes() for each in wanted]


@pytest.mark.parametrize("name", RESUMED)
def test_adapter_resumes_bit_for_bit(ranks: list[dict[str, Any]], name: str) -> None:
    for rank in ranks:
        assert crc(rank[name]["resumed"]) == crc(rank[name]["means"][SAVED : SAVED + 2])
        assert crc(rank[name]["after"]) == crc(rank[name]["means"][SAVED + 2])


@pytest.mark.parametrize("name", RESUMED)
@pytest.mark.parametrize("damage", DAMAGES)
def test_adapter_refuses_a_damaged_state(ranks: list[dict[str, Any]], name: str, damage: str) -> None:
    for rank in ranks:
        assert rank[name]["refused"][damage].startswith("ConfigError: ")


@EVERY
def test_adapter_failure_ends_all_ranks(ranks: list[dict[str, Any]], name: str) -> None:
    for number, rank in enumerate(ranks):
        first, later = rank[name]["nan"]
        assert "NaN" in first
        assert first.startswith(("PeerError", "GradientError")), first
        assert "failed before" in later or "NaN" in later
        assert name == "tasks" or first.startswith("GradientError") == (number == 1)


@EVERY
def test_adapter_takes_the_largest_floats(ranks: list[dict[str, Any]], name: str) -> None:
    for rank in ranks:
        assert all(np.isfinite(mean).all() and mean.max() > 1e38 for mean in rank[name]["largest"])


@EVERY
def test_adapter_names_what_it_refuses(ranks: list[dict[str, Any]], name: str) -> None:
    for rank in ranks:
        assert "rank 1 has seed = 1, rank 0 has 0" in rank[name]["differing"]
        assert "ConfigError: transport.security is aes-gcm" in rank[name]["keyed"]
        assert "closed" in rank[name]["closed"] or "shut down" in rank[name]["closed"]


if __name__ == "__main__":
    main(Path(sys.argv[2]))
