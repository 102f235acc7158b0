"""A session with an oscar_nic, write by write: what a driver does, run on the converted RTL and printed.

A chunk is loaded and sent; a frame comes for another chunk, after a damaged copy of itself, and is added
there; the sums are read. Then a list does both: it adds, and sends the sums.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from oscar.errors import OscarError
from oscar_hdl.coder.rows import FrameRows, frame_rows
from oscar_hdl.nic.control.registers import BY_NAME
from oscar_sim.cosim.nic_bench import BLOCK, SIZES, exchange_list
from oscar_sim.cosim.nic_run import NicRun

CLOCKS, COUNT, SHOWN = 200_000, 2000, 2


class Session(NicRun):
    """A NIC whose driver says what it does."""

    def write(self, name: str, **fields: int) -> None:
        """See NicRun.write."""
        register = BY_NAME[name]
        said = " ".join(f"{key}={value}" for key, value in fields.items())
        print(f"write {name:<16} {register.offset:#04x}  {register.pack(**fields):#010x}  {said}")
        super().write(name, **fields)

    def packet(self, name: str, words: list[int]) -> None:
        """See NicRun.packet."""
        digits = self.model.ports[f"{name}_tdata"].bits // 4
        shown = [f"{word:0{digits}x}" for word in words]
        if name == "s_axis_list":  # an entry a line
            print("\n".join(f"{name}: {' '.join(shown[n : n + 3])}" for n in range(0, len(shown), 3)))
        else:
            more = " .." if len(words) > SHOWN else ""
            print(f"{name}: {len(words):,} words  {' '.join(shown[:SHOWN])}{more}")
        super().packet(name, words)

    def await_frame(self) -> None:
        """See NicBench.await_frame."""
        self.wait(lambda: self.read("IRQ_STATUS")["arrived"], "no frame comes")
        self.tell("IRQ_STATUS")
        self.write("IRQ_STATUS", arrived=1)  # before the look: a frame that comes in between sets it again
        for each in ("OLDEST_NAME", "OLDEST_FRAME"):
            self.tell(each)

    def tell(self, name: str) -> None:
        """Read a register, and say what it has."""
        said = " ".join(f"{key}={value}" for key, value in self.read(name).items() if value)
        print(f"read  {name:<16} {BY_NAME[name].offset:#04x}  {said}")

    def ended(self, name: str) -> None:
        """See NicRun.ended."""
        super().ended(name)
        for each in (f"{name}_RESULT", "IRQ_STATUS"):
            self.tell(each)


def rows_of(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, FrameRows]:
    """Return values, position classes, and the rows that memory holds of them."""
    values = np.rint(rng.laplace(0, 5, COUNT)).astype(np.int32)
    positions = rng.integers(2, 10, COUNT).astype(np.uint8)
    return values, positions, frame_rows(values, positions)


def main(argv: list[str] | None = None) -> int:
    """Run the session; return the exit status."""
    argparse.ArgumentParser(prog="python -m oscar_sim.session", description=__doc__).parse_args(argv)
    print(f"# oscar_nic: {', '.join(f'{key}={value}' for key, value in SIZES.items())}")
    rng = np.random.default_rng(1)
    try:
        nic = Session(rng, CLOCKS, pause=0.0)
        values, positions, rows = rows_of(rng)
        print(f"# load {COUNT:,} values at row 0, send them")
        nic.load(0, rows)
        expected = nic.send(values, positions, 0)
        frame = nic.frame()
        nic.ended("SEND")
        print(f"m_axis_tx: {len(frame):,} bytes, the host's frame: {frame == expected}")
        own, same, rows = rows_of(rng)
        at = 2 * BLOCK
        print(f"# load another chunk at row {at}, which begins a block; add what comes for it")
        nic.load(at, rows)
        came = rows_of(rng)[0]
        nic.receive(came, same, at, adopt=False)
        nic.ended("RECEIVE")
        print(f"read  FRAMES_BAD       {BY_NAME['FRAMES_BAD'].offset:#04x}  {nic.read('FRAMES_BAD')}")
        print("# read the sums; cut the gradient, which is this chunk alone, in two")
        nic.write("PLAN_SEGMENT", first=0, count=1)
        nic.check_rows(at, own + came, same)
        print("m_axis_values: the sums that the host has")
        edges = nic.check_plan(own + came, 2)
        print(f"PLAN_EDGE_1: {edges[0]}, in blocks of 256 values, as the host cuts")
        print("# load a chunk again; give a list of two: add what comes for it, then send the sums")
        exchange_list(nic, COUNT)
        nic.tell("LIST_RESULT")
        print("m_axis_tx, m_axis_values: the frame and the sums that the host has")
    except OscarError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0 if frame == expected else 1


if __name__ == "__main__":
    sys.exit(main())
