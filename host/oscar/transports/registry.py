"""The registry of transports that `oscar worker` can use. Construction is collective."""

from __future__ import annotations

from collections.abc import Callable

from oscar.transports.base import Transport


def _mpi() -> Transport:
    from oscar.transports.mpi import MpiTransport

    return MpiTransport()


def _gloo() -> Transport:
    from oscar.transports.gloo import GlooTransport

    return GlooTransport()


TRANSPORTS: dict[str, Callable[[], Transport]] = {"mpi": _mpi, "gloo": _gloo}
