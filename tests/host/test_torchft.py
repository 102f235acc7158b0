"""The process group for torchft: what is coded, under which identity, what is refused, and replicas that die.

Groups of one process are threads, which meet at a store; replicas that die are processes of the trial.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from needs import needs
from oscar.config import Config
from oscar.errors import ConfigError, OscarError
from support import doors
from support.gradients import laplace

needs("torchft")
import torch  # noqa: E402
from torch.distributed import ReduceOp  # noqa: E402
from torchft import local_sgd  # noqa: E402

from oscar.torchft import ProcessGroupOscar  # noqa: E402
from oscar_lab.trials import elastic  # noqa: E402

COARSE = Config.model_validate({"quantiser": {"error_feedback": True, "coarseness": 1.0}})
SIZE = 3000
BACK_S = 60.0  # for replicas on a busy machine


@pytest.fixture(scope="module")
def meet() -> Callable[..., list[ProcessGroupOscar]]:
    """Return a function that makes groups of one quorum, each in a thread."""
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    quorums = iter(range(1000))

    def make(*groups: ProcessGroupOscar) -> list[Any]:
        address = f"127.0.0.1:{store.port}/{next(quorums)}"

        def enter(rank: int) -> Any:
            try:
                return groups[rank].configure(address, f"r{rank}", rank, len(groups))
            except OscarError as error:
                return error

        with ThreadPoolExecutor(len(groups)) as threads:
            return list(threads.map(enter, range(len(groups))))

    return make


def pair(meet: Any, **options: Any) -> list[ProcessGroupOscar]:
    groups = [ProcessGroupOscar(timeout=timedelta(seconds=20), **options) for _ in range(2)]
    assert meet(*groups) == [None, None]
    return groups


def options(op: Any) -> Any:
    chosen = torch.distributed.AllreduceOptions()
    chosen.reduceOp = op
    return chosen


def step(groups: list[Any], *tensors: list[Any], op: Any = ReduceOp.SUM) -> list[Any]:
    """Reduce tensors[rank] in a step of all groups, in place; return what `errored` says after it."""
    works = [[g.allreduce([t], options(op)) for t in mine] for g, mine in zip(groups, tensors, strict=True)]
    for work in (one for each in works for one in each):
        work.wait()
    return [group.errored() for group in groups]


def gradient(rank: int, turn: int) -> Any:
    return torch.from_numpy(laplace(rank, turn, [(SIZE,)])[0])


def test_sums_means_and_scaled_sums_are_coded_and_equal_on_all_replicas(meet: Any) -> None:
    """Comparing a ReduceOp the wrong way round would send all of it uncompressed."""
    groups = pair(meet)
    exact = (gradient(0, 0) + gradient(1, 0)).numpy()
    quarter = torch.distributed._make_nccl_premul_sum(0.25)
    for op, factor in ((ReduceOp.SUM, 1.0), (ReduceOp.AVG, 0.5), (quarter, 0.25)):
        mine = [gradient(rank, 0) for rank in range(2)]
        assert step(groups, *([one] for one in mine), op=op) == [None, None]
        assert meet(*groups) == [None, None]
        assert torch.equal(*mine)
        error = np.abs(mine[0].numpy() / factor - exact).max() / exact.std()
        assert 0 < error < 0.5
    assert groups[0].coded_values == 3 * SIZE
    assert not groups[0].uncoded_values
    assert 0 < groups[0].sent_bytes < 3 * 4 * SIZE / 2


def test_what_is_not_coded_is_exact_counted_and_told_once(
    meet: Any, caplog: pytest.LogCaptureFixture
) -> None:
    groups = pair(meet)
    others = {
        "small": (torch.float32, 10, ReduceOp.SUM, 2.0),
        "the dtype torch.int64": (torch.int64, SIZE, ReduceOp.SUM, 2.0),
        "the dtype torch.float64": (torch.float64, SIZE, ReduceOp.SUM, 2.0),
        "the op MAX": (torch.float32, SIZE, ReduceOp.MAX, 1.0),
    }
    with caplog.at_level(logging.WARNING, "oscar.torchft"):
        for _ in range(2):
            for dtype, size, op, expected in others.values():
                mine = [torch.ones(size, dtype=dtype) for _ in groups]
                step(groups, *([one] for one in mine), op=op)
                assert all((one == expected).all() for one in mine)
        small = [torch.ones(8) for _ in groups]
        step(groups, *([one] for one in small), op=torch.distributed._make_nccl_premul_sum(0.25))
        assert all((one == 0.5).all() for one in small)
    expected_counts = {reason: 2 * size for reason, (_, size, _, _) in others.items()}
    assert groups[0].uncoded_values == expected_counts | {"small": 28}
    assert groups[0].coded_values == 0
    told = [record.getMessage() for record in caplog.records if record.name == "oscar.torchft"]
    assert len(told) == 2 * (len(others) - 1)  # by two groups, once each; small ones are expected
    assert all("uncompressed" in line for line in told)


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_each_tensor_goes_as_the_page_says(meet: Any) -> None:
    cells = {row: cells["torchft"] for row, cells in doors.table().items()}
    assert cells["DTensor"] == "refused"
    groups = pair(meet, ordered=True)
    for row, held in doors.tensors(torch).items():
        for tensor in held:
            mine = [tensor.detach().clone() for _ in groups]
            for one in mine:
                one.requires_grad_(tensor.requires_grad)
            coded, uncoded = groups[0].coded_values, groups[0].uncoded_values.total()
            if cells[row] == "refused":
                for group, one in zip(groups, mine, strict=True):
                    with pytest.raises(TypeError, match="expected a "):
                        group.allreduce([one], options(ReduceOp.SUM))
                continue
            assert step(groups, *([one] for one in mine)) == [None, None], row
            word = "coded" if groups[0].coded_values > coded else "uncompressed"
            assert word == cells[row], row
            assert word == "coded" or groups[0].uncoded_values.total() == uncoded + tensor.numel()
            ours, sums = mine[0].detach().to_dense(), (tensor + tensor).detach().to_dense()
            bound = 0.0 if word == "uncompressed" else 1.0
            assert (ours.to(torch.complex128) - sums.to(torch.complex128)).abs().max() <= bound, row
    with pytest.raises(TypeError, match=r"expected plain tensors, got a DTensor; give to_local\(\)"):
        groups[0].allreduce([SimpleNamespace(to_local=None)], options(ReduceOp.SUM))


def test_bf16_is_coded_and_stays_bf16(meet: Any) -> None:
    groups = pair(meet)
    mine = [gradient(rank, 0).bfloat16() for rank in range(2)]
    exact = (mine[0].float() + mine[1].float()).clone()
    step(groups, *([one] for one in mine))
    assert mine[0].dtype == torch.bfloat16
    assert torch.equal(*mine)
    assert (mine[0].float() - exact).abs().max() < 0.6 * exact.std()
    assert groups[0].coded_values == SIZE


def test_equal_layers_and_equal_fragments_do_not_share_a_residual(meet: Any) -> None:
    """Two tensors of one size, of which one is constant: its mean has to stay that, step after step."""
    groups = pair(meet, config=COARSE, fragments=2)
    for turn in range(6):
        noisy = [gradient(rank, turn) for rank in range(2)]
        calm = [torch.full((SIZE,), 0.5) for _ in range(2)]
        if turn % 2:  # a fragment of its own, of the same sizes
            assert step(groups, *([calm[rank]] for rank in range(2))) == [None, None]
        else:
            assert step(groups, *([noisy[rank], calm[rank]] for rank in range(2))) == [None, None]
        assert calm[0].std() == 0, turn
    quorum = groups[0]._quorum
    assert sorted(quorum._coded.states) == ["0.0", "0.1", "1.0"]


@pytest.mark.parametrize("middle", [torch.ones(10), torch.ones(SIZE, dtype=torch.float64)])
def test_a_fragment_of_which_nothing_is_coded_has_its_turn(meet: Any, middle: Any) -> None:
    """Or the ones before and after it, of equal sizes, would take turns with one residual."""
    groups = pair(meet, config=COARSE, fragments=3)
    for turn in range(9):
        parts = gradient(0, turn), middle.clone(), torch.full((SIZE,), 0.5)
        mine = [parts[turn % 3].clone() for _ in groups]
        assert step(groups, *([one] for one in mine)) == [None, None]
        assert turn % 3 == 0 or mine[0].std() == 0, turn
    assert sorted(groups[0]._quorum._coded.states) == ["0.0", "2.0"]


@pytest.mark.parametrize("named", [True, False])
def test_tensors_of_one_size_that_take_turns_do_not_share_state(meet: Any, named: bool) -> None:
    """As layers do that are trained in turn: a small one after a large one has its usual error."""
    groups = pair(meet)
    for turn in range(8):
        layer, scale = turn % 2, (100.0, 1.0)[turn % 2]
        mine = [scale * gradient(rank, turn) for rank in range(2)]
        exact = (mine[0] + mine[1]).clone()
        for group in groups:
            if named:
                group.name_next(f"layer {layer}")
        assert step(groups, *([one] for one in mine)) == [None, None]
        assert (mine[0] - exact).norm() < 0.15 * exact.norm(), turn
    assert sorted(groups[0]._quorum._coded.states) == (["layer 0", "layer 1"] if named else [])


def test_forget_drops_residuals_and_keeps_the_rest(meet: Any) -> None:
    groups = pair(meet, config=COARSE, ordered=True)
    step(groups, *([gradient(rank, 0)] for rank in range(2)))
    (state,) = groups[0]._quorum._coded.states.values()
    assert state.workers[0].residual is not None
    groups[0].forget()
    assert state.workers[0].residual is None
    assert step(groups, *([gradient(rank, 1)] for rank in range(2))) == [None, None]
    ProcessGroupOscar().forget()  # without a quorum there is nothing to drop


def test_a_tensor_without_a_name_or_an_order_is_logged_once(
    meet: Any, caplog: pytest.LogCaptureFixture
) -> None:
    groups = pair(meet)
    with caplog.at_level(logging.WARNING, "oscar.torchft"):
        for turn in range(2):
            step(groups, *([gradient(rank, turn)] for rank in range(2)))
    lines = [record.getMessage() for record in caplog.records if record.name == "oscar.torchft"]
    assert len(lines) == len(groups)
    assert all(
        "call name_next(name) before its allreduce, or make the group with ordered=True" in x for x in lines
    )


def test_the_timeout_is_the_configuration_s_if_it_sets_one() -> None:
    config = Config.model_validate({"transport": {"timeout_s": 7.0}})
    assert ProcessGroupOscar(config)._timeout == timedelta(seconds=7)
    assert ProcessGroupOscar(config, timeout=timedelta(seconds=3))._timeout == timedelta(seconds=3)
    assert ProcessGroupOscar()._timeout == timedelta(seconds=60)


def test_torchft_s_ddp_names_gradients_by_their_parameters() -> None:
    """The same name whichever layers have gradients; two models of one manager have other names."""
    from torchft import ddp

    group = ProcessGroupOscar()
    manager = Naming(group)
    first, second = (
        torch.nn.Sequential(*(torch.nn.Linear(3, 3, bias=False) for _ in range(2))) for _ in range(2)
    )
    pure = ddp.PureDistributedDataParallel(manager, first)
    for layer in (0, 1, 0):
        first.requires_grad_(False)[layer].requires_grad_(True)
        pure(torch.ones(1, 3, requires_grad=True)).sum().backward()
    assert manager.names == [f"{layer}.weight of model 1" for layer in (0, 1, 0)]
    manager.names.clear()
    model = ddp.DistributedDataParallel(manager, second)
    for _ in range(2):
        model(torch.ones(1, 3)).sum().backward()
    assert len(set(manager.names)) == len(manager.names) / 2
    assert all("of model 2" in name for name in manager.names)


def test_parameters_are_sent_as_changes(meet: Any) -> None:
    """LocalSGD's parameters: two steps whole, then changes, which are far smaller than parameters are."""
    groups = pair(meet, config=COARSE, parameters=True)
    weights = [gradient(7, 0) * 100 for _ in range(2)]
    for turn in range(6):
        moved = [weights[rank] + 0.01 * gradient(rank, turn) for rank in range(2)]
        exact = (moved[0] + moved[1]).clone()
        before = groups[0].sent_bytes
        step(groups, *([one] for one in moved))
        assert torch.equal(*moved)
        limit = 1e-5 if turn < 2 else 0.05  # of values with a deviation of some 2
        assert (moved[0] - exact).abs().max() < limit, turn
        weights = [one / 2 for one in moved]
    assert groups[0].sent_bytes - before < SIZE


