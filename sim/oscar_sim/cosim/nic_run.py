"""A whole NIC under Verilator, driven through its ports in every clock, with streams that pause at random."""

from __future__ import annotations

from collections import deque

import numpy as np

from oscar_hdl.nic.control.registers import BY_NAME
from oscar_sim.cosim.nic_bench import BUS_BYTES, CLEARING, INTO, OTHER, OUT, SIZES, NicBench
from oscar_sim.errors import RtlError
from oscar_sim.verilator import Model

Word = tuple[int, int, bool]  # data, keep, last


class NicRun(NicBench):
    """A NIC of one unit whose streams pause at random; `model` is the converted RTL."""

    def __init__(self, rng: np.random.Generator, clocks: int, *, pause: float = 0.15) -> None:
        self.model, self.rng, self.pause = Model("oscar_nic", **SIZES), rng, pause
        (self.pauses,) = rng.spawn(1)  # so what a driver draws from rng does not depend on clocks
        self.model.trace(clocks)
        self.clocks = 0
        self.coming: dict[str, deque[Word]] = {name: deque() for name in INTO}
        self.taken: dict[str, list[Word]] = {name: [] for name in OUT}
        self.valid = dict.fromkeys(INTO, False)
        self.reset()

    def reset(self) -> None:
        """Reset the NIC; its links begin anew."""
        for queue in self.coming.values():
            queue.clear()
        for words in self.taken.values():
            words.clear()
        self.valid = dict.fromkeys(INTO, False)
        for name in ("awvalid", "wvalid", "bready", "arvalid", "rready"):
            self.model[f"s_axil_{name}"] = 0
        self.model["rst"] = 1
        self.step(2)
        self.model["rst"] = 0
        self.step(CLEARING)
        self.begin()

    def step(self, clocks: int = 1) -> None:
        """See NicBench.step."""
        for _ in range(clocks):
            self._clock()

    def _clock(self) -> None:
        model, chance = self.model, self.pauses.random(len(INTO) + len(OUT)) >= self.pause
        ready = dict(zip(OUT, chance[len(INTO) :].tolist(), strict=True))
        for name, go in zip(INTO, chance.tolist(), strict=False):
            if not self.valid[name] and self.coming[name] and go:
                self.valid[name] = True
                data, keep, last = self.coming[name][0]
                model[f"{name}_tdata"], model[f"{name}_tlast"] = data, int(last)
                if name == "s_axis_rx":
                    model[f"{name}_tkeep"], model[f"{name}_tid"] = keep, OTHER
            model[f"{name}_tvalid"] = int(self.valid[name])
        for name in OUT:
            model[f"{name}_tready"] = int(ready[name])
        for name in INTO:
            if self.valid[name] and model[f"{name}_tready"]:
                self.coming[name].popleft()
                self.valid[name] = False
        for name in OUT:
            if ready[name] and model[f"{name}_tvalid"]:
                keep = model[f"{name}_tkeep"] if name == "m_axis_tx" else 0
                if name == "m_axis_tx" and model[f"{name}_tdest"] != self.peer:
                    raise RtlError(f"a frame goes to {model[f'{name}_tdest']}, not to {self.peer}")
                self.taken[name].append((model[f"{name}_tdata"], keep, bool(model[f"{name}_tlast"])))
        model.clock()
        self.clocks += 1

    def until(self, name: str) -> None:
        """Let clocks pass until an output is 1: it is taken at the next edge."""
        self.wait(lambda: self.model[name], f"{name} stays 0")

    def write(self, name: str, **fields: int) -> None:
        """See NicBench.write."""
        register, model = BY_NAME[name], self.model
        model["s_axil_awaddr"], model["s_axil_wdata"] = register.offset, register.pack(**fields)
        model["s_axil_wstrb"] = 15
        model["s_axil_awvalid"] = model["s_axil_wvalid"] = 1
        self.until("s_axil_wready")
        self.step()
        model["s_axil_awvalid"] = model["s_axil_wvalid"] = 0
        model["s_axil_bready"] = 1
        self.until("s_axil_bvalid")
        response = model["s_axil_bresp"]
        self.step()
        model["s_axil_bready"] = 0
        if response:
            raise RtlError(f"a write to {name} is answered with {response}, not OKAY")

    def read(self, name: str) -> dict[str, int]:
        """See NicBench.read."""
        model = self.model
        model["s_axil_araddr"], model["s_axil_arvalid"] = BY_NAME[name].offset, 1
        self.until("s_axil_arready")
        self.step()
        model["s_axil_arvalid"], model["s_axil_rready"] = 0, 1
        self.until("s_axil_rvalid")
        fields, response = BY_NAME[name].unpack(model["s_axil_rdata"]), model["s_axil_rresp"]
        self.step()
        model["s_axil_rready"] = 0
        if response:
            raise RtlError(f"a read of {name} is answered with {response}, not OKAY")
        return fields

    def packet(self, name: str, words: list[int]) -> None:
        """See NicBench.packet."""
        self.coming[name].extend((word, 0, n == len(words) - 1) for n, word in enumerate(words))

    def arrive(self, frame: bytes) -> None:
        """See NicBench.arrive."""
        parts = [frame[at : at + BUS_BYTES] for at in range(0, len(frame), BUS_BYTES)]
        for part in parts:
            word = int.from_bytes(part, "little"), (1 << len(part)) - 1, part is parts[-1]
            self.coming["s_axis_rx"].append(word)

    def taken_in(self, name: str) -> bool:
        """See NicBench.taken_in."""
        return not self.coming[name]

    def packet_out(self, name: str) -> list[int] | None:
        """See NicBench.packet_out."""
        return None if (words := self._whole(name)) is None else [word for word, _, _ in words]

    def frame_out(self) -> bytes | None:
        """See NicBench.frame_out."""
        if (words := self._whole("m_axis_tx")) is None:
            return None
        return b"".join(word.to_bytes(BUS_BYTES, "little")[: keep.bit_length()] for word, keep, _ in words)

    def _whole(self, name: str) -> list[Word] | None:
        words = self.taken[name]
        ends = [n for n, (_, _, last) in enumerate(words, 1) if last]
        if not ends:
            return None
        first, words[: ends[0]] = words[: ends[0]], []
        return first
