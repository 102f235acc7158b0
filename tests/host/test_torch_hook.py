"""The DDP hook in one process of one rank: what it takes, copies, models, deadlines, and what is dropped."""

from __future__ import annotations

import copy
import io
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from needs import needs
from oscar.config import Config
from oscar.errors import ConfigError
from support.torch_ranks import Bucket

needs("torch")
import torch  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from oscar.adapters.torch import OscarState, bypass, oscar_hook  # noqa: E402
from oscar.adapters.torch.bypass import Bypass  # noqa: E402
from oscar.adapters.torch.grouped import GroupedBuckets, Policed  # noqa: E402
from oscar.adapters.torch.jobs import RECENT, Watch  # noqa: E402
from oscar.adapters.torch.layout import BucketLayout  # noqa: E402
from oscar.adapters.torch.reduction import BucketReduction  # noqa: E402
from oscar.adapters.torch.staging import why_uncompressed, write  # noqa: E402
from oscar.reducers.grouped import Group  # noqa: E402
from oscar.transports.threads import local_transports  # noqa: E402

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "ddp.md"
FEEDBACK = Config.model_validate({"quantiser": {"error_feedback": True}})


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """A group of one rank, whose timeout nobody else has."""
    store = torch.distributed.HashStore()
    timeout = timedelta(minutes=7)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1, timeout=timeout)
    yield
    torch.distributed.destroy_process_group()


def wrapped(model: Any, state: Any, **options: Any) -> Any:
    module = DistributedDataParallel(model, **options)
    module.register_comm_hook(state, oscar_hook)
    return module


def backward(module: Any, times: int = 1, scale: float = 1.0) -> None:
    parameter = next(module.parameters())
    inputs = torch.linspace(-1, 1, 4 * parameter.shape[-1]).reshape(4, -1).to(parameter.dtype)
    for _ in range(times):
        module.zero_grad()
        (module(inputs).abs().square().mean() * scale).backward()


# What the hook takes.

COLUMNS = {
    "dense, CPU or CUDA": [("strided", "cpu"), ("strided", "cuda")],
    "sparse (COO), CPU": [("sparse_coo", "cpu")],
    "sparse (COO), CUDA": [("sparse_coo", "cuda")],
    "other devices": [("strided", "mps"), ("strided", "xpu"), ("sparse_coo", "mps")],
    "other layouts": [("sparse_csr", "cpu"), ("sparse_csc", "cuda")],
}


def table() -> list[tuple[str, str, str]]:
    """Return (dtype, column, treatment) of the table in docs/how-to/ddp.md."""
    lines = PAGE.read_text(encoding="utf-8").partition("## What the hook takes")[2].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    head, _, *body = rows[: next(i for i, row in enumerate(rows) if row[0].startswith("integers")) + 1]
    assert head[1:] == list(COLUMNS)
    names = {"integers, bool": "int32, int64, uint8, bool"}
    return [
        (dtype, column, treatment)
        for dtypes, *cells in body
        for dtype in names.get(dtypes, dtypes).split(", ")
        for column, treatment in zip(head[1:], cells, strict=True)
    ]


@pytest.mark.parametrize(("dtype", "column", "treatment"), table())
def test_the_table_of_what_the_hook_takes_is_true(dtype: str, column: str, treatment: str) -> None:
    for layout, device in COLUMNS[column]:
        sparse, kind = layout == "sparse_coo", SimpleNamespace(type=device)
        buffer: Any = SimpleNamespace(
            dtype=getattr(torch, dtype), layout=getattr(torch, layout), device=kind, is_sparse=sparse
        )
        if treatment == "TypeError":
            with pytest.raises(TypeError, match="expected"):
                why_uncompressed(buffer)
        else:
            assert (why_uncompressed(buffer) is None) == (treatment == "coded")


