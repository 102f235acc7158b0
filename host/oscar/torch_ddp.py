"""A communication hook for PyTorch's DistributedDataParallel: `register_comm_hook(OscarState(), oscar_hook)`.

docs/how-to/ddp.md. The extra `torch` is needed. The names live in oscar.adapters.torch.
"""

from oscar.adapters.torch import OscarState, OscarTasks, oscar_hook

__all__ = ["OscarState", "OscarTasks", "oscar_hook"]
