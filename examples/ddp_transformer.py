"""Train a transformer of 3.2 M parameters on the standard library's sources, with or without OSCAR's hook.

    torchrun --nproc-per-node 4 examples/ddp_transformer.py --hook oscar
    torchrun --nproc-per-node 4 examples/ddp_transformer.py --hook none fp16 oscar oscar-sw --bypass never
    torchrun --nproc-per-node 4 examples/ddp_transformer.py --hook none tuned --gbps 0.5 --retune 10

With several hooks every hook trains a model of its own, all from the same weights and on the same batches,
and steps are taken in turns, so that times compare. `tuned` profiles the model, chooses groups and methods
for the link (docs/how-to/tune.md), and chooses anew as it trains. Needs the extra `torch`; runs on CPUs over
Gloo.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

import oscar
from oscar.adapters.torch.arguments import default_config
from oscar.adapters.torch.tuning import tune
from oscar.files import write_json
from oscar.torch_ddp import OscarState, oscar_hook
from oscar_studies.workloads.text import character_ids, windows

CHARACTERS = 128
GROUPED_MB = 1.0  # of DDP's buckets under a policy: a group waits for all buckets that its gradients are in
SETTLING = 5  # first steps, in which buckets are made anew, code is compiled and the bypass measures


class Transformer(nn.Module):
    """Character codes int64 [batch, length] to logits [batch, length, 128]."""

    def __init__(self, *, d: int, layers: int, length: int) -> None:
        super().__init__()
        self.characters, self.positions = nn.Embedding(CHARACTERS, d), nn.Embedding(length, d)
        layer = nn.TransformerEncoderLayer(d, 8, 4 * d, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(d, CHARACTERS)

    def forward(self, codes: Tensor) -> Tensor:
        length = codes.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        x = self.characters(codes) + self.positions.weight[:length]
        return self.head(self.layers(x, mask=mask, is_causal=True))


class Run:
    """One model and its hook, and what its steps took."""

    def __init__(self, name: str, args: argparse.Namespace) -> None:
        torch.manual_seed(args.seed)
        self.settling = args.settling
        self.name, self.state, self.times, self.cpu_times, self.rest = name, None, [], [], []
        model = Transformer(d=args.width, layers=args.layers, length=args.length)
        cap_mb = min(args.bucket_mb, GROUPED_MB) if name == "tuned" else args.bucket_mb
        self.model = DistributedDataParallel(model, bucket_cap_mb=cap_mb)
        self.optimiser = torch.optim.AdamW(self.model.parameters(), lr=args.learning_rate)
        self.values = sum(parameter.numel() for parameter in self.model.parameters())
        self.loss = float("nan")
        if name == "fp16":
            self.model.register_comm_hook(None, fp16_compress_hook)
        elif name == "tuned":
            self.state = tuned_state(model, args)
            self.model.register_comm_hook(self.state, oscar_hook)
        elif name != "none":
            self.state = OscarState(config_of(name, args), bypass=args.bypass)
            self.model.register_comm_hook(self.state, oscar_hook)

    def step(self, inputs: Tensor, targets: Tensor) -> None:
        """Train on one batch; ranks begin together, so that the time is this step's alone."""
        dist.barrier()
        begin, cpu_begin = time.perf_counter(), time.process_time()
        logits = self.model(inputs)
        loss = nn.functional.cross_entropy(logits.reshape(-1, CHARACTERS), targets.reshape(-1))
        loss.backward()
        reduced = time.perf_counter()
        self.optimiser.step()
        self.optimiser.zero_grad()
        self.times.append(time.perf_counter() - begin)
        self.rest.append(time.perf_counter() - reduced)
        self.cpu_times.append(time.process_time() - cpu_begin)  # of all threads
        self.loss = float(loss.detach())
        if len(self.times) == self.settling:
            self.sent_before = 0 if self.state is None else self.state.sent_bytes

    def report(self) -> dict[str, Any]:
        """Return what is printed of this run; collective."""
        settled, nodes = self.settling, dist.get_world_size()
        steps = len(self.times) - settled
        bits = {"none": 32, "fp16": 16}.get(self.name, 0)
        sent = self.values * bits / 8 * 2 * (nodes - 1) / nodes
        if self.state is not None:
            sent = (self.state.sent_bytes - self.sent_before) / steps
        digest = hashlib.sha256()
        for parameter in self.model.parameters():
            digest.update(parameter.detach().numpy().tobytes())
        mine = {"digest": digest.hexdigest(), "loss": self.loss, "sent": sent, "times": self.times[settled:]}
        mine["cpu"] = statistics.median(self.cpu_times[settled:])
        ranks: list[Any] = [None] * nodes
        dist.all_gather_object(ranks, mine)
        longest = [max(times) for times in zip(*(rank["times"] for rank in ranks), strict=True)]
        quarters = statistics.quantiles(longest, n=4)
        return {
            "hook": self.name,
            "step_ms": [1e3 * seconds for seconds in longest],
            "median_ms": 1e3 * statistics.median(longest),
            "cpu_ms": 1e3 * statistics.mean(rank["cpu"] for rank in ranks),
            "quartiles_ms": [1e3 * quarters[0], 1e3 * quarters[2]],
            "sent_bytes": statistics.mean(rank["sent"] for rank in ranks),
            "loss": statistics.mean(rank["loss"] for rank in ranks),
            "identical": len({rank["digest"] for rank in ranks}) == 1,
            **self.foreseen(),
        }

    def foreseen(self) -> dict[str, Any]:
        """Return the policy in use, and what it is thought to take; nothing without one."""
        if self.state is None or self.state.policy is None:
            return {}
        groups, expected_s = [*self.state.policy.groups], self.state.expected_s
        if expected_s is None:
            return {"groups": groups}
        rest_s = statistics.median(self.rest[self.settling :])  # the optimiser's
        return {"groups": groups, "predicted_ms": 1e3 * (expected_s + rest_s)}


