"""Which frames wait in the store, oldest first: who made each, and what it is."""

from myhdl import always, always_comb, block, concat

from oscar_hdl.nic.receive.ports import CameFrame, OldestFrame
from oscar_hdl.streams.bundles import bit, word

NAME_BITS = 128


@block
def frame_names(clk, rst, came: CameFrame, gone, oldest: OldestFrame, *, most_log2: int = 4):
    """Keep the names of up to 2^most_log2 frames that came, and show the oldest one's.

    came: `put`, then `push` if it is whole; `push` at least four clocks apart, one at most while `full`. gone
    (strobe, while oldest.there): the oldest frame left the store. Three clocks behind it, or behind the first
    push, `there` says that another is the oldest; its name holds until `gone`.
    """
    MOST_LOG2, FULL = most_log2, (1 << most_log2) - 1
    memory = [word(NAME_BITS) for _ in range(1 << MOST_LOG2)]
    write_at, read_at, waiting = word(MOST_LOG2 + 1), word(MOST_LOG2 + 1), word(MOST_LOG2 + 1)
    name, more = word(NAME_BITS), bit()

    @always_comb
    def show():
        waiting.next = write_at - read_at
        oldest.step.next = name[16:]
        oldest.chunk.next = name[32:16]
        oldest.sub.next = name[40:32]
        oldest.peer.next = name[48:40]
        oldest.width.next = name[56:48]
        oldest.sequence.next = name[72:56]
        oldest.checksum.next = name[88:72]
        oldest.count.next = name[107:88]
        oldest.more.next = name[107]
        oldest.length.next = name[128:108]

    @always(clk.posedge)
    def keep():
        if came.put:
            memory[write_at[MOST_LOG2:]].next = concat(
                came.length, came.more, came.count, came.checksum, came.sequence, came.width, came.peer,
                came.sub, came.chunk, came.step,
            )  # fmt: skip
        if came.push:
            write_at.next = write_at + 1
        came.full.next = waiting >= FULL
        name.next = memory[read_at[MOST_LOG2:]]
        more.next = waiting != 0
        oldest.there.next = more
        oldest.arrived.next = more and not oldest.there
        if gone:
            read_at.next = read_at + 1
            oldest.number.next = oldest.number + 1
            more.next = False
            oldest.there.next = False
            oldest.arrived.next = False
        if rst:
            write_at.next = 0
            read_at.next = 0
            oldest.number.next = 0
            more.next = False
            oldest.there.next = False
            oldest.arrived.next = False
            came.full.next = False

    return show, keep
