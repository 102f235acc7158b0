"""docs/registers.md: the ports of oscar_nic, the words of its streams, and its registers.

`python -m oscar_hdl.nic.control.register_page` prints the page.
"""

from __future__ import annotations

from oscar.coding.asc.params import ASC_CODE
from oscar.coding.frame import MAGIC
from oscar_hdl.nic.control.registers import COUNTERS, REGISTERS, TRIGGER, Field
from oscar_hdl.nic.ports import (
    COUNT_AT,
    ENTRIES_LOG2,
    ENTRY_AT,
    MADE_AT,
    STREAM_BITS,
    frames_in,
    frames_out,
)
from oscar_hdl.streams.bundles import AxiLite, Stream

BUS = 64  # bits of a word as drawn here
STREAMS = {
    "s_axil": (AxiLite(8), "AXI4-Lite subordinate; byte addresses"),
    "s_axis_rx": (frames_in(BUS), "frames from the MAC"),
    "m_axis_tx": (frames_out(BUS), "frames to the MAC"),
    "s_axis_values": (Stream(STREAM_BITS), "values into memory"),
    "s_axis_side": (Stream(STREAM_BITS), "classes, sizes, means, largest symbols, distances into memory"),
    "s_axis_read": (Stream(64), "rows to read"),
    "m_axis_values": (Stream(STREAM_BITS), "values that were read"),
    "m_axis_descriptors": (Stream(16), "classes, sizes and largest symbols of rows that were read"),
    "s_axis_list": (Stream(64), "lists of commands"),
}
DRIVEN = ("awready", "wready", "bresp", "bvalid", "arready", "rdata", "rresp", "rvalid")  # by a subordinate

# Words of frames have 64 bits; those of a wider bus hold two, four or eight of them, the first in the lowest.
WORDS: tuple[tuple[str, str, tuple[Field, ...]], ...] = (
    (
        "s_axis_rx, m_axis_tx", "1",
        (
            Field("version", 0, 8, f"0x{MAGIC:02x}"), Field("codec", 8, 8, f"{ASC_CODE}"),
            Field("step", 16, 16, ""), Field("chunk", 32, 16, ""), Field("sub", 48, 8, "sub-frame"),
            Field("width", 56, 8, "bits of a raw value"),
        ),
    ),
    (
        "", "2",
        (
            Field("sequence", 0, 16, ""), Field("checksum", 16, 16, "of the tables"),
            Field("count", 32, 32, "values"),
        ),
    ),
    (
        "", "3",
        (
            Field("payload_bytes", 0, 32, ""),
            Field("crc", 32, 32, "CRC-32 (IEEE 802.3) of the 20 bytes before it and the payload"),
        ),
    ),
    ("", "4 and on", (Field("payload", 0, 64, "asc.md; byte n in bits 8 n and up"),)),
    (
        "s_axis_values, s_axis_side, s_axis_read", "1",
        (
            Field("row", 0, 24, "first row in memory"),
            Field("entry", ENTRY_AT, ENTRIES_LOG2, "of a list: for which they count, else 0"),
            Field("count", COUNT_AT, 30, "values, 1 or more, all in memory; s_axis_read ends here"),
            Field("made", MADE_AT, 1, "they count; 0 on s_axis_read"),
        ),
    ),
    (
        "s_axis_values, m_axis_values", "all others",
        (Field("values", 0, STREAM_BITS, "eight of 16 bits, two's complement, the first in bits 15..0"),),
    ),
    (
        "s_axis_side", "all others, one a row",
        (
            Field("class", 0, 4, ""), Field("size", 4, 3, ""), Field("mean", 7, 4, "P of engine.md"),
            Field("top", 11, 4, "symbol of the largest magnitude"),
            Field("distances", 32, 96, "32 of 3 bits, the first in bits 34..32"),
        ),
    ),
    (
        "m_axis_descriptors", "all, 16 bits",
        (Field("class", 0, 4, ""), Field("size", 4, 3, ""), Field("top", 7, 4, "")),
    ),
    (
        "s_axis_list", "1 of an entry",
        (Field("FRAME", 0, 32, "as the register of the entry's kind"), Field("SHAPE", 32, 32, "")),
    ),
    ("", "2", (Field("TABLES", 0, 32, ""), Field("COMMAND", 32, 32, ""))),
    ("", "3", TRIGGER),
)  # fmt: skip

