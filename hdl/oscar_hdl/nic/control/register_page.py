"""docs/reference/registers.md: the ports of oscar_nic, the words of its streams, and its registers.

`python -m oscar_hdl.nic.control.register_page` prints the page.
"""

from oscar.coding.asc.params import ASC_CODE
from oscar.coding.frame import MAGIC
from oscar_hdl.nic import ports as nic
from oscar_hdl.nic.control.registers import COUNTERS, EDGES, REGISTERS, TRIGGER, Field, Register
from oscar_hdl.streams.bundles import AxiLite, Stream

BUS = 64  # bits of a word as drawn here
ROW_STREAMS = {
    "s_axis_values": "values into memory",
    "s_axis_side": "side rows into memory",
    "s_axis_read": "which rows to read",
    "m_axis_values": "values of the rows that are read",
    "m_axis_descriptors": "class, size and top of the rows that are read",
}
LANES = "s_axis_values", "s_axis_side", "m_axis_values", "m_axis_descriptors"
STREAMS = {
    "s_axil": (AxiLite(8), "AXI4-Lite subordinate; byte addresses"),
    "s_axis_rx": (nic.frames_in(BUS), "frames from the MAC"),
    "m_axis_tx": (nic.frames_out(BUS), "frames to the MAC"),
    **{name: (stream, ROW_STREAMS[name]) for name, stream in nic.row_streams(1).items()},
    "s_axis_list": (Stream(64), "lists of commands"),
}
DRIVEN = ("awready", "wready", "bresp", "bvalid", "arready", "rdata", "rresp", "rvalid")  # by a subordinate

WORDS: tuple[tuple[str, str, tuple[Field, ...]], ...] = (
    ("s_axis_rx, m_axis_tx", "1", (
        Field("version", 0, 8, f"0x{MAGIC:02x}"), Field("codec", 8, 8, f"{ASC_CODE}"),
        Field("step", 16, 16, "of the schedule"), Field("chunk", 32, 16, "its number"),
        Field("sub", 48, 8, "number of the sub-frame"), Field("width", 56, 8, "bits of a raw value"),
    )),
    ("", "2", (
        Field("sequence", 0, 16, "frames of this link and step before this one, modulo 2^16"),
        Field("checksum", 16, 16, "of the table set"), Field("count", 32, 32, "values"),
    )),
    ("", "3", (
        Field("payload_bytes", 0, 32, "from word 4 on"),
        Field("crc", 32, 32, "CRC-32 (IEEE 802.3) of the 20 bytes before it and the payload"),
    )),
    ("", "4 and on", (Field("payload", 0, 64, "byte n in bits 8 n and up ([asc.md](asc.md#payload))"),)),
    ("s_axis_values, s_axis_side, s_axis_read", "1", (
        Field("row", 0, 24, "first row, in memory"),
        Field("entry", nic.ENTRY_AT, nic.ENTRIES_LOG2, "if made: number of an entry of the list; else 0"),
        Field("count", nic.COUNT_AT, 30, "values, 1 or more, all in memory"),
        Field("made", nic.MADE_AT, 1, "1: the packet counts for that entry; 0 on s_axis_read"),
        Field("adds", nic.ADDS_AT, 1, "1: add the values to the rows; 0 on the other two streams"),
    )),
    ("s_axis_values", "1, of floats", (
        Field("format", nic.FORMAT_AT, nic.FORMAT_BITS, "0 int16, 1 bfloat16, 2 float32"),
        Field("bits", nic.WIDTH_AT, nic.WIDTH_BITS, "of an integer, 8 to 16"),
        Field("exponent", nic.EXPONENT_AT, nic.EXPONENT_BITS, "of the step, -126 to 255, two's complement"),
        Field("tensor", nic.TENSOR_AT, nic.TENSOR_BITS, "its number, for VALUES_BAD"),
    )),
    (
        "s_axis_values, m_axis_values", "all others",
        (Field("values", 0, nic.STREAM_BITS, "eight of 16 bits, two's complement, the first in bits 15..0"),),
    ),
    ("s_axis_side", "all others, one a row", (
        Field("class", 0, 4, ""), Field("size", 4, 3, ""), Field("mean", 7, 4, "P"),
        Field("top", 11, 4, "symbol of the largest magnitude"),
        Field("distances", 32, 96, "32 of 3 bits, the first in bits 34..32"),
    )),
    (
        "m_axis_descriptors", "all, one a row",
        (Field("class", 0, 4, ""), Field("size", 4, 3, ""), Field("top", 7, 4, "")),
    ),
    ("s_axis_list", "1 of an entry", (
        Field("FRAME", 0, 32, "as the register of the entry's kind"), Field("SHAPE", 32, 32, "the same"),
    )),
    ("", "2", (Field("TABLES", 0, 32, "the same"), Field("COMMAND", 32, 32, "the same"))),
    ("", "3", TRIGGER),
)  # fmt: skip

