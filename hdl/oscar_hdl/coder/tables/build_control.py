"""What a build of tables does when: which quads of rows go into the pipeline."""

from myhdl import always, always_comb, block

from oscar_hdl.coder.ports import TablesPort
from oscar_hdl.streams.bundles import Bundle, bit, word


class RowReads(Bundle):
    """Quads that a build reads, one a clock; a row's four come one behind the other."""

    reading, at = bit(), word(7)  # now: row, quad
    phase = word(2)  # of `at` while reading, from its second clock on


@block
def build_control(clk, rst, port: TablesPort, hold, bank, ended, over, cut, reads: RowReads):
    """Have the rows of a set read, from the clock behind port.build on, to port.built.

    hold: level, no build begins. bank: of the build that is under way, or was last. ended: strobe, a clock
    before `built`. over: strobe, behind the last read; then the next one may begin. cut (strobe,
    combinational): a build of that bank is asked for once more, and what is under way of it is forgotten. One
    that has not begun cuts nothing: what is under way is another bank's.
    """
    LAST = 127  # quad
    wanted, working, going, begins = bit(), bit(), bit(), bit()

    @always_comb
    def look():
        begins.next = wanted and not hold and not working
        reads.reading.next = going or (wanted and not hold and not working)
        cut.next = port.build and port.bank == bank and not (wanted and (hold or working))

    @always(clk.posedge)
    def command():
        port.built.next = ended and not cut
        if begins:
            wanted.next = False
            working.next = True
        elif over:
            working.next = False
        if port.build:
            wanted.next = True
        if cut:
            working.next = False
        if rst:
            port.built.next = False
            wanted.next = False
            working.next = False

    @always(clk.posedge)
    def turn():
        reads.phase.next = reads.phase + 1
        if begins:
            reads.phase.next = 1
            going.next = True
        elif reads.at == LAST:
            going.next = False
        if reads.reading:
            reads.at.next = reads.at + 1
        if cut or rst:
            reads.at.next = 0
            going.next = False

    return look, command, turn
