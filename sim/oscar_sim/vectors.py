"""Write the actions of tb_oscar_nic.vhd: a frame is sent, and one is received, as the host has them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from oscar.coding.asc import AscParams, Encoder
from oscar.coding.frame import peek
from oscar_hdl.coder.rows import FrameRows, frame_rows
from oscar_hdl.flow.delivery.archive import BENCH
from oscar_hdl.flow.delivery.fusesoc import VECTORS
from oscar_hdl.flow.tools import write_text
from oscar_hdl.nic.control.registers import BY_NAME, ID_VALUE, command_values
from oscar_sim.driver.row_packets import Lines, packet_start

PEER = 2  # of both frames, as the bench has it
COUNT = 1024  # values of a frame: whole rows
BUS_BYTES = 8
SETTLE = 140  # clocks in which zeros fill a packet's last group
SEED = 41


def write(name: str, **fields: int) -> str:
    """Return the action that writes a register."""
    register = BY_NAME[name]
    return f"W {register.offset:02X} {register.pack(**fields):08X}"


def poll(name: str, **fields: int) -> str:
    """Return the action that reads a register until fields have these values."""
    register = BY_NAME[name]
    mask = sum(register.field(field).mask for field in fields)
    return f"P {register.offset:02X} {register.pack(**fields):08X} {mask:08X}"


def packet(kind: str, words: Sequence[int], bits: int = 128) -> Iterator[str]:
    """Yield the actions that give or expect the words of a packet."""
    for n, word in enumerate(words, 1):
        yield f"{kind} {word:0{bits // 4}X} {int(n == len(words)):X}"


def frame(kind: str, data: bytes) -> Iterator[str]:
    """Yield the actions that give or expect the words of a frame."""
    for at in range(0, len(data), BUS_BYTES):
        part = data[at : at + BUS_BYTES]
        word, keep = int.from_bytes(part, "little"), (1 << len(part)) - 1
        yield f"{kind} {word:016X} {keep:02X} {int(at + BUS_BYTES >= len(data)):X}"


def command(name: str, **fields: int) -> Iterator[str]:
    """Yield the four writes of a command."""
    for register, value in command_values(name, **fields).items():
        yield f"W {BY_NAME[register].offset:02X} {value:08X}"


def load(lines: Lines, row: int, rows: FrameRows) -> Iterator[str]:
    """Yield the packets that write rows into memory."""
    start = packet_start(row, rows.count)
    yield from packet("V", [start, *lines.value_words(row, rows)])
    yield from packet("S", [start, *lines.side_words(row, rows)])
    yield f"N {SETTLE:08X}"


def actions(block_log2: int) -> Iterator[str]:
    """Yield the lines of the file; block_log2: the NIC's parameter."""
    rng = np.random.default_rng(SEED)
    lines, params = Lines(1, 1 << (block_log2 - 5)), AscParams(sent_rows=False, block_log2=block_log2)
    second = 1 << (block_log2 - 5)  # the second block's first row
    positions = rng.integers(2, 10, COUNT).astype(np.uint8)
    own, local, came = (np.rint(rng.laplace(0, 5, COUNT)).astype(np.int32) for _ in range(3))
    yield "# read the ID register"
    yield f"R {BY_NAME['ID'].offset:02X} {ID_VALUE:08X} FFFFFFFF"
    yield f"# load {COUNT} values at row 0, send them"
    yield from load(lines, 0, frame_rows(own, positions))
    sent = Encoder(params).encode(own, step=0, context=positions, width=16, chunk=0)
    yield from command(
        "SEND", count=COUNT, row=0, peer=PEER, step=0, chunk=0, width=16, sequence=0, load=0, save=0, fresh=1,
    )  # fmt: skip
    yield f"# expect the host's frame of {len(sent)} bytes"
    yield from frame("T", sent)
    yield poll("SEND_RESULT", ended=1, error=0)
    yield f"# load {COUNT} values at row {second}, add a frame that comes"
    yield from load(lines, second, frame_rows(local, positions))
    received = Encoder(params).encode(came, step=1, context=positions, width=16, chunk=0)
    head = peek(received)
    yield from frame("X", received)
    yield poll("IRQ_STATUS", arrived=1)
    fields = {key: getattr(head, key) for key in ("step", "chunk", "sub", "width", "sequence", "count")}
    yield from command("RECEIVE", **fields, peer=PEER, load=1, save=1, fresh=1, row=second, add=1, adopt=0)
    yield poll("RECEIVE_RESULT", ended=1, error=0)
    yield "# read the sums"
    sums = frame_rows(local + came, positions)
    yield from packet("Q", [packet_start(second, COUNT)], 64)
    yield from packet("M", lines.value_words(second, sums))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m oscar_sim.vectors", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/hdl"), help="folder of the RTL (%(default)s)")
    args = parser.parse_args(argv)
    bench = args.out / BENCH
    if not bench.exists():
        print(f"no {bench}: it is for an oscar_nic of one unit and a bus of 64 bits")
        return 0
    block_log2 = re.search(r"block_log2=(\d+)", bench.read_text(encoding="utf-8").partition("\n")[0])
    assert block_log2
    text = "".join(f"{line}\n" for line in actions(int(block_log2[1])))
    write_text(args.out / VECTORS, text)
    print(f"{text.count(chr(10)):,} actions in {args.out / VECTORS}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
