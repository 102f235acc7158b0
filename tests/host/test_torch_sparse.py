"""Sparse gradients in the DDP hook: exact by rows, dense by other methods, named where ranks differ.

All ranks are processes of this file (`main`); they are started once and write what they saw.
"""

from __future__ import annotations

import copy
import logging
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from needs import needs
from oscar.config import Config
from oscar.errors import GradientOverflowError
from oscar.reducers.party import Party
from oscar.transports.threads import local_transports
from oscar_sim.seeds import told
from support.torch_ranks import Bucket, Lines, start

needs("torch")
import torch  # noqa: E402

RANKS, ROWS, WIDTH, STEPS = 3, 90, 4, 5
CONFIGS = {
    "zen": Config(method="zen"),
    "asc": Config.model_validate({"method": "asc", "quantiser": {"error_feedback": True}}),
    "zen, dense": Config(method="zen", scheme={"values": "asc"}),
}
EXCHANGES = ["auto", "balanced", "doubling", "all-gather"]


# What a rank does.


def make_state(config: Config, bypass: str = "never") -> Any:
    from oscar.adapters.torch import OscarState

    return OscarState(config.variant(transport={"timeout_s": 30.0, "survive": False}), bypass=bypass)


class Training:
    """An embedding and a layer under DDP; `own` and `mean` have the embedding's gradient around the hook.

    draws: the seed of the words.
    """

    def __init__(self, state: Any, *, draws: int = 0, sparse: bool = True) -> None:
        from oscar.adapters.torch import oscar_hook

        self.draws = draws
        torch.manual_seed(0)
        words = torch.nn.Embedding(ROWS, WIDTH, sparse=sparse)
        self.model = torch.nn.parallel.DistributedDataParallel(
            torch.nn.Sequential(words, torch.nn.Linear(WIDTH, 2))
        )
        self.optimiser = torch.optim.SGD(self.model.parameters(), 0.002)
        self.own: Any = None

        def watching(state: Any, bucket: Any):  # DDP compares annotations with its own classes
            if bucket.buffer().is_sparse:
                self.own = bucket.buffer().clone()
            return oscar_hook(state, bucket)

        watching.__annotations__.clear()
        self.model.register_comm_hook(state, watching)

    def step(self, step: int, rank: int) -> dict[str, Any]:
        random = np.random.default_rng([self.draws, step, rank])
        batch = 0 if (step, rank) == (2, 1) else int(random.integers(1, 40))  # rank 1 has no rows once
        words = torch.from_numpy((ROWS * random.random((batch, 3)) ** 2).astype(np.int64))
        self.optimiser.zero_grad()
        (self.model(words) ** 2).sum().backward()
        self.optimiser.step()
        mean = self.model.module[0].weight.grad
        return {"own": self.own.to_dense().numpy(), "rows": set(self.own._indices()[0].tolist()),
                "mean": mean.to_dense().numpy(), "kept": set(mean._indices()[0].tolist())}  # fmt: skip

    def weights(self) -> bytes:
        return b"".join(p.detach().numpy().tobytes() for p in self.model.parameters())


def trained(config: Config, rank: int, bypass: str = "never") -> dict[str, Any]:
    log = Lines()
    logging.getLogger("oscar.ddp").addHandler(log)
    # What is exact is so for any words. How far off a step is depends on how much gradients change: no bound.
    draws = told() if config == CONFIGS["zen"] else 0
    with make_state(config, bypass) as state:
        training = Training(state, draws=draws)
        steps = [training.step(step, rank) for step in range(STEPS)]
        saved, weights, sent = state.state_dict(), training.weights(), state.sent_bytes
        model, tails = copy.deepcopy(training.model.state_dict()), []
        for _ in range(2):
            state.load_state_dict(saved)
            training.model.load_state_dict(model)
            tails.append([training.step(STEPS + step, rank)["mean"].tobytes() for step in range(2)])
    logging.getLogger("oscar.ddp").removeHandler(log)
    return {"steps": steps, "weights": weights, "sent": sent, "lines": log.lines, "tails": tails}


