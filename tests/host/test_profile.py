"""Ready times of gradients: by hooks, from traces and files; what is stale or foreign is refused."""

from __future__ import annotations

import gzip
import json
import random
import re
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from needs import needs
from oscar.cli import main
from oscar.errors import ConfigError
from oscar.planning.tuning.profile import ReadyTimes, here, load_profile
from oscar_studies.profiler_traces import ENGINE, GRADIENT, read_times
from oscar_studies.recording import of_numpy
from oscar_studies.workloads import make_workload

ROOT = Path(__file__).parents[2]
SLEEP = 0.03  # of the backward pass between two layers: known times, however busy the machine is
TENSORS = [("b", 3), ("a", 8)]  # in the order of the backward pass


def drawn(draw: random.Random, count: int) -> ReadyTimes:
    times = sorted(draw.uniform(1e-6, 1e-2) for _ in range(count))
    tensors = tuple((f"layer{at}.weight", draw.randrange(10**6)) for at in range(count))
    return ReadyTimes(tensors, tuple(times), draw.uniform(0, times[0]), "drawn: by #chance", here("numpy"))


# Files.


def test_a_profile_comes_back_as_it_was_written(tmp_path: Path, draw: random.Random) -> None:
    times = drawn(draw, draw.randrange(1, 40))
    path = tmp_path / "ready.yaml"
    times.write(path)
    assert load_profile(path) == times
    backward = list(times.tensors)
    assert read_times(path, backward).ready(backward).tolist() == list(times.ready_s)
    draw.shuffle(backward)
    at = dict(zip([name for name, _ in times.tensors], times.ready_s, strict=True))
    waits = [max(at[name] for name, _ in backward[: k + 1]) for k in range(len(backward))]
    assert times.ready(backward).tolist() == waits


