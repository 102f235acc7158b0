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
from oscar.planning.tuning.policy import PolicyFile
from oscar.reducers.grouped import GroupedCluster
from support.torch_ranks import start

needs("torch")
import torch  # noqa: E402

RANKS = 2
CONFIG = Config.model_validate({"quantiser": {"error_feedback": True, "coarseness": 1.0}})
MADE = {"compute_ms": 1.0, "gbps": 10.0, "latency_us": 10.0}
GROUPS = [(1, "asc same ring"), (4, "fp32 direct"), (6, "asc:c=1/2 other direct")]


def layers() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Linear(64, 64), torch.nn.Linear(64, 4))


def policy_of(model: Any, groups: Any = None) -> PolicyFile:
    tensors = tuple((name, each.numel()) for name, each in model.named_parameters())[::-1]
    return PolicyFile(tensors, tuple(groups or GROUPS), MADE)


class Training:
    """A model under DDP in several buckets, and what it had for gradients before and after the hook."""

    def __init__(self, rank: int, cap: float = 0.01, groups: Any = None, retune: int | None = None) -> None:
        from oscar.adapters.torch import OscarState, oscar_hook

        inner = layers()
        self.rank = rank
        policy = policy_of(inner, groups)
        self.state = OscarState(CONFIG, policy=policy, model=inner, retune=retune)
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


REGROUPED = [(1, "asc same ring"), (6, "asc:c=1/2 other direct")]


def regrouped(rank: int, folder: Path) -> dict[str, Any]:
    """Other groups in mid-training, and some that not all ranks have; a state of before and one of after."""
    training = Training(rank)
    with training.state:
        seen = [training.step(step) for step in range(3)]
        training.state.regroup(policy_of(training.model.module, REGROUPED))
        waits = training.state.state_dict()
        try:
            training.state.regroup(policy_of(training.model.module, REGROUPED if rank else GROUPS))
        except ConfigError as error:
            told = str(error)
        seen += [training.step(step) for step in range(3, 6)]
    again = Training(rank, groups=REGROUPED)
    with again.state:
        again.step(0)
        again.step(0)
        again.state.load_state_dict(waits)
        resumed = [again.step(step) for step in range(3, 6)]
    return {"seen": seen, "resumed": resumed, "told": told}


def retuned(rank: int, folder: Path) -> dict[str, Any]:
    """Rank 0 finds the link slow the second time it looks; all ranks go on with its choice.

    The first time only one rank waits: for the other, not for the link.
    """
    from oscar.adapters.torch.grouped import GroupedBuckets, Took

    training = Training(rank, groups=[(6, "fp32 direct")], retune=4)
    took, slow = GroupedBuckets.took, []

    def of_a_slow_link(grouped: Any) -> list[Took]:
        slow.append(len(slow) > 0)
        return [Took(5.0 if slow[-1] or rank == 0 else 1e-5, 1e-5) for _ in took(grouped)]

    GroupedBuckets.took = of_a_slow_link  # type: ignore[method-assign]
    groups = []
    with training.state:
        seen = []
        for step in range(12):
            seen.append(training.step(step))
            groups.append(training.state.policy.groups)
        saved = training.state.state_dict()
        seen += [training.step(step) for step in range(12, 14)]
    again = Training(rank, groups=[(6, "fp32 direct")], retune=4)
    with again.state:
        again.step(0)
        again.step(0)
        again.state.load_state_dict(saved)
        kept = again.state.state_dict()["tree"] == saved["tree"]
        resumed = [again.step(step) for step in range(12, 14)]
    early = Training(rank, groups=[(6, "fp32 direct")], retune=4)
    with early.state:
        early.state.load_state_dict(saved)
        early.step(0)
        resumed += [early.step(step) for step in range(12, 14)]
    return {"seen": seen, "resumed": resumed, "groups": groups, "slow": slow, "kept": kept}


def troubled(rank: int, folder: Path) -> dict[str, Any]:
    """A rank's state is damaged; groups get methods that have no prices yet; then choosing fails."""
    from oscar.planning.tuning.retune import Retuner

    training, told = Training(rank, retune=4), []
    with training.state:
        training.step(0)
        good = training.state.state_dict()
        for damage in ("codec", "tree"):
            try:
                training.state.load_state_dict({**good, damage: "none"} if rank == 0 else good)
            except ConfigError as error:
                told.append(str(error))
        for option in ("zen same direct", "asc same network", "topk thread direct"):
            try:
                training.state.regroup(policy_of(training.model.module, [(6, option)]))
            except ConfigError as error:
                told.append(str(error))
        means = [training.step(step)[1] for step in range(1, 6)]  # rank 0 chooses behind the fourth

        def fails(*_: Any) -> None:
            raise ConfigError("no choice")

        Retuner.retune = fails  # type: ignore[method-assign]
        try:
            for step in range(6, 9):
                training.step(step)
        except RuntimeError as error:
            told.append(str(error))
        return {"told": told, "means": means, "failed": str(training.state.error)}


