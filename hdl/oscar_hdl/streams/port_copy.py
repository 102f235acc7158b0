"""Frames of one stream for several ports."""

from myhdl import always, always_comb, block

from oscar_hdl.streams.bundles import PortFrames, Stream, bit, word
from oscar_hdl.streams.copied import copied, copied_fields
from oscar_hdl.streams.joined import joined

ALL = 255  # tdest of what goes to each port


@block
def port_copy(clk, rst, s_axis: Stream, m_axis: PortFrames):
    """Give each frame to the port that it is for, or to all.

    A word is taken when all have it, so the slowest port holds the others. What is for a port that is not
    there is taken, and nobody has it. Where one port has its word before the others, its tvalid falls inside
    a frame.

    Args:
        s_axis: Frames; tdest is the number of the port, or 255: all.
        m_axis: Frames to the ports.
        ports: Number of ports: 2, 4, 8 or 16.
        bus_bits: Bits of a word.

    Clocks:
        0: From `s_axis_tvalid` to the ports' `tvalid`: no register is between them.
    """
    ports = m_axis.streams
    PORTS = len(ports)
    if PORTS not in (2, 4, 8, 16):
        raise ValueError(f"expected 2, 4, 8 or 16 ports, got {PORTS}")
    EACH = (1 << PORTS) - 1
    wanted, gone, readies, offers, done = (word(PORTS) for _ in range(5))
    whole = bit()

    @always_comb
    def choose():
        wanted.next = 0
        for i in range(PORTS):
            if s_axis.tdest == i or s_axis.tdest == ALL:
                wanted.next[i] = True

    @always_comb
    def offer():
        offers.next = 0
        if s_axis.tvalid:
            offers.next = wanted & ~gone
        done.next = ~wanted | gone | readies

    @always_comb
    def take():
        whole.next = done == EACH
        s_axis.tready.next = done == EACH

    @always(clk.posedge)
    def follow():
        if s_axis.tvalid:
            gone.next = gone | (offers & readies)
            if whole:
                gone.next = 0
        if rst:
            gone.next = 0

    ready = joined([port.tready for port in ports], readies)
    outs = [copied_fields(None, s_axis, port, "tdata", "tkeep", "tlast") for port in ports]
    outs += [copied(None, offers(at), port.tvalid) for at, port in enumerate(ports)]
    return ready, outs, choose, offer, take, follow
