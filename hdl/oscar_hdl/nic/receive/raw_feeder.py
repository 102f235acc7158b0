"""The bytes of a raw block in their order."""

from myhdl import Signal, always, always_comb, block, enum

from oscar_hdl.nic.receive.chunk_reader import UnitPort
from oscar_hdl.streams.bundles import Stream, bit, word


@block
def raw_feeder(clk, rst, go, odd, size, units: UnitPort, m_axis: Stream, idle):
    """Give `size` u20 bytes (1 or more) as pairs, the first in bits 0..7, tlast with the last pair.

    go (strobe): the next unit holds the first byte, in its upper half if `odd`; odd and size hold for two
    clocks. If the number is odd, the last pair's upper half is anything.
    """
    states = enum("IDLE", "PRIME", "FETCH", "LAST")
    state = Signal(states.IDLE)
    left, shifted, even, final, takes = word(19), bit(), bit(), bit(), bit()

    @always_comb
    def look():
        idle.next = state == states.IDLE
        final.next = left[19:1] == 0 and left[0] == even
        takes.next = state == states.FETCH and units.ready and not m_axis.tvalid

    @always_comb
    def ask():
        units.amount.next = 1
        units.get.next = go or (state == states.PRIME and units.ready) or (takes and not final)

    @always(clk.posedge)
    def run():
        if m_axis.tready:
            m_axis.tvalid.next = False
        if state == states.IDLE:
            shifted.next = odd
            left.next = size[20:1]
            even.next = not size[0]
            if go:
                state.next = states.FETCH
                if odd:
                    state.next = states.PRIME
        elif state == states.PRIME:
            if units.ready:
                state.next = states.FETCH
        elif state == states.FETCH:
            if takes:
                m_axis.tvalid.next = True
                m_axis.tlast.next = final
                m_axis.tdata.next = units.units[64:48]
                if shifted:
                    m_axis.tdata.next = units.units[56:40]
                left.next = left - 1
                if final:
                    state.next = states.LAST
        elif m_axis.tready:
            state.next = states.IDLE
        if rst:
            state.next = states.IDLE
            m_axis.tvalid.next = False

    return look, ask, run