HEAD = """# Ports and registers of oscar_nic

[nic-on-a-board.md](../how-to/nic-on-a-board.md) says how to integrate and drive the NIC, step by step.
This page has each port, each field of a stream's words, and each register.

It is made: `python -m oscar_hdl.nic.control.register_page > docs/reference/registers.md`. Its tables are
those that the hardware is made from (`registers.py` beside it). Do not edit it.
"""
PORT_TEXT = """
* **`tkeep`** is all ones. In the word with `tlast` it is one or more ones from bit 0 on. A frame with gaps
  is dropped.
* **`tid`** is the number of the peer that made the frame, also where another peer passed it on. It counts in
  a frame's first word.
* **`tdest`** is the number of the peer that the frame is for, or 255: all. It is the same in all words of a
  frame.
* **`tlast`** ends a frame or a packet.
"""
STREAM_TEXT = """
**Frames.** Their words have 64 bits here. A word of a wider bus holds two, four or eight of these, the first
one in the lowest bits.

**Packets of rows**

* A word of `s_axis_values`, `s_axis_side`, `m_axis_values` or `m_axis_descriptors` has a
  [lane](../how-to/nic-on-a-board.md#lanes) for each unit; fields are those of a lane. A packet's first word
  is in lane 0.
* With one unit a packet has, after its first word, ceil(count / 8) words of values or ceil(count / 32) side
  rows.
* Values after the last one of `count` are taken as 0.
* [Float packets](float-packets.md) bring bfloat16 or float32, quantised as they are loaded.
* A packet on `s_axis_read` has one word. What is read ends with `tlast` on both streams.
* [engine.md](../develop/engine.md#what-a-nic-keeps-and-what-it-is-given) defines class, size, P, top and
  distances.
* Bits that no field names are 0 in what the NIC gives. In a packet's first word they must be 0, and in a
  list (LIST_RESULT.error 1 and 2); elsewhere nobody looks at them.

**Wrong packets** are counted (PACKETS_BAD, IRQ_STATUS.bad_packet). The next packet is taken as it is.

| what is wrong | what becomes of it |
| --- | --- |
| rows that are not all in memory, no values, a bit that must be 0 | nothing is written or read |
| a first row that begins no block (with one unit: of side rows, that is no multiple of 32) | the same |
| `made`, and the entry does not wait for so many values | the same |
| `made`, and the list ends before the packet does | what is written stays, and does not count |
| `adds` or a `format` other than 0, and the NIC was built without it | nothing is written |
| `format` 3, or `bits` or `exponent` out of range | the same |
| NaN or Inf | what is written means nothing: load the rows again |
| too few words | zeros replace what is missing: [load its rows again](../how-to/nic-on-a-board.md#errors) |
| too many words | those that are too many are thrown away: the same |
| a list that has more than 256 entries, or ends inside one | there is no list until the next packet |

**A list** is taken while none runs, and takes the place of the one before. [A
list](../how-to/nic-on-a-board.md#a-list) says what each field of the third word does, and which values of
`need` there are.
"""
REGISTER_TEXT = """
AXI4-Lite, 32 bits, 8-bit byte addresses, little-endian.

| access |  |
| --- | --- |
| RW | Read and write. |
| RO | Read only. |
| W1C | Read; bits that are written as 1 become 0. |
| WO | A write does something. It reads as 0. |

* **SLVERR** answers a write of less than 32 bits, a write to an address that is read only or has no
  register, and a read of an address that has none. None of these does anything.
* **A command that is refused** is answered with OKAY. Some clocks later REFUSED and IRQ_STATUS.refused
  tell of it.
* **After a reset** all registers are 0, but ID, CONFIG, the constants of STATUS, and PLAN_RESULT.running.
  PLAN_EDGE_n mean nothing until a plan is made, and ENTRY_STATE nothing until a list runs.
"""