def test_nan_ends_the_step_everywhere_and_the_next_quorum_begins_anew(meet: Any) -> None:
    groups = pair(meet)
    mine = [gradient(rank, 0) for rank in range(2)]
    mine[1][5] = float("nan")
    works = [group.allreduce([one], options(ReduceOp.SUM)) for group, one in zip(groups, mine, strict=True)]
    for work in works:
        with pytest.raises(OscarError, match="NaN"):
            work.wait()
    assert all("NaN" in str(group.errored()) for group in groups)
    with pytest.raises(OscarError, match="NaN"):
        groups[0].allreduce([gradient(0, 1)], options(ReduceOp.SUM)).wait()
    assert meet(*groups) == [None, None]
    assert step(groups, [gradient(0, 1)], [gradient(1, 1)]) == [None, None]


@pytest.mark.parametrize("end", ["abort", "shutdown"])
def test_a_replica_that_waits_is_let_go(meet: Any, end: str) -> None:
    """The other one never comes: abort ends the wait at once, and so does a timeout of `wait`."""
    groups = pair(meet)
    work = groups[0].allreduce([gradient(0, 0)], options(ReduceOp.SUM))
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(work.wait)
        time.sleep(0.1)
        assert not waiting.done()
        getattr(groups[0], end)()
        with pytest.raises(OscarError, match=r"abort|shut down"):
            waiting.result(10)
    assert groups[0].errored() is not None  # or the step would be committed
    groups = pair(meet)
    late = groups[0].allreduce([gradient(0, 0)], options(ReduceOp.SUM))
    with pytest.raises(OscarError, match=r"not reduced within 0.1 s"):
        late.wait(timedelta(seconds=0.1))


