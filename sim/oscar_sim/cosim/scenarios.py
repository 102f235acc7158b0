"""What blocks are shown to: runs under Verilator, right by themselves, with all ports noted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from oscar.coding.asc.state import TableState
from oscar_hdl.coder.rows import frame_rows
from oscar_sim.attention_stress import AttentionUnit, Stalls, random_head
from oscar_sim.batches import DecoderBatch, EncoderBatch, run
from oscar_sim.blocks import CodedFrame, Coder
from oscar_sim.cosim.nic_bench import SIZES, exchange, exchange_list
from oscar_sim.cosim.nic_run import NicRun
from oscar_sim.errors import RtlError
from oscar_sim.seeds import numbers
from oscar_sim.units import Unit
from oscar_sim.verilator import Port

MOST_CLOCKS = 40_000


@dataclass(frozen=True)
class Recording:
    """A block's ports, and what each was at every clock. parameters: the top's."""

    top: str
    parameters: dict[str, int | str | bool]
    ports: tuple[Port, ...]
    values: dict[str, np.ndarray]

    @property
    def clocks(self) -> int:
        return len(next(iter(self.values.values())))


def _frames(rng: np.random.Generator, values: int) -> list[CodedFrame]:
    """Return frames of one link: real-looking rows, zeros, wide rows, a constant block, corners of counts."""
    state, coder, frames = TableState.initial(), Coder(log2=10), []
    for scale in (2.0, 40.0, 3000.0):
        count = int(rng.integers(values // 2, values))
        data = rng.laplace(0, scale, count) * np.repeat(rng.random(-(-count // 32)) < 0.5, 32)[:count]
        data[1024:2048] = 3 if scale < 10 else data[1024:2048]
        positions = np.clip(rng.integers(4, 9, count), 0, 15).astype(np.uint8)
        whole = np.clip(np.rint(data), -32768, 32767).astype(np.int16)
        frames.append(coder.encode(whole, positions, state))
    return frames


def _noted(unit: Unit, batch: DecoderBatch | EncoderBatch) -> Recording:
    unit.model.trace(MOST_CLOCKS)
    _, done, result = run(unit, batch, 1)
    if result:
        raise RtlError(f"{unit.kind}: {'; '.join(result)} ({done} blocks were right before)")
    ports = tuple(port for port in unit.model.ports.values() if port.name != "clk")
    return Recording(unit.kind, {}, ports, unit.model.traced())


def barrel_decoder(light: bool) -> Recording:
    """Blocks with stalls, resets and damage."""
    rng = numbers(31)
    frames = _frames(rng, 800 if light else 4000)
    batch = DecoderBatch(frames, Coder(), rng, damage=0.2, resets=0.2)
    return _noted(Unit("barrel_decoder"), batch)


def barrel_encoder(light: bool) -> Recording:
    """Blocks with stalls and resets."""
    rng = numbers(32)
    frames = _frames(rng, 800 if light else 4000)
    return _noted(Unit("barrel_encoder"), EncoderBatch(frames, rng, resets=0.2))


def attention_unit(light: bool) -> Recording:
    """Heads with stalls, wrong ones among them, and a reset."""
    rng, unit = numbers(35), AttentionUnit()
    heads = [random_head(rng, 20, wrong=0.2) for _ in range(3 if light else 10)]
    unit.model.trace(MOST_CLOCKS)
    _, result = unit.run(
        heads, Stalls(9000, 9000, 9000, int(rng.integers(0, 3000))), int(rng.integers(1 << 32))
    )
    if result:
        raise RtlError(f"attention_unit: {'; '.join(result)}")
    ports = tuple(port for port in unit.model.ports.values() if port.name != "clk")
    return Recording("attention_unit", {}, ports, unit.model.traced())


def oscar_nic(light: bool) -> Recording:
    """Frames both ways at once and sums sent on, with pauses; registers; a reset in the midst."""
    nic = NicRun(numbers(33), MOST_CLOCKS)
    exchange(nic, 300 if light else 2300, adopt=False)
    if not light:
        nic.load(0, frame_rows(np.ones(100, np.int32), np.zeros(100, np.uint8)))
        nic.send(np.ones(100, np.int32), np.zeros(100, np.uint8), 0)
        nic.step(int(nic.rng.integers(1, 1500)))
        nic.reset()
        exchange(nic, 900, adopt=False)
        exchange(nic, 40, adopt=True)
    exchange_list(nic, 40 if light else 700)
    ports = tuple(port for port in nic.model.ports.values() if port.name != "clk")
    return Recording("oscar_nic", dict(SIZES), ports, nic.model.traced())


SCENARIOS: dict[str, Callable[[bool], Recording]] = {
    "barrel_decoder": barrel_decoder,
    "barrel_encoder": barrel_encoder,
    "attention_unit": attention_unit,
    "oscar_nic": oscar_nic,
}
# For each change; compiling a whole NIC takes longer than all of them.
LIGHT = ("barrel_decoder", "barrel_encoder", "attention_unit")
