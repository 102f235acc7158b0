"""Compression between hosts for PyTorch's FSDP2: `between_hosts(model, mesh["hosts"])`.

docs/how-to/fsdp.md. The extra `torch` is needed.
"""

from oscar.adapters.fsdp.exchange import HostExchange, between_hosts

__all__ = ["HostExchange", "between_hosts"]