def test_other_configurations_are_refused_on_all_with_what_differs(meet: Any) -> None:
    seconds = timedelta(seconds=20)
    groups = [ProcessGroupOscar(timeout=seconds), ProcessGroupOscar(COARSE, timeout=seconds)]
    for found in meet(*groups):
        assert isinstance(found, ConfigError)
        assert "rank 1 has quantiser.coarseness = 1.0, rank 0 has 0.125" in str(found)
    assert all(isinstance(group.errored(), ConfigError) for group in groups)
    with pytest.raises(OscarError, match=r"no quorum: .*quantiser.coarseness"):
        groups[0].allreduce([gradient(0, 0)], options(ReduceOp.SUM))
    groups = [ProcessGroupOscar(timeout=seconds), ProcessGroupOscar(timeout=seconds, least=1)]
    assert all("torchft.least = 1" in str(found) for found in meet(*groups))


def test_a_store_that_vanishes_ends_in_the_deadline() -> None:
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    group = ProcessGroupOscar(timeout=timedelta(seconds=1))
    address = f"127.0.0.1:{store.port}/gone"
    with ThreadPoolExecutor(1) as threads:
        entering = threads.submit(group.configure, address, "r0", 0, 2)  # nobody else comes
        time.sleep(0.2)
        del store
        with pytest.raises(Exception, match=r"."):
            entering.result(20)
    assert group.errored() is not None


