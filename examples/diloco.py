"""Train a transformer with torchft's DiLoCo: replicas exchange coded pseudo-gradients, and may be killed.

    python examples/diloco.py                                   # two replicas, ProcessGroupOscar
    python examples/diloco.py --group gloo oscar --seeds 0 1 2  # beside torchft's own process group
    python examples/diloco.py --replicas 3 --kill-at 3 --syncs 100    # one dies, another takes its place

Starts a lighthouse and a process for each replica on this machine. In a real run each replica is a job of
its own, under torchrun, and `torchft_lighthouse` runs somewhere (docs/how-to/torchft.md). Needs the extra
`torchft`; runs on CPUs over Gloo.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import multiprocessing
import os
import signal
import statistics
from datetime import timedelta
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import numpy as np

from oscar import Config
from oscar.files import write_json
from oscar_studies.workloads.text import character_ids, windows

CHARACTERS, HELD_OUT = 128, 64  # HELD_OUT: windows of text that nobody trains on
TIMEOUT = timedelta(seconds=60)


def pseudo_gradients(coarseness: float) -> Config:
    """Return a configuration for DiLoCo: with error feedback pseudo-gradients bear steps of a sigma."""
    return Config.model_validate({"quantiser": {"error_feedback": True, "coarseness": coarseness}})


def replica(args: argparse.Namespace, case: dict[str, Any], life: int, told: Any) -> None:
    """Train one replica and put its report into the queue `told`; life: 0, or its number after deaths."""
    import torch
    from ddp_transformer import Transformer
    from torch import nn
    from torch.distributed import TCPStore
    from torchft import Manager, ProcessGroupGloo
    from torchft.local_sgd import DiLoCo

    from oscar.torchft import ProcessGroupOscar

    torch.set_num_threads(1)
    torch.manual_seed(case["seed"])
    model = Transformer(d=args.width, layers=args.layers, length=args.length)
    inner = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    if case["group"] == "oscar":
        group = ProcessGroupOscar(pseudo_gradients(args.coarseness), timeout=TIMEOUT)
    else:
        group = ProcessGroupGloo(timeout=TIMEOUT)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=group,
        load_state_dict=lambda state: (model.load_state_dict(state[0]), inner.load_state_dict(state[1])),
        state_dict=lambda: (model.state_dict(), inner.state_dict()),
        min_replica_size=1,
        use_async_quorum=False,  # as DiLoCo asks
        timeout=TIMEOUT,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        lighthouse_addr=case["lighthouse"],
        replica_id=f"replica{case['rank']}",
        hostname="127.0.0.1",
    )
    text, held_out = character_ids(args.characters)

    def loss_of(codes: Any) -> Any:
        return nn.functional.cross_entropy(
            model(codes[:, :-1]).reshape(-1, CHARACTERS), codes[:, 1:].reshape(-1)
        )

    # One bucket for all: torchft 0.2.0 loses tensors of further buckets.
    with DiLoCo(manager, [model], inner, outer, sync_every=args.every, use_bucketization=True):
        batch = 0
        while manager.current_step() < args.syncs:
            if life == 0 and case["rank"] == args.replicas - 1 and manager.current_step() == args.kill_at:
                os.kill(os.getpid(), signal.SIGKILL)  # as a power cut
            rng = np.random.default_rng([case["seed"], case["rank"], life, batch])
            drawn = windows(text, count=args.batch, length=args.length + 1, rng=rng)
            inner.zero_grad()
            loss_of(torch.from_numpy(drawn)).backward()
            inner.step()
            batch += 1
    rng = np.random.default_rng(0)
    drawn = windows(held_out, count=HELD_OUT, length=args.length + 1, rng=rng)
    with torch.no_grad():
        loss = float(loss_of(torch.from_numpy(drawn)))
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
    report = {"rank": case["rank"], "life": life, "loss": loss, "digest": digest}
    if case["group"] == "oscar":
        uncoded = sum(count for why, count in group.uncoded_values.items() if why != "one replica")
        report |= {"coded": group.coded_values, "uncoded": uncoded, "sent_bytes": group.sent_bytes}
    told.put(report)
    manager.shutdown(wait=False)
    group.shutdown()


def run(args: argparse.Namespace, group: str, seed: int) -> dict[str, Any]:
    """Train all replicas; return what is printed."""
    from torchft.coordination import LighthouseServer

    lighthouse = LighthouseServer(
        bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=5000, quorum_tick_ms=50, heartbeat_timeout_ms=2000
    )
    address = f"http://127.0.0.1:{lighthouse.address().rpartition(':')[2]}"
    context = multiprocessing.get_context("forkserver")  # which imports torch once for all replicas
    context.set_forkserver_preload(["torch", "oscar.torchft"])
    told, lives = context.Queue(), [0] * args.replicas

    def start(rank: int) -> Any:
        case = {"group": group, "seed": seed, "rank": rank, "lighthouse": address}
        process = context.Process(target=replica, args=(args, case, lives[rank], told), daemon=True)
        process.start()
        return process

    alive, reports = {rank: start(rank) for rank in range(args.replicas)}, []
    while alive:
        wait([process.sentinel for process in alive.values()])
        for rank, process in list(alive.items()):
            if process.exitcode == -signal.SIGKILL:
                print(f"# replica {rank} was killed; another one takes its place", flush=True)
                lives[rank] += 1
                alive[rank] = start(rank)
            elif process.exitcode is not None:
                reports.append(told.get(timeout=60) if process.exitcode == 0 else None)
                del alive[rank]
    if None in reports:
        raise SystemExit(f"{reports.count(None)} of {args.replicas} replicas failed; see above")
    lighthouse.shutdown()
    coded = sum(report.get("coded", 0) for report in reports)
    sent = sum(report.get("sent_bytes", 0) for report in reports)
    return {
        "group": group,
        "seed": seed,
        "loss": statistics.mean(report["loss"] for report in reports),
        "bits": 8 * sent / coded if coded else 32.0,
        "identical": len({report["digest"] for report in reports}) == 1,
        "replicas": reports,
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--group", nargs="+", choices=("oscar", "gloo"), default=["oscar"])
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--syncs", type=int, default=8, help="of DiLoCo")
    parser.add_argument("--every", type=int, default=15, help="batches between two syncs")
    parser.add_argument("--coarseness", type=float, default=1.0, help="step of the quantiser over sigma")
    parser.add_argument("--kill-at", type=int, help="the last replica dies after so many syncs")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--batch", type=int, default=4, help="sequences of one replica")
    parser.add_argument("--length", type=int, default=64, help="characters of a sequence")
    parser.add_argument("--width", type=int, default=64, help="of the model, a multiple of 8")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--characters", type=int, default=1_000_000, help="of text")
    parser.add_argument("--json", type=Path, help="write the report here as well")
    args = parser.parse_args()
    if args.replicas < 2 or args.syncs < 1:
        parser.error(f"expected 2 replicas and 1 sync at least, got {args.replicas} and {args.syncs}")
    return args


def main() -> None:
    args = arguments()
    os.environ.setdefault("RUST_LOG", "error")  # torchft's servers say a lot
    logging.basicConfig(format="# %(message)s")
    print(f"# {args.replicas} replicas, {args.syncs} syncs of {args.every} batches")
    print(f"{'group':<8} {'seed':>4} {'held-out loss':>13} {'bits/value':>10}  replicas")
    rows = []
    for seed in args.seeds:
        for group in args.group:
            row = run(args, group, seed)
            rows.append(row)
            equal = "identical" if row["identical"] else "DIFFER"
            print(f"{group:<8} {seed:>4} {row['loss']:>13.4f} {row['bits']:>10.3f}  {equal}", flush=True)
    if args.json is not None:
        write_json(args.json, {"replicas": args.replicas, "runs": rows})


if __name__ == "__main__":
    main()
