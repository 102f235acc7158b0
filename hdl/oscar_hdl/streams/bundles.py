"""Interfaces that convert to `s_axis_tdata`, `m_axis_tready`, ..., and shorthand for signals."""

from copy import deepcopy

from myhdl import Signal, SignalType, modbv


def bit(value: int = 0) -> SignalType:
    """Return a one-bit signal."""
    return Signal(bool(value))


def word(bits: int, value: int = 0) -> SignalType:
    """Return an unsigned signal of `bits` bits that wraps."""
    return Signal(modbv(value)[bits:])


def lane(whole: SignalType, number: int, bits: int) -> SignalType:
    """Return a lane of so many bits of a word, the first one lowest.

    A block that is given one, or another slice of a signal, uses it whole: no slice of a slice is converted.
    """
    return whole(bits * (number + 1), bits * number)


class Bundle:
    """Signals by name: a class lists them, and bundles; each instance has its own, which begin like these."""

    def __init__(self) -> None:
        for kind in reversed(type(self).__mro__):
            for name, part in vars(kind).items():
                if isinstance(part, SignalType):
                    setattr(self, name, Signal(deepcopy(part.val)))
                elif isinstance(part, Bundle):
                    setattr(self, name, type(part)())


class Stream:
    """An AXI4-Stream: name the argument `s_axis...` or `m_axis...` and its ports follow.

    bits: width of tdata; keep, id, dest: bits of tkeep, tid and tdest, 0 for none.
    """

    def __init__(self, bits: int, *, keep: int = 0, id: int = 0, dest: int = 0) -> None:
        self.tdata = word(bits)
        self.tvalid = bit()
        self.tready = bit()
        self.tlast = bit()
        if keep:
            self.tkeep = word(keep)
        if id:
            self.tid = word(id)
        if dest:
            self.tdest = word(dest)


class PortFrames:
    """Frames of a switch's ports, a Stream(bus_bits, keep) each; they are its fields, by their numbers."""

    def __init__(self, ports: int, bus_bits: int = 64) -> None:
        vars(self).update({f"{n}": Stream(bus_bits, keep=bus_bits // 8) for n in range(ports)})

    @property
    def streams(self) -> list[Stream]:
        """All of them, in the order of ports."""
        return list(vars(self).values())


class AxiLite:
    """An AXI4-Lite subordinate's ports, 32 bits of data: name the argument `s_axil`."""

    def __init__(self, address_bits: int) -> None:
        self.awaddr, self.awvalid, self.awready = word(address_bits), bit(), bit()
        self.wdata, self.wstrb, self.wvalid, self.wready = word(32), word(4), bit(), bit()
        self.bresp, self.bvalid, self.bready = word(2), bit(), bit()
        self.araddr, self.arvalid, self.arready = word(address_bits), bit(), bit()
        self.rdata, self.rresp, self.rvalid, self.rready = word(32), word(2), bit(), bit()