def test_bad_options_are_refused() -> None:
    with pytest.raises(ValueError, match="1 at least"):
        ProcessGroupOscar(fragments=0)


class Managed:
    """What DiLoCo asks of a Manager when it is made."""

    _use_async_quorum = False

    def __init__(self, group: Any) -> None:
        self._pg = group

    def register_state_dict_fn(self, *_: Any) -> None:
        """Take it."""


class Naming(Managed):
    """A Manager that reduces nothing, and writes down how each tensor was named."""

    def __init__(self, group: Any) -> None:
        super().__init__(group)
        self.names: list[str | None] = []

    def allreduce(self, tensor: Any) -> Any:
        self.names.append(self._pg._next_name)
        self._pg._next_name = None
        future: Any = torch.futures.Future()
        future.set_result(tensor)
        return SimpleNamespace(wait=lambda: True, get_future=lambda: SimpleNamespace(_fut=future))


def diloco(group: Any, **options: Any) -> Any:
    layers = [torch.nn.Linear(50, 50, bias=False) for _ in range(2)]
    inner = torch.optim.SGD([p for layer in layers for p in layer.parameters()], 0.1)
    outer = [torch.optim.SGD(layer.parameters(), 0.1) for layer in layers]
    return local_sgd.DiLoCo(Managed(group), layers, inner, outer, 4, **options)


