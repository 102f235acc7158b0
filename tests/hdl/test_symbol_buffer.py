"""The symbol buffer: each block comes back reversed while the next is written into the cells it leaves."""

from __future__ import annotations

import pytest
from myhdl import block, instance

from oscar_hdl.params import LaneParams
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.symbol_buffer import symbol_buffer
from oscar_sim.bench import clock, simulate
from oscar_sim.seeds import dice

PARAMS = LaneParams(block_log2=10)
FRONT = 7  # clocks from a value to its symbol
GATE = 2  # clocks from `room` to the last value taken by it


@pytest.mark.parametrize("slow", ["writer", "reader", "both"])
def test_reversed_blocks(slow):
    clk, start, turn, wr_valid, held, room = (bit() for _ in range(6))
    wr_data, wr_left, rd_left, rd_data = word(8), word(11), word(11), word(8)
    rng = dice(4)
    # (symbols, whether they are read); only the last block may be short.
    blocks = [([rng.randrange(256) for _ in range(1024)], keep) for keep in (1, 1, 1, 0, 1, 0, 0, 1, 1)]
    blocks.append(([rng.randrange(256) for _ in range(300)], 1))
    wait_write = 0.3 if slow != "reader" else 0.0
    wait_read = 0.3 if slow != "writer" else 0.0
    got: list[int] = []
    expected = [s for symbols, keep in blocks if keep for s in reversed(symbols)]

    @block
    def top():
        dut = symbol_buffer(
            clk, start, turn, wr_valid, wr_data, wr_left, held, rd_left, rd_data, room, params=PARAMS
        )

        @instance
        def write():
            for symbols, keep in blocks:
                start.next, wr_left.next = True, len(symbols)
                yield clk.posedge
                start.next = False
                for _ in range(3):  # from here on `room` is about this block
                    yield clk.posedge
                left, rooms, behind = list(symbols), [False] * (GATE + 1), [None] * FRONT
                while left or any(s is not None for s in behind):
                    rooms = [bool(room), *rooms[:-1]]
                    move = bool(left) and rooms[-1] and rng.random() >= wait_write
                    behind = [left.pop(0) if move else None, *behind[:-1]]
                    wr_left.next = len(left)
                    wr_valid.next, wr_data.next = behind[-1] is not None, behind[-1] or 0
                    yield clk.posedge
                wr_valid.next = False
                yield clk.posedge
                while held:
                    yield clk.posedge
                if keep:
                    turn.next, held.next, rd_left.next = True, True, len(symbols)
                    yield clk.posedge
                    turn.next = False
            while True:
                yield clk.posedge

        @instance
        def read():
            pipe, wait = [False] * 3, 0
            while True:
                yield clk.posedge
                if pipe[-1]:
                    got.append(int(rd_data))
                if turn:
                    wait = rng.randrange(2, 60)
                wait -= wait > 0
                move = bool(held) and wait == 0 and rng.random() >= wait_read
                pipe = [move, *pipe[:-1]]
                if move and rd_left == 1:
                    held.next = False
                elif move:
                    rd_left.next = rd_left - 1

        return clock(clk), dut, write, read

    simulate(top, clk, until=lambda: len(got) == len(expected), limit=60_000)
    assert got == expected
