"""Each cell of docs/reference/inputs.md: which tensors an entry point codes, sends uncompressed, or refuses.

FSDP2 and torchft have theirs in test_torch_fsdp and test_torchft, where their ranks are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from needs import needs
from oscar import delta, floats, pseudo
from oscar.cli import main
from oscar.config import Config
from oscar.errors import ConfigError, GradientError
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.communicator import Communicator
from oscar.transports.threads import local_transports
from oscar_lab.trials.deltas import bits_of
from support import doors

EXACT = Config(method="fp32", nodes=2)


def through_cluster(tensor: Any) -> Any:
    return LocalCluster(EXACT).allreduce([[tensor], [tensor]]).mean[0]


def through_communicator(tensor: Any) -> Any:
    (end,) = local_transports(1)
    with Communicator(Config(method="fp32"), end) as communicator:
        return communicator.allreduce([tensor]).mean[0]


def through_pseudo(tensor: Any) -> Any:
    return pseudo.decode(pseudo.encode(tensor, coarseness=0.01))


def through_floats(tensor: Any) -> Any:
    return floats.decode(floats.encode(tensor))


def through_delta(tensor: Any) -> Any:
    return delta.decode(delta.encode(tensor, tensor), tensor)


ENTRIES: dict[str, list[Callable[[Any], Any]]] = {
    "Communicator, LocalCluster": [through_cluster, through_communicator],
    "oscar.pseudo": [through_pseudo],
    "oscar.floats": [through_floats],
    "oscar.delta": [through_delta],
}


def check(column: str, row: str, tensor: Any) -> None:
    """Try one cell in each way that the column has."""
    expected = doors.table()[row][column]
    for through in ENTRIES[column]:
        if expected == "coded" and through is through_delta:
            assert bits_of(through(tensor)) == bits_of(tensor), row
        elif expected == "coded":
            plain = np.asarray(tensor if isinstance(tensor, np.ndarray) else tensor.detach().float().cpu())
            result = np.asarray(through(tensor), np.float32)
            assert np.abs(result - plain.astype(np.float32)).max() < 0.05, (through, row)
        else:
            assert expected == "refused"
            with pytest.raises((TypeError, GradientError), match=r"expected .*, got |too large"):
                through(tensor)


@pytest.mark.parametrize("column", ENTRIES)
def test_arrays_of_numpy(column: str) -> None:
    for row, held in doors.arrays().items():
        for array in held:
            check(column, row, array)


@pytest.mark.parametrize("column", ENTRIES)
def test_tensors_of_torch(column: str) -> None:
    needs("torch")
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CSR is in beta
        tensors = doors.tensors(torch)
    for row, held in tensors.items():
        for tensor in held:
            check(column, row, tensor)
    if torch.cuda.is_available():
        check(column, "on a CUDA device", torch.from_numpy(doors.values()).cuda())


@pytest.mark.parametrize("column", ENTRIES)
def test_a_distributed_tensor_is_refused(column: str) -> None:
    needs("torch")
    import torch

    class Sharded(torch.Tensor):
        """What tells a DTensor from a tensor."""

        def to_local(self) -> Any:
            raise AssertionError("not asked for")

    check(column, "DTensor", torch.ones(3).as_subclass(Sharded))


def test_arrays_that_the_command_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for row, held in doors.arrays().items():
        expected = doors.table()[row]["oscar codec"]
        for array in held:
            np.save(tmp_path / "a.npy", array)
            status = main(["codec", str(tmp_path / "a.npy"), "--codec", "asc"])
            output = capsys.readouterr()
            assert status == (0 if expected == "coded" else 2), (row, output)
            refusals = "expected", "too large"
            assert expected == "coded" or any(word in output.err for word in refusals), (row, output)


def test_the_command_calls_no_rounded_value_exact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "a.npy", np.array([1.0, 1 + 1e-12]))
    assert main(["codec", str(tmp_path / "a.npy"), "--codec", "fp32"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(" lossy")


def test_all_rows_are_tried() -> None:
    rows = set(doors.arrays())
    if find_spec("torch"):
        import torch

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows = set(doors.tensors(torch)) | {"DTensor", "on a CUDA device"}
        assert rows == set(doors.table())
    assert rows <= set(doors.table())


def test_what_is_no_list_of_tensors_or_no_configuration_is_named() -> None:
    cluster = LocalCluster(EXACT)
    lists = r"expected gradients\[node\]\[tensor\], with a list of arrays for node 0, got "
    for wrong, text in (([1, 2, 3], "int"), ([np.ones(3), np.ones(3)], r"one array of shape \[3\]; write")):
        with pytest.raises(TypeError, match=lists + text):
            cluster.allreduce(wrong)  # type: ignore[arg-type]
    (end,) = local_transports(1)
    for call in (lambda: LocalCluster(4), lambda: Communicator(4, end)):  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"expected an oscar.Config, got int; write oscar.Config\(nodes="):
            call()
    with (
        Communicator(Config(method="fp32"), end) as communicator,
        pytest.raises(TypeError, match=r"expected a list of tensors, got one array of shape \[3\]"),
    ):
        communicator.allreduce(np.ones(3))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="unknown key 'node'"):
        Config(node=4)  # type: ignore[call-arg]
