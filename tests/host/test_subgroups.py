"""Sub-groups of one job that are made at once: every mean is that over the right ranks."""

from __future__ import annotations

from functools import partial

import pytest

from needs import needs
from oscar.errors import OscarError
from oscar_lab.trials import subgroups

EXTRAS = {"tcp communicator": "torch", "tcp state": "torch", "mpi communicator": "mpi"}


@pytest.mark.parametrize("kind", subgroups.KINDS)
def test_groups_made_at_once_have_the_means_of_their_own_ranks(kind: str) -> None:
    needs(EXTRAS[kind])
    found, output = subgroups.play(kind, 2, "0")
    assert not output
    assert all(subgroups.right(one) for rounds in found.values() for one in rounds), found


def test_a_process_outside_the_group_is_told_so() -> None:
    needs("torch")
    import torch

    from oscar.adapters.torch import OscarState
    from oscar.transports.tcp import TcpTransport

    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        for make in (TcpTransport, partial(OscarState, None)):
            with pytest.raises(OscarError, match="rank 0 is not in the group that it was given"):
                make(torch.distributed.GroupMember.NON_GROUP_MEMBER)
    finally:
        torch.distributed.destroy_process_group()
