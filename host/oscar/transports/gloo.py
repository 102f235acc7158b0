"""The groups of torch.distributed (extra torch): their ranks, where these meet, and private groups of Gloo.

Private groups are not made by torch's `new_group`. All processes of a job would have to call that, in one
order: two sub-groups made at once got each other's connections.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from oscar.errors import MissingExtraError, OscarError, install

LONGEST_S = 1e6  # that transport.timeout_s may be


def ranks_of(group: Any) -> list[int]:
    """Return the numbers in the job of the ranks of `group` (None: all), this process's among them."""
    _, dist = load_torch()
    rank, given = dist.get_rank(), dist.group.WORLD if group is None else group
    outside = given is dist.GroupMember.NON_GROUP_MEMBER
    ranks: list[int] = [] if outside else dist.get_process_group_ranks(given)
    if rank not in ranks:
        raise OscarError(
            f"rank {rank} is not in the group that it was given; leave this to the group's ranks"
        )
    return ranks


def timeout_for(group: Any, given_s: float | None) -> float:
    """Return the seconds to wait for a peer of `group` (None: all): `given_s`, if that is not None.

    Otherwise the group's own timeout, as torch was told, at most LONGEST_S. Where its backends differ, the
    longest counts. Torch's default is 30 minutes, or 10 with NCCL.
    """
    return min(LONGEST_S, _timeout_of(group)) if given_s is None else given_s


def _timeout_of(group: Any) -> float:
    _, dist = load_torch()
    default = float(dist.default_pg_timeout.total_seconds())
    given = dist.group.WORLD if group is None else group
    timeouts_s = []
    for device in getattr(given, "_device_types", ()):
        try:
            timeouts_s.append(given._get_backend(device).options._timeout.total_seconds())
        except (AttributeError, RuntimeError):  # a backend without options, or none
            continue
    return float(max(timeouts_s, default=default))


def meeting(group: Any, what: str) -> tuple[Any, list[int], Callable[[Exception, timedelta], OscarError]]:
    """Return a store for the ranks of `group` (None: all) alone, their numbers, and the maker of an error.

    They meet under a name that holds `what`, the ranks, and the number of their meetings so far: each rank
    counts its own in the job's store. The maker takes what went wrong and the time that the others had.
    Raises OscarError in a process that is not in `group`.
    """
    _, dist = load_torch()
    ranks = ranks_of(group)
    rank = ranks.index(dist.get_rank())
    name = f"oscar/{what}/{','.join(map(str, ranks))}"
    store = dist.group.WORLD.get_group_store()
    number = store.add(f"{name}/of {rank}", 1)

    def refuse(error: Exception, timeout: timedelta) -> OscarError:
        return OscarError(
            f"rank {ranks[rank]} made {what} {number} of the ranks {ranks}, and not all of these came within "
            f"{timeout.total_seconds():g} s ({first_line(error)}); make as many, in one order, on all"
        )

    return dist.PrefixStore(f"{name}/{number}/", store), ranks, refuse


def private_group(group: Any, timeout: timedelta) -> tuple[Any, list[int]]:
    """Return a new Gloo group between the ranks of `group` (None: all), and their numbers in the job.

    Collective between these ranks alone. timeout: for the others to come, and later for a collective of the
    group. Raises OscarError in a process that is not in `group`, and after `timeout`.
    """
    _, dist = load_torch()
    store, ranks, refuse = meeting(group, "group")
    try:
        return dist.ProcessGroupGloo(store, ranks.index(dist.get_rank()), len(ranks), timeout), ranks
    except RuntimeError as error:
        raise refuse(error, timeout) from None


def start(dist: Any) -> None:
    """Start torch.distributed from torchrun's environment; raises OscarError outside it."""
    try:
        dist.init_process_group("gloo")
    except (ValueError, RuntimeError) as error:
        raise OscarError(
            f"start each rank under torchrun, or initialise torch.distributed ({error})"
        ) from None


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, without the place in Gloo's sources."""
    text = str(error).splitlines()[0]
    return text.partition("] ")[2] or text


def load_torch() -> tuple[Any, Any]:
    """Return the modules torch and torch.distributed; raises MissingExtraError without them."""
    try:
        import torch
        from torch import distributed
    except ImportError as error:
        raise MissingExtraError(
            f"ranks over TCP need torch: {install('torch', target='torch')} ({error})"
        ) from None
    if not distributed.is_available():
        raise MissingExtraError("this torch was built without torch.distributed; install another build")
    return torch, distributed
