"""The bytes of all threads: 2 KiB each, in words of sixteen, until they are taken."""

from __future__ import annotations

from typing import Any

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.barrel.ports import THREAD_BITS, WIDTH
from oscar_hdl.coder.barrel_encode.byte_drain import byte_drain
from oscar_hdl.coder.barrel_encode.byte_levels import byte_levels
from oscar_hdl.coder.barrel_encode.byte_net import byte_net
from oscar_hdl.coder.barrel_encode.byte_places import byte_places
from oscar_hdl.coder.barrel_encode.ports import BYTES_BITS, WORD_BITS, Level
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.joined import joined

ADDRESS_BITS = THREAD_BITS + WORD_BITS


@block
def pair_memory(
    clk: Any, PAIR: int, data: Any, this: Any, here: Any, other: Any, there: Any, read: Any
) -> Any:
    """Keep bytes 2 PAIR and 2 PAIR + 1 of each word.

    data u128, this u10, here u16, other u10, there u16: bytes, and where those that are `here` are written,
    and those that are `there`. Where none is there, read u16 is the pair of `other`, two clocks later.
    """
    LOW, HIGH, AT = 2 * PAIR, 2 * PAIR + 1, 16 * PAIR
    memory = [word(16) for _ in range(1 << ADDRESS_BITS)]
    fetched = word(16)

    @always(clk.posedge)
    def access() -> None:
        if here[LOW]:
            memory[this].next[8:] = data[AT + 8 : AT]
        if here[HIGH]:
            memory[this].next[16:8] = data[AT + 16 : AT + 8]
        if there[LOW]:
            memory[other].next[8:] = data[AT + 8 : AT]
        if there[HIGH]:
            memory[other].next[16:8] = data[AT + 16 : AT + 8]
        fetched.next = memory[other]
        read.next = fetched

    return access


@block
def byte_store(
    clk: Any, rst: Any, phase: Any, job: Any, plan9: Any, leaving: Any, drain: Any, room: Any, ended: Any,
    m_axis: Any,
) -> Any:  # fmt: skip
    """Keep the bytes of blocks and give them.

    job: BarrelEncoderJob, whose start empties a thread's buffer. plan9: Plan, of clock 9. leaving: Leaving of
    each lane. drain: BarrelDrain. room u8: threads whose next turn's bytes fit. ended: Ended. m_axis:
    Stream(128, keep=16).
    """
    over11, two11, places13, one13, two13 = word(WIDTH), word(WIDTH), word(32), word(WIDTH), word(WIDTH)
    total12, place12, thread12, level = word(5), word(BYTES_BITS), word(THREAD_BITS), Level()
    offset12, offset13, offset14, at13, at14, at15, after15 = (
        word(4), word(4), word(4), *(word(ADDRESS_BITS) for _ in range(4))
    )  # fmt: skip
    data15, here15, next15 = word(128), word(16), word(16)
    data16, here16, next16 = word(128), word(16), word(16)
    this16, other16, busy15, address, issues, read19 = (
        word(ADDRESS_BITS), word(ADDRESS_BITS), bit(), word(ADDRESS_BITS), bit(), word(128)
    )  # fmt: skip
    pairs, number15 = [word(16) for _ in range(8)], word(WORD_BITS)
    over = [lane.over11 for lane in leaving]
    two = [lane.two11 for lane in leaving]
    bytes_of = [lane.bytes13 for lane in leaving]

    ones, twos, reads = joined(over, over11), joined(two, two11), joined(pairs, read19)
    where = byte_places(clk, over11, two11, offset12, total12, places13, one13, two13)
    net = byte_net(clk, places13, one13, two13, bytes_of, offset14, data15, here15, next15)
    levels = byte_levels(
        clk, phase, job.start, job.thread, plan9, total12, level, place12, thread12, room, ended
    )
    give = byte_drain(
        clk, rst, job.start, job.thread, drain, ended, level, busy15, address, issues, read19, m_axis
    )
    memories = [pair_memory(clk, n, data16, this16, here16, other16, next16, pairs[n]) for n in range(8)]

    @always_comb
    def split() -> None:
        offset12.next = place12[4:]
        busy15.next = next15 != 0

    @always(clk.posedge)
    def delay() -> None:
        offset13.next = offset12
        offset14.next = offset13
        at13.next = concat(thread12, place12[4 + WORD_BITS : 4])
        at14.next = at13
        at15.next = at14
        number15.next = at14[WORD_BITS:] + 1

    @always_comb
    def follow() -> None:
        after15.next = concat(at15[ADDRESS_BITS:WORD_BITS], number15)

    @always(clk.posedge)
    def write() -> None:
        data16.next = data15
        here16.next = here15
        next16.next = next15
        this16.next = at15
        other16.next = address
        if busy15:
            other16.next = after15

    return ones, twos, reads, where, net, levels, give, memories, split, delay, follow, write
