"""A process group for torchft, whose replicas come and go: DDP, LocalSGD and DiLoCo with a coded AllReduce.

docs/how-to/torchft.md. The extra `torchft` is needed.
"""

from oscar.errors import MissingExtraError, install

try:
    from torchft import ddp as _ddp
    from torchft import local_sgd as _local_sgd
except ImportError as error:
    raise MissingExtraError(f"ProcessGroupOscar needs torchft: {install('torchft')} ({error})") from error

from oscar.adapters.torchft.group import ProcessGroupOscar
from oscar.adapters.torchft.local_training import watch

watch(_local_sgd, _ddp)

__all__ = ["ProcessGroupOscar"]