def mixed(rank: int) -> dict[str, Any]:
    """Rank 1's embedding has dense gradients."""
    with make_state(CONFIGS["asc"]) as state:
        before = str(state.state_dict())
        training = Training(state, sparse=rank != 1)
        weights = training.weights()
        with pytest.raises(Exception, match="rank 1") as caught:
            training.step(0, rank)
        return {"said": str(caught.value), "same": (str(state.state_dict()), training.weights()) ==
                (before, weights)}  # fmt: skip


def turned(config: Config, rank: int, what: str) -> dict[str, Any]:
    """Rank 1's gradient turns dense, or has NaN, in the fourth step; all went well before."""
    from oscar.adapters.torch import oscar_hook

    parameter = torch.nn.Parameter(torch.zeros(0))
    with make_state(config) as state:

        def reduce(step: int) -> Any:
            random = np.random.default_rng([told(), step, rank])
            rows = torch.from_numpy(random.integers(0, ROWS, (1, 9)))
            values = torch.from_numpy(random.standard_normal((9, WIDTH)).astype(np.float32))
            if (what, step, rank) == ("NaN", 3, 1):
                values[4, 1] = torch.nan
            gradient: Any = torch.sparse_coo_tensor(rows, values, (ROWS, WIDTH), check_invariants=True)
            if (what, step, rank) == ("dense", 3, 1):
                gradient = [gradient.to_dense().numpy()]
            return oscar_hook(state, Bucket(gradient, [parameter])).wait()

        for step in range(3):
            reduce(step)
        before = str(state._communicator.state_dict())
        with pytest.raises(Exception, match=r"rank|node"):
            reduce(3)
        after = str(state._communicator.state_dict())
        return {"error": f"{type(state.error).__name__}: {state.error}", "same": before == after}


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    results: dict[str, Any] = {name: trained(config, rank) for name, config in CONFIGS.items()}
    results["bypassed"] = trained(CONFIGS["zen"], rank, "always")
    results["measured"] = trained(CONFIGS["asc"], rank, "auto")
    results["mixed"] = mixed(rank)
    for name in ("zen", "asc"):
        for what in ("dense", "NaN"):
            results[f"{what}, {name}"] = turned(CONFIGS[name], rank, what)
    torch.save(results, folder / f"rank-{rank}.pt")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


# What is tested.


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory, seed: int) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("sparse")
    start(__file__, "all", folder, [0] * RANKS)
    return [torch.load(folder / f"rank-{rank}.pt", weights_only=False) for rank in range(RANKS)]


def summed(parts: list[np.ndarray]) -> np.ndarray:
    total = np.zeros_like(parts[0])
    for part in parts:
        total = total + part
    return total / np.float32(len(parts))


@pytest.mark.parametrize("name", [*CONFIGS, "bypassed", "measured"])
def test_replicas_stay_equal_and_gradients_are_averaged(ranks: list[dict[str, Any]], name: str) -> None:
    assert len({rank[name]["weights"] for rank in ranks}) == 1
    error = 0.0
    for step, steps in enumerate(zip(*(rank[name]["steps"] for rank in ranks), strict=True)):
        wanted = summed([one["own"] for one in steps])
        if name == "zen" and step:  # the first backward is torch's
            assert all(one["mean"].tobytes() == wanted.tobytes() for one in steps)
        elif name in ("zen", "bypassed") or not step:
            assert all(np.allclose(one["mean"], wanted, rtol=1e-5, atol=1e-7) for one in steps)
        else:
            error = max(error, float(np.abs(steps[0]["mean"] - wanted).max() / np.abs(wanted).max()))
            assert all(one["mean"].tobytes() == steps[0]["mean"].tobytes() for one in steps)
        if name == "zen":
            assert all(one["kept"] == set.union(*(one["rows"] for one in steps)) for one in steps)
        if name != "measured":  # where the clock decides what goes compressed
            assert all(rank[name]["tails"][0] == rank[name]["tails"][1] for rank in ranks)
    assert ranks[1][name]["steps"][2]["rows"] == set(), "no test: every rank has rows"
    if name in ("asc", "zen, dense"):
        assert 0 < error < 0.3


