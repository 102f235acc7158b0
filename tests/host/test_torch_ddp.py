"""The DDP hook on real ranks: the bits of the in-process clusters, and what happens around them.

All ranks are processes of this file (`main`); they are started once and write what they saw.
"""

from __future__ import annotations

import copy
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np
import pytest

from needs import needs
from oscar.coding.frame import HEADER_BYTES
from oscar.coding.registry import asc_codec
from oscar.collective.schedule import Schedule
from oscar.collective.trees import Direct
from oscar.config import Config
from oscar.errors import CautionWarning, ConfigError, OscarError, PeerError
from oscar.numerics.quantiser import sum_width
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.local_wire import LocalWire
from oscar.reducers.party import Party
from oscar.reducers.remote_wire import RemoteWire
from oscar.reducers.wire import Traffic
from oscar.schemes.base import Channel, Message
from oscar.timeline.link import LinkModel
from oscar.transports.threads import ThreadTransport, local_transports
from support.gradients import laplace
from support.torch_ranks import Bucket, Lines, start

needs("torch")
import torch  # noqa: E402

RANKS, LIMIT_S, TIMEOUT_S = 2, 240, 60.0
SHAPES: list[tuple[int, ...]] = [(40, 30), (), (0,), (333,)]
FEEDBACK = {"error_feedback": True}
TRAINED = {
    "asc": Config.model_validate({"method": "asc", "quantiser": FEEDBACK}),
    "oscar-sw": Config(method="oscar-sw"),
}

# What a rank does.


def reduce(state: Any, iteration: int, parameters: list[Any], rank: int) -> np.ndarray:
    from oscar.adapters.torch import oscar_hook

    return oscar_hook(state, Bucket(laplace(rank, iteration, SHAPES), parameters)).wait().numpy().copy()


def make_state(config: Config, bypass: str = "never") -> Any:
    from oscar.adapters.torch import OscarState

    limit = {"timeout_s": TIMEOUT_S, "survive": False}
    return OscarState(config.variant(transport=limit), bypass=bypass)


