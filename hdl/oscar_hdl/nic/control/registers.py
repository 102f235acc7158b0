"""The registers of oscar_nic: one table for the hardware, the driver and docs/reference/registers.md."""

from dataclasses import dataclass
from typing import Literal

from oscar_hdl.nic.ports import ENTRIES_LOG2, ERROR_BITS, PEER_BITS, ROW_BITS, TO_ALL

Access = Literal["RW", "RO", "W1C", "WO"]
WORD_BYTES = 4
SPACE = 256  # bytes of addresses
VERSION = 12
ID_VALUE = int.from_bytes(b"OSCA", "big")
COUNTERS, EDGES = 0x80, 0xC0
PLAN_EDGES = 15  # boundaries of a plan, at most
MOST_VALUES = (1 << 18) - 1  # of a frame
PEERS_LOG2, DROPS_BITS = 4, 16  # peers whose dropped frames are told apart: ports of a switch; the count
KEPT_ERRORS = 5  # commands whose errors a result shows: four under way, one that waits


@dataclass(frozen=True)
class Field:
    """Bits `low` and up of a register, which hold a number."""

    name: str
    low: int
    bits: int
    text: str

    @property
    def mask(self) -> int:
        """The field's bits within the register."""
        return ((1 << self.bits) - 1) << self.low

    def of(self, value: int) -> int:
        """Return the field's number in a register."""
        return (value & self.mask) >> self.low

    def put(self, value: int) -> int:
        """Return `value` at the field's place; raises ValueError when it does not fit."""
        most = (1 << self.bits) - 1
        if not 0 <= value <= most:
            raise ValueError(f"{self.name} is 0 to {most}, got {value}")
        return value << self.low


@dataclass(frozen=True)
class Register:
    """Thirty-two bits at a byte offset; 0 after reset unless they are constant."""

    name: str
    offset: int
    access: Access
    text: str
    fields: tuple[Field, ...]

    @property
    def mask(self) -> int:
        """All bits that mean something."""
        return sum(field.mask for field in self.fields)

    @property
    def index(self) -> int:
        """Word address."""
        return self.offset // WORD_BYTES

    def field(self, name: str) -> Field:
        """Return a field by its name."""
        return next(field for field in self.fields if field.name == name)

    def pack(self, **fields: int) -> int:
        """Return the register's value with these fields, the others 0."""
        return sum(self.field(name).put(value) for name, value in fields.items())

    def unpack(self, value: int) -> dict[str, int]:
        """Return all fields of a value."""
        return {field.name: field.of(value) for field in self.fields}


def places(fields: tuple[Field, ...], *names: str) -> list[tuple[int, int]]:
    """Return where the fields of these names begin, and end: the bit after the last."""
    ends = {field.name: (field.low, field.low + field.bits) for field in fields}
    return [ends[name] for name in names]


def _whole(text: str) -> tuple[Field, ...]:
    return (Field("value", 0, 32, text),)


# Name, and what is counted. They stand in this order from COUNTERS on.
COUNTER_EVENTS = (
    ("CLOCKS", "clocks since the reset"),
    ("CYCLES_IN", "clocks in which a RECEIVE command is under way"),
    ("CYCLES_OUT", "clocks in which a SEND command is under way"),
    ("WAIT_IN", "clocks of CYCLES_IN in which no decoder has a block"),
    ("WAIT_OUT", "clocks of CYCLES_OUT in which no encoder has a block"),
    ("ROWS_IN", "rows of 32 values that were decoded; rows of zeros are not"),
    ("ROWS_OUT", "turns of encoders other than HEADER and CLASSES (engine.md), and rows of raw blocks"),
    ("WORDS_IN", "words that came on s_axis_rx, of dropped frames, too"),
    ("WORDS_OUT", "words that left on m_axis_tx"),
    ("FRAMES_IN", "RECEIVE commands that ended without an error"),
    ("FRAMES_OUT", "SEND commands that ended without an error"),
    ("FRAMES_BAD", "frames that were dropped, and commands that ended with an error"),
    ("STALL_IN", "clocks in which s_axis_rx has a word, and the NIC does not take it"),
    ("STALL_OUT", "clocks in which m_axis_tx has a word, and nobody takes it"),
    ("REFUSED", "commands that were refused: see IRQ_STATUS.refused"),
    ("PACKETS_BAD", "packets of rows and of lists that were wrong: see IRQ_STATUS.bad_packet"),
)

