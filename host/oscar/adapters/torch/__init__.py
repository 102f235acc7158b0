"""A communication hook for PyTorch's DistributedDataParallel: `register_comm_hook(OscarState(), oscar_hook)`.

docs/how-to/ddp.md. The extra `torch` is needed.
"""

# No `from __future__ import annotations`: DDP compares the annotations below with torch's classes.

from oscar.errors import MissingExtraError, install

try:
    import torch
    from torch import distributed as dist
except ImportError as error:
    raise MissingExtraError(
        f"the DDP hook needs torch: {install('torch', target='torch')} ({error})"
    ) from error

from oscar.adapters.torch.state import OscarState
from oscar.adapters.torch.tasks import OscarTasks

__all__ = ["OscarState", "OscarTasks", "oscar_hook"]


def oscar_hook(state: OscarState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Return a Future of the bucket averaged over all ranks of `state`: for DDP's register_comm_hook.

    Replicas end with the same bits. Returns at once; a thread of the state encodes and sends while backward
    goes on. Raises what is wrong with the bucket or the state (TypeError), and OscarError after a bucket
    before failed.
    """
    if not isinstance(state, OscarState):
        described = f"the class {state.__name__}" if isinstance(state, type) else type(state).__name__
        raise TypeError(
            f"expected an OscarState as the hook's state, got {described}; say "
            "model.register_comm_hook(OscarState(), oscar_hook)"
        )
    return state.reduce(bucket)