class Skipping(torch.nn.Module):
    """Three layers, of which a call may leave out the second."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(32, 64), torch.nn.Linear(64, 64)
        self.third = torch.nn.Linear(64, 4)

    def forward(self, inputs: Any, skip: bool = False) -> Any:
        inner = torch.relu(self.first(inputs))
        return self.third(inner if skip else self.second(inner))


def loss(model: Any, step: int, rank: int, **options: Any) -> Any:
    inputs = torch.randn(16, 32, generator=torch.Generator().manual_seed(100 * step + rank))
    return torch.nn.functional.cross_entropy(model(inputs, **options), inputs[:, :4].argmax(1))


class Training:
    """A small model under DDP, in some buckets, whose gradients `seen` has before and after the hook.

    options: of DDP.
    """

    def __init__(self, state: Any, rank: int, **options: Any) -> None:
        from oscar.adapters.torch import oscar_hook

        torch.manual_seed(0)
        self.state, self.rank, self.seen = state, rank, []
        self.model = torch.nn.parallel.DistributedDataParallel(Skipping(), bucket_cap_mb=0.01, **options)
        self.optimiser = torch.optim.SGD(self.model.parameters(), 0.05, momentum=0.9)

        def watching(state, bucket):  # DDP compares annotations with its own classes
            shapes = [tuple(gradient.shape) for gradient in bucket.gradients()]
            self.buffers.append((bucket.index(), shapes, bucket.buffer().clone(), bucket.buffer()))
            return oscar_hook(state, bucket)

        self.model.register_comm_hook(state, watching)

    def backward(self, step: int, times: float = 1.0, **options: Any) -> None:
        self.buffers: list[Any] = []
        found = loss(self.model, step, self.rank, **options)
        (found * times).backward()
        self.seen.append([(i, shapes, g.numpy(), mean.numpy().copy()) for i, shapes, g, mean in self.buffers])

    def step(self, step: int) -> None:
        self.backward(step)
        self.optimiser.step()
        self.optimiser.zero_grad()

    def weights(self) -> bytes:
        return b"".join(p.detach().numpy().tobytes() for p in self.model.parameters())


def trained(config: Config, rank: int) -> dict[str, Any]:
    with make_state(config) as state:
        training = Training(state, rank)
        for step in range(5):
            training.step(step)
        return {"seen": training.seen, "weights": training.weights(), "sent": state.sent_bytes}


def accumulated(rank: int) -> dict[str, Any]:
    """Two backwards for each step, the first under no_sync; `own` has their sum, found without DDP."""
    own = []
    with make_state(TRAINED["asc"]) as state:
        training = Training(state, rank)
        for step in range(0, 8, 2):
            alone = copy.deepcopy(training.model.module)
            for micro in range(2):
                loss(alone, step + micro, rank).backward()
            own.append(torch.cat([p.grad.reshape(-1) for p in alone.parameters()]).numpy())
            with training.model.no_sync():
                training.backward(step)
            training.step(step + 1)
        return {"seen": training.seen, "weights": training.weights(), "own": own}


def unused(rank: int) -> dict[str, Any]:
    """Rank 1 leaves a layer out in step 1, both do in step 3; `none` has layers without a gradient."""
    none = []
    with make_state(TRAINED["asc"]) as state:
        training = Training(state, rank, find_unused_parameters=True)
        for step in range(5):
            training.optimiser.zero_grad()
            training.backward(step, skip=step == 3 or (step, rank) == (1, 1))
            training.optimiser.step()
            named = training.model.module.named_parameters()
            none.append({name.partition(".")[0] for name, parameter in named if parameter.grad is None})
        return {"seen": training.seen, "weights": training.weights(), "none": none}


def rebuilt(rank: int) -> list[np.ndarray]:
    """Equal shapes, but the parameters in another order from iteration 3 on."""
    first = [torch.empty(0) for _ in SHAPES]
    second = first[::-1]
    with make_state(TRAINED["asc"]) as state:
        return [reduce(state, i, first if i < 3 else second, rank) for i in range(6)]


def bypassed(rank: int, slow: str, bypass: str = "auto") -> dict[str, Any]:
    """slow: what takes .3 s longer: compression (on rank 1 alone), or the plain AllReduce."""
    parameters, log = [torch.empty(0) for _ in SHAPES], Lines()
    logging.getLogger("oscar.ddp").addHandler(log)
    with make_state(TRAINED["asc"], bypass) as state:
        state.bypass.estimate = lambda values: 0.0  # what is measured decides
        compress, plain = state._communicator.allreduce, state.bypass.group.allreduce

        def late(call: Any, *args: Any, **options: Any) -> Any:
            time.sleep(0.3)
            return call(*args, **options)

        if slow == "compression" and rank == 1:
            state._communicator.allreduce = partial(late, compress)
        if slow == "plain":
            state.bypass.group = SimpleNamespace(allreduce=partial(late, plain))
        means = [reduce(state, iteration, parameters, rank) for iteration in range(7)]
        decided = dict(state.bypass.decided)
    logging.getLogger("oscar.ddp").removeHandler(log)
    return {"means": means, "decided": decided, "lines": log.lines}


def again(rank: int) -> dict[str, Any]:
    """Compression takes .3 s longer on rank 1 alone, later the plain AllReduce does on rank 0."""
    from oscar.adapters.torch import bypass

    parameters, slow = [torch.empty(0) for _ in SHAPES], ["compression"]
    before, bypass.LOOK = bypass.LOOK, 3
    with make_state(TRAINED["asc"], "auto") as state:
        state.bypass.estimate = lambda values: 0.0
        compress, plain = state._communicator.allreduce, state.bypass.group.allreduce

        def late(what: str, on: int, call: Any, *args: Any, **options: Any) -> Any:
            if slow == [what] and rank == on:
                time.sleep(0.3)
            return call(*args, **options)

        state._communicator.allreduce = partial(late, "compression", 1, compress)
        state.bypass.group = SimpleNamespace(allreduce=partial(late, "plain", 0, plain))
        means, decided = [], []
        for iteration in range(17):
            if iteration == 8:
                slow[0] = "plain"
            means.append(reduce(state, iteration, parameters, rank))
            decided.append([*state.bypass.decided.values()])
    bypass.LOOK = before
    return {"means": means, "decided": decided}


def misplaced(rank: int) -> str:
    """DDP on a group of one rank, the state on all."""
    from oscar.adapters.torch import oscar_hook

    groups = [torch.distributed.new_group([each]) for each in range(RANKS)]
    with make_state(TRAINED["asc"]) as state:
        model = torch.nn.parallel.DistributedDataParallel(Skipping(), process_group=groups[rank])
        model.register_comm_hook(state, oscar_hook)
        with pytest.raises(ConfigError) as caught:
            loss(model, 0, rank).backward()
    return str(caught.value)


def foreseen(rank: int, *, resume: bool = False) -> dict[str, Any]:
    """Three buckets. Coding the last and the first is estimated to take long, by one rank each.

    resume: a new state goes on from the decisions of that moment.
    """
    log, counts = Lines(), []
    parameters = [[torch.empty(0)] for _ in range(3)]
    logging.getLogger("oscar.ddp").addHandler(log)

    def run(state: Any, iterations: range) -> None:
        slow = {(0, 0): 60.0, (1, 2): 60.0}  # by rank and bucket
        state.bypass.estimate = lambda values: slow.get((rank, values // 1000 - 1), 0.0)
        for iteration in iterations:
            buckets = [
                Bucket(
                    laplace(rank, iteration, [(1000 * (index + 1),)]), parameters[index], index, index == 2
                )
                for index in range(3)
            ]
            futures = [state.reduce(bucket) for bucket in buckets]
            means = [future.wait().numpy().tobytes() for future in futures]
            counts.append((dict(state.bypass.decided), means))

    with make_state(TRAINED["asc"], "auto") as state:
        run(state, range(3 if resume else 6))
        saved = state.state_dict()
    if resume:
        with make_state(TRAINED["asc"], "auto") as state:
            state.load_state_dict(saved)
            run(state, range(3, 9))
    logging.getLogger("oscar.ddp").removeHandler(log)
    return {"iterations": counts, "lines": log.lines}


def failed(config: Config, rank: int) -> dict[str, Any]:
    """Rank 1 has NaN in step 2. Whatever torch raises then, a later call is refused."""
    log = Lines()
    logging.getLogger("oscar.ddp").addHandler(log)
    with make_state(config) as state:
        training = Training(state, rank)
        for step in range(2):
            training.step(step)
        before, raised = training.weights(), []
        spoilt = partial(training.backward, 2, times=float("nan") if rank == 1 else 1.0)
        for again in (spoilt, lambda: reduce(state, 3, [], rank), state.state_dict):
            try:
                again()
            except Exception as error:
                raised.append(f"{type(error).__name__}: {error}")
    logging.getLogger("oscar.ddp").removeHandler(log)
    return {
        "raised": raised,
        "untouched": before == training.weights(),
        "lines": log.lines,
        "error": f"{type(state.error).__name__}: {state.error}",
    }


def differing(config: Config, bypass: str = "never") -> str:
    with pytest.raises(ConfigError) as caught:
        make_state(config, bypass)
    return str(caught.value)


def unfit(state: Any, rank: int) -> list[str]:
    """Rank 1 starts with a state that does not fit, which it learns at its first bucket."""
    raised = []
    for iteration in range(2):
        try:
            reduce(state, iteration, [torch.empty(0) for _ in SHAPES], rank)
        except OscarError as error:
            raised.append(f"{type(error).__name__}: {error}")
    state.close()
    return raised


def lost(rank: int) -> tuple[int, int, str]:
    """The last of three ranks dies; return whom another one names, and why."""
    parameters = [torch.empty(0) for _ in SHAPES]
    state = make_state(TRAINED["oscar-sw"])
    for iteration in range(3):
        reduce(state, iteration, parameters, rank)
    if rank == 2:
        os._exit(3)
    with pytest.raises(PeerError) as caught:
        reduce(state, 3, parameters, rank)
    state.close()
    return caught.value.rank, caught.value.peer, str(caught.value)


def compile_one() -> None:
    def kernel(x: int) -> int:
        return x + 1

    kernel.__module__ = "oscar.own"
    numba.njit(kernel)(1)


def main(what: str, folder: Path) -> None:
    torch.set_num_threads(1)
    early = make_state(Config())
    torch.distributed.init_process_group("gloo")
    rank, log = torch.distributed.get_rank(), Lines()
    logging.getLogger("oscar.kernels").addHandler(log)
    results = everything(rank) if what == "everything" else lost(rank)
    if what == "everything":
        compile_one()  # where the cache had all others
        results["compiling"] = log.lines
        if rank == 1:
            early.load_state_dict({"format": 7})
        results["unfit"] = unfit(early, rank)
    torch.save(results, folder / f"rank-{rank}.pt")
    if what == "everything":
        left_open = make_state(TRAINED["asc"])  # users of two lines close nothing
        left = Training(left_open, rank)
        left.step(0)
        left.step(1)
    torch.distributed.destroy_process_group()


def everything(rank: int) -> dict[str, Any]:
    results: dict[str, Any] = {f"trained {name}": trained(config, rank) for name, config in TRAINED.items()}
    results |= {"accumulated": accumulated(rank), "unused": unused(rank)}
    results["rebuilt"] = rebuilt(rank)
    results |= {f"slow {slow}": bypassed(rank, slow) for slow in ("compression", "plain")}
    results["foreseen"] = foreseen(rank)
    results["foreseen, resumed"] = foreseen(rank, resume=True)
    results |= {"again": again(rank), "misplaced": misplaced(rank)}
    results["always"] = bypassed(rank, "nothing", "always")
    results |= {f"failed {name}": failed(config, rank) for name, config in TRAINED.items()}
    results["differing"] = differing(Config(), ("auto", "never")[rank])
    if rank == 1:  # alone: nothing collective comes before the check
        with pytest.raises(ValueError, match="bypass is"):
            make_state(Config(), "sometimes")
    results["threads"] = [thread.name for thread in threading.enumerate() if "oscar" in thread.name]
    return results


# What is tested.


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return all that each of two ranks saw; nothing may hang."""
    folder = tmp_path_factory.mktemp("ddp")
    start(__file__, "everything", folder, [0] * RANKS)
    return [torch.load(folder / f"rank-{rank}.pt", weights_only=False) for rank in range(RANKS)]