_RECEIVE_ERRORS = (
    "0 none, 1 prefix, or another block size than STATUS.block_log2, or table rows, 2 directory, 3 a block "
    "does not decode, 7 aborted"
)
_SEND_ERRORS = "0 none, 4 the frame is too long for the store, 5 a descriptor does not fit its row"
_REASONS = (
    "why the last frame was dropped: 0 none was, 1 length, 2 magic or version, 3 codec, 4 CRC, 5 too long for"
    " the store, 6 step, 7 chunk, 8 sub-frame or width, 9 sequence, 10 checksum, 11 count, 12 peer, or no "
    "entry of the list waits for it"
)
_LIST_ERRORS = (
    "of the last list: 0 none, 1 an entry's command is not valid, 2 its third word is not, 3 its command "
    "ended with an error, 4 an event or values came that it does not wait for, 5 a packet had NaN or Inf: "
    "read VALUES_BAD, 7 aborted"
)
_IRQ = (
    Field("received", 0, 1, "a RECEIVE command has ended: read RECEIVE_RESULT"),
    Field("receive_error", 1, 1, "a RECEIVE command has ended with an error"),
    Field("bad_frame", 2, 1, "a frame was dropped: read RECEIVE_RESULT.reason"),
    Field("sent", 3, 1, "a SEND command has ended: read SEND_RESULT. Its frame may still go out"),
    Field("send_error", 4, 1, "a SEND command has ended with an error"),
    Field("bad_packet", 5, 1, "a packet of rows or of a list was wrong"),
    Field("refused", 6, 1, "a command is not valid, or cannot be taken now: it was refused"),
    Field("planned", 7, 1, "a plan is made: read PLAN_RESULT and PLAN_EDGE_n"),
    Field("arrived", 8, 1, "another frame is the oldest: read OLDEST_NAME and OLDEST_FRAME"),
    Field("list", 9, 1, "a list has ended: read LIST_RESULT"),
)
_FRAME = Field("step", 0, 16, "of the schedule"), Field("chunk", 16, 16, "its number")
_SUB = "number of the sub-frame"


def _port(
    name: str, offset: int, what: str, peer: str, command: tuple[Field, ...], reason: tuple[Field, ...]
) -> list:  # fmt: skip
    """Return the registers of a direction alone."""
    errors = _RECEIVE_ERRORS if name == "RECEIVE" else _SEND_ERRORS
    shown = [Field("ended", 0, 8, "commands that have ended, modulo 256")]
    shown.append(Field("error", 8, ERROR_BITS, f"of the last command: {errors}"))
    shown += [
        Field(f"error{n}", 8 + ERROR_BITS * n, ERROR_BITS, f"of the command {n} before the last")
        for n in range(1, KEPT_ERRORS)
    ]
    return [
        Register(f"{name}_COMMAND", offset, "WO", f"a write is the command to {what} a frame", (
            Field("row", 0, ROW_BITS, "row of memory at which the frame begins"),
            Field("peer", 20, PEER_BITS, peer),
            Field("fresh", 28, 1, "1: begin with the initial tables, not with those of `load`"),
            *command,
        )),
        Register(f"{name}_RESULT", offset + 4, "RO", f"how {name} commands ended", (*shown, *reason)),
    ]  # fmt: skip


LIST_ENTRIES = 1 << ENTRIES_LOG2  # of a list, at most
# The third word of an entry of a list; the first is FRAME and SHAPE, the second TABLES and COMMAND.
TRIGGER: tuple[Field, ...] = (
    Field("values", 0, 19, "of a SEND: that packets have to bring before it starts"),
    Field("events", 24, 6, "of a SEND: for how many it waits"),
    Field("gate", 32, 8, "of a RECEIVE: number of a SEND"),
    Field("next", 40, 8, "of a SEND: number of the next one on its link, or its own for none"),
    Field("need", 56, 2, "of a RECEIVE: what it waits for besides its frame"),
    Field("kind", 63, 1, "0 RECEIVE, 1 SEND"),
)

