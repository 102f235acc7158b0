"""RTL-backed NICs for the host: `nic: verilator` and `nic: myhdl` of a configuration (group oscar.nic).

A NIC speaks format 2 with the parameters that its lane is built for (docs/format2.md). Payloads come from the
simulated lane. Tables are loaded into it before a frame and read back after it, and links make the frames.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from oscar.coding.codec import Codec
from oscar.config import Config
from oscar.errors import ConfigError, FrameError
from oscar_hdl import payload_reader as errors
from oscar_hdl.format2.link import Decoder, Encoder, max_frame
from oscar_hdl.format2.params import MAX_WIDTH, AscParams
from oscar_hdl.format2.state import TableState
from oscar_hdl.params import COUNT_BITS, LaneParams
from oscar_sim.lane import Lane, LinkTables
from oscar_sim.lane_order import lane_order

MAX_COUNT = 1 << (COUNT_BITS - 1)  # values in a frame
REASONS = {
    errors.TRUNCATED: "payload ends inside a block",
    errors.BAD_TYPE: "block type is none of coded, constant, raw",
    errors.TOO_WIDE: "a value does not fit the width of the frame",
    errors.TOO_MANY_WORDS: "a coded block has more words than one that is sent raw",
    errors.BAD_START: "a coder state is out of its bounds",
    errors.BAD_WORDS: "coded words do not end where the block does",
    errors.BAD_END: "a coder state is out of its bounds",
    errors.BAD_RAW: "raw bits do not end where the block does",
    errors.TRAILING: "bytes follow the last block",
}


class RtlCoder:
    """Codes payloads on a simulated lane; the interface of the reference. `clocks`: of the last frame."""

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.clocks = 0

    @staticmethod
    def _finish(state: TableState, after: LinkTables | None) -> None:
        if after is not None:
            state.hist[:] = after.hist.reshape(16, 16)
            state.shift[0] = after.shift
        state.advance()

    def _order(self, count: int, width: int) -> np.ndarray:
        most = self.lane.params.width_max
        if width > most:
            raise ConfigError(
                f"a lane has values of up to {most} bits, this frame has {width}: lower quantiser.bits"
            )
        if count > MAX_COUNT:
            raise ConfigError(
                f"a lane's frame has at most {MAX_COUNT:,} values, this one {count:,}: "
                "raise schedule.subframes"
            )
        return lane_order(count, self.lane.params.block)

    def encode(self, values: np.ndarray, classes: np.ndarray, width: int, state: TableState) -> bytes:
        """Return the payload of `values`; `state` moves on. `classes`: 16 times the position class."""
        order = self._order(values.size, width)
        self.clocks = 0
        if not values.size:
            self._finish(state, None)
            return b""
        done = self.lane.run(
            (classes >> 4).astype(np.uint8)[order],
            local=values.astype(np.int16)[order],
            encoder=LinkTables.of(state),
            enc_width=width,
        )
        assert done.payload is not None
        self.clocks = done.clocks
        self._finish(state, done.encoder)
        return done.payload

    def decode(
        self, payload: memoryview, count: int, classes: np.ndarray, width: int, state: TableState
    ) -> np.ndarray:
        """Return the int32 values of `payload`; raises FrameError, with `state` as it was."""
        order = self._order(count, width)
        self.clocks = 0
        if len(payload) % 2:
            raise FrameError(f"a payload is a whole number of 16-bit words, got {len(payload)} bytes")
        if not count:
            if len(payload):
                raise FrameError(f"{len(payload)} bytes follow the last block: frame damaged")
            self._finish(state, None)
            return np.zeros(0, np.int32)
        done = self.lane.run(
            (classes >> 4).astype(np.uint8)[order],
            payload=bytes(payload),
            decoder=LinkTables.of(state),
            dec_width=width,
        )
        self.clocks = done.clocks
        if done.error:
            reason = REASONS.get(done.error, f"reason {done.error}")
            raise FrameError(f"{reason}: frame damaged, or coded with other tables")
        assert done.values is not None
        values = np.empty(count, np.int32)
        values[order] = done.values
        self._finish(state, done.decoder)
        return values


def reference_codec(params: AscParams) -> Codec:
    """Return format 2 in plain integers: a NIC's frames are to be these."""
    return Codec(
        name="asc",
        domain="int",
        lossless=True,
        make_encoder=lambda: Encoder(params),
        make_decoder=lambda: Decoder(params),
        max_frame=lambda count, width: max_frame(params, count, width),
        uses_context=True,
        max_bits=MAX_WIDTH,
        options=f"format 2 {params}",
    )


def rtl_codec(lane: Lane) -> Codec:
    """Return ASC whose payloads come from `lane`; its links share the lane, so they serve one thread."""

    def clocks(link: Encoder | Decoder) -> int:
        coder = link.coder
        assert isinstance(coder, RtlCoder)
        return coder.clocks

    params = lane.params.asc
    return replace(
        reference_codec(params),
        make_encoder=lambda: Encoder(params, coder=RtlCoder(lane)),
        make_decoder=lambda: Decoder(params, coder=RtlCoder(lane)),
        max_bits=lane.params.width_max,
        clocks=clocks,
        options=f"{type(lane).__name__} {params}",
    )


def verilator(config: Config) -> Codec:
    """Return ASC on converted RTL under Verilator (entry point of `nic: verilator`).

    A lane has parameters of its own: nothing of the configuration matters to it.
    """
    from oscar_sim.verilator.lane import VerilatedLane

    return rtl_codec(VerilatedLane(LaneParams()))


def myhdl(config: Config) -> Codec:
    """Return ASC on the MyHDL description itself (entry point of `nic: myhdl`); slow."""
    from oscar_sim.myhdl_lane import MyhdlLane

    return rtl_codec(MyhdlLane(LaneParams()))
