"""A process group for torchft's Manager: `Manager(pg=ProcessGroupOscar(), ...)`.

docs/how-to/torchft.md. The extra `torchft` is needed. The names live in oscar.adapters.torchft.
"""

from oscar.adapters.torchft import ProcessGroupOscar

__all__ = ["ProcessGroupOscar"]
