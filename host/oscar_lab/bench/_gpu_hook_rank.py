"""A rank of `oscar bench gpu --hook`: steps of layers under DDP, without a hook and with OSCAR's, which codes
on the host or on the GPU."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

from oscar.adapters.torch import OscarState, oscar_hook
from oscar.config import Config
from oscar.files import write_json

LAYERS = 16
BATCH = 256
SETTLING = 3  # steps that compile, agree on step sizes and rebuild buckets
Span = tuple[float, float]


def main() -> None:
    """Time steps of one rank as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--values", type=int, required=True)
    parser.add_argument("--turns", type=int, required=True)
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    distributed.init_process_group("gloo")
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    hooks = ("none", "on the host", "on the GPU") if device.type == "cuda" else ("none", "on the host")
    rows = [measure(hook, args.values, args.turns, device) for hook in hooks]
    if distributed.get_rank() == 0:
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "the CPU"
        write_json(args.json, {"device": name, "torch": torch.__version__, "rows": rows})
    distributed.destroy_process_group()


def measure(hook: str, values: int, turns: int, device: Any) -> dict[str, Any]:
    """Return the median of a step's time, and what a trace of one more step says; collective."""
    torch.manual_seed(0)
    width = max(1, round((values / LAYERS) ** 0.5))
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(width, width, bias=False), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers).to(device))
    state = None
    if hook != "none":
        config = Config.model_validate({"quantiser": {"error_feedback": True}})
        state = OscarState(config, bypass="never", on_gpu=hook == "on the GPU")
        model.register_comm_hook(state, oscar_hook)
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
    given = torch.randn(BATCH, width, device=device)

    def step(traced: AbstractContextManager[Any]) -> float:
        distributed.barrier()
        begin = time.perf_counter()
        with traced:
            optimiser.zero_grad()
            model(given).square().mean().backward()
            optimiser.step()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
        return time.perf_counter() - begin

    times = [step(nullcontext()) for _ in range(SETTLING + turns)][SETTLING:]
    cuda = [ProfilerActivity.CUDA] if device.type == "cuda" else []
    trace = profile(activities=[ProfilerActivity.CPU, *cuda])
    step(trace)
    if state is not None:
        state.close()
    return {"hook": hook, "step_ms": 1e3 * statistics.median(times), **read(trace.events() or ())}


def read(events: Iterable[Any]) -> dict[str, Any]:
    """Return what a trace says of copies between GPU and host; hidden: share of their time beside kernels.

    None where nothing was copied. launches, waits: what the host asked of the GPU, and what it waited for.
    """
    copies, work, launches, waits = list[Span](), list[Span](), 0, 0
    for event in events:
        span = event.time_range.start, event.time_range.end
        if event.device_type == torch.autograd.DeviceType.CUDA:
            between = event.name.startswith(("Memcpy DtoH", "Memcpy HtoD"))
            (copies if between else work).append(span)
        else:
            launches += event.name.startswith(("cudaLaunchKernel", "cuLaunchKernel"))
            waits += event.name in ("cudaStreamSynchronize", "cudaEventSynchronize")
    took = sum(end - begin for begin, end in copies)
    return {
        "copy_ms": 1e-3 * took,
        "hidden": overlap(copies, work) / took if took else None,
        "launches": launches,
        "waits": waits,
    }


def overlap(spans: Sequence[Span], others: Sequence[Span]) -> float:
    """Return for how long of all `spans` one of `others` runs, too."""
    merged = list[Span]()
    for begin, end in sorted(others):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return sum(max(0.0, min(end, last) - max(begin, first)) for begin, end in spans for first, last in merged)


if __name__ == "__main__":
    main()