FAULTS = {
    "another machine": (
        r"machine: .*",
        "machine: abacus",
        "expected a profile of machine .*, got one of abacus",
    ),
    "another version": (r"oscar: .*", "oscar: 0.0.1", r"expected a profile of oscar .*, got one of 0\.0\.1"),
    "another library": (r"numpy: .*", "torch: '1.0'", r"expected a profile of torch .*, got one of 1\.0"),
    "another size": (
        r"(layer1.weight), \d+",
        r"\1, 7000000",
        "layer1.weight has .* values, got one of 7000000",
    ),
    "another name": ("layer1.weight", "layer9.bias", "layer1.weight has .* values, got none of that name"),
    "one more": (
        r"(  - \[layer2.*)",
        "\\1\n  - [more, 1, 900.0]",
        "a tensor more beyond it|end with the last",
    ),
    "falling": (r"(layer2.weight, \d+), .*\]", r"\1, 1.0e-09]", "in the order of the backward pass"),
    "negative": (r"(layer0.weight, \d+), .*\]", r"\1, -1.0]", "expected seconds from 0"),
    "a long forward pass": (r"forward_s: .*", "forward_s: 5.0", "a forward pass that ends before the first"),
    "a short backward pass": (r"backward_s: .*", "backward_s: 0.0", "to end with the last gradient"),
    "another format": ("format: 1", "format: 2", "a profile of format 1, got 2"),
    "cut": (r"tensors:(.|\n)*", "", "as ReadyTimes.write makes it"),
    "twice": ("layer1", "layer0", "layer0.weight again"),
    "no YAML": (r"(.|\n)+", "- [", "not a readable YAML"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_profile_of_something_else_is_refused(fault: str, tmp_path: Path, draw: random.Random) -> None:
    pattern, new, said = FAULTS[fault]
    times, path = drawn(draw, 3), tmp_path / "ready.yaml"
    times.write(path)
    read_times(path, times.tensors)
    text = re.sub(pattern, new, path.read_text())
    assert text != path.read_text()
    path.write_text(text)
    with pytest.raises(ConfigError, match=said) as caught:
        read_times(path, times.tensors)
    assert str(caught.value).startswith(str(path))


def test_a_stretched_profile_keeps_its_course(draw: random.Random) -> None:
    times = drawn(draw, 9)
    total = draw.uniform(0, 2)
    long = times.scaled(total)
    assert long.ready_s[-1] == total
    assert np.allclose(np.array(long.ready_s) / total, np.array(times.ready_s) / times.ready_s[-1])
    assert times.scaled(0.0).ready_s[-1] == 0


# Measured.


def slow_model() -> Any:
    """Three layers; between them the backward pass sleeps."""
    import torch

    class Slow(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(_: Any, by: Any) -> Any:
            time.sleep(SLEEP)
            return by

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(n, m) for n, m in ((5, 4), (4, 3), (3, 2)))

        def forward(self, x: Any) -> Any:
            time.sleep(SLEEP / 2)
            for layer in self.layers:
                x = layer(Slow.apply(x))
            return x

    return Model()


def check_sleeps(times: ReadyTimes, before: float) -> None:
    """Layers come one sleep after another; `before`: what sleeps before the first of them."""
    at = dict(zip([name for name, _ in times.tensors], times.ready_s, strict=True))
    for layer in range(3):
        own = [at[f"layers.{layer}.{part}"] for part in ("weight", "bias")]
        slept = before + (2 - layer) * SLEEP
        assert all(slept <= seconds for seconds in own), times  # a busy machine sleeps longer
    assert [name.split(".")[1] for name, _ in times.tensors] == list("221100")


def test_hooks_and_a_trace_find_when_gradients_are_ready(tmp_path: Path) -> None:
    needs("torch")
    import torch

    from oscar.adapters.torch.tuning import Profile

    model, x = slow_model(), torch.randn(6, 5)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=cpu, record_shapes=True) as log, Profile(model) as profile:
        for _ in range(4):
            model(x).square().mean().backward()
            optimiser.step()
            optimiser.zero_grad()
            with torch.no_grad():
                model(x)  # an evaluation is no part of an iteration
    times = profile.times
    assert "3 iterations on cpu" in times.made
    times.check([(name, p.numel()) for name, p in model.named_parameters()])
    check_sleeps(times, SLEEP / 2)
    assert SLEEP / 2 <= times.forward_s <= times.ready_s[0]
    path = tmp_path / "trace.json.gz"
    log.export_chrome_trace(str(path))
    tensors = [(name, p.numel()) for name, p in model.named_parameters()][::-1]
    check_sleeps(read_times(path, tensors), 0.0)  # it begins with the first operation, after the sleep
    model(x).sum().backward()
    assert profile.times == times  # the hooks are gone
    with pytest.raises(ConfigError, match=r"gradients, got \[6\] a pass"):
        read_times(path, tensors[1:])
    with pytest.raises(ConfigError, match="got 2 values for gradient 0"):
        read_times(path, [(name, size + 1) for name, size in tensors])


def test_on_a_device_times_are_those_of_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device is feigned: its queue runs late, so its clock is not the host's."""
    needs("torch")
    import torch

    from oscar.adapters.torch.tuning import Profile

    clock, waited = [0.0], []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self, stream: object) -> None:
            assert stream == "stream of cuda:0"
            clock[0] += 1.0
            self.ms = clock[0]

        def elapsed_time(self, other: Event) -> float:
            assert waited, "events are read before the device is done"
            return other.ms - self.ms

    model = torch.nn.Linear(3, 2)
    profile = Profile(model)
    profile._device = SimpleNamespace(type="cuda")
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "stream of cuda:0")
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "feigned")
    with profile:
        for _ in range(3):
            model(torch.ones(3)).sum().backward()
    assert profile.times.ready_s == (2e-3, 3e-3)
    assert profile.times.forward_s == 1e-3
    assert "on feigned" in profile.times.made


def test_a_model_that_cannot_be_measured_is_refused() -> None:
    needs("torch")
    import torch

    from oscar.adapters.torch.tuning import Profile

    model = torch.nn.Linear(3, 2)
    with Profile(model) as profile:
        model(torch.ones(3))
    with pytest.raises(ConfigError, match=r"got none; call the model and loss\.backward\(\)"):
        profile.times  # noqa: B018
    unused = torch.nn.ModuleDict({"used": model, "unused": torch.nn.Linear(2, 2)})
    unused.forward = lambda x: unused["used"](x)
    with Profile(unused) as profile:
        unused(torch.ones(3)).sum().backward()
    with pytest.raises(ConfigError, match=r"got none for unused\.weight; freeze it"):
        profile.times  # noqa: B018
    with pytest.raises(ConfigError, match="a parameter that takes a gradient"):
        Profile(model.requires_grad_(False))


