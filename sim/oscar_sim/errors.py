"""Errors of simulated hardware."""

from __future__ import annotations

from oscar.errors import OscarError


class RtlError(OscarError):
    """The simulated hardware did what it must not: a bug of the RTL, never of the input."""
