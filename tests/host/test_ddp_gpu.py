"""Buckets on their way to the host and back; two ranks on a GPU end as two ranks on the CPU do."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from needs import needs

needs("torch")
import torch  # noqa: E402

from oscar.adapters.torch.staging import Staging  # noqa: E402
from oscar.adapters.torch.state import OscarState  # noqa: E402

SCALES = 1, 1, 0.05, 0.05, 1, 1  # of gradients, by step: steps of the quantiser follow


def test_buckets_of_the_cpu_are_not_copied() -> None:
    staging, buffer = Staging(), torch.arange(6, dtype=torch.float32)
    assert staging.mark(buffer) is None
    values = staging.fetch(buffer, None)
    assert values.ctypes.data == buffer.data_ptr()
    staging.put(buffer, values[::-1].copy())
    np.testing.assert_array_equal(buffer.numpy(), np.arange(6, dtype=np.float32)[::-1])
    half = torch.ones(3, dtype=torch.bfloat16)
    staging.put(half, staging.fetch(half, None) * 2)
    assert half.tolist() == [2.0, 2.0, 2.0]


def test_replicas_on_a_gpu_are_those_on_the_cpu(tmp_path: Path) -> None:
    needs("cuda")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "WORLD_SIZE": "2"}
    environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TRITON_INTERPRET": "0"}
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, str(tmp_path / f"{rank}.npz")], env={**environment, "RANK": str(rank)}
        )
        for rank in range(2)
    ]
    assert [rank.wait(240) for rank in ranks] == [0, 0]
    first, second = (np.load(tmp_path / f"{rank}.npz") for rank in range(2))
    for step in range(len(SCALES)):
        for key in (f"cpu {step}", f"cuda {step}"):
            np.testing.assert_array_equal(first[key], second[key])
        np.testing.assert_array_equal(first[f"cpu {step}"], first[f"cuda {step}"])


def main(path: str) -> None:
    """Reduce the same buckets on either device, without DDP's model; save the last means."""
    torch.distributed.init_process_group("gloo")
    rank, means = torch.distributed.get_rank(), {}
    for device in ("cpu", "cuda"):
        with OscarState(bypass="never") as state:
            parameters = [torch.nn.Parameter(torch.zeros(*s, device=device)) for s in ((40, 30), (7,))]
            for step, scale in enumerate(SCALES):
                random = np.random.default_rng([rank, step])
                values = random.laplace(0, 0.02 * scale, 1207).astype(np.float32)
                gradient = torch.from_numpy(values).to(device)
                bucket = SimpleNamespace(
                    buffer=lambda held=gradient: held,
                    gradients=lambda held=gradient: [held[:1200].view(40, 30), held[1200:]],
                    parameters=lambda both=parameters: both,
                    index=lambda: 0,
                    is_last=lambda: True,
                )
                means[f"{device} {step}"] = state.reduce(bucket).wait().float().cpu().numpy()
            assert list(state._reduction.on_gpu._served.values()) == ([True] if device == "cuda" else [])
    np.savez(path, **means)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