HEAD = """# Ports and registers of oscar_nic

Made by `python -m oscar_hdl.nic.control.register_page > docs/registers.md` from registers.py
beside it, which the hardware reads; do not edit. What a register does is in nic_core.py.
"""
STREAM_TEXT = """
`tkeep` is all ones but in the word with `tlast`, where it is one or more ones from bit 0 on; a frame with
gaps is dropped. `tid` is the number of the peer that made the frame, also of one that another peer passed on;
it counts in a frame's first word. `tdest` is the number of the peer that the frame is for, or 255: all; it is
the same in all words of a frame.

`tlast` ends a frame or a packet. Packets of values have ceil(count / 8) words behind the first, side packets
one for each row; values behind the last are taken as 0. A row is taken in four clocks on either stream, and
read in four; a word that comes late costs four clocks. What is read ends with `tlast` on both streams. Bits
that no field names are 0, and ignored where the NIC reads, but for a list, in which they are judged.

A packet of rows that are not all in memory, or of no values, is dropped: nothing is written or read. So is
one of side rows whose first row is no multiple of 32, and one for an entry that does not wait for so many
values. One that is too short goes on with zeros, of one that
is too long the rest is thrown away: load its rows again. Each is counted (PACKETS_BAD,
IRQ_STATUS.bad_packet), and the next packet is taken as it is.

What is read counts for the next chunk plan where PLAN_SEGMENT says so.

A packet on s_axis_list is a list of 1 to 256 entries of three words; another packet is refused, and counted
in PACKETS_BAD. It is taken while no list runs, and takes the place of the one before.
"""
REGISTER_TEXT = """
AXI4-Lite, 32 bits, 8-bit byte addresses, little-endian. All registers are 0 after reset but ID, CONFIG and
the constant fields of STATUS; PLAN_EDGE_n mean nothing before a plan is made, ENTRY_STATE nothing of an
entry that the list under way, or the last one, does not have. A write of less than 32
bits, to an address without a register, to one that is read only, and a read of an address without one, are
answered with SLVERR and do nothing else. So is a write to a locked register, which is counted, too
(REFUSED, IRQ_STATUS.refused). A write to COMMAND is
answered with OKAY; that it is refused shows in the same places some clocks later.

RW: read and write. RO: read only. W1C: written ones clear. WO: a write does something; reads as 0.

A command is four writes: FRAME, SHAPE, TABLES, COMMAND of its direction. Two commands of a direction can be
under way, and one more can wait (STATUS.receive_pending, send_pending); until it has started, its registers
are locked. Commands of a direction end in the order in which they were given. When IRQ_STATUS.received or
sent is set, clear it, then read the result: `ended` tells how many have ended, the errors those of the last
three.

A COMMAND is refused, and counted, if one waits already, a bit without a field is set, count is 0 or above
262,143, width is not 1..16, a set does not exist, the frame's rows are not all in memory, not just one of
add and adopt is set, block_log2 is not STATUS.block_log2 (10..17 where that is 0), or the row is not a
multiple of 2^(STATUS.block_log2 - 5) (any where that is 0).

Frames that came whole and right wait in the order in which they came, 16 at most; then s_axis_rx stalls.
OLDEST_FRAME and OLDEST_NAME say which is the oldest that no command has taken. It stays that until the
RECEIVE command that it matches deals its blocks to units, or until it is dropped; then IRQ_STATUS.arrived
tells of the next, and OLDEST_NAME.number is another. So clear IRQ_STATUS.arrived, read both, and give the
command for this frame: a RECEIVE for another drops it.

A RECEIVE command does not start to decode before its frame has come whole and is the expected one. A bad
frame is dropped (IRQ_STATUS.bad_frame) and the command goes on waiting; ABORT ends it. A command that ends
with error 3 leaves tables as they were, and undefined values in its frame's rows; with another error both
are as they were. All errors are counted (FRAMES_BAD). RECEIVE commands change rows in their order, whether
they add or adopt.

A list: when its packet has been taken, LIST_COMMAND runs it (docs/hardware.md, "A list"). It is refused, and
counted, while one runs or a command is under way or waits, or if `entries` is not what the packet had. While
it runs, the registers of commands are locked, and hold what the list wrote last; COMMANDs are refused. When
IRQ_STATUS.list is set, clear it, then read LIST_RESULT. ENTRY_STATE is that of LIST_SHOW 20 clocks behind it.

A plan: PLAN_SEGMENT says which values of the gradient the next packet of sums has: rows that are read
(`oscar_nic`), or sums on s_axis_sums (`nic_core`). Write it when the packet before has ended; ask for rows
when the write is answered, or send sums three clocks behind that. Packets behind it go on where it ended, so
one write does for values that come in order. With count 0 packets do not count, until it is written again.
Values behind the last that a plan can have do not count.

When all have been read, PLAN_COMMAND.cut makes the plan, and IRQ_STATUS.planned tells that it is there:
PLAN_EDGE_1 to PLAN_EDGE_(nodes - 1). They, and `equal`, mean nothing while PLAN_RESULT.running. What values
cost is smoothed: half of what they cost in iterations before is kept, also by blocks that a cut left out.
So PLAN_COMMAND.clear, which raises no interrupt, when another gradient comes, as a reset does; it
takes 2^(1 + STATUS.plan_log2) clocks. A cut takes 18 for each block, behind the packet that is under way.
Packets that count wait meanwhile; they are read at .89 values a clock, and 9 clocks more each.

PLAN_COMMAND is refused, and counted, while one runs, if not just one of cut and clear is set, or for a cut
nodes is not 1..16 or blocks not 1..2^STATUS.plan_log2. So is PLAN_SEGMENT if `first` is behind the last value
that a plan can have.

Counters are cleared by a reset and by nothing else; they are 32 bits, wrap, and may lag 20 clocks, rows 100.
They read as 0 until memory is cleared, 19 clocks behind a reset.
"""