def test_rows_are_cheaper_and_what_is_made_dense_is_said_once(ranks: list[dict[str, Any]]) -> None:
    for name in ("asc", "zen, dense"):
        assert [len(rank[name]["lines"]) for rank in ranks] == [1, 0, 0]
        assert f"is made dense for the method {CONFIGS[name].method}" in ranks[0][name]["lines"][0]
        assert 'Config(method="zen")' in ranks[0][name]["lines"][0]
    assert all(rank[name]["lines"] == [] for rank in ranks for name in ("zen", "bypassed"))


def test_an_embedding_that_is_dense_on_one_rank_is_named_before_anything_moves(
    ranks: list[dict[str, Any]],
) -> None:
    for rank in ranks:
        assert "rank 1: tensor 0 of bucket 0" in rank["mixed"]["said"]
        assert "is sparse on all ranks or on none" in rank["mixed"]["said"]
        assert rank["mixed"]["same"]


@pytest.mark.parametrize("name", ["zen", "asc"])
def test_a_gradient_that_turns_dense_or_bad_is_named(ranks: list[dict[str, Any]], name: str) -> None:
    shape = (ROWS, WIDTH)
    for number, rank in enumerate(ranks):
        turned = rank[f"dense, {name}"]
        assert turned["same"]
        assert turned["error"].startswith(
            f"GradientError: rank 1: tensor 0 of bucket 0 is a dense gradient of shape {shape}, on rank 0 it "
            f"is a sparse gradient of shape {shape}"
        )
        bad = rank[f"NaN, {name}"]
        assert bad["same"]
        assert "node 1, tensor 0" in bad["error"]
        assert bad["error"].startswith("GradientError" if number == 1 else "PeerError")


@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize(
    ("nodes", "shape", "dims"), [(1, (40, 3), 1), (2, (40, 3), 1), (3, (7, 9, 2), 2), (5, (6,), 1)]
)
def test_rows_add_up_on_every_rank(
    exchange: str, nodes: int, shape: tuple[int, ...], dims: int, seed: int
) -> None:
    """Whatever few rows ranks have, zeros among them; one rank has none."""
    from oscar.adapters.torch.reduction import Rows

    random, given = np.random.default_rng(seed), []
    for rank in range(nodes):
        count = 0 if rank == 1 else int(random.integers(0, 30))
        indices = np.stack([random.integers(0, size, count) for size in shape[:dims]])
        values = random.integers(-3, 4, (count, *shape[dims:])).astype(np.float32)
        given.append(torch.sparse_coo_tensor(indices, values, shape, check_invariants=True).coalesce())
    counts = [gradient._nnz() for gradient in given]
    config = Config(method="zen", scheme={"exchange": exchange}, seed=seed)

    def work(transport: Any) -> Any:
        rows = Rows(Party(transport, 20.0), config)
        return rows.mean(given[transport.rank], counts)

    wanted = summed([gradient.to_dense().numpy() for gradient in given])
    union = np.zeros(shape[:dims], bool)
    for gradient in given:
        union[tuple(gradient.indices().numpy())] = True
    with ThreadPoolExecutor(nodes) as pool:
        for mean, sent in pool.map(work, local_transports(nodes)):
            assert mean.is_coalesced()
            assert mean.to_dense().numpy().tobytes() == (wanted + 0).tobytes()
            assert np.array_equal(np.stack(np.nonzero(union)), mean.indices().numpy())
            assert (sent > 0) == (nodes > 1)


def test_rows_whose_sum_is_beyond_float32_are_an_error_on_all_ranks() -> None:
    values = torch.tensor([[1.0, 2e38], [3.0, 4.0]])
    rows = torch.sparse_coo_tensor([[1, 4]], values, (6, 2), check_invariants=True).coalesce()

    def work(transport: Any) -> str:
        from oscar.adapters.torch.reduction import Rows

        with pytest.raises(GradientOverflowError) as caught:
            Rows(Party(transport, 20.0), Config(method="zen")).mean(rows, [2, 2])
        return str(caught.value)

    with ThreadPoolExecutor(2) as pool:
        texts = list(pool.map(work, local_transports(2)))
    assert texts[0] == texts[1]
    assert "1 of 4 values, the first at flat index 1; the largest" in texts[0]


if __name__ == "__main__":
    main(Path(sys.argv[2]))
