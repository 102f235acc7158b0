"""A communication hook for PyTorch's DistributedDataParallel: `register_comm_hook(OscarState(), oscar_hook)`.

docs/ddp.md. The extra `torch` is needed.
"""

from oscar.adapters.torch.hook import oscar_hook
from oscar.adapters.torch.state import OscarState

__all__ = ["OscarState", "oscar_hook"]
