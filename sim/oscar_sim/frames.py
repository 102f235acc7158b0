"""Random frames for tests of the NIC: gradients, laplacians of any scale, corners, mixtures."""

from __future__ import annotations

from functools import cache

import numpy as np

from oscar.coding.asc.state import TableState
from oscar_sim.blocks import CodedFrame, Coder
from oscar_studies.integers import integers
from oscar_studies.workloads import make_workload

KINDS = ("real", "laplace", "blocks", "sparse", "constant", "corners", "edges", "mixed")


@cache
def real_gradients() -> tuple[np.ndarray, np.ndarray]:
    """Return sums of quantised gradients of the NumPy language model, and their position classes."""
    workload = make_workload("numpy-lm", nodes=3, seed=0, vocabulary=512, hidden=64)
    *_, last = integers(workload, 2)
    return sum(v.astype(np.int32) for v in last.values).astype(np.int16), last.classes.astype(np.uint8)


class Generator:
    """Random frames, repeatable by the seed; largest: values of the largest."""

    def __init__(self, seed: int, *, largest: int = 30_000) -> None:
        self.rng, self.largest = np.random.default_rng(seed), largest
        self.coders: dict[tuple[int, bool], Coder] = {}
        self.states = [TableState.initial()]

    def __call__(self, *, software: bool = False) -> CodedFrame:
        """Return the next frame; software: as senders of software may make it, blocks of any size."""
        rng = self.rng
        count = int(rng.choice([rng.integers(1, 80), rng.integers(1, 6000), rng.integers(1, self.largest)]))
        values, positions = self._data(str(rng.choice(KINDS)), count)
        log2 = int(rng.choice([10, 10, 11, 12, 12, 13, 14, 15, 16, 17]))
        key = log2, bool(software and rng.random() < 0.5)
        coder = self.coders.setdefault(key, Coder(log2=key[0], sent_rows=key[1]))
        if rng.random() < 0.2 or len(self.states) > 50:
            self.states = [TableState.initial()]
        state = self.states[int(rng.integers(len(self.states)))].copy()  # of a link that saw other frames
        frame = coder.encode(values, positions, state)
        self.states.append(state)
        return frame

    def _data(self, kind: str, count: int) -> tuple[np.ndarray, np.ndarray]:
        rng = self.rng
        if kind == "real":
            values, classes = real_gradients()
            at = int(rng.integers(0, max(1, values.size - count)))
            return values[at : at + count].copy(), classes[at : at + count].copy()
        if kind == "mixed":
            cuts = np.sort(rng.integers(0, count + 1, 4)).tolist()
            sizes = np.diff([0, *cuts, count])
            parts = [self._draw(str(rng.choice(KINDS[1:-1])), int(size)) for size in sizes]
            return np.concatenate(parts).astype(np.int16), self._positions(count)
        return self._draw(kind, count).astype(np.int16), self._positions(count)

    def _positions(self, count: int) -> np.ndarray:
        rng = self.rng
        if rng.random() < 0.2:
            return np.zeros(count, np.uint8)
        spread = rng.integers(1, 17)
        return np.clip(rng.integers(0, 16) + rng.integers(-spread, spread + 1, count), 0, 15).astype(np.uint8)

    def _draw(self, kind: str, count: int) -> np.ndarray:
        rng = self.rng
        if kind == "constant":
            return np.full(count, rng.choice([0, 0, 1, -1, rng.integers(-(1 << 15), 1 << 15)]))
        if kind == "edges":  # about the limits of classes, sizes and symbols
            near = rng.choice([1, 3, 4, 7, 8, 15, 16, 127, 128, 191, 192, 383, 384, 1535, 1536, 32767], count)
            return np.clip(
                (near + rng.integers(-1, 2, count)) * rng.choice([-1, 1], count), -32768, 32767
            ) * (rng.random(count) < rng.random())
        if kind == "corners":  # zeros and the largest values of some width: any number of bytes
            top = 1 << int(rng.integers(1, 16))
            return rng.choice([-top, 1 - top, top - 1, 0], count) * (rng.random(count) < rng.random())
        scale = 10 ** rng.uniform(-1.5, 3.6)
        values = rng.laplace(0, scale, count) * 2.0 ** rng.integers(-2, 3, count)
        if kind == "blocks":  # live and dead runs, of rows and groups
            run = int(rng.choice([8, 32, 100, 1024, 3000]))
            values *= np.repeat(rng.random(-(-count // run)) < rng.random(), run)[:count]
        elif kind == "sparse":
            values *= rng.random(count) < 10 ** rng.uniform(-4, -1)
        return np.clip(np.rint(values), -32768, 32767)
