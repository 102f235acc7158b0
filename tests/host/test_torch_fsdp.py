"""FSDP2 inside hosts and OSCAR between them, on four real ranks: beside native HSDP, and across a checkpoint.

All ranks are processes of this file (`main`); they are started once and write what they saw.
"""

from __future__ import annotations

import math
import pickle
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from needs import needs
from oscar.config import Config
from oscar.errors import ConfigError
from support import doors
from support.torch_ranks import start

needs("torch")
import torch  # noqa: E402

RANKS, STEPS = 4, 12
PARTS = "gradients of some of a module's trained parameters alone have no state"
FINE = Config.model_validate({"quantiser": {"error_feedback": True}})


# What a rank does.


class Net(torch.nn.Module):
    """Two equal layers, one whose rows do not divide by two, and one that is not always used."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(32, 32) for _ in range(2)])
        self.odd, self.seldom = torch.nn.Linear(32, 7), torch.nn.Linear(7, 7)

    def forward(self, x: Any, *, seldom: bool = True) -> Any:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        x = self.odd(x)
        return self.seldom(x) if seldom else x


def make(mesh: Any, **options: Any) -> Any:
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = Net()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def train(model: Any, optimiser: Any, steps: range, **how: Any) -> list[float]:
    losses = []
    for step in steps:
        random = torch.Generator().manual_seed(100 * step + torch.distributed.get_rank())
        inputs = torch.randn(64, 32, generator=random)
        loss = (model(inputs, **how) - inputs[:, :7].sin()).square().mean()
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        losses.append(float(loss.detach()))
    return losses


def weights(model: Any) -> list[np.ndarray]:
    return [parameter.full_tensor().detach().numpy().copy() for parameter in model.parameters()]


def adam(model: Any) -> Any:
    return torch.optim.AdamW(model.parameters(), lr=3e-3)


def compared(mesh: Any) -> dict[str, Any]:
    """Native HSDP, and the hook, for the same steps."""
    from oscar.torch_fsdp import between_hosts

    native = make(mesh)
    found = {"native": train(native, adam(native), range(STEPS)), "native weights": weights(native)}
    model = make(mesh["inside"])
    with between_hosts(model, mesh["hosts"], FINE) as exchange:
        found["hook"] = train(model, adam(model), range(STEPS))
        found |= {"weights": weights(model), "shapes": exchange.shapes, "coded": exchange.coded_values}
        found |= {"uncoded": dict(exchange.uncoded_values), "sent": exchange.sent_bytes}
        found["keys"] = sorted(exchange._coded.states)
        train(model, adam(model), range(2), seldom=False)
        found["seldom"] = dict(exchange.uncoded_values)
    return found


def gradients(model: Any, steps: range, parts: int = 1) -> list[np.ndarray]:
    """Return the gradients of some steps, of `parts` micro-batches each."""
    results = []
    for step in steps:
        model.zero_grad()
        for part in range(parts):
            model.set_requires_gradient_sync(part == parts - 1)
            random = torch.Generator().manual_seed(100 * step + 10 * part + torch.distributed.get_rank())
            model(torch.randn(64, 32, generator=random)).square().mean().backward()
        full = [p.grad.full_tensor().float().flatten() for p in model.parameters() if p.grad is not None]
        results.append(torch.cat(full).numpy())
    return results


def beside_native(mesh: Any, build: Any, steps: range, parts: int = 1) -> list[float]:
    """Return the relative error of each step's gradients, against those of native HSDP."""
    from oscar.torch_fsdp import between_hosts

    native = gradients(build(mesh), steps, parts)
    model = build(mesh["inside"])
    with between_hosts(model, mesh["hosts"], FINE):
        coded = gradients(model, steps, parts)
    pairs = zip(coded, native, strict=True)
    return [float(np.linalg.norm(one - two) / np.linalg.norm(two)) for one, two in pairs]


def divided(mesh: Any) -> dict[str, list[float]]:
    """Divide factors of the user's, with other dtypes to reduce in, and accumulated gradients."""
    from torch.distributed.fsdp import MixedPrecisionPolicy

    def build(factor: float | None, dtype: Any, mesh: Any) -> Any:
        model = make(mesh, mp_policy=MixedPrecisionPolicy(reduce_dtype=dtype))
        for module in (*model.layers, model):
            module.set_force_sum_reduction_for_comms(True)  # Gloo has no op with a factor
            if factor is not None:
                module.set_gradient_divide_factor(factor)
        return model

    cases = {
        "none": (None, torch.float32, 1),
        "1": (1.0, torch.float32, 1),
        "8": (8.0, torch.float32, 2),
        "8 in float16": (8.0, torch.float16, 1),
        "3 in bfloat16": (3.0, torch.bfloat16, 2),
    }
    return {
        name: beside_native(mesh, partial(build, factor, dtype), range(2), parts)
        for name, (factor, dtype, parts) in cases.items()
    }


