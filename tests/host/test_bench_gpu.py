"""`oscar bench gpu --hook`: what it reads from a trace, and a run of all of it without a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from needs import needs
from oscar.cli import main

needs("torch")
from torch.autograd import DeviceType  # noqa: E402

from oscar_lab.bench._gpu_hook_rank import overlap, read  # noqa: E402


def event(name: str, begin: float, end: float, device: Any = DeviceType.CUDA) -> Any:
    return SimpleNamespace(name=name, device_type=device, time_range=SimpleNamespace(start=begin, end=end))


def test_a_trace_says_how_much_of_the_copies_is_hidden() -> None:
    cpu = DeviceType.CPU
    found = read(
        [
            event("gemm", 0, 100),
            event("gemm", 90, 150),  # one after the other, or at once
            event("Memcpy DtoH (Device -> Pinned)", 50, 170),
            event("Memcpy HtoD (Pinned -> Device)", 200, 280),
            event("Memcpy DtoD (Device -> Device)", 260, 300),  # the GPU's own work
            event("cudaLaunchKernel", 0, 1, cpu),
            event("cudaLaunchKernelExC", 0, 1, cpu),
            event("cudaStreamSynchronize", 0, 1, cpu),
            event("cudaEventSynchronize", 0, 1, cpu),
            event("aten::mm", 0, 1, cpu),
        ]
    )
    assert found == {"copy_ms": 0.2, "hidden": pytest.approx(120 / 200), "launches": 2, "waits": 2}
    assert read([event("gemm", 0, 1)])["hidden"] is None
    assert overlap([(0, 10), (5, 20)], [(8, 12), (1, 2), (11, 30)]) == 3 + 12


def test_steps_under_ddp_run_with_a_gpu_or_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "0")  # ranks on a card have kernels that are compiled
    out = tmp_path / "out.json"
    words = ["--hook", "--values", "20000", "--turns", "2", "--ranks", "2", "--json", str(out)]
    assert main(["bench", "gpu", *words]) == 0
    report = json.loads(out.read_text())
    on_card = ["on the GPU"] if report["device"] != "the CPU" else []
    assert [row["hook"] for row in report["rows"]] == ["none", "on the host", *on_card]
    assert report["rows"][0]["times"] == 1
    assert min(row["step_ms"] for row in report["rows"]) > 0
    if not on_card:
        assert all(row["hidden"] is None for row in report["rows"])
    assert "20,000 parameters, 2 ranks" in capsys.readouterr().out