def test_workloads_of_numpy_are_measured_layer_by_layer() -> None:
    workload = make_workload("numpy-lm", nodes=2, seed=0)
    times = of_numpy(workload, 5)
    assert 0 < times.forward_s <= times.ready_s[0]
    assert times.tensors[0][0] == "output.bias"
    assert times.tensors[-1][0] == "embedding"
    times.check(list(zip(workload.tensor_names, map(int, map(np.prod, workload.tensor_shapes)), strict=True)))


# Traces.


def rows(iterations: int = 1) -> list[dict[str, Any]]:
    """A CPU's trace: forward pass at 100 us, backward at 150, b ready at 165, a at 190; then an optimiser."""
    found = []
    for at in range(iterations):
        for name, start, took, sequence, dims in (
            ("aten::linear", 100, 20, 7, [[4, 2]]),
            (ENGINE + "AddmmBackward0", 150, 10, 7, None),
            (GRADIENT, 160, 5, -1, [[3]]),
            (ENGINE + "ViewBackward0", 170, 15, 6, None),
            ("aten::checkpointed", 171, 3, 9, [[4, 2]]),
            (GRADIENT, 186, 4, -1, [[4, 2]]),
            ("aten::add_", 300, 9, -1, [[4, 2]]),
        ):
            found.append(
                {"ph": "X", "cat": "cpu_op", "name": name, "ts": 1000 * at + start, "dur": took}
                | {"args": {"Sequence number": sequence, "Input Dims": dims}}
            )
    return found


def chrome(events: list[dict[str, Any]]) -> dict[str, Any]:
    return {"schemaVersion": 1, "traceEvents": [{"ph": "M", "name": "process_name"}, *events]}


def linked(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The same as chakra_trace_link writes it."""
    nodes = []
    for number, row in enumerate(events):
        own = {"id": number, "name": row["name"], "ts": row["ts"], "inclusive_dur": row["dur"]}
        own["attrs"] = [{"name": "seq_id", "value": row["args"]["Sequence number"]}]
        nodes.append(own | {"inputs": {"shapes": row["args"]["Input Dims"]}})
    return {"schema": "1.1.1-chakra.0.0.4", "nodes": nodes}


def converted(events: list[dict[str, Any]]) -> str:
    """The same as chakra_jsonizer writes it: one object after another."""
    text = json.dumps({"version": "0.0.4"}, indent=1)
    for number, row in enumerate(events):
        own: dict[str, Any] = {"id": str(number), "name": row["name"], "type": "COMP_NODE"}
        own |= {"startTimeMicros": str(row["ts"]), "durationMicros": str(row["dur"])}
        own["inputs"] = {"shapes": str(row["args"]["Input Dims"]).replace("None", "null")}
        own["attr"] = [{"name": "seq_id", "int64Val": str(row["args"]["Sequence number"])}]
        text += json.dumps(own, indent=1)
    return text


def on_device(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The same, where a device is 50 us behind: each operation launches a kernel of its length."""
    more = []
    for number, row in enumerate(events):
        more.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": row["ts"], "dur": 1})
        more[-1]["args"] = {"correlation": number}
        more.append({"ph": "X", "cat": "kernel", "name": "gemm", "ts": row["ts"] + 50, "dur": row["dur"]})
        more[-1]["args"] = {"correlation": number}
    return chrome([*events, *more])


FORMS: dict[str, Callable[[Any], Any]] = {
    "chrome": chrome, "linked": linked, "converted": converted, "device": on_device,
}  # fmt: skip


def written(path: Path, tree: Any) -> Path:
    path.write_text(tree if isinstance(tree, str) else json.dumps(tree))
    return path


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("iterations", [1, 3])
def test_traces_of_all_forms_say_the_same(form: str, iterations: int, tmp_path: Path) -> None:
    path = written(tmp_path / "trace.json", FORMS[form](rows(iterations)))
    packed = gzip.compress(path.read_bytes())
    for _ in range(2):
        times = read_times(path, TENSORS)
        assert times.tensors == tuple(TENSORS)
        assert times.ready_s == pytest.approx((65e-6, 90e-6))
        assert times.forward_s == pytest.approx(50e-6)
        assert f"{max(1, iterations - 1)} iterations" in times.made
        path.write_bytes(packed)
    times.write(tmp_path / "ready.yaml")
    assert read_times(tmp_path / "ready.yaml", TENSORS) == times
    swapped = read_times(path, TENSORS[::-1])  # shapes say which one it is
    assert swapped.tensors == tuple(TENSORS)


def changed(number: int, **new: Any) -> list[dict[str, Any]]:
    found = rows()
    found[number] |= new
    return found


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        (
            chrome(rows()[:1]),
            "expected a trace with a backward pass .*, got none; record the forward pass and",
        ),
        (chrome([]), "expected a trace with a backward pass"),
        (chrome(rows()[1:]), "no forward pass before them"),
        (chrome(rows()[:3]), r"expected a backward pass of 2 gradients, got \[1\] a pass"),
        (chrome(changed(2, dur=-4)), "expected durations of 0 or more, got -4 us of torch::autograd"),
        (chrome(changed(2, ts="soon")), "a trace of torch.profiler or of Chakra, got something else"),
        (chrome(changed(2, ts=float("nan"))), "a trace of torch.profiler or of Chakra, got something else"),
        ({"nodes": [{"name": GRADIENT, "attrs": []}]}, "got PyTorch's, which has none; link it"),
        ({"nodes": [{"name": "gemm", "cat": "kernel"}]}, "expected a Chakra trace of a CPU, got gemm"),
        ({"version": "0.0.4"}, "expected a Chakra trace with startTimeMicros, got none in 0 nodes; link it"),
        ("\x0a\x07\x0a\x050.0.4", "expected JSON, .*; protobuf is not read"),
        ("{1", "expected JSON, .*; protobuf is not read: make it JSON"),
        ("[1]", "expected a profile as ReadyTimes.write makes it"),
    ],
)
def test_what_is_no_trace_of_a_backward_pass_is_refused(tree: Any, said: str, tmp_path: Path) -> None:
    path = written(tmp_path / "trace.json", tree)
    with pytest.raises(ConfigError, match=said) as caught:
        read_times(path, TENSORS)
    assert str(caught.value).startswith(str(path))


