"""The bytes of all threads: 2 KiB each, in words of sixteen, until they are taken."""

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.encode.byte_drain import byte_drain
from oscar_hdl.coder.encode.byte_levels import byte_levels
from oscar_hdl.coder.encode.byte_net import byte_net
from oscar_hdl.coder.encode.byte_places import byte_places
from oscar_hdl.coder.encode.ports import BYTES_BITS, WORD_BITS, Level
from oscar_hdl.coder.unit.ports import THREAD_BITS, WIDTH
from oscar_hdl.streams.bundles import bit, word
from oscar_hdl.streams.joined import joined

ADDRESS_BITS = THREAD_BITS + WORD_BITS
HALF_BITS = ADDRESS_BITS - 1  # of every second word


@block
def quad_memory(clk, QUAD: int, data, at, here, read_at, read):
    """Keep bytes 4 QUAD to 4 QUAD + 3 of half_memory's words; read u32."""
    FIRST, SECOND, THIRD, FOURTH, AT = 4 * QUAD, 4 * QUAD + 1, 4 * QUAD + 2, 4 * QUAD + 3, 32 * QUAD
    memory = [word(32) for _ in range(1 << HALF_BITS)]
    fetched = word(32)

    @always(clk.posedge)
    def access():
        if here[FIRST]:
            memory[at].next[8:] = data[AT + 8 : AT]
        if here[SECOND]:
            memory[at].next[16:8] = data[AT + 16 : AT + 8]
        if here[THIRD]:
            memory[at].next[24:16] = data[AT + 24 : AT + 16]
        if here[FOURTH]:
            memory[at].next[32:24] = data[AT + 32 : AT + 24]
        fetched.next = memory[read_at]
        read.next = fetched

    return access


@block
def half_memory(clk, data, at, here, read_at, read):
    """Keep every second word of all threads.

    data u128, at u9, here u16: those bytes that are `here` are written. read u128 is the word of read_at u9,
    two clocks later.
    """
    quads = [word(32) for _ in range(4)]
    memories = [quad_memory(clk, n, data, at, here, read_at, quads[n]) for n in range(4)]
    return memories, joined(quads, read)


@block
def byte_store(clk, rst, phase, job, plan9, leaving, drain, room, ended, m_axis):
    """Keep the bytes of blocks and give them.

    job: EncoderJob, whose start empties a thread's buffer. plan9: Plan, of clock 9. leaving: Leaving of
    each lane. drain: DrainPort. room u8: threads whose next turn's bytes fit. ended: Ended. m_axis:
    Stream(128, keep=16).
    """
    over11, two11, places13, one13, two13 = word(WIDTH), word(WIDTH), word(32), word(WIDTH), word(WIDTH)
    total12, place12, thread12, level = word(5), word(BYTES_BITS), word(THREAD_BITS), Level()
    offset12, offset13, offset14 = word(4), word(4), word(4)
    at13, at14, address, issues = word(ADDRESS_BITS), word(ADDRESS_BITS), word(ADDRESS_BITS), bit()
    odd15, thread15, first15, second15 = bit(), word(THREAD_BITS), word(WORD_BITS - 1), word(WORD_BITS)
    data15, here15, next15, data16 = word(128), word(16), word(16), word(128)
    # Even words are in one memory, odd ones in another: a word and the next one are written at once.
    even_at, even_here, odd_at, odd_here = word(HALF_BITS), word(16), word(HALF_BITS), word(16)
    read_at, odds, read18, even18, odd18 = word(HALF_BITS), word(3), word(128), word(128), word(128)
    over = [lane.over11 for lane in leaving]
    two = [lane.two11 for lane in leaving]
    bytes_of = [lane.bytes13 for lane in leaving]

    ones, twos = joined(over, over11), joined(two, two11)
    where = byte_places(clk, over11, two11, offset12, total12, places13, one13, two13)
    net = byte_net(clk, places13, one13, two13, bytes_of, offset14, data15, here15, next15)
    levels = byte_levels(
        clk, phase, job.start, job.thread, plan9, total12, level, place12, thread12, room, ended
    )
    give = byte_drain(clk, rst, job.start, job.thread, drain, ended, level, address, issues, read18, m_axis)
    evens = half_memory(clk, data16, even_at, even_here, read_at, even18)
    others = half_memory(clk, data16, odd_at, odd_here, read_at, odd18)

    @always_comb
    def split():
        offset12.next = place12[4:]
        read18.next = even18
        if odds[2]:
            read18.next = odd18

    @always(clk.posedge)
    def access():
        offset13.next = offset12
        offset14.next = offset13
        at13.next = concat(thread12, place12[4 + WORD_BITS : 4])
        at14.next = at13
        odd15.next = at14[0]
        thread15.next = at14[ADDRESS_BITS:WORD_BITS]
        first15.next = at14[WORD_BITS:1]
        second15.next = at14[WORD_BITS:] + 1
        data16.next = data15
        even_at.next = concat(thread15, second15[WORD_BITS:1])
        odd_at.next = concat(thread15, first15)
        even_here.next = here15
        odd_here.next = next15
        if odd15:
            even_here.next = next15
            odd_here.next = here15
        read_at.next = address[ADDRESS_BITS:1]
        odds.next = concat(odds[2:], address[0])

    return ones, twos, where, net, levels, give, evens, others, split, access