def cluster_of(config: Config) -> Any:
    return LocalCluster(config)


def flat(tensors: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([tensor.ravel() for tensor in tensors])


def expected(config: Config, iterations: range) -> list[np.ndarray]:
    cluster = cluster_of(config)
    return [flat(cluster.allreduce([laplace(r, i, SHAPES) for r in range(RANKS)]).mean) for i in iterations]


def plain(iteration: int) -> np.ndarray:
    halves = [flat(laplace(rank, iteration, SHAPES)) / np.float32(RANKS) for rank in range(RANKS)]
    return halves[0] + halves[1]


def check_bits(results: list[dict[str, Any]], config: Config) -> None:
    """Each rank's `seen`: the first backward as DDP sends it, later ones with the bits of the cluster."""
    assert results[0]["weights"] == results[1]["weights"]
    seen = [[buckets for buckets in result["seen"] if buckets] for result in results]
    assert len(seen[0][-1]) > 1, "one bucket is no test of several"
    clusters: dict[int, Any] = {}
    for step, buckets in enumerate(zip(*seen, strict=True)):
        for (index, shapes, own, mean), (_, _, other, same) in zip(*buckets, strict=True):
            assert mean.tobytes() == same.tobytes()
            if step == 0:
                assert np.array_equal(mean, own / np.float32(2) + other / np.float32(2))
                continue
            cluster = clusters.setdefault(index, cluster_of(config))
            bounds = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])
            tensors = [
                [g[bounds[t] : bounds[t + 1]].reshape(shape) for t, shape in enumerate(shapes)]
                for g in (own, other)
            ]
            assert flat(cluster.allreduce(tensors).mean).tobytes() == mean.tobytes()