def config_of(name: str, args: argparse.Namespace) -> oscar.Config:
    """Return a hook's configuration: `oscar` is ASC or --config, others are schemes."""
    if args.config is not None:
        return oscar.load_config(args.config, args.set)
    if name != "oscar":
        return oscar.Config(method=name)
    coarseness = 0.125 if args.coarseness is None else args.coarseness
    quantiser = {"error_feedback": True, "coarseness": coarseness}
    return default_config().variant(quantiser=quantiser, schedule={"name": args.schedule or "network"})


def tuned_state(model: nn.Module, args: argparse.Namespace) -> OscarState:
    """Return a state whose policy is chosen for this model, on this link."""
    link = {"gbps": args.gbps, "latency_us": args.latency_us}
    config = config_of("oscar", args).variant(link=link)
    codes = torch.randint(CHARACTERS, (args.batch, args.length))

    def backward() -> None:
        nn.functional.cross_entropy(model(codes).reshape(-1, CHARACTERS), codes.reshape(-1)).backward()

    policy = tune(model, backward, config)
    return OscarState(config, policy=policy, model=model, retune=args.retune)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--hook",
        nargs="+",
        default=["oscar"],
        help="none, fp16, oscar, tuned, or a scheme's name",
    )
    parser.add_argument("--steps", type=int, default=30, help="in all")
    parser.add_argument("--settling", type=int, default=SETTLING, help="first steps, which do not count")
    parser.add_argument("--batch", type=int, default=2, help="sequences of one rank")
    parser.add_argument("--length", type=int, default=64, help="characters of a sequence")
    parser.add_argument("--width", type=int, default=256, help="of the model, a multiple of 8")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--bucket-mb", type=float, default=25.0, help="of DDP; more than one bucket overlaps")
    parser.add_argument("--bypass", choices=("auto", "never", "always"), default="auto")
    parser.add_argument("--coarseness", type=float, help="of the hook oscar, default .125")
    parser.add_argument("--schedule", help="of the hook oscar, by name; default: what suits the network")
    parser.add_argument("--gbps", type=float, default=1.0, help="of the link that the hook tuned begins with")
    parser.add_argument("--latency-us", type=float, default=100.0, help="of it")
    parser.add_argument(
        "--retune", type=int, default=10, help="the hook tuned chooses anew after so many steps"
    )
    parser.add_argument("--config", type=Path, help="a YAML file for the hook oscar, whatever its method")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="replace keys of it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="rank 0 writes its report here as well")
    args = parser.parse_args()
    if args.settling < 1 or args.steps < args.settling + 2:
        parser.error(f"--steps: expected {max(1, args.settling) + 2} or more, got {args.steps}")
    if args.set and args.config is None:
        parser.error("--set replaces keys of --config; name the file, too")
    if args.config is not None and (args.coarseness is not None or args.schedule is not None):
        parser.error(
            "--coarseness and --schedule are in the file of --config; change them there or with --set"
        )
    others = [name for name in args.hook if name not in ("none", "fp16", "oscar", "tuned")]
    if args.config is not None and others:
        parser.error(f"--config is of the hook oscar alone; take off {', '.join(others)}, or --config")
    return args


def main() -> None:
    args = arguments()
    logging.basicConfig(format="# %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, nodes = dist.get_rank(), dist.get_world_size()
    text, _ = character_ids(1_000_000)
    runs = [Run(name, args) for name in args.hook]
    if rank == 0:
        print(
            f"# {nodes} ranks, {runs[0].values:,} parameters, batch {args.batch} x {args.length}", flush=True
        )
    for step in range(args.steps):
        rng = np.random.default_rng([args.seed, step, rank])
        drawn = torch.from_numpy(windows(text, count=args.batch, length=args.length + 1, rng=rng))
        for run in runs:
            run.step(drawn[:, :-1], drawn[:, 1:])
        if rank == 0 and (step + 1) % 10 == 0:
            print(f"# step {step + 1}: " + ", ".join(f"{r.name} {r.loss:.3f}" for r in runs), flush=True)
    reports = [run.report() for run in runs]
    if rank == 0:
        show(reports, runs[0].values, nodes)
        if args.json is not None:
            write_json(args.json, {"ranks": nodes, "values": runs[0].values, "runs": reports})
    for run in runs:
        if run.state is not None:
            run.state.close()
    dist.destroy_process_group()


def show(reports: list[dict[str, Any]], values: int, nodes: int) -> None:
    titles = f"{'hook':<14} {'step ms':>8} {'quartiles':>15} {'CPU ms':>7} {'MB sent':>8} {'bits/value':>10}"
    print(f"{titles} {'loss':>7}  replicas")
    for r in reports:
        low, high = r["quartiles_ms"]
        bits = 8 * r["sent_bytes"] / (values * 2 * (nodes - 1) / nodes) if nodes > 1 else 0.0
        print(
            f"{r['hook']:<14} {r['median_ms']:>8.1f} {low:>7.1f}-{high:<7.1f} {r['cpu_ms']:>7.1f} "
            f"{r['sent_bytes'] / 1e6:>8.3f} {bits:>10.3f} {r['loss']:>7.3f}  "
            f"{'identical' if r['identical'] else 'DIFFER'}"
        )


if __name__ == "__main__":
    main()
