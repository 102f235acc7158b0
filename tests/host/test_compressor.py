"""A compressor of one's own: named by its class, or by a package's entry point. No file of OSCAR knows it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from needs import needs
from oscar import Config, LocalCluster, plugins
from oscar.cli import main
from oscar.coding import registry as codecs
from oscar.errors import ConfigError
from oscar.planning.tuning.options import changes_of
from oscar.reducers.communicator import Communicator
from oscar.schemes import registry
from oscar.transports.threads import local_transports
from oscar_studies.contest import tasks_of
from support.ranks import on_ranks

ROOT = Path(__file__).parents[2]
METHOD = "examples.compressor:Signs"
NODES = 3


@pytest.fixture(autouse=True)
def _in_the_clone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(ROOT)
    yield
    monkeypatch.undo()
    forget()


def forget() -> None:
    """Let the next look-up read the entry points anew."""
    for function in (plugins.entries, codecs.installed_codecs, registry.installed, registry.scheme_class):
        function.cache_clear()


def gradients(seed: int) -> list[list[np.ndarray]]:
    """Return gradients [rank][tensor]: a matrix and a bias, the same signs on all ranks."""
    random = np.random.default_rng(seed)
    signs = [np.where(random.random(shape) < 0.5, -1, 1) for shape in ((40, 5), (7,))]
    return [[(s * random.uniform(0.5, 1.5, s.shape)).astype(np.float32) for s in signs] for _ in range(NODES)]


def test_its_mean_is_the_signs_and_what_is_left_comes_later(seed: int) -> None:
    every, cluster = gradients(seed), LocalCluster(Config(nodes=NODES, method=METHOD))
    true = [np.mean(tensors, axis=0) for tensors in zip(*every, strict=True)]
    means = [cluster.allreduce(every).mean for _ in range(60)]
    for t, tensor in enumerate(true):
        assert np.allclose(np.abs(means[0][t]), np.mean([np.abs(mine[t]).mean() for mine in every]))
        assert np.array_equal(np.sign(means[0][t]), np.sign(tensor))
        late = np.mean([mean[t] for mean in means], axis=0)
        assert np.linalg.norm(late - tensor) < np.linalg.norm(means[0][t] - tensor) / 3


def test_ranks_get_the_same_bits_through_a_communicator(seed: int) -> None:
    every, config = gradients(seed), Config(nodes=NODES, method=METHOD)
    wanted = LocalCluster(config).allreduce(every).mean
    means = on_ranks(local_transports(NODES), lambda t: Communicator(config, t).allreduce(every[t.rank]).mean)
    for mean in means:
        assert [tensor.tobytes() for tensor in mean] == [tensor.tobytes() for tensor in wanted]


def test_the_hook_of_ddp_takes_it() -> None:
    needs("torch")
    import torch

    from oscar.torch_ddp import OscarState, oscar_hook

    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4, bias=False))
        model.register_comm_hook(OscarState(config=Config(method=METHOD)), oscar_hook)
        for _ in range(2):
            model.zero_grad()
            model(torch.linspace(-1, 1, 16).reshape(2, 8)).square().mean().backward()
        assert model.module.weight.grad.abs().unique().numel() == 1
    finally:
        torch.distributed.destroy_process_group()


def test_it_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["iterations=2", "nodes=2", "compare.seeds=[0]", f"output={tmp_path}"]
    assert main(["compare", "examples/compressor.yaml", *(w for one in few for w in ("--set", one))]) == 0
    assert "\nsigns " in capsys.readouterr().out


def test_a_kept_run_is_of_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edited compressor is trained again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "edited_one.py").write_text((ROOT / "examples" / "compressor.py").read_text())
    contender = {"name": "mine", "method": "edited_one:Signs"}
    (task, *_) = tasks_of(Config.model_validate({"compare": {"contenders": [contender]}}))
    before = task.key
    assert before == task.key
    (tmp_path / "edited_one.py").write_text("# another\n" + (tmp_path / "edited_one.py").read_text())
    assert task.key != before


def test_what_is_no_message_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    kind: Any = registry.scheme_class(METHOD)
    monkeypatch.setattr(kind, "messages", lambda self, worker, values: iter([np.sign(values)]))
    with pytest.raises(TypeError, match="messages of a scheme must yield Message, got ndarray"):
        LocalCluster(Config(nodes=NODES, method=METHOD)).allreduce(gradients(1))


def test_a_package_gives_it_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    forget()
    entries = [EntryPoint(name, METHOD, plugins.METHODS) for name in ("signs", "asc", "topk", "powersgd")]
    entries.append(EntryPoint("powersgd", "oscar_studies.peers.powersgd:PowerSgd", plugins.METHODS))
    monkeypatch.setattr(plugins, "entry_points", lambda group: entries if group == plugins.METHODS else [])
    assert registry.scheme_class(Config(method="signs").method).name == "signs"
    named = registry.installed()  # a package cannot take over a name of OSCAR's
    assert named.keys() == {"powersgd", "signs"}
    assert named["powersgd"].startswith("oscar_studies.")


def test_a_package_adds_codecs_and_takes_over_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    forget()
    target = "oscar_studies.codecs.order0:rans0"
    entries = [EntryPoint(name, target, plugins.CODECS) for name in ("rans0", "zstd", "other")]
    entries.append(EntryPoint("gone", "oscar_studies.no_module:gone", plugins.CODECS))
    monkeypatch.setattr(plugins, "entry_points", lambda group: entries if group == plugins.CODECS else [])
    assert codecs.codec_names() == [*codecs.CODECS, "rans0", "other", "gone"]
    assert codecs.make_codec("rans0").name == "rans0"
    assert codecs.make_codec("zstd").name == "zstd"
    with pytest.raises(ConfigError, match=r"codec other: expected oscar_studies.* to return .*Codec of this"):
        codecs.make_codec("other")
    with pytest.raises(ConfigError, match=r"codec gone: expected .*No module named"):
        codecs.make_codec("gone")


def test_it_can_be_tuned() -> None:
    assert changes_of(METHOD, Config())["method"] == METHOD


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("examples.compressor:Sign", "expected module:Class.*compressor has no 'Sign', it has Signs"),
        ("oscar.schemes.base:Scheme", "expected module:Class.*with `name`, `messages` and `finish`"),
        (".compressor:Signs", "expected module:Class.*got '.compressor:Signs'"),
        ("examples.compresor:Signs", "expected module:Class.*No module named"),
        (
            "examples.compressor:np",
            r"expected module:Class.*a subclass of oscar.schemes.base.Scheme.*compressor\.py",
        ),
        ("sings", "method must be one of.*or module:Class"),
    ],
)
def test_what_is_none_is_refused(method: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Config(method=method)


def test_a_mean_of_another_type_is_refused_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, every = LocalCluster(Config(nodes=NODES, method=METHOD)), gradients(1)
    cluster.allreduce(every)
    kind: Any = registry.scheme_class(METHOD)
    before, finish = cluster.state_dict(), kind.finish
    monkeypatch.setattr(kind, "finish", lambda self, totals: finish(self, totals).astype(float))
    with pytest.raises(
        TypeError, match=r"scheme signs: finish must return float32 of shape \(207,\), got float64"
    ):
        cluster.allreduce(every)
    assert str(cluster.state_dict()) == str(before)