@pytest.mark.parametrize("name", TRAINED)
def test_trained_replicas_have_the_bits_of_the_cluster(ranks: list[dict[str, Any]], name: str) -> None:
    results = [rank[f"trained {name}"] for rank in ranks]
    check_bits(results, TRAINED[name])
    first, second = results[0]["seen"][:2]
    assert [b[1] for b in first] != [b[1] for b in second], "DDP has not made its buckets anew"


def test_under_no_sync_the_hook_gets_the_sum_in_the_last_backward(ranks: list[dict[str, Any]]) -> None:
    check_bits([rank["accumulated"] for rank in ranks], TRAINED["asc"])
    for result in (rank["accumulated"] for rank in ranks):
        for without, came, own in zip(result["seen"][::2], result["seen"][1::2], result["own"], strict=True):
            assert without == []
            buckets = np.concatenate([bucket for _, _, bucket, _ in came])
            assert np.sort(buckets).tobytes() == np.sort(own).tobytes()  # in another order


def test_a_layer_that_a_rank_does_not_use_counts_as_zeros(ranks: list[dict[str, Any]]) -> None:
    """Where no rank uses it, it has no gradient, and later steps go on."""
    check_bits([rank["unused"] for rank in ranks], TRAINED["asc"])
    for rank in ranks:
        assert rank["unused"]["none"] == [set(), set(), set(), {"second"}, set()]


