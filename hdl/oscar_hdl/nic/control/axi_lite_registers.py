"""The registers of a table (registers.py) behind AXI4-Lite."""

from collections.abc import Sequence

from myhdl import Signal, always, block, enum, modbv

from oscar_hdl.nic.control.register_ports import RegisterRead, RegisterWrite
from oscar_hdl.nic.control.registers import REGISTERS, SPACE, WORD_BYTES, check
from oscar_hdl.streams.bundles import AxiLite, bit, word

NONE, STORED, READ, CLEARED, STROBE = range(5)  # what there is at an address
KINDS = {"RW": STORED, "RO": READ, "W1C": CLEARED, "WO": STROBE}
SLVERR = 2


@block
def axi_lite_registers(clk, rst, s_axil: AxiLite, values, wr: RegisterWrite, rd: RegisterRead, events, irq):
    """Keep what is written, show what is read, raise an interrupt.

    values: a list of 32-bit signals, the RW registers in the order of the table. Only whole words are
    written. events u32: set bits of IRQ_STATUS, the one W1C register (a bit that is cleared and set at once
    stays set). irq: a bit of it is enabled.
    """
    check()
    stored = [register for register in REGISTERS if register.access == "RW"]
    if [r.name for r in REGISTERS if r.access == "W1C"] != ["IRQ_STATUS"] or len(values) != len(stored):
        raise ValueError(
            f"expected one W1C register, IRQ_STATUS, and {len(stored)} values, got {len(values)}"
        )
    ENABLE = [register.name for register in stored].index("IRQ_ENABLE")
    STORED_COUNT, HALF = len(stored), (len(stored) + 1) // 2
    by_index = {register.index: register for register in REGISTERS}
    KIND = tuple(KINDS[by_index[i].access] if i in by_index else NONE for i in range(SPACE // WORD_BYTES))
    SLOT = tuple(
        stored.index(by_index[i]) if i in by_index and by_index[i] in stored else 0 for i in range(len(KIND))
    )
    FLAGS = next(register.mask for register in REGISTERS if register.access == "W1C")
    if any(r.mask != (FLAGS if r.name == "IRQ_ENABLE" else 0xFFFFFFFF) for r in stored):
        raise ValueError("expected RW registers without unused bits, but for those of IRQ_ENABLE")

    status = word(32)
    # What is kept is chosen while a read waits for rd.value.
    writes = enum("IDLE", "TAKEN", "FOUND", "ANSWER")
    reads = enum("IDLE", "TAKEN", "FOUND", "ASK", "WAIT", "ANSWER")
    writing, reading = Signal(writes.IDLE), Signal(reads.IDLE)
    wr_strb = word(4)
    wr_kind, wr_slot, whole, store = word(3), word(5), bit(), bit()
    rd_kind, rd_slot, rd_low, rd_high, rd_kept = word(3), word(5), word(32), word(32), word(32)

    @always(clk.posedge)
    def write():
        s_axil.awready.next = False
        s_axil.wready.next = False
        wr.strobe.next = False
        store.next = False
        irq.next = (status & values[ENABLE]) != 0
        status.next = (status | events) & FLAGS
        wr_kind.next = KIND[int(wr.index)]
        wr_slot.next = SLOT[int(wr.index)]
        whole.next = wr_strb == 0xF

        if writing == writes.IDLE:
            if s_axil.awvalid and s_axil.wvalid and not s_axil.bvalid:
                s_axil.awready.next = True
                s_axil.wready.next = True
                wr.index.next = s_axil.awaddr[8:2]
                wr.data.next = s_axil.wdata
                wr_strb.next = s_axil.wstrb
                writing.next = writes.TAKEN
        elif writing == writes.TAKEN:
            writing.next = writes.FOUND
        elif writing == writes.FOUND:
            writing.next = writes.ANSWER
        else:
            writing.next = writes.IDLE
            s_axil.bvalid.next = True
            s_axil.bresp.next = 0
            if not whole:
                s_axil.bresp.next = SLVERR
            elif wr_kind == STORED:
                store.next = True
            elif wr_kind == CLEARED:
                status.next = ((status & ~wr.data) | events) & FLAGS
            elif wr_kind == STROBE:
                wr.strobe.next = True
            else:
                s_axil.bresp.next = SLVERR
        if s_axil.bvalid and s_axil.bready:
            s_axil.bvalid.next = False

        if rst:
            writing.next = writes.IDLE
            s_axil.awready.next = False
            s_axil.wready.next = False
            s_axil.bvalid.next = False
            wr.strobe.next = False
            store.next = False
            irq.next = False
            status.next = 0

    @always(clk.posedge)
    def keep():
        for i in range(STORED_COUNT):
            if store and wr_slot == i:
                values[i].next = wr.data
                if i == ENABLE:
                    values[i].next = wr.data & FLAGS
        if rst:
            for i in range(STORED_COUNT):
                values[i].next = 0

    @always(clk.posedge)
    def read():
        s_axil.arready.next = False
        rd_kind.next = KIND[int(rd.index)]
        rd_slot.next = SLOT[int(rd.index)]
        rd_low.next = status
        rd_high.next = 0
        for i in range(STORED_COUNT):
            if rd_slot == i and rd_kind == STORED:
                if i < HALF:
                    rd_low.next = values[i]
                else:
                    rd_low.next = 0
                    rd_high.next = values[i]
        rd_kept.next = rd_low | rd_high

        if reading == reads.IDLE:
            if s_axil.arvalid and not s_axil.rvalid:
                s_axil.arready.next = True
                rd.index.next = s_axil.araddr[8:2]
                reading.next = reads.TAKEN
        elif reading == reads.TAKEN:
            reading.next = reads.FOUND
        elif reading == reads.FOUND:
            reading.next = reads.ASK
        elif reading == reads.ASK:
            reading.next = reads.WAIT
        elif reading == reads.WAIT:
            reading.next = reads.ANSWER
        else:
            reading.next = reads.IDLE
            s_axil.rvalid.next = True
            s_axil.rresp.next = 0
            s_axil.rdata.next = 0
            if rd_kind == READ:
                s_axil.rdata.next = rd.value
            elif rd_kind == NONE:
                s_axil.rresp.next = SLVERR
            elif rd_kind != STROBE:
                s_axil.rdata.next = rd_kept
        if s_axil.rvalid and s_axil.rready:
            s_axil.rvalid.next = False

        if rst:
            reading.next = reads.IDLE
            s_axil.arready.next = False
            s_axil.rvalid.next = False

    return write, keep, read


@block
def read_choice(clk, rd: RegisterRead, words: Sequence, place, *, names: Sequence[str]):
    """Give rd.value, one of `words` (u32 each), four clocks behind rd.index.

    names: of each word the register, or how its registers' names begin; the first name that fits counts.
    place u4: the lower bits of rd.index, for a block that keeps sixteen registers. Its word follows a clock
    behind place.
    """
    COUNT, HALF = len(words), (len(words) + 1) // 2
    known = {
        r.index: n for r in REGISTERS for n, name in reversed([*enumerate(names)]) if r.name.startswith(name)
    }
    SLOT = tuple(known.get(i, 0) for i in range(SPACE // WORD_BYTES))
    slot, asked = word(COUNT.bit_length()), word(COUNT)
    one, other = word(32), word(32)  # the word, if it is in that half; else 0

    @always(clk.posedge)
    def choose():
        place.next = rd.index[4:]
        slot.next = SLOT[int(rd.index)]
        low = modbv(0)[32:]
        high = modbv(0)[32:]
        for i in range(COUNT):
            asked.next[i] = slot == i
            if asked[i]:
                if i < HALF:
                    low |= words[i]
                else:
                    high |= words[i]
        one.next = low
        other.next = high
        rd.value.next = one | other

    return choose
