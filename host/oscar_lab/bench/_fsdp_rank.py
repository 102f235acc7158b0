"""A rank of `oscar bench fsdp`: a transformer under native HSDP, and with OSCAR between hosts."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from oscar.config import Config
from oscar.files import write_json
from oscar.state import crc
from oscar.torch_fsdp import between_hosts
from oscar_studies.workloads.options import TransformerOptions
from oscar_studies.workloads.text import character_ids, windows
from oscar_studies.workloads.torch_models import TransformerModel

LENGTH, BATCH, HELD_OUT = 64, 4, 64
RATE = 3e-3


def sharded(mesh: Any, seed: int) -> Any:
    """Return a transformer whose blocks are sharded on `mesh`."""
    torch.manual_seed(seed)
    model = TransformerModel(TransformerOptions(d=64, layers=2, length=LENGTH))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def trained(model: Any, steps: int, seed: int) -> tuple[float, int]:
    """Return the held-out loss after so many steps, and a digest of all weights."""
    text, held_out = character_ids(1_000_000)
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE)

    def loss_of(codes: Any) -> Any:
        codes = torch.from_numpy(codes)
        logits = model(codes[:, :-1])
        return nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), codes[:, 1:].reshape(-1))

    for step in range(steps):
        rng = np.random.default_rng([seed, step, distributed.get_rank()])
        loss_of(windows(text, count=BATCH, length=LENGTH + 1, rng=rng)).backward()
        optimiser.step()
        optimiser.zero_grad()
    digest = crc([parameter.full_tensor().detach().numpy() for parameter in model.parameters()])
    with torch.no_grad():
        rng = np.random.default_rng(0)
        loss = float(loss_of(windows(held_out, count=HELD_OUT, length=LENGTH + 1, rng=rng)))
    return loss, digest


def main() -> None:
    """Train on one rank as the command line says, and write what came of it as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seeds", nargs="+", type=int, required=True)
    parser.add_argument("--coarseness", nargs="+", type=float, required=True)
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    shape = args.hosts, distributed.get_world_size() // args.hosts
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("hosts", "inside"))
    rows, values = [], 0
    for seed in args.seeds:
        native, _ = trained(sharded(mesh, seed), args.steps, seed)
        for coarseness in args.coarseness:
            tree = {"quantiser": {"error_feedback": True, "coarseness": coarseness}}
            model = sharded(mesh["inside"], seed)
            values = sum(parameter.numel() for parameter in model.parameters())
            with between_hosts(model, mesh["hosts"], Config.model_validate(tree)) as exchange:
                loss, digest = trained(model, args.steps, seed)
                bits = 8 * exchange.sent_bytes / exchange.coded_values
            every: list[Any] = [None] * distributed.get_world_size()
            distributed.all_gather_object(every, (digest, bits))
            row = {"seed": seed, "coarseness": coarseness, "native": native, "hook": loss}
            row["bits"] = sum(one for _, one in every) / len(every)
            rows.append(row | {"identical": len({one for one, _ in every}) == 1})
    if distributed.get_rank() == 0:
        write_json(args.json, {"values": values, "rows": rows})
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
