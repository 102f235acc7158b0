"""The DDP hook under a policy: groups over buckets, on real ranks."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from needs import needs
from oscar.config import Config
from oscar.errors import ConfigError
from oscar.planning.tuning.apply import groups_of
from oscar.planning.tuning.policy_file import PolicyFile
from oscar.reducers.grouped import GroupedCluster
from support.torch_ranks import start

needs("torch")
import torch  # noqa: E402

RANKS = 2
CONFIG = Config.model_validate({"quantiser": {"error_feedback": True, "coarseness": 1.0}})
GROUPS = [(1, "asc same ring"), (4, "fp32 direct"), (6, "asc:c=1/2 other direct")]


def layers() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Linear(64, 64), torch.nn.Linear(64, 4))


def policy_of(model: Any, groups: Any = None) -> PolicyFile:
    tensors = tuple((name, each.numel()) for name, each in model.named_parameters())[::-1]
    return PolicyFile(tensors, tuple(groups or GROUPS), {})


class Training:
    """A model under DDP in several buckets, and what it had for gradients before and after the hook."""

    def __init__(self, rank: int, cap: float = 0.01, groups: Any = None) -> None:
        from oscar.adapters.torch import OscarState, oscar_hook

        inner = layers()
        self.rank = rank
        self.state = OscarState(CONFIG, policy=policy_of(inner, groups), model=inner)
        self.model = torch.nn.parallel.DistributedDataParallel(inner, bucket_cap_mb=cap)
        self.own: dict[int, np.ndarray] = {}

        def watching(state, bucket):  # DDP compares annotations with its own classes
            for each, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
                self.own[id(each)] = gradient.detach().numpy().copy()
            return oscar_hook(state, bucket)

        self.model.register_comm_hook(self.state, watching)

    def step(self, step: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        random = torch.Generator().manual_seed(100 * step + self.rank)
        inputs = torch.randn(16, 32, generator=random)
        self.model.zero_grad()
        torch.nn.functional.cross_entropy(self.model(inputs), inputs[:, :4].argmax(1)).backward()
        parameters = list(self.model.parameters())
        own = [self.own[id(each)].reshape(each.shape) for each in parameters]
        return own, [each.grad.numpy().copy() for each in parameters]


def trained(rank: int, folder: Path) -> dict[str, Any]:
    training = Training(rank)
    with training.state:
        seen = [training.step(step) for step in range(3)]
        saved = training.state.state_dict()
        seen += [training.step(step) for step in range(3, 5)]
    again = Training(rank, cap=0.02)  # other buckets, the same groups
    with again.state:
        again.step(0)  # uncompressed
        again.step(0)  # of the buckets that stay
        again.state.load_state_dict(saved)
        resumed = [again.step(step) for step in range(3, 5)]
    other = Training(rank, groups=[*GROUPS[:2], (6, "asc same ring")])  # one method for two groups
    with other.state:
        try:
            other.state.load_state_dict(saved)
        except ConfigError as error:
            return {"seen": seen, "resumed": resumed, "told": str(error)}
    return {}


def refused(rank: int, folder: Path) -> dict[str, Any]:
    """A policy that ranks do not share, one for another model, and one without its model."""
    from oscar.adapters.torch import OscarState

    inner, told = layers(), []
    other = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Linear(64, 64), torch.nn.Linear(64, 5))
    mine = [(6, "fp32 ring")] if rank else GROUPS
    for policy, model in (
        (policy_of(inner, mine), inner),
        (policy_of(other) if rank else policy_of(inner), inner),
        (policy_of(inner), None),
    ):
        try:
            OscarState(CONFIG, policy=policy, model=model)
        except ConfigError as error:
            told.append(str(error))
    return {"told": told}


def main(what: str, folder: Path) -> None:
    torch.distributed.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.save({"trained": trained, "refused": refused}[what](rank, folder), folder / f"{what}-{rank}.pt")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def ran(what: str, folder: Path) -> list[Any]:
    start(__file__, what, folder, [0] * RANKS)
    return [torch.load(folder / f"{what}-{rank}.pt", weights_only=False) for rank in range(RANKS)]


def test_groups_over_buckets_give_the_bits_of_one_process(tmp_path: Path) -> None:
    first, second = ran("trained", tmp_path)
    model = layers()
    tensors = [(name, each.numel()) for name, each in model.named_parameters()]
    cluster = GroupedCluster(groups_of(policy_of(model), tensors, CONFIG.variant(nodes=RANKS)))
    for step, ((one, mean), (two, same)) in enumerate(zip(first["seen"], second["seen"], strict=True)):
        assert [x.tobytes() for x in mean] == [x.tobytes() for x in same]
        if step:  # the first backward goes uncompressed
            expected = cluster.allreduce([one, two]).mean
            assert [x.tobytes() for x in mean] == [x.tobytes() for x in expected]
    assert "groups" in first["told"]
    for seen in (first, second):
        for (_, mean), (_, again) in zip(seen["seen"][3:], seen["resumed"], strict=True):
            assert [x.tobytes() for x in mean] == [x.tobytes() for x in again]


def test_all_ranks_refuse_what_one_of_them_cannot_take(tmp_path: Path) -> None:
    for rank, result in enumerate(ran("refused", tmp_path)):
        unequal, other, missing = result["told"]
        assert "policy" in unequal, rank
        assert "tensor 0 is 2.bias of 5" in other, rank
        assert "expected a policy and its model together, got no model" in missing, rank


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