def test_diloco_tells_its_fragments_and_may_not_lose_tensors() -> None:
    group = ProcessGroupOscar(parameters=True)
    diloco(group)
    assert (group.fragments, group.parameters) == (2, False)
    with pytest.raises(ConfigError, match=r"fragment 0 of DiLoCo in one bucket of 5,242 bytes, got 10,000"):
        diloco(group, use_bucketization=True, bucket_cap_mb=0.005)
    diloco(group, use_bucketization=True, bucket_cap_mb=0.01)
    with pytest.raises(ConfigError, match="should_quantize"):
        diloco(group, should_quantize=True)
    lossy = local_sgd.ProcessGroup if hasattr(local_sgd, "ProcessGroup") else object
    diloco(lossy(), use_bucketization=True, bucket_cap_mb=0.005)  # another group: left as it was
    inner = torch.optim.SGD([torch.zeros(1)], 0.1)
    local_sgd.LocalSGD(Managed(group), torch.nn.Linear(1, 1), inner, 4)
    assert (group.fragments, group.parameters) == (1, True)


def test_local_training_made_after_the_first_quorum_is_refused(meet: Any) -> None:
    """Replicas have agreed on what is coded: LocalSGD's parameters would be coded whole, not as changes."""
    plain = pair(meet)
    local = partial(local_sgd.LocalSGD, Managed(plain[0]), torch.nn.Linear(1, 1))
    with pytest.raises(ConfigError, match=r"before the first quorum.*fragments=1, parameters=True"):
        local(torch.optim.SGD([torch.zeros(1)], 0.1), 4)
    with pytest.raises(ConfigError, match=r"fragments=2, parameters=False.*make it before the Manager"):
        diloco(plain[0])
    assert (plain[0].fragments, plain[0].parameters) == (1, False)
    told = pair(meet, fragments=2)  # what the group was told is what it will reduce
    diloco(told[0])


# Replicas that die.


def played(group: str, nodes: int) -> tuple[list[bool], elastic.Lines]:
    """Kill a replica, let the others go on, let a new one join; return whether each happened, and lines."""
    with elastic.Replicas(group, "diloco", nodes) as job:
        done = [job.begin()]
        killed = time.time()
        rest = job.kill(job.names[-1])
        done.append(job.wait(partial(elastic.together, names=rest, since=killed), BACK_S))
        born = time.time()
        job.start(job.names[-1])
        done.append(job.wait(partial(elastic.together, names=job.names, since=born), BACK_S))
        done.append(job.end(20, BACK_S) == [0] * nodes)
        return done, job.lines()


def test_a_killed_replica_is_survived_and_a_new_one_heals_and_joins() -> None:
    """Beside the same without compression: losses and parameters end near each other."""
    cases = [(group, nodes) for nodes in (2, 3) for group in ("gloo", "oscar")]
    with ThreadPoolExecutor(len(cases)) as threads:
        results = dict(zip(cases, threads.map(lambda case: played(*case), cases), strict=True))
    for case, (done, lines) in results.items():
        assert done == [True] * 4, (case, done, lines[-3:])
        assert not elastic.apart(lines), case
    for nodes in (2, 3):
        plain, coded = (results[group, nodes][1] for group in ("gloo", "oscar"))
        by_step = [{line["step"]: line for line in lines if "loss" in line} for lines in (plain, coded)]
        last = max(by_step[0].keys() & by_step[1].keys())
        first, ends = min(by_step[0]), [by_step[0][last], by_step[1][last]]
        assert all(end["loss"] < 0.8 * by_step[0][first]["loss"] for end in ends), (first, last, ends)
        assert ends[1]["loss"] < 1.3 * ends[0]["loss"], (last, ends)
        parameters = [np.array(end["some"]) for end in ends]
        assert np.linalg.norm(parameters[0] - parameters[1]) < 0.5 * np.linalg.norm(parameters[0])
        told = [line["group"] for line in coded if "group" in line]
        assert max(one["coded"] for one in told) > 0
        assert any(one["kept"] == ["0.0", "1.0"] for one in told)  # two fragments, apart
        assert all(set(one["uncoded"]) <= {"one replica"} for one in told)
        assert statistics.median(elastic.configures(coded)) < 5
