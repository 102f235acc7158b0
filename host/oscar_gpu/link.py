"""Ends of links whose values are tensors on a GPU: frames of the host's format, coded by TritonCoder."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from oscar.coding.asc.link import Decoder, Encoder
from oscar.coding.asc.params import AUTO_BLOCK_LOG2, AscParams
from oscar.coding.asc.state import TableState
from oscar.coding.codec import Codec, check_width
from oscar.coding.frame import HEADER_BYTES, Header, put_head
from oscar.coding.registry import asc_codec
from oscar_gpu.coder import SUMS, TritonCoder


class DeviceEncoder(Encoder):
    """The sending end; values: int16 or int32 tensors, context: uint8 ones. A width is always given.

    Frames are in pinned memory, into which the device has written their payload.
    """

    def _frame(self, head: Header, array: Any, classes: Any, state: TableState) -> Any:
        coder: Any = self.coder
        return put_head(head, coder.encode(array, classes, head.width, state, ahead=HEADER_BYTES))

    def _values(self, values: Any, width: int | None) -> tuple[Any, int]:
        assert width is not None
        return values, check_width(width)

    def _classes(self, context: Any, count: int) -> Any:
        return context  # the coder checks it


class DeviceDecoder(Decoder):
    """The receiving end; out: an int16 or int32 tensor, which is always given."""

    def _takes_values(self, out: object) -> bool:
        return isinstance(out, torch.Tensor) and out.dtype in SUMS

    def _classes(self, context: Any, count: int) -> Any:
        return context


def device_codec(params: AscParams, device: torch.device) -> Codec:
    """Return ASC of tensors on a device. Frames may go to a host and come from one.

    Where the sender chooses blocks it takes the smallest ones: a warp codes a block, and all blocks of a
    frame should run at a time. All links share a coder, so that one thread alone may use them.
    """
    coder: Any = TritonCoder(replace(params, block_log2=params.block_log2 or AUTO_BLOCK_LOG2), device)
    return replace(
        asc_codec(params),
        make_encoder=lambda: DeviceEncoder(params, coder=coder),
        make_decoder=lambda: DeviceDecoder(params, coder=coder),
        work=None,
        parallel=False,
        options=f"triton {params}",
    )