REGISTERS: tuple[Register, ...] = (
    Register("ID", 0x00, "RO", 'the text "OSCA"', _whole(f"0x{ID_VALUE:08x}")),
    Register("CONFIG", 0x04, "RO", "what the NIC was built with", (
        Field("units", 0, 7, "units"),
        Field("bus_bytes", 7, 7, "bytes of a word of s_axis_rx and m_axis_tx"),
        Field("store_log2", 14, 5, "log2 of the words of a frame store"),
        Field("sets_log2", 19, 3, "log2 of the table sets of a direction"),
        Field("version", 24, 8, f"of these registers: {VERSION}"),
    )),
    Register("STATUS", 0x08, "RO", "commands that wait or are under way; sizes", (
        Field("receive_pending", 0, 1, "1: a RECEIVE command waits to start"),
        Field("receive_running", 1, 3, "RECEIVE commands under way"),
        Field("send_pending", 4, 1, "1: a SEND command waits to start"),
        Field("send_running", 5, 3, "SEND commands under way"),
        Field("rows_log2", 8, 5, "constant: log2 of the rows of memory"),
        Field("block_log2", 13, 5, "constant: log2 of the values of a block of all frames"),
        Field("granule_log2", 18, 4, "constant: log2 of the values of a block of a plan"),
        Field("plan_log2", 22, 4, "constant: log2 of the blocks that a plan can have"),
        Field("floats", 26, 1, "constant: 1: packets of values may bring floats"),
    )),
    Register("IRQ_STATUS", 0x0C, "W1C", "what happened", _IRQ),
    Register("IRQ_ENABLE", 0x10, "RW", "which bits of IRQ_STATUS raise irq", _IRQ),
    Register("ABORT", 0x14, "WO", "a write ends a RECEIVE that waits for its frame, or a list",
             (Field("receive", 0, 1, "1: do so"),)),
    Register("LIST_COMMAND", 0x18, "WO", "a write is the command to run the list that came last", (
        Field("entries", 0, 9, f"that it has, 1 to {LIST_ENTRIES}"),
        Field("run", 31, 1, "1"),
    )),
    Register("LIST_RESULT", 0x1C, "RO", "how the last list ended", (
        Field("ended", 0, 8, "lists that have ended, modulo 256"),
        Field("error", 8, ERROR_BITS, _LIST_ERRORS),
        Field("entry", 16, 8, "which entry, if error is 1 to 4"),
        Field("running", 31, 1, "1: a list runs"),
    )),
    Register("COMMAND_FRAME", 0x20, "RW", "the next command's frame: step and chunk", _FRAME),
    Register("COMMAND_SHAPE", 0x24, "RW", "the next command's frame: size and sub-frame", (
        Field("count", 0, 19, f"values, 1 to {MOST_VALUES:,}"),
        Field("width", 19, 5, "bits of a raw value, 1 to 16"),
        Field("sub", 24, 8, _SUB),
    )),
    Register("COMMAND_TABLES", 0x28, "RW", "the next command's frame: its table sets", (
        Field("sequence", 0, 16, "frames of this link and step before this one, modulo 2^16"),
        Field("load", 16, 8, "set to code the frame with; nobody looks at it if fresh"),
        Field("save", 24, 8, "set that takes what is learnt. If the command fails it stays as it is"),
    )),
    *_port("RECEIVE", 0x2C, "decode", "who made the frame: its s_axis_rx_tid", (
        Field("add", 30, 1, "1: add the values to the rows"),
        Field("adopt", 31, 1, "1: replace the rows by the values. One of the two is 1"),
    ), (Field("reason", 8 + ERROR_BITS * KEPT_ERRORS, 4, _REASONS),)),
    Register("OLDEST_FRAME", 0x34, "RO", "the oldest frame in the store: step and chunk", _FRAME),
    Register("OLDEST_NAME", 0x38, "RO", "the oldest frame in the store: who made it, and its sub-frame", (
        Field("peer", 0, 8, "who made it: its s_axis_rx_tid"),
        Field("sub", 8, 8, _SUB),
        Field("number", 16, 8, "frames that were the oldest before it, modulo 256"),
        Field("there", 31, 1, "1: there is one. 0: all other fields and OLDEST_FRAME mean nothing"),
    )),
    Register("LIST_SHOW", 0x3C, "WO", "a write says which entry ENTRY_STATE is of",
             (Field("entry", 0, 8, "of the list that runs, or ran last"),)),
    *_port("SEND", 0x4C, "encode", f"to whom the frame goes: its m_axis_tx_tdest; {TO_ALL}: to all", (), ()),
    Register("PLAN_SEGMENT", 0x54, "WO", "a write says which values the next packet of sums has", (
        Field("first", 0, 27, "number of the packet's first value in the gradient"),
        Field("count", 31, 1, "1: this packet and those after it count for the plan; 0: they do not"),
    )),
    Register("PLAN_COMMAND", 0x58, "WO", "a write is the command to make a plan, or to forget costs", (
        Field("nodes", 0, 5, f"chunks to cut, 1 to {PLAN_EDGES + 1}"),
        Field("blocks", 8, 16, "of the gradient, 1 to 2^STATUS.plan_log2; the last may be shorter"),
        Field("cut", 30, 1, "1: make a plan"),
        Field("clear", 31, 1, "1: forget all costs. One of the two is 1"),
    )),
    Register("PLAN_RESULT", 0x5C, "RO", "the state of the plan", (
        Field("cuts", 0, 8, "plans that were made, modulo 256"),
        Field("equal", 8, 1, "1: nothing costs anything. Chunks are equal, and PLAN_EDGE_n mean nothing"),
        Field("running", 9, 1, "1: a PLAN_COMMAND is under way, or costs are cleared after a reset"),
    )),
    Register("PEER_SHOW", 0x60, "WO", "a write says which peer PEER_DROPS is of",
             (Field("peer", 0, PEERS_LOG2, "in a switch: the port"),)),
    Register("PEER_DROPS", 0x64, "RO", "frames of a peer that were dropped", (
        Field("frames", 0, DROPS_BITS, f"how many, modulo 2^{DROPS_BITS}"),
        Field("reason", DROPS_BITS, 4, "of the last one, as in RECEIVE_RESULT; 0: none was dropped"),
    )),
    Register("SATURATED", 0x68, "RO", "values of packets of floats that saturated", _whole("modulo 2^32")),
    Register("VALUES_BAD", 0x6C, "RO", "packets of floats that had NaN or Inf", (
        Field("tensor", 0, 16, "of the last one: the number that the packet gave"),
        Field("packets", 16, 8, "how many, modulo 256"),
    )),
    *(
        Register(name, COUNTERS + WORD_BYTES * n, "RO", text, _whole("modulo 2^32"))
        for n, (name, text) in enumerate(COUNTER_EVENTS)
    ),
    *(
        Register(
            f"PLAN_EDGE_{n + 1}", EDGES + WORD_BYTES * n, "RO", f"where chunk {n + 1} of the plan begins",
            (Field("block", 0, 16, "number of the chunk's first block"),),
        )
        for n in range(PLAN_EDGES)
    ),
    Register("ENTRY_STATE", 0xFC, "RO", "what an entry of a list still waits for", (
        Field("events", 0, 6, "of a SEND: events that are still to come"),
        Field("state", 8, 2, "1 waits, 2 under way, 3 ended; 0 not all entries of the list are armed yet"),
        Field("values", 12, 19, "of a SEND: values that packets have still to bring"),
    )),
)  # fmt: skip

