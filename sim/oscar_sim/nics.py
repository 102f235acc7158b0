"""RTL-backed NICs for the host: `nic: verilator` and `nic: myhdl` of a configuration (group oscar.nic).

They take the place of the coder inside the host's links: payloads come from the simulated lane, tables are
loaded into it before a frame and read back after it, frames are the host's.
"""

from __future__ import annotations

import numpy as np

from oscar.coding.asc import AscParams, Decoder, Encoder, max_frame
from oscar.coding.asc.state import TableState
from oscar.coding.codec import Codec
from oscar.config import Config
from oscar.errors import ConfigError, FrameError
from oscar_hdl import payload_reader as errors
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
    """Codes payloads on a simulated lane; the interface of the host's coders. `clocks`: of the last frame."""

    def __init__(self, params: AscParams, lane: Lane) -> None:
        self.params, self.lane = params, lane
        self.clocks = 0

    def _finish(self, state: TableState, after: LinkTables | None, count: int) -> None:
        if after is not None:
            state.hist[:] = after.hist.reshape(16, 16)
            state.shift[0] = after.shift
        state.advance(self.params, count, False)

    def _order(self, count: int, width: int) -> np.ndarray:
        most = self.lane.params.width_max
        if width > most:
            raise ConfigError(
                f"a lane has values of up to {most} bits, this frame has {width}: lower quantiser.bits"
            )
        if count > MAX_COUNT:
            raise ConfigError(
                f"a lane's frame has at most {MAX_COUNT:,} values, this one {count:,}: raise ring.subframes"
            )
        return lane_order(count, self.params.block)

    def encode(self, values: np.ndarray, classes: np.ndarray, width: int, state: TableState) -> bytes:
        """Return the payload of `values`; `state` moves on. `classes`: 16 times the position class."""
        order = self._order(values.size, width)
        self.clocks = 0
        if not values.size:
            self._finish(state, None, 0)
            return b""
        done = self.lane.run(
            (classes >> 4).astype(np.uint8)[order],
            local=values.astype(np.int16)[order],
            encoder=LinkTables.of(state),
            enc_width=width,
        )
        assert done.payload is not None
        self.clocks = done.clocks
        self._finish(state, done.encoder, values.size)
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
            self._finish(state, None, 0)
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
        self._finish(state, done.decoder, count)
        return values


def hardware_params(params: AscParams) -> LaneParams:
    """Return the lane that codes with `params`; raises ConfigError when none does."""
    lane = LaneParams(block_log2=min(12, max(10, params.block_log2)))
    if params != lane.asc:
        wanted = ", ".join(
            f"asc.{name}={getattr(lane.asc, name)}"
            for name in ("block_log2", "interval_log2", "context", "tables", "map")
            if getattr(lane.asc, name) != getattr(params, name)
        )
        raise ConfigError(f"an RTL NIC is built for other parameters: set {wanted}")
    return lane


def rtl_codec(params: AscParams, lane: Lane) -> Codec:
    """Return ASC whose payloads come from `lane`; its links share the lane, so they serve one thread."""

    def clocks(link: Encoder | Decoder) -> int:
        coder = link.coder
        assert isinstance(coder, RtlCoder)
        return coder.clocks

    return Codec(
        name="asc",
        domain="int",
        lossless=True,
        make_encoder=lambda: Encoder(params, coder=RtlCoder(params, lane)),
        make_decoder=lambda: Decoder(params, coder=RtlCoder(params, lane)),
        max_frame=lambda count, width: max_frame(params, count, width),
        uses_context=params.uses_position,
        max_bits=lane.params.width_max,
        clocks=clocks,
        options=f"{type(lane).__name__} {params}",
    )


def verilator(config: Config) -> Codec:
    """Return the configured codec on converted RTL under Verilator (entry point of `nic: verilator`)."""
    from oscar_sim.verilator.lane import VerilatedLane

    params = config.asc_params()
    return rtl_codec(params, VerilatedLane(hardware_params(params)))


def myhdl(config: Config) -> Codec:
    """Return the configured codec on the MyHDL description itself (entry point of `nic: myhdl`); slow."""
    from oscar_sim.myhdl_lane import MyhdlLane

    params = config.asc_params()
    return rtl_codec(params, MyhdlLane(hardware_params(params)))