def test_a_trace_in_protobuf_and_one_that_is_not_there_are_refused(tmp_path: Path) -> None:
    (tmp_path / "trace.et").write_bytes(bytes([7, 10, 5]) + b"0.0.4\xff")
    with pytest.raises(ConfigError, match="protobuf is not read: make it JSON"):
        read_times(tmp_path / "trace.et", TENSORS)
    with pytest.raises(ConfigError, match="No such file"):
        read_times(tmp_path / "none.json", TENSORS)
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(b"{}" * 99)[:-9])
    with pytest.raises(ConfigError, match="expected a profile or a trace, got"):
        read_times(tmp_path / "cut.json.gz", TENSORS)


# The command, and the page.


def test_tune_takes_and_writes_profiles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ready.yaml"
    words = ["tune", "train", "--set", "nodes=4", "--methods", "fp32", "bf16", "--schedules", "direct"]
    assert main([*words, "--set", "link.gbps=400", "--save-profile", str(path)]) == 3
    assert "gradients: numpy-lm, median of" in capsys.readouterr().out
    times = load_profile(path)
    assert main([*words, "--set", "link.gbps=400", "--profile", str(path)]) == 3
    total = times.ready_s[-1] * 1e3
    assert f"compute {total:.3g} ms" in capsys.readouterr().out
    assert main([*words, "--set", "link.gbps=400", "--profile", str(path), "--compute-ms", "77"]) == 3
    assert "compute 77 ms" in capsys.readouterr().out
    path.write_text(path.read_text().replace("output.bias", "output.shift"))
    assert main([*words, "--profile", str(path)]) == 2
    assert "whose output.bias has 1000 values, got none of that name" in capsys.readouterr().err
    assert main([*words, "--set", "workload.name=logistic", "--save-profile", str(path)]) == 2
    assert "expected a workload whose gradients can be timed" in capsys.readouterr().err


def test_python_on_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("torch")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "how-to" / "tune.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(snippet, "tune.md", "exec"), {})
    assert load_profile(tmp_path / "ready.yaml").tensors[0][0] == "2.bias"
