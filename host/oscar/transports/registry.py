"""The registry of transports that `oscar worker` can use. Construction is collective."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # its packages are looked for once the command line is read
    from oscar.transports.base import Transport


def _mpi() -> Transport:
    from oscar.transports.mpi import MpiTransport

    return MpiTransport()


def _tcp() -> Transport:
    from oscar.transports.tcp import TcpTransport

    return TcpTransport()


TRANSPORTS: dict[str, Callable[[], Transport]] = {"mpi": _mpi, "tcp": _tcp}