# Of a register, by its name: what its table does not say. What both directions have is under RECEIVE.
NOTES = {
    "STATUS": """A direction has up to four commands under way (two in a NIC of one unit), and one more that
waits to start. While it waits, another COMMAND is refused.""",
    "IRQ_STATUS": """Bits become 1 by what happens, whether they are enabled or not. Write them back to clear
them, then read what they point to: what happens in between sets them again.""",
    "IRQ_ENABLE": """The bits are those of IRQ_STATUS. irq is high while a bit is 1 in both.""",
    "ABORT": """If a RECEIVE under way waits for its frame, it ends with error 7; a command that waits to
start, starts then. While a list runs, the list ends with error 7 instead. Otherwise nothing ends.""",
    "LIST_COMMAND": """It is refused while a list runs or a command waits or is under way, if `run` is 0 or a
bit without a field is 1, and if the last packet on s_axis_list was wrong or had another number of
entries.""",
    "LIST_RESULT": """It changes when a list starts, when something goes wrong, and when the list has ended.
[How a list ends](../how-to/nic-on-a-board.md#how-a-list-ends).""",
    "COMMAND_FRAME": """A write to RECEIVE_COMMAND or SEND_COMMAND takes what this register and the next two
hold then. So they may be written at any time, for the next command of either direction.""",
    "COMMAND_SHAPE": """These fields and those of COMMAND_FRAME are those of the frame's header.""",
    "COMMAND_TABLES": """Each direction has its own sets, 2^CONFIG.sets_log2. [The book of table
sets](../how-to/nic-on-a-board.md#an-allreduce-by-registers) says which to load and to save.""",
    "RECEIVE_COMMAND": """The command is refused if

* a command of this direction waits, or a list runs;
* `count` is 0 or above 262,143, or `width` is not 1 to 16;
* the set `save` does not exist, or `load` does not and `fresh` is 0;
* the frame's rows are not all in memory, or `row` is no multiple of 2^(STATUS.block_log2 - 5);
* `add` and `adopt` are equal, or a bit without a field is 1.

It starts when fewer than four commands are under way (two in a NIC of one unit). Then it waits until its
frame has come whole. A damaged frame and one that is another are dropped meanwhile (IRQ_STATUS.bad_frame,
with the reason in RECEIVE_RESULT), and it goes on waiting; ABORT ends that.""",
    "RECEIVE_RESULT": """Commands of a direction end in the order in which they were given.
[Errors](../how-to/nic-on-a-board.md#errors) says what each error leaves in memory and tables. An error stays
here until five more commands have ended.""",
    "OLDEST_NAME": """Frames that came whole and right wait in the store in their order, as many as there is
room for, 16 at most; then s_axis_rx stalls. The oldest one stays the oldest until a RECEIVE command deals
its blocks to units, or until it is dropped. Then IRQ_STATUS.arrived tells of the next one, and `number` is
another.

A RECEIVE command for another frame drops the oldest one. So clear IRQ_STATUS.arrived, read both registers,
and give the command for this frame.""",
    "LIST_SHOW": """ENTRY_STATE is of this entry 20 clocks later.""",
    "SEND_COMMAND": """The command is refused for the reasons of RECEIVE_COMMAND, but for `add` and `adopt`.
[Rows](../how-to/nic-on-a-board.md#rows) says where the frame's rows have to end.""",
    "SEND_RESULT": """A SEND ends when its frame is whole, so before the frame's last word has left.""",
    "PLAN_SEGMENT": """[Plan](../how-to/nic-on-a-board.md#plan) has the steps. Write it when the packet
before has ended, and ask for rows when the write is answered. Packets after that one go on where it ended,
and count if it did. Values after the last one that a plan can have do not count. It is refused if
`first` is after that one.""",
    "PLAN_COMMAND": """`cut` makes a plan. The cost of a block that is cut moves half of the way to what its
values of this iteration cost ([protocol.md](protocol.md#chunk-plans)); others keep theirs. `clear` forgets
all costs, and raises no interrupt. Both wait until the packet that is read has ended, and packets that count
wait for them.

The command is refused while one runs, if `cut` and `clear` are equal or a bit without a field is 1, and, to
cut, if `nodes` or `blocks` are not in their range.""",
    "PLAN_RESULT": """While `running` is 1, `equal` and PLAN_EDGE_n mean nothing.""",
    "PEER_SHOW": """PEER_DROPS is of this peer 20 clocks later. Frames of peers above 15 are not
counted here.""",
    "PEER_DROPS": """It has frames that were dropped, not those of commands that ended with an error.""",
    "CLOCKS": """This one and the fifteen after it count from a reset on, and nothing else clears them. They
wrap. They are up to 22 clocks late, ROWS_IN and ROWS_OUT up to 100. In the first 21 clocks after a reset
they read as 0.""",
    "PLAN_EDGE_1": """PLAN_EDGE_2 to PLAN_EDGE_15 are like it; those of PLAN_COMMAND.nodes and above mean
nothing. A block has 2^STATUS.granule_log2 values.""",
    "ENTRY_STATE": """It means nothing of an entry that the list does not have, or of a list that ended
before all its entries were armed (error 1, 2, 5 or 7). [Look into a
list](../how-to/nic-on-a-board.md#look-into-a-list) says what to make of it.""",
}


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
            if name in LANES and part == "tdata":
                width = f"{width} x units"
            rows.append((f"{name}_{part}", "out" if out else "in", width, text))
            text = ""
    return rows


def _table(rows: list, *head: str) -> list[str]:
    return ["", *(f"| {' | '.join(row)} |" for row in ([*head], ["---"] * len(head), *rows))]


def _register(register: Register) -> list[str]:
    """Return a register's own section, if it has one."""
    note = NOTES.get(register.name)
    counts = COUNTERS <= register.offset < EDGES
    named = register.name not in ("IRQ_ENABLE", "ID") and not counts
    if note is None and not (named and register.offset < COUNTERS):
        return []
    lines = ["", f"## {register.name}"]
    if named:
        lines += _table(_fields(register.fields), "bits", "field", "")
    return lines if note is None else [*lines, "", note]


def markdown() -> str:
    """Return docs/reference/registers.md."""
    lines = [HEAD, "## Ports", *_table(ports(), "port", "direction", "bits", ""), PORT_TEXT.rstrip()]
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
        lines += _register(register)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
