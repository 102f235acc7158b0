"""The dtypes, layouts and devices of buckets that the hook codes. docs/ddp.md has the same table."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from oscar.adapters.torch.staging import Staging
from oscar.numerics.dtypes import why_uncoded
from oscar.transports.gloo import load_torch

LOG = logging.getLogger("oscar.ddp")


def why_uncompressed(buffer: Any, parameters: Iterable[Any] = ()) -> str | None:
    """Return why a bucket is sent uncompressed, as DDP would send it; None: it is coded.

    parameters: of the bucket. DDP shows the gradients of complex ones as twice as many real values.
    Raises TypeError for integers, and for layouts other than dense and COO.
    """
    torch = load_torch()[0]
    if buffer.layout not in (torch.strided, torch.sparse_coo):
        raise TypeError(
            f"expected dense gradients or sparse ones in COO layout, got {buffer.layout}; make the module "
            "with sparse=False, or take the hook off for this model"
        )
    device = buffer.device.type
    dtypes = (buffer.dtype, *(each.dtype for each in parameters if each.dtype.is_complex))
    reason = next((why for dtype in dtypes if (why := why_uncoded(dtype)) is not None), None)
    if reason is None and device not in Staging.DEVICES:
        reason = f"gradients on {device} are not coded, only those on {' and '.join(Staging.DEVICES)}"
    if reason is None and buffer.is_sparse and device != "cpu":
        reason = f"sparse gradients are coded on the CPU, these are on {device}"
    return reason


class Uncompressed:
    """Logs once for each reason what goes uncompressed because of its dtype, layout or device."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def log(self, buffer: Any, index: int, reason: str) -> None:
        """Log a bucket, if the reason was not given before."""
        if reason not in self._logged:
            LOG.warning(
                "bucket %d (%s values) goes uncompressed, as DDP would send it: %s",
                index,
                f"{buffer.numel():,}",
                reason,
            )
        self._logged.add(reason)
