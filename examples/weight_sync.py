"""Keep the bfloat16 weights of two inference processes equal to a trainer's, step by step, by their changes.

    python examples/weight_sync.py
    python examples/weight_sync.py --over files --steps 20

The trainer keeps float32 weights, as is usual, and publishes bfloat16 copies: first all of them, then after
each step of Adam what `oscar.delta.encode` makes of the old and the new ones. Messages go by a broadcast of
torch.distributed (Gloo), or through files in a folder that all see. In the end the weights of all processes
have to be equal, bit for bit. Needs the extra `torch`; runs on CPUs.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from oscar import delta
from oscar.errors import WrongBaseError
from oscar.files import replacing, write_json
from oscar_studies.workloads.text import character_ids, windows

CHARACTERS, TRAINER, RANKS = 128, 0, 3
TIMEOUT_S = 60.0


class Channel(Protocol):
    """One message after the other from the trainer to all others."""

    def send(self, data: bytes) -> None:
        """Send the next message; the trainer calls it."""

    def receive(self) -> bytes:
        """Return the next message; all others call it."""


class Broadcast:
    """Messages by torch.distributed: the length, then the bytes."""

    def __init__(self, folder: Path, rank: int) -> None:
        from torch import distributed as dist

        store = dist.FileStore(str(folder / "store"), RANKS)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)

    def send(self, data: bytes) -> None:
        import torch
        from torch import distributed as dist

        dist.broadcast(torch.tensor([len(data)]), TRAINER)
        dist.broadcast(torch.frombuffer(bytearray(data), dtype=torch.uint8), TRAINER)

    def receive(self) -> bytes:
        import torch
        from torch import distributed as dist

        length = torch.zeros(1, dtype=torch.int64)
        dist.broadcast(length, TRAINER)
        data = torch.empty(int(length), dtype=torch.uint8)
        dist.broadcast(data, TRAINER)
        return data.numpy().tobytes()


class Files:
    """Messages as files, written whole or not at all; a process that starts late reads them all."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.folder, self.number = folder, 0

    def _next(self) -> Path:
        self.number += 1
        return self.folder / f"{self.number:06d}.sync"

    def send(self, data: bytes) -> None:
        with replacing(self._next()) as file:
            file.write(data)

    def receive(self) -> bytes:
        path, deadline = self._next(), time.monotonic() + TIMEOUT_S
        while not path.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"expected {path} within {TIMEOUT_S:g} s: did the trainer fail?")
            time.sleep(0.002)
        return path.read_bytes()


CHANNELS: dict[str, Any] = {"broadcast": Broadcast, "files": Files}


def make_model(args: argparse.Namespace) -> Any:
    import torch
    from ddp_transformer import Transformer

    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    return Transformer(d=args.width, layers=args.layers, length=args.length)


def halves(model: Any) -> dict[str, Any]:
    """Return copies of the weights as bfloat16."""
    return {name: tensor.detach().bfloat16() for name, tensor in model.state_dict().items()}


def train(args: argparse.Namespace, channel: Channel) -> dict[str, Any]:
    """Train and publish the weights after each step; return what that took."""
    import torch
    from torch import nn

    model = make_model(args)
    adam = torch.optim.Adam(model.parameters(), lr=args.learning_rate)
    text, _ = character_ids(200_000)
    published = halves(model)
    file = io.BytesIO()
    torch.save(published, file)
    channel.send(file.getvalue())
    sent = changed = 0
    for step in range(args.steps):
        drawn = windows(text, count=args.batch, length=args.length + 1, rng=np.random.default_rng([1, step]))
        codes = torch.from_numpy(drawn)
        adam.zero_grad()
        logits = model(codes[:, :-1])
        nn.functional.cross_entropy(logits.reshape(-1, CHARACTERS), codes[:, 1:].reshape(-1)).backward()
        adam.step()
        weights = halves(model)
        data = delta.encode(weights, published)
        channel.send(data)
        sent += len(data)
        changed += sum(int((weights[name] != published[name]).sum()) for name in weights)
        published = weights
    values = sum(tensor.numel() for tensor in published.values())
    return {
        "weights": published, "values": values, "sent_bytes": sent, "changed": changed / values / args.steps
    }  # fmt: skip