BY_NAME = {register.name: register for register in REGISTERS}
COMMAND_PARTS = "COMMAND_FRAME", "COMMAND_SHAPE", "COMMAND_TABLES"  # what a command takes besides its own
COMMAND_NAMES = *COMMAND_PARTS, "RECEIVE_COMMAND", "SEND_COMMAND"
STORED = tuple(register.name for register in REGISTERS if register.access == "RW")  # order of their values

ERROR_ABORTED = 7


def command_values(direction: str, **fields: int) -> dict[str, int]:
    """Return what to write for a command, RECEIVE or SEND, by registers' names in their order.

    fields: of all four registers; those of the other direction's command are left out. Raises ValueError
    for a name that is none of them.
    """
    everything = {field.name for name in COMMAND_NAMES for field in BY_NAME[name].fields}
    if unknown := fields.keys() - everything:
        raise ValueError(
            f"expected fields of a command, got {', '.join(sorted(unknown))}; see docs/reference/registers.md"
        )
    values = {}
    for name in (*COMMAND_PARTS, f"{direction}_COMMAND"):
        names = {field.name for field in BY_NAME[name].fields}
        values[name] = BY_NAME[name].pack(**{key: value for key, value in fields.items() if key in names})
    return values


def check(registers: tuple[Register, ...] = REGISTERS) -> None:
    """Raise ValueError if registers or fields overlap or do not fit."""
    if len({register.offset for register in registers}) != len(registers):
        raise ValueError("two registers share an offset")
    for register in registers:
        if register.offset % WORD_BYTES or not 0 <= register.offset < SPACE:
            raise ValueError(f"{register.name}: offset {register.offset:#x} is no word below {SPACE:#x}")
        used = 0
        for field in register.fields:
            if field.mask & used or field.mask >> 32:
                raise ValueError(f"{register.name}.{field.name} overlaps another field or the end")
            used |= field.mask
