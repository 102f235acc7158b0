"""Frames of several ports as one stream."""

from collections.abc import Sequence

from myhdl import always, always_comb, block, concat

from oscar_hdl.streams.bundles import PortFrames, Stream, bit, word
from oscar_hdl.streams.hot_tree import hot_tree
from oscar_hdl.streams.joined import joined


@block
def port_words(hot, ports: Sequence[Stream], chosen):
    """Show in `chosen` valid, last, keep and data, the first one highest, of the port whose bit is 1."""
    parts = [word(len(chosen)) for _ in ports]

    @block
    def gather(port: Stream, part):
        @always_comb
        def pack():
            part.next = concat(port.tvalid, port.tlast, port.tkeep, port.tdata)

        return pack

    gathers = [gather(port, part) for port, part in zip(ports, parts, strict=True)]
    return gathers, hot_tree(None, parts, hot, chosen)


@block
def port_ready(taken, hot, ports: Sequence[Stream]):
    """Let the port whose bit is 1 give its word when it is taken."""

    @block
    def answer(port: Stream, taken, hot, at: int):
        @always_comb
        def tell():
            port.tready.next = taken and hot[at]

        return tell

    return [answer(port, taken, hot, at) for at, port in enumerate(ports)]


@block
def port_merge(clk, rst, s_axis: PortFrames, m_axis: Stream):
    """Give frames of several ports one after the other, whole.

    Ports take turns: from one frame of a port to its next, each other port gets at most one in front. A frame
    that stops in the middle stops all ports: put a store of whole frames in front of each.

    Args:
        s_axis: Frames from the ports.
        m_axis: Frames of all ports; tid is the number of the frame's port.
        ports: Number of ports: 2, 4, 8 or 16.
        bus_bits: Bits of a word.

    Clocks:
        1: Without a word, between two frames.
        2: From a word's `tvalid` to `m_axis_tvalid`, where no frame is under way and `m_axis` is ready.
    """
    ports = s_axis.streams
    PORTS, KEEP, DATA = len(ports), len(ports[0].tkeep), len(ports[0].tdata)
    LAST = DATA + KEEP
    if PORTS not in (2, 4, 8, 16):
        raise ValueError(f"expected 2, 4, 8 or 16 ports, got {PORTS}")
    hot, offers, above, lowest, busy = word(PORTS, 1), *(word(PORTS) for _ in range(3)), bit()
    chosen, vacant, taken, number = word(LAST + 2), bit(), bit(), word(len(m_axis.tid))

    @always_comb
    def look():
        vacant.next = m_axis.tready or not m_axis.tvalid
        taken.next = busy and vacant
        number.next = 0
        for i in range(PORTS):
            if hot[i]:
                number.next = i

    @always_comb
    def choose():
        """The lowest port that has a frame, and the lowest above the one whose turn was."""
        behind = False
        found = False
        found_above = False
        for i in range(PORTS):
            lowest.next[i] = offers[i] and not found
            above.next[i] = offers[i] and behind and not found_above
            if offers[i]:
                found = True
            if offers[i] and behind:
                found_above = True
            if hot[i]:
                behind = True

    @always(clk.posedge)
    def turn():
        """A port has its turn to the end of a frame, then the next one above it that has one."""
        if busy:
            if vacant and chosen[LAST + 1] and chosen[LAST]:
                busy.next = False
        elif offers != 0:
            busy.next = True
            hot.next = lowest
            if above != 0:
                hot.next = above
        if rst:
            busy.next = False

    @always(clk.posedge)
    def give():
        if vacant:
            m_axis.tvalid.next = busy and chosen[LAST + 1]
            m_axis.tlast.next = chosen[LAST]
            m_axis.tkeep.next = chosen[LAST:DATA]
            m_axis.tdata.next = chosen[DATA:]
            m_axis.tid.next = number
        if rst:
            m_axis.tvalid.next = False

    asks = joined([port.tvalid for port in ports], offers)
    words, ready = port_words(hot, ports, chosen), port_ready(taken, hot, ports)
    return asks, words, ready, look, choose, turn, give