def test_rank_0_says_once_that_kernels_are_compiled(ranks: list[dict[str, Any]]) -> None:
    first, second = (rank["compiling"] for rank in ranks)
    assert len(first) == 1
    assert "`python -m oscar.warm`" in first[0]
    assert second == []


def test_state_is_dropped_when_buckets_are_made_anew(ranks: list[dict[str, Any]]) -> None:
    config = TRAINED["asc"]
    wanted = [plain(0), *expected(config, range(1, 3)), *expected(config, range(3, 6))]
    going_on = expected(config, range(1, 6))[2:]
    assert [w.tobytes() for w in wanted[3:]] != [w.tobytes() for w in going_on], "no test: nothing to drop"
    for rank in ranks:
        assert [r.tobytes() for r in rank["rebuilt"]] == [w.tobytes() for w in wanted]


def test_compression_that_does_not_pay_is_refused_once(ranks: list[dict[str, Any]]) -> None:
    results = [rank["slow compression"] for rank in ranks]
    wanted = [plain(0), *expected(TRAINED["asc"], range(1, 5)), plain(5), plain(6)]
    for result in results:
        assert list(result["decided"].values()) == [True]  # on rank 0 too, where nothing was slow
        assert [m.tobytes() for m in result["means"]] == [w.tobytes() for w in wanted]
    assert len(results[0]["lines"]) == 1
    assert "does not pay on this network for 1 of 1 buckets" in results[0]["lines"][0]
    assert 'bypass="never"' in results[0]["lines"][0]
    assert results[1]["lines"] == []


def test_what_coding_alone_makes_too_slow_is_refused_after_one_round(ranks: list[dict[str, Any]]) -> None:
    """On both ranks, whichever one's estimate says so; the bucket between them is measured to its end."""
    first, between, last = (0, 1000), (1, 2000), (2, 3000)
    for rank in ranks:
        decided = [decided for decided, _ in rank["foreseen"]["iterations"]]
        assert decided[:4] == [{}, {}, {first: True, last: True}, {first: True, last: True}]
        assert decided[5].keys() == {first, between, last}
    lines = ranks[0]["foreseen"]["lines"]
    assert "for 2 of 3 buckets" in lines[0]
    assert "60000.0 ms coding alone, as estimated" in lines[0]
    assert ranks[1]["foreseen"]["lines"] == []
    one, other = ([means for _, means in rank["foreseen"]["iterations"]] for rank in ranks)
    assert one == other