def merged(rank: int, folder: Path) -> dict[str, Any]:
    """Rank 0 says that two groups are best, cut behind the fourth tensor; rank 1 would not."""
    from oscar_studies import merging

    training, asked = Training(rank), []

    def said(step: Any) -> float:
        step()
        stops = [stop for stop, _ in training.state.policy.groups]
        asked.append(stops)
        best = abs(stops[0] - 4) + 5 * abs(len(stops) - 2)
        return best + 1.0 if rank == 0 else 10.0 - best

    merging.timed = said
    inner = training.model.module
    with training.state as state:
        training.step(0)
        found = merging.merge_groups(state, inner, lambda: training.step(1), warmups=1, iterations=2)
        last = training.step(2)[1]
        one = merging.one_method(inner, state.config, found.stops)
        return {"stops": found.stops, "asked": asked, "policy": state.policy == one, "last": last}


def tuned(rank: int, folder: Path) -> dict[str, Any]:
    """A policy for a model on a slow link and on a fast one, and what cannot be priced."""
    from oscar.adapters.torch.tuning import tune

    inner, told = layers(), ""
    inputs = torch.randn(16, 32)

    def backward() -> None:
        inner(inputs).square().mean().backward()

    found = [tune(inner, backward, CONFIG.variant(link={"gbps": rate})) for rate in (1e-3, 100)]
    try:
        tune(inner, backward, CONFIG, methods=["asc"], processors=["third"])
    except ConfigError as error:
        told = str(error)
    return {"groups": [policy.groups for policy in found], "told": told}


def main(what: str, folder: Path) -> None:
    torch.distributed.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.save(globals()[what](rank, folder), folder / f"{what}-{rank}.pt")
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


def test_groups_change_in_mid_training_and_nothing_is_lost(tmp_path: Path) -> None:
    first, second = ran("regrouped", tmp_path)
    model = layers()
    tensors = [(name, each.numel()) for name, each in model.named_parameters()]
    config = CONFIG.variant(nodes=RANKS)
    cluster = GroupedCluster(groups_of(policy_of(model), tensors, config))
    for step, ((one, mean), (two, same)) in enumerate(zip(first["seen"], second["seen"], strict=True)):
        assert [x.tobytes() for x in mean] == [x.tobytes() for x in same]
        if step == 3:
            cluster.regroup(groups_of(policy_of(model, REGROUPED), tensors, config))
        if step:
            expected = cluster.allreduce([one, two]).mean
            assert [x.tobytes() for x in mean] == [x.tobytes() for x in expected], step
    for seen in (first, second):
        assert "policy" in seen["told"]
        for (_, mean), (_, again) in zip(seen["seen"][3:], seen["resumed"], strict=True):
            assert [x.tobytes() for x in mean] == [x.tobytes() for x in again]


def test_all_ranks_go_on_with_what_rank_0_chose(tmp_path: Path) -> None:
    results = ran("retuned", tmp_path)
    for result in results:
        assert result["slow"] == [False, True, True, True, True]  # behind 4, 8, 12, and 12 twice more
        assert result["groups"] == results[0]["groups"]
        assert result["kept"]  # what was tried, too
        plain, chosen = ((6, "fp32 direct"),), result["groups"][-1]
        assert result["groups"][:8] == [plain] * 8
        assert chosen != plain
        assert any("asc" in option for _, option in chosen)
        for (_, mean), (_, again) in zip(2 * result["seen"][12:], result["resumed"], strict=True):
            assert [x.tobytes() for x in mean] == [x.tobytes() for x in again]
    for (_, mean), (_, same) in zip(*(result["seen"] for result in results), strict=True):
        assert [x.tobytes() for x in mean] == [x.tobytes() for x in same]


def test_what_fails_on_one_rank_ends_on_all(tmp_path: Path) -> None:
    first, second = ran("troubled", tmp_path)
    for result, own in ((first, True), (second, False)):
        codec, tree, sparse, schedule, failed = result["told"]
        assert ("expected a state of (format, codec)" if own else "loading of states") in codec
        assert ("cannot be read" if own else "loading of states") in tree
        assert "got zen" in sparse
        assert "got network" in schedule
        assert failed
        assert result["failed"]
    for one, two in zip(first["means"], second["means"], strict=True):
        assert [x.tobytes() for x in one] == [x.tobytes() for x in two]


def test_groups_are_searched_while_a_model_trains(tmp_path: Path) -> None:
    results = ran("merged", tmp_path)
    for result in results:
        assert result["stops"] == (4, 6)
        assert result["policy"]
        assert result["asked"] == results[0]["asked"]
        assert [x.tobytes() for x in result["last"]] == [x.tobytes() for x in results[0]["last"]]


def test_a_policy_is_chosen_for_all_ranks_before_training(tmp_path: Path) -> None:
    for result in ran("tuned", tmp_path):
        slow, fast = result["groups"]
        assert any("asc thread" in option for _, option in slow)
        assert {option.split()[0] for _, option in fast} == {"fp32"}
        assert (
            "rank 0 chose no policy: expected processors of same, other, thread, got third" in result["told"]
        )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
