"""What is loaded into a bank, added to what it holds, and described."""

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.decode.sum_rows import sum_sizes
from oscar_hdl.nic.memory.ports import STREAM_LANES, BankAdds, GroupWrite
from oscar_hdl.nic.ports import STREAM_BITS
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.copied import copied


@block
def row_sums(
    clk, rst, some, here, final, lanes, offered, old, with_old, write: GroupWrite, *, bank: int, adds: bool
):
    """Write a bank's eight values, with what it holds added to them if `with_old`, a clock later.

    some: level, words of all banks are offered; here, final: banks that have the row, and the bank of the
    last one, of which only values with a bit in `lanes` are there. old u128. adds: with_old may be high.
    """
    BANK, LOW, HIGH = bank, STREAM_BITS * bank, STREAM_BITS * (bank + 1)
    kept, whole = [word(16) for _ in range(STREAM_LANES)], bit()
    own = word(STREAM_BITS)
    first, second, third, fourth, fifth, sixth, seventh, eighth = kept

    @always_comb
    def cut():
        own.next = offered[HIGH:LOW]
        whole.next = not final[BANK]
        write.data.next = concat(eighth, seventh, sixth, fifth, fourth, third, second, first)

    @always(clk.posedge)
    def put():
        write.enable.next = some and here[BANK] and not rst

    to_add = own, whole, lanes, old, with_old
    values = [lane_value(clk, *to_add, value, lane=i, adds=adds) for i, value in enumerate(kept)]
    return values, cut, put


@block
def lane_value(clk, offered, whole, lanes, old, with_old, value, *, lane: int, adds: bool):
    """Give one value, or 0 where it is not there. adds: plus the old one, if with_old."""
    LANE, LOW, HIGH = lane, 16 * lane, 16 * (lane + 1)
    own, held = word(16), word(16)

    @always_comb
    def choose():
        own.next = 0
        if whole or lanes[LANE]:
            own.next = offered[HIGH:LOW]
        held.next = 0
        if with_old:
            held.next = old[HIGH:LOW]

    if not adds:
        return choose, copied(clk, own, value)

    @always(clk.posedge)
    def add():
        value.next = own + held

    return choose, add


@block
def row_kind(clk, rst, phase, ahead, sums, done, dones, kind: BankAdds, *, bank: int):
    """Describe a bank's rows of sums: eight lanes in each of phases 1, 2, 3 and 0.

    ahead: phase and 1. done: level, in the seventh turn, a row's descriptor is written, in banks with a bit
    in dones. In a reset none is: sums of these rows may not have been written.
    """
    found_class, found_size, found_top = word(4), word(3), word(4)
    sizes = sum_sizes(clk, ahead, sums, found_class, found_size, found_top)

    @always(clk.posedge)
    def keep():
        if phase[2:] == 1:
            kind.kind.next = concat(found_top, found_size, found_class)

    @always_comb
    def tell():
        kind.enable.next = done and dones[bank] and not rst

    return sizes, keep, tell