@pytest.mark.parametrize("scale", [1.0, 1e-50, 1e60])
def test_float64_goes_as_it_is_whatever_its_range_and_is_reported_once(scale: float, caplog: Any) -> None:
    with OscarState(bypass="never") as state:
        module, plain = wrapped(torch.nn.Linear(9, 5).double(), state), torch.nn.Linear(9, 5).double()
        plain.load_state_dict(module.module.state_dict())
        backward(plain, scale=scale)
        backward(module, 3, scale=scale)
        for one, two in zip(module.parameters(), plain.parameters(), strict=True):
            assert torch.equal(one.grad, two.grad)
        assert state.uncompressed_values == state.values == 150
        backward(module, scale=float("nan"))  # passes, as without the hook
        assert state.error is None
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert "bucket 0 (50 values) goes uncompressed, as DDP would send it: float64" in lines[0]


def test_complex_parameters_go_as_they_are_and_floats_beside_them_are_coded(caplog: Any) -> None:
    """DDP shows them as twice as many real values."""

    class Mixed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(8, 8, dtype=torch.cfloat)
            self.second = torch.nn.Linear(8, 4)

        def forward(self, inputs: Any) -> Any:
            return self.second(self.first(inputs).abs())

    with OscarState(bypass="never") as state:
        module = wrapped(Mixed(), state, bucket_cap_mb=1e-4)
        backward(module, 3)
        assert module.module.first.weight.grad.imag.abs().sum() > 0
        assert 0 < state.uncompressed_values < state.values
    assert "complex64" in caplog.text


def test_under_a_policy_what_is_not_coded_is_refused_at_once() -> None:
    """A group waits for all of its tensors, and would wait for ever."""
    with OscarState(bypass="never") as state:
        state._policies = SimpleNamespace()  # type: ignore[assignment]
        with pytest.raises(TypeError, match=r"that a policy can code, got float64.*leave the policy out"):
            backward(wrapped(torch.nn.Linear(3, 2).double(), state))


def test_sparse_float64_goes_as_it_is() -> None:
    with OscarState(bypass="never") as state:
        module = wrapped(torch.nn.Embedding(6, 3, sparse=True).double(), state)
        for _ in range(2):
            module.zero_grad()
            (module(torch.tensor([1, 4, 1])).sum() * 1e60).backward()
        gradient = module.module.weight.grad.to_dense()
        assert gradient[1].tolist() == [2e60] * 3
        assert state.uncompressed_values == state.values > 0


def test_means_stay_in_the_range_of_the_buckets_dtype() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        buffer = torch.zeros(2, dtype=dtype)
        write(buffer, torch.tensor([65600.0, -3.4028e38]))
        assert torch.isfinite(buffer).all()


def test_gradients_of_a_gpu_are_coded_without_an_argument_and_one_line_says_so(caplog: Any) -> None:
    left: list[Any] = []
    ends: Any = SimpleNamespace(config=Config(), bypass=SimpleNamespace(leave=left.append), policies=None)
    ends.communicator = SimpleNamespace(rank=0, party=None)
    reduction = BucketReduction(ends, SimpleNamespace(), SimpleNamespace(), on_gpu=True)  # type: ignore[arg-type]
    layout = SimpleNamespace(sparse=0)
    reduction._timed = {(0, 5): False, (1, 6): True}  # what ranks agreed on: one has its bucket on a GPU
    for key in ((0, 5), (0, 5), (1, 6)):
        job: Any = SimpleNamespace(key=key, measure=True, layout=layout)
        assert reduction.measures(job) == (key == (1, 6))
    assert caplog.text.count("on a GPU are compressed without a measurement") == 1
    assert left == [(0, 5)] * 2


# Arguments.

WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "dict": (lambda: OscarState({"method": "asc"}), "got dict; make one of it: oscar.Config.model_validate"),  # type: ignore[arg-type]
    "text": (lambda: OscarState("asc"), r"got str 'asc'; say oscar.Config\(method="),  # type: ignore[arg-type]
    "group": (
        lambda: OscarState(torch.distributed.group.WORLD),  # type: ignore[arg-type]
        "got ProcessGroup; say OscarState.process_group=group",
    ),
    "model": (
        lambda: OscarState(torch.nn.Linear(2, 2)),  # type: ignore[arg-type]
        "got Linear; say model.register_comm_hook",
    ),
    "class": (lambda: OscarState(OscarState), "got the class OscarState; leave it out"),  # type: ignore[arg-type]
    "bypass": (lambda: OscarState(bypass=False), 'bypass: expected "auto", "never" or "always", got False'),  # type: ignore[arg-type]
    "ranks": (lambda: OscarState(process_group=[0]), "process_group: expected a process group .* got list"),
    "policy": (lambda: OscarState(policy=3, model=torch.nn.Linear(2, 2)), "policy: expected a file"),  # type: ignore[arg-type]
    "no model": (
        lambda: OscarState(policy="a.yaml", model="b"),
        "model: expected a torch.nn.Module, got str",
    ),
    "on_gpu": (lambda: OscarState(on_gpu="cuda"), "on_gpu: expected True or False, got str 'cuda'"),  # type: ignore[arg-type]
    "state is the class": (
        lambda: backward(wrapped(torch.nn.Linear(3, 2), OscarState)),
        "expected an OscarState as the hook's state, got the class OscarState; say model.register",
    ),
    "state is None": (lambda: backward(wrapped(torch.nn.Linear(3, 2), None)), "got NoneType; say model"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_a_type_error_that_says_what_was_expected(name: str) -> None:
    call, text = WRONG[name]
    with pytest.raises(TypeError, match=text):
        call()


def test_the_deadline_is_the_groups_unless_the_configuration_sets_one() -> None:
    five = Config.model_validate({"transport": {"timeout_s": 5.0}})
    for config, seconds in ((None, 420), (Config(method="fp32"), 420), (five, 5), (five.variant(seed=3), 5)):
        with OscarState(config, bypass="never") as state:
            assert state._communicator.party.timeout_s == state.config.transport.timeout_s == seconds


# Copies.


def test_a_model_with_the_hook_is_copied_and_saved_and_a_copy_starts_when_it_is_used() -> None:
    with OscarState(FEEDBACK, bypass="never") as state:
        module = wrapped(torch.nn.Linear(64, 16), state)
        backward(module, 3)
        saved, file = state.state_dict(), io.BytesIO()
        torch.save(module, file)
        file.seek(0)
        copies = {
            "deepcopy": copy.deepcopy(module),
            "average": torch.optim.swa_utils.AveragedModel(module).module,
            "file": torch.load(file, weights_only=False),
        }
        backward(module)
        state.forget()
        backward(module)
    for name, made in copies.items():
        ((_, other),) = made._comm_hooks
        assert not hasattr(other, "rank"), name  # no connections
        again = wrapped(made.module, copy.deepcopy(other))
        ((_, started),) = again._comm_hooks
        with started:
            started.start()
            now = started.state_dict()
            assert now["tree"] == saved["tree"]
            assert all(torch.equal(now["arrays"][key], value) for key, value in saved["arrays"].items())
            backward(again, 3)
            assert started.config == state.config


def test_a_state_that_failed_is_copied_without_what_it_had() -> None:
    state = OscarState(FEEDBACK, bypass="never")
    module = wrapped(torch.nn.Linear(64, 16), state)
    backward(module, 2)
    with pytest.raises(RuntimeError):
        backward(module, scale=float("nan"))
    other = copy.deepcopy(state)
    assert (other.error, other._loaded) == (None, None)


# Models.


def test_a_model_that_is_unfrozen_step_by_step_is_one_model() -> None:
    layers = torch.nn.Sequential(*(torch.nn.Linear(70, 70) for _ in range(3)))
    with OscarState(FEEDBACK, bypass="never") as state:
        for live in ([2], [1, 2], [0], [0, 1, 2]):  # the last but one shares no bucket with the one before
            for index, layer in enumerate(layers):
                layer.requires_grad_(index in live)
            module = wrapped(layers, state, find_unused_parameters=True, bucket_cap_mb=0.02)
            backward(module, 3)
        other = wrapped(torch.nn.Linear(70, 70), state)
        with pytest.raises(Exception, match="make one OscarState for each model"):
            backward(other)
        backward(module)
        assert state.error is None


def test_state_is_of_a_parameter_and_not_of_its_place_or_size() -> None:
    """Not even where another one gets the identity of one that is gone."""
    parameter = torch.nn.Parameter(torch.zeros(30))
    tensors = [np.zeros(30, np.float32)]
    layout, identity = BucketLayout.of(Bucket(tensors, [parameter])), id(parameter)
    assert layout.fits(BucketLayout.of(Bucket(tensors, [parameter])))
    del parameter
    kept = []
    for _ in range(200):
        kept.append(torch.nn.Parameter(torch.zeros(30)))
        assert not layout.fits(BucketLayout.of(Bucket(tensors, [kept[-1]])))
        if id(kept[-1]) == identity:
            break


def test_a_saved_state_is_not_taken_over_by_another_layer_of_its_shape(caplog: Any) -> None:
    def trained(frozen: int, saved: Any) -> Any:
        layers = torch.nn.Sequential(torch.nn.Linear(40, 40), torch.nn.Linear(40, 40))
        layers[frozen].requires_grad_(False)
        with OscarState(FEEDBACK, bypass="never") as state:
            module = wrapped(layers, state)
            if saved is not None:
                state.load_state_dict(saved)
            backward(module, 3)
            return state.state_dict()

    saved = trained(0, None)
    trained(0, saved)
    assert caplog.text == ""
    trained(1, saved)
    assert "bucket 0 has other tensors than the state that was loaded" in caplog.text
    earlier = {**saved, "tree": re.sub(r'"names", ', '"mames", ', saved["tree"])}
    trained(0, earlier)  # of a release that saved no names


def test_a_model_on_other_ranks_is_refused_at_its_first_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    from oscar.adapters.torch import layout

    with OscarState(bypass="never") as state:
        module = wrapped(torch.nn.Linear(3, 2), state)
        monkeypatch.setattr(layout, "ranks_of", lambda group: [0, 1])
        with pytest.raises(
            ConfigError, match=r"averages over the ranks \[0, 1\], this OscarState over \[0\]"
        ):
            backward(module)


# What is dropped.


def test_forget_drops_residuals_and_also_those_of_a_state_that_was_loaded() -> None:
    def residuals(state: OscarState) -> list[Any]:
        return [worker.residual for each in state._communicator.states.values() for worker in each.workers]

    with OscarState(FEEDBACK, bypass="never") as state:
        state.forget()  # nothing yet
        module = wrapped(torch.nn.Linear(64, 16), state)
        backward(module, 3)
        saved = state.state_dict()
        assert any(np.any(residual) for residual in residuals(state))
        state.forget()
        assert residuals(state) == [None]
        backward(module)
    state.forget()  # closed
    other = copy.deepcopy(state)
    other.load_state_dict(saved)
    other.forget()
    with other:
        other.start()
        assert residuals(other) == [None]


def test_forget_under_a_policy_drops_what_waits_and_ranks_stay_alike() -> None:
    """A rank may call it alone: whether something waits decides which way buckets go."""
    sizes = [60, 40]
    coded, plain = (
        Config.model_validate({"method": m, "quantiser": {"error_feedback": True}}) for m in ("asc", "fp32")
    )
    (transport,) = local_transports(1)
    policed = Policed([Group((0, 1), coded)], {0: 0, 1: 1}, [("a", 60), ("b", 40)])
    grouped = GroupedBuckets(policed, coded, transport)
    grouped._arrived = {t: np.linspace(0, 1, size, dtype=np.float32) for t, size in enumerate(sizes)}
    grouped._reduce(0)
    grouped.forget()
    grouped.regroup([Group((0,), plain), Group((1,), plain)])
    assert not grouped.plain  # as on a rank that did not forget
    assert not any(np.any(late) for late in grouped._late.values())
    grouped._late = {0: np.ones(60, np.float32)}
    grouped.forget()
    assert grouped._late.keys() == {0}
    assert not np.any(grouped._late[0])


# The bypass.


class Timed:
    """A bypass of two buckets whose times are set, of two ranks that are alike."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.plain, self.ours = 0.0, 1.0, 2.0
        self.states: dict[Any, Any] = {}
        monkeypatch.setattr(bypass.time, "perf_counter", lambda: self.now)
        waits = SimpleNamespace(wait=lambda: None)
        group = SimpleNamespace(
            allreduce=lambda tensors: self.passed(self.plain if tensors[0].numel() > 1 else 0, waits)
        )
        ranks: Any = SimpleNamespace(
            config=Config(), nodes=2, rank=0, states=self.states, gather=lambda mine, cap: [mine, mine]
        )
        self.bypass, self.changed = Bypass("auto", group, ranks), False
        self.bypass.estimate = lambda values: 0.0

    def passed(self, seconds: float, result: Any) -> Any:
        self.now += seconds
        return result

    def backward(self) -> list[bool]:
        """Run a backward; return which buckets went uncompressed."""
        votes = self.bypass.begin(changed=self.changed)
        self.changed = self.bypass.vote() if votes else False
        skipped = []
        for key in ((0, 100), (1, 50)):
            skipped.append(self.bypass.skips(key))
            if skipped[-1]:
                self.bypass.watch.note(key, self.plain)
            elif self.bypass.measures(key):
                self.bypass.measured(key, torch.zeros(key[1]), lambda: self.passed(self.ours, None))
            else:
                self.bypass.watch.note(key, self.ours)
            if not skipped[-1]:
                self.states[key] = True
        if not all(skipped):
            self.bypass.settle()
        return skipped


def test_the_bypass_looks_again_and_changes_its_mind_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = Timed(monkeypatch)
    for ours, ends in ((2.0, True), (0.5, False), (2.0, True)):
        timed.ours = ours
        seen = [timed.backward() for _ in range(bypass.LOOK + 20)]
        assert seen[-1] == [ends, ends]
        assert set(timed.states) == (set() if ends else {(0, 100), (1, 50)})  # no residual waits for later


def test_the_bypass_looks_at_one_bucket_and_seldom_while_nothing_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timed = Timed(monkeypatch)
    for _ in range(10):
        timed.backward()
    coded = np.sum(
        [[not skipped for skipped in timed.backward()] for _ in range(2 * bypass.LOOK + 20)], axis=0
    )
    assert coded.tolist() == [bypass.ROUNDS + 1, bypass.ROUNDS + 1]  # in turns


def test_changed_times_are_looked_at_long_before_the_next_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = Timed(monkeypatch)
    for _ in range(bypass.REST + bypass.VOTE):
        timed.backward()
    timed.plain = 9.0
    seen = [timed.backward() for _ in range(3 * bypass.VOTE)]
    assert seen[-1] == [False, False]


def test_a_watch_compares_with_the_first_times_after_a_decision() -> None:
    watch, keys = Watch(), [(0, 1), (1, 1)]
    assert not watch.changed([])
    for seconds, changed in ((1.0, False), (1.5, False), (2.5, True), (0.7, False), (0.4, True)):
        for key in keys:
            for _ in range(RECENT):
                watch.note(key, seconds)
        assert watch.changed(keys) == changed
    watch.clear()
    assert not watch.changed(keys)