def infer(args: argparse.Namespace, channel: Channel) -> dict[str, Any]:
    """Receive all weights, then their changes; return the weights."""
    import torch

    model = make_model(args).bfloat16()
    weights = torch.load(io.BytesIO(channel.receive()), weights_only=True)
    for step in range(args.steps):
        data = channel.receive()
        try:
            weights = delta.decode(data, weights)
        except WrongBaseError as error:  # a message was missed: a service would ask for all weights here
            raise SystemExit(f"step {step}: {error}") from None
        model.load_state_dict(weights)  # and answer requests until the next message is there
    return {"weights": weights}


def process(args: argparse.Namespace, over: str, folder: Path, rank: int, reports: Any) -> None:
    """Be the trainer, or one of those that follow it."""
    import torch

    channel = CHANNELS[over](folder, rank)
    report = train(args, channel) if rank == TRAINER else infer(args, channel)
    weights = report.pop("weights")
    total = hashlib.sha256()
    for name in sorted(weights):
        total.update(weights[name].contiguous().view(torch.int16).numpy().tobytes())
    reports.put({"rank": rank, "digest": total.hexdigest(), **report})
    if over == "broadcast":
        torch.distributed.destroy_process_group()


def run(args: argparse.Namespace, over: str) -> dict[str, Any]:
    """Run all processes; return what is printed."""
    context = multiprocessing.get_context("forkserver")  # which imports torch once for all
    context.set_forkserver_preload(["torch", "oscar.delta"])
    reports = context.Queue()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            context.Process(target=process, args=(args, over, Path(folder), rank, reports), daemon=True)
            for rank in range(RANKS)
        ]
        for one in processes:
            one.start()
        for one in processes:
            one.join()
        if any(one.exitcode for one in processes):
            raise SystemExit("a process failed; see above")
    results = sorted((reports.get(timeout=TIMEOUT_S) for _ in processes), key=lambda report: report["rank"])
    trainer = results[TRAINER]
    return {
        "over": over,
        "values": trainer["values"],
        "changed": trainer["changed"],
        "delta_bytes": trainer["sent_bytes"] / args.steps,
        "full_bytes": 2 * trainer["values"],
        "equal": len({report["digest"] for report in results}) == 1,
        "seconds": time.perf_counter() - began,
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--over", nargs="+", choices=tuple(CHANNELS), default=list(CHANNELS))
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--learning-rate", type=float, default=3e-6)
    parser.add_argument("--batch", type=int, default=2, help="sequences of a step")
    parser.add_argument("--length", type=int, default=32, help="characters of a sequence")
    parser.add_argument("--width", type=int, default=128, help="of the model, a multiple of 8")
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the report here as well")
    args = parser.parse_args()
    if args.steps < 1:
        parser.error(f"expected 1 step at least, got {args.steps}")
    return args


def main() -> None:
    args = arguments()
    print(f"# a trainer and {RANKS - 1} inference processes, {args.steps} steps of Adam")
    print(
        f"{'over':<10} {'weights':>9} {'changed':>8} {'full sync':>10} {'delta':>8} {'bits':>6}  weights are"
    )
    rows = []
    for over in args.over:
        row = run(args, over)
        rows.append(row)
        bits = 8 * row["delta_bytes"] / row["values"]
        print(
            f"{over:<10} {row['values']:>9,} {row['changed']:>8.2%} {row['full_bytes']:>10,} "
            f"{row['delta_bytes']:>8,.0f} {bits:>6.3f}  {'equal' if row['equal'] else 'DIFFERENT'}",
            flush=True,
        )
    if args.json is not None:
        write_json(args.json, {"steps": args.steps, "runs": rows})
    if not all(row["equal"] for row in rows):
        raise SystemExit("weights differ: a bug of ours, please report it")


if __name__ == "__main__":
    main()
