"""One replica of the elastic trial: a small model under torchft, which may be killed at any point."""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

from oscar_lab.trials._ranks import say

WIDTH, BATCH, EVERY = 48, 64, 4
SPARED = 97  # one parameter in so many is told
OTHERS_S = 60.0  # for a quorum
LOOK_S = 0.02


def replica(case: dict[str, Any], name: str, life: int) -> None:
    """Train until the step that stands in the file `stop`; write a line for each step to the file `said`.

    case: "group" is oscar or gloo, "way" diloco, local_sgd or ddp; "folder" of the files, "lighthouse",
    "timeout_s", "config" (of oscar), "pause_s" after a batch. A first life begins once there is a file `go`.
    """
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    folder = Path(case["folder"])
    model = torch.nn.Sequential(_half(), _half())
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    group = _group(case)
    configured = _watched(group)
    manager, store = _manager(case, name, group, model, inner)
    trained, batch, way, shared = _way(case["way"], manager, model, inner)
    say({"replica": name, "life": life, "ready": True, "step": -1, "at": time.time()}, case["said"])
    while life == 0 and not (folder / "go").exists():
        time.sleep(LOOK_S)
    batches, before = 0, 0
    with way:
        while manager.current_step() < stop_of(folder):
            inputs = _inputs(1_000_003 * life + 1009 * batches + int(name[1:]))
            batch(trained, inputs)
            batches += 1
            time.sleep(case.get("pause_s", 0.0))
            step = manager.current_step()
            if step != before:
                before = step
                line = {"replica": name, "life": life, "step": step, "at": time.time()}
                line |= {"participants": manager.num_participants(), "digest": _digest(shared())}
                line |= {"loss": _loss(shared()), "some": _some(shared()), "configure_s": list(configured)}
                say(line | {"group": _told(group)}, case["said"])
    manager.shutdown(wait=False)
    group.shutdown()
    del store


def stop_of(folder: Path) -> float:
    """Return the step at which replicas end; infinite as long as nobody has said it."""
    said = folder / "stop"
    return json.loads(said.read_text()) if said.exists() else float("inf")


def _half() -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())


def _inputs(seed: int) -> Any:
    import torch

    return torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(seed))


def _targets(inputs: Any) -> Any:
    return 0.5 * (inputs.roll(1, 1) / 2).tanh()


def _loss(parameters: list[Any]) -> float:
    """Return the loss of the parameters that replicas share, on inputs of which they have seen none."""
    import torch

    model, inputs = torch.nn.Sequential(_half(), _half()), _inputs(2**40)
    with torch.no_grad():
        for mine, value in zip(model.parameters(), parameters, strict=True):
            mine.copy_(value)
        return float(torch.nn.functional.mse_loss(model(inputs), _targets(inputs)))


def _digest(parameters: list[Any]) -> str:
    digest = hashlib.sha256()
    for value in parameters:
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()[:16]


def _some(parameters: list[Any]) -> list[float]:
    """Return some of all parameters, for comparisons between runs."""
    values = [value for each in parameters for value in each.reshape(-1)[::SPARED].tolist()]
    return [round(value, 5) for value in values]


def _group(case: dict[str, Any]) -> Any:
    timeout = timedelta(seconds=case["timeout_s"])
    if case["group"] == "gloo":
        from torchft import ProcessGroupGloo

        return ProcessGroupGloo(timeout=timeout)
    from oscar.config import Config
    from oscar.torchft import ProcessGroupOscar

    return ProcessGroupOscar(Config.model_validate(case["config"]), timeout=timeout)


def _told(group: Any) -> dict[str, Any]:
    """Return what a ProcessGroupOscar tells of itself, and the keys under which it keeps state."""
    if not hasattr(group, "coded_values"):
        return {}
    quorum = group._quorum
    kept = [] if quorum is None else sorted(map(str, quorum._coded.states))
    counts = {"coded": group.coded_values, "uncoded": dict(group.uncoded_values)}
    return counts | {"sent_bytes": group.sent_bytes, "kept": kept}


def _watched(group: Any) -> list[float]:
    """Return a list that gets the seconds of each `configure` that succeeds."""
    seconds: list[float] = []
    configure = group.configure

    def timed(*args: Any) -> None:
        begin = time.perf_counter()
        configure(*args)
        seconds.append(round(time.perf_counter() - begin, 4))

    group.configure = timed
    return seconds


def _manager(case: dict[str, Any], name: str, group: Any, model: Any, inner: Any) -> tuple[Any, Any]:
    """Return the replica's Manager, and its store, which lives as long."""
    from torch.distributed import TCPStore
    from torchft import Manager

    def load(state: dict[str, Any]) -> None:
        model.load_state_dict(state["model"])
        inner.load_state_dict(state["inner"])

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    timeout = timedelta(seconds=case["timeout_s"])
    return Manager(
        pg=group,
        load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "inner": inner.state_dict()},
        min_replica_size=1,
        use_async_quorum=case["way"] == "ddp",
        timeout=timeout,
        connect_timeout=timeout,
        quorum_timeout=timedelta(seconds=OTHERS_S),
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        lighthouse_addr=case["lighthouse"],
        replica_id=name,
        hostname="127.0.0.1",
    ), store


def _way(way: str, manager: Any, model: Any, inner: Any) -> tuple[Any, Any, Any, Any]:
    """Return the model that is trained, what trains it on a batch, the context, and the shared parameters."""
    import torch
    from torchft import DistributedDataParallel, Optimizer
    from torchft.local_sgd import DiLoCo, LocalSGD

    optimiser = Optimizer(manager, inner) if way == "ddp" else inner

    def batch(trained: Any, inputs: Any) -> None:
        optimiser.zero_grad()
        torch.nn.functional.mse_loss(trained(inputs), _targets(inputs)).backward()
        optimiser.step()

    def own() -> list[Any]:
        return [parameter.detach() for parameter in model.parameters()]

    if way == "ddp":
        return DistributedDataParallel(manager, model), batch, nullcontext(), own
    if way == "local_sgd":
        return model, batch, LocalSGD(manager, model, inner, sync_every=EVERY), own
    halves = [model[0], model[1]]
    outer = [torch.optim.SGD(half.parameters(), lr=0.7, momentum=0.9, nesterov=True) for half in halves]
    diloco = DiLoCo(manager, halves, inner, outer, sync_every=2 * EVERY, use_bucketization=True)
    shared = lambda: [v for f in diloco._fragments for v in f.original_parameters.values()]  # noqa: E731
    return model, batch, diloco, shared