def _fields(fields: tuple[Field, ...]) -> list[tuple[str, str, str]]:
    """Return bits, name and meaning of fields."""
    return [(f"{f.low + f.bits - 1}..{f.low}" if f.bits > 1 else f"{f.low}", f.name, f.text) for f in fields]


def ports() -> list[tuple[str, str, str, str]]:
    """Return name, direction, width and meaning of each port of oscar_nic."""
    rows = [
        ("clk", "in", "1", "rising edge"),
        ("rst", "in", "1", "synchronous, active high, one clock or more, at any clock"),
        ("irq", "out", "1", "level: a bit of IRQ_STATUS that IRQ_ENABLE enables is set"),
    ]
    for name, (bundle, text) in STREAMS.items():
        for part, signal in vars(bundle).items():
            out = part in DRIVEN if name == "s_axil" else (part == "tready") != name.startswith("m_")
            width = f"{len(signal) or 1}"
            if name in ("s_axis_rx", "m_axis_tx"):
                width = {"tdata": "bus_bits", "tkeep": "bus_bits / 8"}.get(part, width)
            rows.append((f"{name}_{part}", "out" if out else "in", width, text))
            text = ""
    return rows


def _table(rows: list, *head: str) -> list[str]:
    return ["", *(f"| {' | '.join(row)} |" for row in ([*head], ["---"] * len(head), *rows))]


def markdown() -> str:
    """Return docs/registers.md."""
    lines = [HEAD, "## Ports", *_table(ports(), "port", "direction", "bits", "")]
    rows = []
    for stream, number, fields in WORDS:
        for bits, name, text in _fields(fields):
            rows.append((stream, number, bits, name, text))
            stream = number = ""
    lines += ["", "## Words of streams", *_table(rows, "stream", "word", "bits", "field", ""), STREAM_TEXT]
    lines += ["## Registers", REGISTER_TEXT.rstrip()]
    shown = [(f"0x{r.offset:02x}", r.name, r.access, r.text) for r in REGISTERS]
    lines += _table(shown, "offset", "register", "access", "")
    for register in REGISTERS:
        if register.offset < COUNTERS or register.name == "PLAN_EDGE_1":
            lines += ["", f"## {register.name}", *_table(_fields(register.fields), "bits", "field", "")]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
