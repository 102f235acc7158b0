"""What a build of tables does when: which quads of rows go into the pipeline."""

from myhdl import always, always_comb, block

from oscar_hdl.coder.ports import TablesPort
from oscar_hdl.streams.bundles import Bundle, Stream, bit, word
from oscar_hdl.streams.zero import zero


class RowReads(Bundle):
    """Quads that a build reads, one a clock; a row's four come one behind the other."""

    reading, at = bit(), word(7)  # now: row, quad
    phase = word(2)  # of `at` while reading; waits for a row take four clocks, too
    sent, levels = bit(), word(64)  # of the row


@block
def build_control(
    clk, rst, port: TablesPort, s_axis_sent: Stream, hold, bank, ended, over, cut, reads: RowReads, *,
    encoding: bool,
):  # fmt: skip
    """Have the rows of a set read, from the clock behind port.build on, to port.built.

    hold: level, no build begins. bank: of the build that is under way, or was last. ended: strobe, a clock
    before `built`. over: strobe, behind the last read; then the next one may begin. cut (strobe,
    combinational): a build to encode is asked for once more, and what is under way of it is forgotten. One
    that has not begun cuts nothing: what is under way is another bank's.
    """
    wanted, working, going, begins = bit(), bit(), bit(), bit()
    at_3, more, need, take, row = bit(), bit(), bit(), bit(), word(5)  # the row that is read next

    @always_comb
    def look():
        take.next = at_3 and more and (not need or s_axis_sent.tvalid)
        begins.next = wanted and not hold and not working
        reads.reading.next = going or (wanted and not hold and not working and not need)

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
        at_3.next = working and reads.phase == 2
        if begins:
            reads.phase.next = 1
        if reads.reading:
            reads.at.next = reads.at + 1
        if cut or rst:
            reads.at.next = 0
            at_3.next = False

    @always(clk.posedge)
    def rows():
        if take:
            row.next = row + 1
            more.next = row != 31
        if at_3:
            going.next = take
        if begins:
            more.next = True
            if not need:
                going.next = True
                row.next = 1
        if cut or rst:
            going.next = False
        if rst:
            row.next = 0

    if encoding:

        @always(clk.posedge)
        def bring():
            s_axis_sent.tready.next = False
            need.next = False

        @always_comb
        def forget():
            cut.next = port.build and port.bank == bank and (begins or not wanted)

    else:

        @always(clk.posedge)
        def bring():
            need.next = port.mask[int(row)]
            s_axis_sent.tready.next = working and reads.phase == 2 and more and need
            if at_3:
                reads.sent.next = need and more  # behind the last row the mask may be the next build's
                reads.levels.next = s_axis_sent.tdata
            if not working:
                reads.sent.next = False
            if rst:
                s_axis_sent.tready.next = False

        forget = zero(clk, cut)
    return forget, look, command, turn, rows, bring
