"""Random traffic of a whole NIC: both directions at once, stalls, damaged and forged frames, a reset."""

from __future__ import annotations

from collections import Counter

import numpy as np

from oscar.coding.asc import AscParams, Decoder, Encoder
from oscar.coding.frame import pack_frame, unpack_frame
from oscar.errors import FrameError
from oscar_hdl.coder.rows import FrameRows, frame_rows
from oscar_sim.batches import SHARES
from oscar_sim.frames import Generator
from oscar_sim.units import Stress
from oscar_sim.whole import NicMemory, Order, Told, WholeNic

GROUP_ROWS = 32
LINKS = 3  # of a direction, a table set each
MOST_BYTES = 30_000  # of a frame: a store has to hold it


class Traffic:
    """One batch: commands of both directions, frames that come, and what has to come out."""

    def __init__(self, generate: Generator, rows: int, frames: int) -> None:
        self.generate, self.rng, self.memory = generate, generate.rng, NicMemory(rows)
        self.row, self.rows = 0, rows
        self.receives: list[Order] = []
        self.sends: list[Order] = []
        self.arrivals: list[tuple[bytes, int]] = []
        self.wanted: list[bytes] = []
        self.sums: list[tuple[int, FrameRows] | None] = []  # None: an error is to come
        self.values = 0
        log2 = int(self.rng.integers(10, 14))
        self.send_log2 = log2
        self.encoders = [Encoder(AscParams(sent_rows=False, block_log2=log2)) for _ in range(LINKS)]
        self.senders = [
            Encoder(AscParams(block_log2=int(self.rng.choice([0, 10, 12])))) for _ in range(LINKS)
        ]
        self.decoders = [Decoder(AscParams()) for _ in range(LINKS)]
        self.counts = [[0] * LINKS, [0] * LINKS]
        while len(self.receives) + len(self.sends) < frames:
            if not (self._send() if self.rng.random() < 0.5 else self._receive()):
                break

    def _frame(self) -> tuple[np.ndarray, np.ndarray] | None:
        frame = self.generate()
        groups = -(-frame.rows.means.size // GROUP_ROWS) * GROUP_ROWS
        if self.row + groups > self.rows:
            return None
        self.values += frame.rows.count
        return frame.rows.values.reshape(-1)[: frame.rows.count].astype(np.int16), frame.positions

    def _place(self, rows: FrameRows) -> int:
        at = self.row
        self.memory.load(at, rows)
        self.row += -(-rows.means.size // GROUP_ROWS) * GROUP_ROWS
        return at

    def _fields(self, way: int, link: int, count: int, at: int) -> dict[str, int]:
        n, self.counts[way][link] = self.counts[way][link], self.counts[way][link] + 1
        return {
            "step": link, "chunk": n, "sub": 7, "width": 16, "count": count, "sequence": n, "load": link,
            "save": link, "fresh": int(n == 0), "row": at,
        }  # fmt: skip

    def _send(self) -> bool:
        data = self._frame()
        if data is None:
            return False
        values, positions = data
        rows, link = frame_rows(values, positions), int(self.rng.integers(LINKS))
        fields = self._fields(1, link, values.size, self._place(rows))
        fields |= {"last": rows.last, "block_log2": self.send_log2}
        frame = self.encoders[link].encode(
            values, step=link, context=positions, width=16, chunk=fields["chunk"], sub=7
        )
        if len(frame) > MOST_BYTES:
            return False
        self.sends.append(Order(fields))
        self.wanted.append(frame)
        return True

    def _receive(self) -> bool:
        data = self._frame()
        if data is None:
            return False
        values, positions = data
        link, rng = int(self.rng.integers(LINKS)), self.rng
        local = rng.integers(-900, 900, values.size) * (rng.random(values.size) < rng.random())
        at = self._place(frame_rows(local.astype(np.int16), positions))
        adopt = rng.random() < 0.3
        n = self.counts[0][link]
        before = self.senders[link].state_dict()
        frame = self.senders[link].encode(values, step=link, context=positions, width=16, chunk=n, sub=7)
        if len(frame) > MOST_BYTES:
            return False
        fields = self._fields(0, link, values.size, at) | {"adopt" if adopt else "add": 1}
        kind = rng.random()
        if kind < 0.15:  # damaged on its way: dropped, and sent again
            bad = bytearray(frame)
            bad[int(rng.integers(len(bad)))] ^= 1 << int(rng.integers(8))
            self.arrivals.append((bytes(bad), 0))
        expected: np.ndarray | None = values
        if 0.15 <= kind < 0.3:  # forged, with a right CRC
            head, payload = unpack_frame(frame)
            broken = bytearray(payload)
            broken[int(rng.integers(len(broken)))] ^= 1 << int(rng.integers(8))
            frame = pack_frame(head, bytes(broken))
            try:
                expected = self.decoders[link].decode(frame, step=link, context=positions)
                return self._stop(frame, fields, (at, local, expected, positions, adopt))
            except FrameError:
                self.senders[link].load_state_dict(before)
                self.counts[0][link] -= 1
                expected = None
        else:
            self.decoders[link].decode(frame, step=link, context=positions)
        self.arrivals.append((frame, 0))
        self.receives.append(Order(fields))
        self.sums.append(None if expected is None else self._sum(at, local, expected, positions, adopt))
        return True

    def _stop(self, frame: bytes, fields: dict[str, int], sums: tuple) -> bool:
        """Take the last frame of a link whose ends part here: a forged frame that can be decoded."""
        self.arrivals.append((frame, 0))
        self.receives.append(Order(fields))
        self.sums.append(self._sum(*sums))
        return False

    @staticmethod
    def _sum(
        at: int, local: np.ndarray, values: np.ndarray, positions: np.ndarray, adopt: bool
    ) -> tuple[int, FrameRows]:
        total = values.astype(np.int64) + (0 if adopt else local)
        return at, frame_rows((total + 32768) % 65536 - 32768, positions)

    def faults(self, told: Told) -> list[str]:
        """Return what was wrong."""
        found = [told.fault] if told.fault else []
        found += [f"frame {n} sent differs" for n, f in enumerate(told.frames) if f != self.wanted[n]]
        found += [f"SEND {n} ended with error {e}" for n, e in enumerate(told.sends["error"].tolist()) if e]
        for n, error in enumerate(told.receives["error"].tolist()):
            expected = self.sums[n]
            if bool(error) != (expected is None):
                found.append(f"RECEIVE {n} ended with error {error}")
            elif expected is not None:
                at, rows = expected
                part = slice(at, at + rows.means.size)
                if not np.array_equal(self.memory.values[part], rows.values):
                    found.append(f"sums of RECEIVE {n} differ")
                if not np.array_equal(self.memory.headers[part] & 127, rows.headers & 127):
                    found.append(f"descriptors of RECEIVE {n} differ")
        return found


def whole(nic: WholeNic, generate: Generator, seed: int, tally: Counter[str]) -> list[str]:
    """Run a batch through a NIC; return what was wrong."""
    rng = generate.rng
    traffic = Traffic(generate, nic.rows, int(rng.integers(2, 16)))
    if not (traffic.receives or traffic.sends):
        return []
    idle, busy, refuse = (float(x) for x in rng.choice(SHARES, 3))
    reset_at = int(rng.integers(rng.choice([200, 40_000]))) if rng.random() < 0.2 else -1
    told = nic.run(
        traffic.memory, receives=traffic.receives, sends=traffic.sends, arrivals=traffic.arrivals,
        stress=Stress(idle, busy, refuse), seed=seed, reset_at=reset_at,
    )  # fmt: skip
    found = traffic.faults(told)
    nic.reset()  # links begin anew
    tally["clocks"] += told.clocks
    tally["frames"] += len(told.frames) + len(told.receives)
    tally["values"] += traffic.values
    tally["resets"] += told.reset
    tally["refused"] += int(np.count_nonzero(told.receives["error"])) + told.counters.get("FRAMES_BAD", 0)
    tally["hangs"] += "hangs" in told.fault
    tally["mismatches"] += len(found)
    return found