def swapped(mesh: Any) -> dict[str, Any]:
    """Two layers of one shape in a module, of which one at a time is trained; and what forget leaves."""
    from torch.distributed.fsdp import fully_shard

    from oscar.torch_fsdp import between_hosts

    def build(mesh: Any) -> Any:
        torch.manual_seed(0)
        model = torch.nn.Sequential(*(torch.nn.Linear(32, 32, bias=False) for _ in range(2)))
        return fully_shard(model, mesh=mesh)

    def turns(model: Any) -> list[np.ndarray]:
        results = []
        for step in range(6):
            for number, layer in enumerate(model):
                layer.weight.requires_grad_(number == step // 2 % 2)
                layer.weight.grad = None
            random = torch.Generator().manual_seed(100 * step + torch.distributed.get_rank())
            scale = (1e3, 1.0)[step // 2 % 2]
            (model(torch.randn(64, 32, generator=random)).square().mean() * scale).backward()
            results.append(model[step // 2 % 2].weight.grad.full_tensor().numpy())
        return results

    native, model = turns(build(mesh)), build(mesh["inside"])
    with between_hosts(model, mesh["hosts"], FINE) as exchange:
        pairs = zip(turns(model), native, strict=True)
        states = exchange._coded.states
        saw: dict[str, Any] = {
            "errors": [float(np.linalg.norm(one - two) / np.linalg.norm(two)) for one, two in pairs],
            "keys": sorted(states),
            "uncoded": dict(exchange.uncoded_values),
            "timeout": exchange._coded.party.timeout_s,
        }
        saw["residuals"] = [state.workers[0].residual is not None for state in states.values()]
        exchange.forget()
        saw["after"] = [state.workers[0].residual is not None for state in states.values()]
    return saw


def resumed(mesh: Any, folder: Path) -> dict[str, Any]:
    """A run without a stop, and one that is saved, made anew and loaded in the middle."""
    import torch.distributed.checkpoint as dcp

    from oscar.torch_fsdp import between_hosts

    def begin() -> tuple[Any, Any, Any]:
        model = make(mesh["inside"])
        return model, torch.optim.SGD(model.parameters(), lr=0.1), between_hosts(model, mesh["hosts"], FINE)

    model, optimiser, exchange = begin()
    train(model, optimiser, range(3))
    dcp.save({"model": model.state_dict(), "oscar": exchange}, checkpoint_id=folder / "saved")
    train(model, optimiser, range(3, 6))
    expected = weights(model)
    exchange.close()
    model, optimiser, exchange = begin()
    state = {"model": model.state_dict(), "oscar": exchange}
    dcp.load(state, checkpoint_id=folder / "saved")
    model.load_state_dict(state["model"])
    train(model, optimiser, range(3, 6))
    found = {"expected": expected, "resumed": weights(model)}
    try:
        exchange.load_state_dict({"rank 9 of 10": b""})
    except ConfigError as error:
        found["refused"] = str(error)
    exchange.close()
    return found


def refused(mesh: Any) -> dict[str, str]:
    from oscar.torch_fsdp import between_hosts

    found = {}
    cases = {
        "none": torch.nn.Linear(2, 2),
        "replicated": make(mesh),
    }
    for name, model in cases.items():
        try:
            between_hosts(model, mesh["hosts"])
        except (TypeError, ConfigError) as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


def taken(mesh: Any) -> dict[str, set[str]]:
    """Return by row of docs/reference/inputs.md what happens to a shard of its dtype."""
    from oscar.torch_fsdp import between_hosts

    words: dict[str, set[str]] = {}
    cells = {row: cells["FSDP2"] for row, cells in doors.table().items() if row in doors.tensors(torch)}
    model, exchange = make(mesh["inside"]), None
    for row, tensor in ((row, one) for row, held in doors.tensors(torch).items() for one in held):
        if cells[row] == "-":
            continue
        exchange = exchange or between_hosts(model, mesh["hosts"], FINE)
        shard = tensor.reshape(-1)[: sum(map(math.prod, exchange.shapes["layers.0"]))].clone()
        before = exchange.uncoded_values.total()
        try:
            exchange.reduce("layers.0", shard)
            word = "uncompressed" if exchange.uncoded_values.total() > before else "coded"
            right = tensor.reshape(-1)[: shard.numel()]
            bound = 0.0 if word == "uncompressed" else 0.75  # a step and a half
            assert (shard.to(torch.complex128) - right.to(torch.complex128)).abs().max() <= bound, row
        except TypeError:
            word, exchange = "refused", exchange.close()
        words.setdefault(row, set()).add(word)
    if exchange is not None:
        exchange.close()
    return words


def unhooked(mesh: Any) -> dict[str, Any]:
    """A module that takes no hook, and a backward after the end."""
    from oscar.adapters.fsdp import exchange
    from oscar.torch_fsdp import between_hosts

    made: list[Any] = []

    class Noted(exchange.TcpTransport):
        def __init__(self, group: Any) -> None:
            super().__init__(group)
            made.append(self)

    def refuse(_: Any) -> None:
        raise RuntimeError("no hooks here")

    found: dict[str, Any] = {}
    before, exchange.TcpTransport = exchange.TcpTransport, Noted
    model = make(mesh["inside"])
    model.set_all_reduce_hook = refuse
    try:
        between_hosts(model, mesh["hosts"], FINE)
    except RuntimeError as error:
        found["refused"] = str(error)
    exchange.TcpTransport = before
    found["closed"] = [transport.closed for transport in made]
    model = make(mesh["inside"])
    between_hosts(model, mesh["hosts"], FINE).close()
    try:
        train(model, adam(model), range(1))
    except Exception as error:
        found["late"] = f"{type(error).__name__}: {error}"
    return found


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("hosts", "inside"))
    found = {
        "compared": compared(mesh),
        "divided": divided(mesh),
        "swapped": swapped(mesh),
        "resumed": resumed(mesh, folder),
        "refused": refused(mesh),
        "taken": taken(mesh),
        "unhooked": unhooked(mesh),
    }
    (folder / f"{torch.distributed.get_rank()}.pickle").write_bytes(pickle.dumps(found))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[2]))


# What the tests look at.


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("fsdp")
    start(__file__, "all", folder, [0] * RANKS)
    return [pickle.loads((folder / f"{rank}.pickle").read_bytes()) for rank in range(RANKS)]


def test_the_hook_trains_as_native_hsdp_does_with_far_fewer_bytes(seen: list[dict[str, Any]]) -> None:
    for one in (each["compared"] for each in seen):
        assert np.abs(np.subtract(one["hook"], one["native"])).max() < 0.02
        assert one["hook"][-1] < 0.9 * one["hook"][0]
        for mine, native in zip(one["weights"], one["native weights"], strict=True):
            assert np.abs(mine - native).max() < 0.05
        assert one["coded"] == STEPS * sum(math.prod(s) for own in one["shapes"].values() for s in own)
        assert not one["uncoded"]
        assert one["sent"] < 1.5 * one["coded"]  # bytes; a ring in bf16 sends two a value
    first = seen[0]["compared"]["weights"]
    for each in seen[1:]:
        assert all(np.array_equal(*pair) for pair in zip(first, each["compared"]["weights"], strict=True))


def test_every_parameter_has_a_shard_and_every_module_a_state_of_its_own(seen: list[dict[str, Any]]) -> None:
    one = seen[0]["compared"]
    assert one["shapes"]["layers.0"] == one["shapes"]["layers.1"] == [(16, 32), (16,)]
    assert one["shapes"][""] == [(4, 32), (4,), (4, 7), (4,)]  # 7 rows on two ranks: padded
    assert one["keys"] == ["", "layers.0", "layers.1"]


def test_gradients_are_native_hsdp_s_with_each_divide_factor(seen: list[dict[str, Any]]) -> None:
    for name, errors in (item for each in seen for item in each["divided"].items()):
        assert 0 < max(errors) < 0.1, (name, errors)


def test_layers_that_are_trained_in_turn_have_a_state_each(seen: list[dict[str, Any]]) -> None:
    for one in (each["swapped"] for each in seen):
        assert max(one["errors"]) < 0.1, one["errors"]
        assert (one["keys"], one["uncoded"]) == ([" 0", " 1"], {})
        assert (one["residuals"], one["after"]) == ([True, True], [False, False])
        assert one["timeout"] == 30 * 60  # torch's own


def test_a_module_of_which_some_parameters_have_gradients_goes_uncompressed(
    seen: list[dict[str, Any]],
) -> None:
    assert seen[0]["compared"]["seldom"] == {PARTS: 2 * (4 * 32 + 4)}


def test_a_run_goes_on_bit_for_bit_from_a_distributed_checkpoint(seen: list[dict[str, Any]]) -> None:
    for one in (each["resumed"] for each in seen):
        assert all(np.array_equal(*pair) for pair in zip(one["expected"], one["resumed"], strict=True))
        assert "expected a saved exchange with an entry rank" in one["refused"]


def test_what_cannot_be_reduced_is_refused_on_all_ranks(seen: list[dict[str, Any]]) -> None:
    for one in (each["refused"] for each in seen):
        assert "TypeError: expected a model with modules under fully_shard, got a Linear" in one["none"]
        assert "ConfigError: expected parameters on a mesh of one dimension" in one["replicated"]


def test_each_dtype_goes_as_the_page_says(seen: list[dict[str, Any]]) -> None:
    cells = {row: {cells["FSDP2"]} for row, cells in doors.table().items()}
    for each in seen:
        assert each["taken"] == {row: cells[row] for row in each["taken"]}
    assert len(seen[0]["taken"]) == sum(cell != {"-"} for cell in cells.values()) - 1  # no CUDA device


def test_connections_end_with_a_refused_hook_and_hooks_outlive_them(seen: list[dict[str, Any]]) -> None:
    for one in (each["unhooked"] for each in seen):
        assert (one["refused"], one["closed"]) == ("no hooks here", [True])
        assert "OscarError: this communicator is closed" in one["late"]
