"""Random traffic of a whole NIC, both directions at once: stalls, resets, wrong frames and commands.

Frames come damaged, cut, too long, again and in a wrong order, and forged with a right CRC; commands are
aborted; registers are written while commands run. Each has to end in an error that is counted, and must
change no memory but the rows of a command that ends with error 3. Frames that follow each other often have
the same rows, which take them in the order of commands.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from oscar.coding.asc import AscParams, Decoder, Encoder
from oscar.coding.asc.params import GROUP_ROWS, LANES
from oscar.coding.frame import pack_frame, unpack_frame
from oscar.errors import FrameError
from oscar_hdl.coder.rows import DESCRIBED, FrameRows, frame_rows
from oscar_hdl.nic.receive.deframer import (
    CHECKSUM,
    CHUNK,
    CODEC,
    COUNT,
    DAMAGED,
    LENGTH,
    PEER,
    SEQUENCE,
    STEP,
    SUB_WIDTH,
    TOO_LONG,
    VERSION,
)
from oscar_sim.batches import SHARES
from oscar_sim.frames import Generator
from oscar_sim.units import Stress
from oscar_sim.whole import HELD, Arrival, Making, NicMemory, Order, Told, WholeNic

LINKS = 3  # of a direction, a table set each
MOST_BYTES = 30_000  # of a frame: a store has to hold it
LONG_BYTES = 66_000  # no store holds it
ABORTED, BAD_BLOCK, REFUSABLE = 7, 3, (1, 2, 3)  # errors of RECEIVE
SENT_ROWS = 4  # of the second byte of a prefix
DAMAGES = LENGTH, VERSION, CODEC, DAMAGED, TOO_LONG  # reasons of the deframer
NAMES = STEP, CHUNK, SUB_WIDTH, SEQUENCE, CHECKSUM, COUNT, PEER  # and of frame_match
Sum = tuple[int, FrameRows]
Target = tuple[np.ndarray, np.ndarray, int, np.ndarray | None]


class Traffic:
    """One batch: commands of both directions, frames that come, and what has to come out.

    refusable: some RECEIVEs end with an error, are aborted, or have frames that come again.
    """

    refusable = True

    def __init__(self, generate: Generator, nic: WholeNic, frames: int) -> None:
        self.generate, self.rng, self.memory = generate, generate.rng, NicMemory(nic.rows)
        self.row, self.rows, self.log2, self.units = 0, nic.rows, nic.block_log2, nic.units
        self.receives: list[Order] = []
        self.sends: list[Order] = []
        self.arrivals: list[Arrival] = []
        self.good: list[bytes] = []  # frames that are replayed, early or late
        self.bad = 0  # frames that have to be dropped, and commands of a list that get them
        self.drops: list[tuple[int, tuple[int, ...]]] = []  # of these frames: who made it, reasons
        self.wanted: list[bytes] = []
        self.sums: list[Sum | None] = []  # None: an error is to come
        self.values = 0
        # Of the last RECEIVE: positions, row, sums (None: it fails).
        self.last: tuple[np.ndarray, int, np.ndarray | None] | None = None
        self.encoders = [Encoder(AscParams(sent_rows=False, block_log2=self.log2)) for _ in range(LINKS)]
        self.senders = [Encoder(AscParams(sent_rows=False, block_log2=self.log2)) for _ in range(LINKS)]
        self.decoders = [Decoder(AscParams()) for _ in range(LINKS)]
        self.counts = [[0] * LINKS, [0] * LINKS]
        while len(self.receives) + len(self.sends) < frames:
            kind = self.rng.random()
            send, receive = kind < 0.48, kind < 0.96 or not self.refusable
            if not (self._send() if send else self._receive() if receive else self._abort()):
                break
        if self.refusable:
            self._disorder()
        self.makings: list[Making] = []
        self.bad_packets = 0
        self.entries = self._entries()
        self.values_before, self.headers_before = self.memory.values.copy(), self.memory.headers.copy()

    def _entries(self) -> np.ndarray | None:
        """Return the list that gives the commands; None: they are given by registers."""
        return None

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
            "step": link, "chunk": len(self.receives) + len(self.sends), "sub": 7, "width": 16,
            "count": count, "sequence": n, "load": link, "save": link, "fresh": int(n == 0), "row": at,
            "peer": self._peer(way, link),
        }  # fmt: skip

    def _peer(self, way: int, link: int) -> int:
        """Return who made a frame of a link, or whom it is for (way 1). Drops of the first 16 are counted."""
        return int(self.rng.integers(16 if self.rng.random() < 0.5 else 256))

    def _stranger(self, peer: int) -> int:
        """Return somebody else, whose frame comes next."""
        return peer ^ int(self.rng.integers(1, 256))

    def _send(self) -> bool:
        data = self._frame()
        if data is None:
            return False
        values, positions = data
        rows, link = frame_rows(values, positions), int(self.rng.integers(LINKS))
        fields = self._fields(1, link, values.size, self._place(rows))
        frame = self.encoders[link].encode(
            values, step=link, context=positions, width=16, chunk=fields["chunk"], sub=7
        )
        if len(frame) > MOST_BYTES:
            return False
        self.sends.append(Order(fields))
        self.wanted.append(frame)
        return True

    def _receive(self) -> bool:
        target = self._target()
        if target is None:
            return False
        values, positions, at, local = target
        link, rng = int(self.rng.integers(LINKS)), self.rng
        fields = self._fields(0, link, values.size, at)
        before = self.senders[link].state_dict()
        how = {"step": link, "context": positions, "width": 16, "chunk": fields["chunk"], "sub": 7}
        frame = self.senders[link].encode(values, **how)
        if len(frame) > MOST_BYTES:
            return False
        kind, ends = rng.random(), False
        if kind < 0.15:  # damaged on its way: dropped, and sent again
            self._arrive(self._damaged(frame), fields["peer"])
            self._drop(fields["peer"], *DAMAGES)
        elif kind > 0.9:  # another peer's of the same name: dropped
            self._arrive(frame, stranger := self._stranger(fields["peer"]))
            self._drop(stranger, PEER)
        elif kind < 0.22 and not self.refusable:  # forged, so that it is not the one that is waited for
            self._arrive(self._forged(frame), fields["peer"])
            self._drop(fields["peer"], SEQUENCE, CHECKSUM)
            self.bad += 1  # for the command that got it
        expected: np.ndarray | None = values
        if self.refusable and 0.15 <= kind < 0.3:  # forged, with a right CRC
            head, payload = unpack_frame(frame)
            broken = bytearray(payload)
            broken[int(rng.integers(len(broken)))] ^= 1 << int(rng.integers(8))
            frame = pack_frame(head, bytes(broken))
            try:
                if broken[0] & 31 != self.log2 or broken[1] & SENT_ROWS:  # the software would take it
                    raise FrameError("blocks of another size, or table rows")
                expected = self.decoders[link].decode(frame, step=link, context=positions)
                ends = True  # it can be decoded: the link's ends part here
            except FrameError:
                self.senders[link].load_state_dict(before)
                self.counts[0][link] -= 1
                expected = None
        elif self.refusable and 0.3 <= kind < 0.36 and (other := self._other(before, values, how)) != frame:
            frame, expected = other, None
            self.senders[link].load_state_dict(before)
            self.counts[0][link] -= 1
        else:
            self.decoders[link].decode(frame, step=link, context=positions)
            self.good.append(frame)
        self._arrive(frame, fields["peer"])
        adopt = self._adopts(local)
        self.receives.append(Order(fields | {"adopt" if adopt else "add": 1}, self._after()))
        total = None if expected is None else expected.astype(np.int64) + (0 if adopt else local)
        if total is not None:
            total = (total + 32768) % 65536 - 32768
        self.sums.append(None if total is None else (at, frame_rows(total, positions)))
        self.last = positions, at, total
        return not ends

    def _other(self, before: dict[str, Any], values: np.ndarray, how: dict[str, Any]) -> bytes:
        """Return a frame as software may make it, with other blocks or with table rows where they pay."""
        encoder = Encoder(AscParams(block_log2=self.log2 + int(self.rng.integers(3))))
        encoder.load_state_dict(before)
        return encoder.encode(values, **how)

    def _target(self) -> Target | None:
        """Return values, positions, their first row, what is there (None: anything).

        The rows are new, or those of the frame before. None: there is no room.
        """
        rng = self.rng
        if self.last and rng.random() < 0.4:
            positions, at, local = self.last
            rows = self.generate().rows
            values = np.resize(rows.values.reshape(-1)[: rows.count], positions.size).astype(np.int16)
            self.values += values.size
            return values, positions, at, local
        data = self._frame()
        if data is None:
            return None
        values, positions = data
        local = rng.integers(-900, 900, values.size) * (rng.random(values.size) < rng.random())
        return values, positions, self._place(frame_rows(local.astype(np.int16), positions)), local

    def _adopts(self, local: np.ndarray | None) -> bool:
        """Whether a frame takes the place of what its rows hold, which is `local`."""
        return local is None or self.rng.random() < 0.3

    def _arrive(self, frame: bytes, peer: int) -> None:
        """A peer's frame comes, behind the end of a command that is aborted."""
        self.arrivals.append(Arrival(frame, self._after()[0], peer))

    def _drop(self, peer: int, *reasons: int) -> None:
        """A frame of a peer has to be dropped, for one of these reasons."""
        self.bad += 1
        self.drops.append((peer, reasons))

    def _after(self) -> tuple[int, int]:
        """Return how many commands have to end first: those up to the last that is aborted."""
        return max((n + 1 for n, order in enumerate(self.receives) if order.abort), default=0), 0

    def _damaged(self, frame: bytes) -> bytes:
        rng, kind = self.rng, self.rng.random()
        if kind < 0.2:
            return frame[: int(rng.integers(1, len(frame)))]
        if kind < 0.4:
            return frame + rng.bytes(int(rng.integers(1, 100)))
        if kind < 0.5:
            return rng.bytes(int(rng.integers(1, 50)))
        if kind < 0.55:
            return frame + bytes(LONG_BYTES)
        bad = bytearray(frame)
        for _ in range(int(rng.choice([1, 1, 2, 20]))):
            bad[int(rng.integers(len(bad)))] ^= 1 << int(rng.integers(8))
        return bytes(bad) if bytes(bad) != frame else frame[:-1]

    def _forged(self, frame: bytes) -> bytes:
        """Return a frame of the same name and right CRC that does not follow the ones before."""
        head, payload = unpack_frame(frame)
        field = str(self.rng.choice(["sequence", "checksum"]))
        other = getattr(head, field) ^ int(self.rng.integers(1, 1 << 16))
        return pack_frame(replace(head, **{field: other}), payload)

    def _abort(self) -> bool:
        """Give a command whose frame never comes."""
        count = int(self.rng.integers(1, 5000))
        fields = self._fields(0, 0, count, 0) | {"add": 1}
        self.counts[0][0] -= 1
        self.receives.append(Order(fields, self._after(), abort=True))
        self.sums.append(None)
        return True

    def _disorder(self) -> None:
        """Let good frames come again, early or late, in front of others that are waited for."""
        others = [at for at, arrival in enumerate(self.arrivals) if any(arrival.data is f for f in self.good)]
        number = min(int(self.rng.choice([0, 1, 3])), len(others))
        for at in sorted(self.rng.permutation(others)[:number].tolist(), reverse=True):
            again = self.good[int(self.rng.integers(len(self.good)))]
            if again is not self.arrivals[at].data:
                self.arrivals.insert(at, self.arrivals[at]._replace(data=bytes(bytearray(again))))
                self._drop(self.arrivals[at].peer, *NAMES)

    def faults(self, told: Told) -> list[str]:
        """Return what was wrong."""
        result = [told.fault] if told.fault else []
        result += [f"frame {n} sent differs" for n, f in enumerate(told.frames) if f != self.wanted[n]]
        result += [
            f"frame {n} goes to peer {peer}"
            for n, (peer, order) in enumerate(zip(told.peers, self.sends, strict=False))
            if peer != order.fields["peer"]
        ]
        result += [f"SEND {n} ended with error {e}" for n, e in enumerate(told.sends["error"].tolist()) if e]
        for n, error in enumerate(told.receives["error"].tolist()):
            if error not in self._errors(n):
                result.append(f"RECEIVE {n} ended with error {error}, not {self._errors(n)}")
        if told.fault or told.reset:
            return result
        return result + self._counted(told) + self._memory_faults(told)

    def _errors(self, n: int) -> tuple[int, ...]:
        if self.receives[n].abort:
            return (ABORTED,)
        return REFUSABLE if self.sums[n] is None else (0,)

    def _counted(self, told: Told) -> list[str]:
        """Return which counters are wrong."""
        failed = sum(rows is None for rows in self.sums)
        expected = {
            "FRAMES_IN": len(self.sums) - failed, "FRAMES_OUT": len(self.sends),
            "FRAMES_BAD": self.bad + failed, "REFUSED": told.refused, "PACKETS_BAD": self.bad_packets,
        }  # fmt: skip
        result = [f"{k} is {told.counters[k]}, not {v}" for k, v in expected.items() if told.counters[k] != v]
        for peer, word in enumerate(told.drops):
            own = [reasons for who, reasons in self.drops if who == peer]
            count, reason = word & 0xFFFF, word >> 16
            if count != len(own) or (own and not any(reason in reasons for reasons in own)):
                result.append(f"PEER_DROPS of {peer} is {count} for reason {reason}, not one of {own}")
        return result

    def _memory_faults(self, told: Told) -> list[str]:
        """Return which rows are wrong; those of frames with a bad block may hold anything."""
        values, headers, result = self.values_before, self.headers_before & DESCRIBED, []
        here = self.memory.headers & DESCRIBED
        for order, sums, error in zip(self.receives, self.sums, told.receives["error"], strict=True):
            part = slice(order.fields["row"], order.fields["row"] - (-order.fields["count"] // LANES))
            if sums is not None:
                values[part], headers[part] = sums[1].values, sums[1].headers & DESCRIBED
            elif error == BAD_BLOCK:
                values[part], headers[part] = self.memory.values[part], here[part]
        wrong = np.flatnonzero((values != self.memory.values).any(axis=1))
        if wrong.size:
            result.append(f"values of {wrong.size} rows differ, row {wrong[0]} is the first")
        if not np.array_equal(headers, here):
            result.append(f"descriptors differ, row {np.flatnonzero(headers != here)[0]} is the first")
        return result


def whole(nic: WholeNic, generate: Generator, seed: int, tally: Counter[str]) -> list[str]:
    """Run a batch through a NIC; return what was wrong."""
    return batch(Traffic(generate, nic, int(generate.rng.integers(2, 16))), nic, seed, tally)


def batch(traffic: Traffic, nic: WholeNic, seed: int, tally: Counter[str]) -> list[str]:
    """Run a batch through a NIC, at times with a reset in its midst; return what was wrong."""
    rng = traffic.rng
    if not (traffic.receives or traffic.sends):
        return []
    idle, busy, refuse = (float(x) for x in rng.choice(SHARES, 3))
    pry = float(rng.choice([0, 0.001, 0.02]))
    reset_at = int(rng.integers(rng.choice([200, 40_000]))) if rng.random() < 0.4 else -1
    told = nic.run(
        traffic.memory, receives=traffic.receives, sends=traffic.sends, arrivals=traffic.arrivals,
        entries=traffic.entries, makings=traffic.makings, pause=int(rng.choice([1, 100, 20_000])),
        stress=Stress(idle, busy, refuse, pry), seed=seed, reset_at=reset_at,
    )  # fmt: skip
    result = traffic.faults(told)
    for _ in range(int(rng.choice([1, 1, 2]))):  # links begin anew
        nic.reset(int(rng.integers(1, HELD)))
    nic.reset(HELD + int(rng.integers(rng.choice([1, 40, 2000]))))
    tally["clocks"] += told.clocks
    tally["frames"] += len(told.frames) + len(told.receives)
    tally["values"] += traffic.values
    tally["resets"] += told.reset
    tally["refused"] += int(np.count_nonzero(told.receives["error"])) + told.counters.get("FRAMES_BAD", 0)
    tally["hangs"] += "hangs" in told.fault
    tally["mismatches"] += len(result)
    return result