def test_a_resumed_bypass_measures_what_was_left(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        decided = [decided for decided, _ in rank["foreseen, resumed"]["iterations"]]
        assert decided[2] == decided[6] == {(0, 1000): True, (2, 3000): True}
        assert decided[8].keys() == {(0, 1000), (1, 2000), (2, 3000)}


def test_ranks_look_again_together_and_go_the_other_way(ranks: list[dict[str, Any]]) -> None:
    """Backwards 5 to 8 and 9 to 12 or so: a look is one call that is not timed and three that are."""
    one, two = (rank["again"] for rank in ranks)
    assert one["decided"] == two["decided"]
    assert [m.tobytes() for m in one["means"]] == [m.tobytes() for m in two["means"]]
    assert (one["decided"][5], one["decided"][-1]) == ([True], [False])
    assert one["means"][5].tobytes() == plain(5).tobytes()
    assert one["means"][-1].tobytes() != plain(16).tobytes()


def test_a_model_on_another_group_is_refused_on_all_ranks(ranks: list[dict[str, Any]]) -> None:
    for number, rank in enumerate(ranks):
        text = f"averages over the ranks [{number}], this OscarState over [0, 1]: make it with"
        assert text in rank["misplaced"]


def test_compression_that_pays_goes_on(ranks: list[dict[str, Any]]) -> None:
    wanted = [plain(0), *expected(TRAINED["asc"], range(1, 7))]
    for rank in ranks:
        assert list(rank["slow plain"]["decided"].values()) == [False]
        assert [m.tobytes() for m in rank["slow plain"]["means"]] == [w.tobytes() for w in wanted]
        assert rank["slow plain"]["lines"] == []
        assert [m.tobytes() for m in rank["always"]["means"]] == [plain(i).tobytes() for i in range(7)]


@pytest.mark.parametrize("name", TRAINED)
def test_an_error_is_said_on_all_ranks_and_weights_stay(ranks: list[dict[str, Any]], name: str) -> None:
    for number, rank in enumerate(ranks):
        result = rank[f"failed {name}"]
        _, *later = result["raised"]
        assert len(later) == 2  # the next bucket, and the half-applied state
        assert all("OscarError: the hook failed before" in text for text in later)
        for text in (*later, *result["lines"]):
            assert "end the process and start again from a checkpoint" in text
            assert "skip this iteration" not in text
        assert result["untouched"]
        assert len(result["lines"]) == 1
        assert f"rank {number}: bucket 0 could not be reduced" in result["lines"][0]
        assert "NaN" in result["lines"][0]
        assert result["error"].startswith("PeerError: rank 0: rank 1" if number == 0 else "GradientError")


def test_ranks_with_another_bypass_are_found_when_states_are_made(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert 'rank 1 has bypass = "never", rank 0 has "auto"' in rank["differing"]


def test_a_state_that_does_not_fit_at_the_start_ends_the_run_on_all_ranks(
    ranks: list[dict[str, Any]],
) -> None:
    first, second = (rank["unfit"] for rank in ranks)
    assert len(first) == len(second) == 2
    assert "state.codec: expected a value, got none" in second[0]
    assert "the hook failed before" in second[1]
    assert "rank 1 gave up: ConfigError" in first[0]  # it said so: nobody waits for it


def test_no_thread_is_left_of_states_that_are_closed_or_refused(ranks: list[dict[str, Any]]) -> None:
    assert [rank["threads"] for rank in ranks] == [[], []]


def test_the_rank_that_died_is_named_not_the_one_that_noticed(tmp_path: Path) -> None:
    start(__file__, "lost", tmp_path, [0, 0, 3])
    for rank in range(2):
        noticed, peer, text = torch.load(tmp_path / f"rank-{rank}.pt")
        assert (noticed, peer) == (rank, 2), text


def coded(nodes: int, schedule: Callable[[int], Schedule] = Direct) -> Channel:
    """A channel of its own for each rank: the links of one codec share scratch memory."""
    return Channel(asc_codec(), schedule(nodes), partial(sum_width, 8), granule=1)


def test_a_frame_that_is_lost_is_named_with_step_and_chunk() -> None:
    def work(transport: ThreadTransport) -> PeerError | None:
        party = Party(transport, 20.0)
        wire = RemoteWire(party, {"dense": coded(transport.nodes)})
        if transport.rank == 2:
            transport.close()
            return None
        with pytest.raises(PeerError) as caught:
            wire.combine([Message("dense", np.arange(300, dtype=np.int32) % 5, bits=8, coded=True)])
        party.give_up(caught.value)
        return caught.value

    with ThreadPoolExecutor(3) as pool:
        one, two, _ = pool.map(work, local_transports(3))
    for error in (one, two):
        assert error is not None
        assert error.peer == 2
        assert min(error.step, error.chunk) >= 0


@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_ranks_exchange_what_one_process_does(nodes: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    parts = random.integers(0, 90, (nodes, nodes)) * random.integers(0, 2, (nodes, nodes))
    data = [random.integers(0, 255, mine.sum()).astype(np.uint8) for mine in parts]
    messages = [
        Message("x", mine, "exchange", 8, parts=tuple(lengths.tolist()))
        for mine, lengths in zip(data, parts, strict=True)
    ]
    expected, traffic = LocalWire(nodes, {}, link=LinkModel.of()).combine(messages)
    others = parts.sum() - parts.trace()
    headers = HEADER_BYTES * np.count_nonzero(parts - np.diag(parts.diagonal()))
    assert traffic.moved.frames.bytes == others + headers
    assert traffic.moved is not None
    assert (traffic.moved.time_s > 0) == (others > 0)

    def work(transport: ThreadTransport) -> tuple[Any, Traffic]:
        return RemoteWire(Party(transport, 20.0), {}).combine([messages[transport.rank]])

    with ThreadPoolExecutor(nodes) as pool:
        for rank, ((came,), moved) in enumerate(pool.map(work, local_transports(nodes))):
            assert [mine.tobytes() for mine in came] == [mine.tobytes() for mine in expected[rank]]
            assert moved.sent_bytes >= parts[rank].sum() - parts[rank, rank]


def test_a_state_of_a_scheme_that_drifted_is_named() -> None:
    from oscar.reducers.communicator import Communicator

    def work(transport: ThreadTransport) -> PeerError:
        reducer = Communicator(Config(method="oscar-sw"), transport, timeout_s=20)
        reducer.allreduce([np.ones(30, np.float32)])
        if transport.rank == 1:
            reducer.states[0].scheme.chosen.positions[0] += 1
        with pytest.raises(PeerError) as caught:
            reducer.allreduce([np.ones(30, np.float32)])
        return caught.value

    with ThreadPoolExecutor(3) as pool:
        errors = list(pool.map(work, local_transports(3)))
    assert "rank 1 has another replicated state than this rank, in its chosen" in str(errors[2])


def test_a_state_is_of_one_model_whose_buckets_may_change() -> None:
    from oscar.adapters.torch.layout import ModelGradients

    one, other = ([torch.nn.Parameter(torch.zeros(2)) for _ in range(4)] for _ in range(2))
    model = ModelGradients()
    for index, bucket in enumerate((one[:2], one[2:])):
        model.check(index, bucket, last=index == 1)
    model.check(0, one[::-1], last=True)  # buckets made anew
    for foreign in (other, other[:1]):
        with pytest.raises(ConfigError, match="make one OscarState for each model"):
            model.check(0, foreign, last=True)
    model.check(0, [*one[:1], other[0]], last=True)  # the same model, of which more is trained
    del one
    model = ModelGradients()
    model.check(0, other[:2], last=False)
    with pytest.raises(ConfigError, match="is registered with another model"):  # in one backward
        model.check(0, [torch.nn.Parameter(torch.zeros(2))], last=True)
    del other, foreign, bucket
    fresh = [torch.nn.Parameter(torch.zeros(2)) for _ in range(2)]
    model.check(0, fresh[:1], last=False)  # the model before is gone
    model.check(1, fresh[1:], last=True)


def test_an_error_of_this_rank_is_raised_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from oscar.reducers.communicator import Communicator

    (transport,) = local_transports(1)
    reducer = Communicator(Config(method="oscar-sw"), transport, timeout_s=20)

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("mine")

    monkeypatch.setattr("oscar.reducers.method.make_scheme", fail)
    with pytest.raises(RuntimeError, match=r"^mine$") as caught:
        reducer.allreduce([np.ones(3, np.float32)])
    assert caught.value.__cause__ is None


def test_a_caution_is_told_once_by_rank_0_when_the_call_has_happened_and_not_by_a_load() -> None:
    from oscar.reducers.communicator import Communicator

    def work(transport: ThreadTransport) -> list[Any]:
        reducer = Communicator(Config(method="terngrad"), transport, timeout_s=20)
        seen: list[Any] = []
        for key in range(2):
            try:
                seen.append(len(reducer.allreduce([np.ones(3, np.float32)], key=key).mean))
            except CautionWarning:  # warnings are errors here
                seen.append(CautionWarning)
                reducer.caution.told = True
        state = reducer.state_dict()
        reducer.caution.told = False
        reducer.load_state_dict(state)
        return [*seen, [bucket["scheme"]["iteration"] for bucket in state["states"].values()]]

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(work, local_transports(2))
    assert first == [CautionWarning, 1, [1, 1]]
    assert second == [1, 1, [1, 1]]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
