"""Compression between hosts for PyTorch's FSDP2: `between_hosts(model, mesh["hosts"])`.

docs/how-to/fsdp.md. The extra `torch` is needed. The names live in oscar.adapters.fsdp.
"""

from oscar.adapters.fsdp import HostExchange, between_hosts

__all__ = ["HostExchange", "between_hosts"]
