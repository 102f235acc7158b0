"""A rank of `oscar bench merging`: a residual network with a method, in groups and by layers."""

from __future__ import annotations

import argparse
import logging
import statistics
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.nn.functional import cross_entropy, relu
from torch.nn.parallel import DistributedDataParallel

from oscar.adapters.torch import OscarState, oscar_hook
from oscar.config import Config
from oscar.errors import OscarError
from oscar.files import write_json
from oscar.state import crc
from oscar_studies.merging import merge_groups, one_method, timed
from oscar_studies.workloads.numpy_digits import load_digits

STAGES = 16, 32, 64  # channels; each stage halves the image
BLOCKS = 3  # of a stage: 20 layers, as for CIFAR (He et al., 2016)


class RankResidual(nn.Module):
    """Two convolutions and what passes them by, [batch, channels, height, width]."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)])
        self.stride, self.more = stride, outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        y = self.norms[1](self.second(relu(self.norms[0](self.first(x)))))
        passed = nn.functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.more))
        return relu(y + passed)


def network() -> nn.Module:
    """Return ResNet-20: images float32 [batch, 1, 8, 8] to logits [batch, 10]; 65 tensors."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [
        nn.Conv2d(1, STAGES[0], 3, 1, 1, bias=False),
        nn.BatchNorm2d(STAGES[0]),
        nn.ReLU(),
    ]
    inputs = STAGES[0]
    for stage, outputs in enumerate(STAGES):
        for block in range(BLOCKS):
            layers.append(RankResidual(inputs, outputs, 2 if stage and not block else 1))
            inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10))


class RankTraining:
    """A model under DDP with the hook, layer by layer at first."""

    def __init__(self, method: str, batch: int) -> None:
        rank, nodes = distributed.get_rank(), distributed.get_world_size()
        tree = {"nodes": nodes, "method": method, "quantiser": {"error_feedback": True}}
        lossy = Config.model_validate(tree)
        self.inner = network()
        self.layers = one_method(self.inner, lossy)
        self.state = OscarState(lossy, policy=self.layers, model=self.inner)
        self.model = DistributedDataParallel(self.inner)
        self.model.register_comm_hook(self.state, oscar_hook)
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.digits, self.draw, self.batch = load_digits(0.0), np.random.default_rng(rank), batch

    def step(self) -> None:
        """Train on one batch; ranks begin together."""
        images, labels = (torch.from_numpy(array) for array in self.digits.batch(self.batch, self.draw))
        distributed.barrier()
        cross_entropy(self.model(images[:, None]), labels).backward()
        self.optimiser.step()
        self.optimiser.zero_grad()

    def check(self) -> None:
        """Raise OscarError unless all ranks have the same weights."""
        sums: list[Any] = [None] * distributed.get_world_size()
        distributed.all_gather_object(sums, crc([each.detach().numpy() for each in self.inner.parameters()]))
        if len(set(sums)) > 1:
            raise OscarError(f"expected equal weights on all ranks, got {sums} as their CRC-32")

    def seconds(self, policy: Any, warmups: int, iterations: int) -> list[float]:
        """Return what steps in these groups take."""
        self.state.regroup(policy)
        return [timed(self.step) for _ in range(warmups + iterations)][warmups:]


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Search groups, then time them against single tensors, in turns; collective."""
    training = RankTraining(args.method, args.batch)
    with training.state as state:
        for _ in range(3):  # the first backward goes uncompressed, the second compiles
            training.step()
        result = merge_groups(
            state, training.inner, training.step, most=args.most,
            warmups=args.warmups, iterations=args.iterations,
        )  # fmt: skip
        merged = one_method(training.inner, state.config, result.stops)
        times: dict[str, list[float]] = {"layers": [], "merged": []}
        for _ in range(args.turns):
            for name, policy in (("layers", training.layers), ("merged", merged)):
                times[name] += training.seconds(policy, args.warmups, args.iterations)
        training.check()
        medians = {f"{name}_ms": 1e3 * state.share(statistics.median(took)) for name, took in times.items()}
        return {
            "method": args.method,
            "tensors": len(training.layers.tensors),
            "values": sum(size for _, size in training.layers.tensors),
            "stops": list(result.stops),
            "searched": result.measured,
            **medians,
            "times": medians["layers_ms"] / medians["merged_ms"],
        }


def main() -> None:
    """Time groups of tensors on one rank as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--method", required=True)
    for name in ("batch", "most", "warmups", "iterations", "turns"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    logging.basicConfig(format="# %(message)s")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    row = measure(args)
    if distributed.get_rank() == 0:
        write_json(args.json, row)
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
