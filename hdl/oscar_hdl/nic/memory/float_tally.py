"""What became of the floats of a packet: values that saturated are counted, NaN and Inf are found."""

from myhdl import always, block, modbv

from oscar_hdl.nic.memory.ports import STREAM_LANES, FloatPacket, QuantisedWord, RowCommand
from oscar_hdl.nic.ports import STREAM_BITS
from oscar_hdl.streams.bundles import bit, word

COUNT_BITS = 4  # of values of a word


@block
def bank_tally(clk, some, here, final, lanes, top: QuantisedWord, count, bad, *, bank: int):
    """Count a bank's values that saturated, a clock later; bad: some of them are NaN or Inf. See row_sums."""
    BANK, LANES, MARK, LOW, SIZE = bank, STREAM_LANES, STREAM_LANES * bank, STREAM_BITS * bank, 16

    @always(clk.posedge)
    def look():
        number = modbv(0)[COUNT_BITS:]
        bad.next = False
        for i in range(LANES):
            if top.marks[MARK + i] and (not final[BANK] or lanes[i]):
                if top.data[LOW + SIZE * i]:  # as the largest integers, and unlike NOT_FINITE
                    number += 1
                else:
                    bad.next = some and here[BANK]
        count.next = 0
        if some and here[BANK]:
            count.next = number

    return look


@block
def float_tally(
    clk, rst, command: RowCommand, packet: FloatPacket, some, here, final, lanes, top: QuantisedWord
):
    """Tell of values of floats that are written; of words `top`, see row_sums."""
    BANKS, report = len(here), packet.report
    counts, bads = [word(COUNT_BITS) for _ in range(BANKS)], [bit() for _ in range(BANKS)]
    total = word(COUNT_BITS + 3)
    parts = [
        bank_tally(clk, some, here, final, lanes, top, *two, bank=bank)
        for bank, two in enumerate(zip(counts, bads, strict=True))
    ]

    @always(clk.posedge)
    def count():
        number = modbv(0)[COUNT_BITS + 3 :]
        for i in range(BANKS):
            number += counts[i]
            if bads[i]:
                packet.bad.next = True
        total.next = number
        report.saturated.next = report.saturated + total
        if command.start:
            packet.bad.next = False
        if rst:
            packet.bad.next = False
            total.next = 0
            report.saturated.next = 0

    @always(clk.posedge)
    def tell():
        report.bad.next = command.done and packet.bad
        if command.done and packet.bad:
            report.tensor.next = packet.tensor
            report.packets.next = report.packets + 1
        if rst:
            report.bad.next = False
            report.tensor.next = 0
            report.packets.next = 0

    return parts, count, tell
