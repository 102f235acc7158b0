"""The registers of oscar_nic: one table for the hardware, the driver and docs/registers.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from oscar.coding.asc.params import MIN_BLOCK_LOG2
from oscar_hdl.nic.ports import ENTRIES_LOG2, PEER_BITS, ROW_BITS, TO_ALL

Access = Literal["RW", "RO", "W1C", "WO"]
WORD_BYTES = 4
SPACE = 256  # bytes of addresses
VERSION = 8
ID_VALUE = int.from_bytes(b"OSCA", "big")
COUNTERS, EDGES = 0x80, 0xC0
PLAN_EDGES = 15  # boundaries of a plan, at most
MOST_VALUES = (1 << 18) - 1  # of a frame
KEPT_ERRORS = 3  # commands whose errors a result shows: two under way, one that waits


@dataclass(frozen=True)
class Field:
    """Bits `low` and up of a register, which hold a number minus `less`."""

    name: str
    low: int
    bits: int
    text: str
    less: int = 0

    @property
    def mask(self) -> int:
        """The field's bits within the register."""
        return ((1 << self.bits) - 1) << self.low

    def of(self, value: int) -> int:
        """Return the field's number in a register."""
        return ((value & self.mask) >> self.low) + self.less

    def put(self, value: int) -> int:
        """Return `value` at the field's place; raises ValueError when it does not fit."""
        most = self.less + (1 << self.bits) - 1
        if not self.less <= value <= most:
            raise ValueError(f"{self.name} is {self.less} to {most}, got {value}")
        return value - self.less << self.low


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


def _whole(text: str) -> tuple[Field, ...]:
    return (Field("value", 0, 32, text),)


# Name, and what one count is. They stand in this order from COUNTERS on.
COUNTER_EVENTS = (
    ("CLOCKS", "clock"),
    ("CYCLES_IN", "clock in which a RECEIVE command is under way"),
    ("CYCLES_OUT", "clock in which a SEND command is under way"),
    ("WAIT_IN", "such a clock of RECEIVE in which no decoder works"),
    ("WAIT_OUT", "such a clock of SEND in which no encoder works"),
    ("ROWS_IN", "row of 32 values decoded"),
    ("ROWS_OUT", "turn of an encoder: a row, a part of a seed row or of raw bits, a state"),
    ("WORDS_IN", "word received, headers included"),
    ("WORDS_OUT", "word sent, headers included"),
    ("FRAMES_IN", "frame decoded without an error"),
    ("FRAMES_OUT", "frame encoded"),
    ("FRAMES_BAD", "frame dropped, or ended with an error"),
    ("STALL_IN", "clock in which s_axis_rx waits for the NIC"),
    ("STALL_OUT", "clock in which the NIC waits for m_axis_tx"),
    ("REFUSED", "write that was not taken: see IRQ_STATUS.refused"),
    ("PACKETS_BAD", "packet of rows that was not as its first word says: see IRQ_STATUS.bad_packet"),
)

_ERRORS = (
    "0 none, 1 prefix or another block_log2 than STATUS.block_log2, 2 directory, 3 block, "
    "4 too long for the store, 5 descriptor (of rows to its group of 32), 16 aborted"
)
_REASONS = (
    "why the last frame was dropped: 1 length, 2 magic or version, 3 codec, 4 CRC, 5 too long for the store, "
    "6 step, 7 chunk, 8 sub-frame or width, 9 sequence, 10 checksum, 11 count, 12 peer, or no "
    "entry of the list waits for it"
)
_LIST_ERRORS = (
    "of the last: 0 none, 1 an entry is no valid command, 2 its third word is wrong, 3 its command ended "
    "with an error, 4 an event came for an entry that waits for none, 16 aborted"
)
_IRQ = (
    Field("received", 0, 1, "a RECEIVE command has ended: see RECEIVE_RESULT"),
    Field("receive_error", 1, 1, "and not well"),
    Field("bad_frame", 2, 1, "a frame was dropped: see RECEIVE_RESULT.reason"),
    Field("sent", 3, 1, "a SEND command has ended, its frame may still be going out: see SEND_RESULT"),
    Field("send_error", 4, 1, "and not well"),
    Field("bad_packet", 5, 1, "a packet of rows was too short or too long, or its rows cannot be"),
    Field("refused", 6, 1, "a write was not taken: its register is locked, or it is no valid command"),
    Field("planned", 7, 1, "a plan is cut: see PLAN_RESULT"),
    Field("arrived", 8, 1, "another frame is the oldest: see OLDEST_NAME"),
    Field("list", 9, 1, "a list has ended: see LIST_RESULT"),
)


def _port(
    name: str, offset: int, what: str, peer: str, command: tuple[Field, ...], reason: tuple[Field, ...]
) -> list:  # fmt: skip
    """Return the registers of a direction."""
    tables = "that the frame was" if name == "RECEIVE" else "that the frame is"
    shown = [Field("ended", 0, 8, "commands that have ended, modulo 256")]
    shown += [
        Field(
            f"error{n}" if n else "error",
            8 + 5 * n,
            5,
            f"of the last but {n}" if n else f"of the last: {_ERRORS}",
        )
        for n in range(KEPT_ERRORS)
    ]
    return [
        Register(
            f"{name}_FRAME", offset, "RW", f"header fields of the frame to {what}",
            (Field("step", 0, 16, ""), Field("chunk", 16, 16, "")),
        ),
        Register(
            f"{name}_SHAPE", offset + 4, "RW", f"header fields of the frame to {what}",
            (
                Field("count", 0, 19, f"values, 1..{MOST_VALUES}"),
                Field("width", 19, 5, "bits of a raw value, 1..16"),
                Field("sub", 24, 8, "sub-frame"),
            ),
        ),
        Register(
            f"{name}_TABLES", offset + 8, "RW", f"tables of the frame to {what}",
            (
                Field("sequence", 0, 16, f"frames that were to {what} with these tables before"),
                Field("load", 16, 8, f"set {tables} coded with; no matter what if fresh"),
                Field("save", 24, 8, "set that takes what is learnt, unless the command ends with an error"),
            ),
        ),
        Register(
            f"{name}_COMMAND", offset + 12, "WO", f"a write is the command to {what} a frame",
            (
                Field("row", 0, ROW_BITS, "first row of the frame's values in the NIC's memory"),
                Field("peer", 20, PEER_BITS, peer),
                Field("fresh", 28, 1, "the first frame of its tables, with no lower step's to start from"),
                *command,
            ),
        ),
        Register(f"{name}_RESULT", offset + 16, "RO", "how commands ended", (*shown, *reason)),
    ]  # fmt: skip


LIST_ENTRIES = 1 << ENTRIES_LOG2  # of a list, at most
# The third word of an entry of a list; the first is FRAME and SHAPE, the second TABLES and COMMAND.
TRIGGER: tuple[Field, ...] = (
    Field("values", 0, 19, "that packets have to bring before a SEND starts"),
    Field("events", 24, 6, "that a SEND waits for"),
    Field("gate", 32, 8, "of a RECEIVE: an entry that is a SEND"),
    Field("next", 40, 8, "of a SEND: the one behind it on its link, or its own number"),
    Field(
        "need",
        56,
        2,
        "of a RECEIVE: 0 at once, 1 when its gate has its values, both count for it; 2 behind it; 3 no gate",
    ),
    Field("kind", 63, 1, "0 RECEIVE, 1 SEND"),
)

REGISTERS: tuple[Register, ...] = (
    Register("ID", 0x00, "RO", 'the text "OSCA"', _whole(f"0x{ID_VALUE:08x}")),
    Register(
        "CONFIG", 0x04, "RO", "what the hardware was built with",
        (
            Field("units", 0, 7, "a decoder and an encoder of eight lanes each, and a bank of rows"),
            Field("bus_bytes", 7, 7, "bytes of a word of s_axis_rx and m_axis_tx"),
            Field("store_log2", 14, 5, "log2 of the words of a frame store"),
            Field("sets_log2", 19, 3, "log2 of the table sets of a direction"),
            Field("version", 24, 8, f"of this page: {VERSION}"),
        ),
    ),
    Register(
        "STATUS", 0x08, "RO", "what goes on",
        (
            Field("receive_pending", 0, 1, "a RECEIVE command waits: its registers are locked"),
            Field("receive_running", 1, 2, "RECEIVE commands under way"),
            Field("send_pending", 3, 1, "a SEND command waits: its registers are locked"),
            Field("send_running", 4, 2, "SEND commands under way"),
            Field("rows_log2", 8, 5, "log2 of the rows of the NIC's memory: constant"),
            Field("block_log2", 13, 5, "log2 of the values of a block, others are refused; 0: any. Constant"),
            Field("granule_log2", 18, 4, "log2 of the values of a plan's block: constant"),
            Field("plan_log2", 22, 4, "log2 of the blocks that a plan can have: constant"),
        ),
    ),
    Register("IRQ_STATUS", 0x0C, "W1C", "why irq is raised; write 1 to clear", _IRQ),
    Register("IRQ_ENABLE", 0x10, "RW", "which bits of IRQ_STATUS raise irq", _IRQ),
    Register(
        "ABORT", 0x14, "WO", "end RECEIVE commands under way that wait for their frame, with error 16",
        (Field("receive", 0, 1, "of a list that runs: end the list, with that error"),),
    ),
    Register(
        "LIST_COMMAND", 0x18, "WO", "a write is the command to run the list that came last",
        (
            Field("entries", 0, 9, f"how many it has, 1..{LIST_ENTRIES}"),
            Field("run", 31, 1, "it is set"),
        ),
    ),
    Register(
        "LIST_RESULT", 0x1C, "RO", "how lists ended",
        (
            Field("ended", 0, 8, "lists that have ended, modulo 256"),
            Field("error", 8, 5, _LIST_ERRORS),
            Field("entry", 16, 8, "of which entry, where error is 1 to 4"),
            Field("running", 31, 1, "a list runs"),
        ),
    ),
    *_port(
        "RECEIVE", 0x20, "decode", "who made the frame: s_axis_rx_tid",
        (
            Field("add", 30, 1, "sums are added to what memory holds"),
            Field("adopt", 31, 1, "memory holds what was decoded, and nothing else; one of the two is set"),
        ),
        (Field("reason", 8 + 5 * KEPT_ERRORS, 4, _REASONS),),
    ),
    Register(
        "OLDEST_FRAME", 0x34, "RO", "header fields of the oldest frame that no command has taken yet",
        (Field("step", 0, 16, ""), Field("chunk", 16, 16, "")),
    ),
    Register(
        "OLDEST_NAME", 0x38, "RO", "who made it",
        (
            Field("peer", 0, 8, "its s_axis_rx_tid"),
            Field("sub", 8, 8, "sub-frame"),
            Field("number", 16, 8, "frames that were the oldest before it, modulo 256"),
            Field("there", 31, 1, "there is one; else the others mean nothing, nor does OLDEST_FRAME"),
        ),
    ),
    Register(
        "LIST_SHOW", 0x3C, "WO", "a write says which entry ENTRY_STATE is of",
        (Field("entry", 0, 8, "of the list that runs, or ran"),),
    ),
    *_port(
        "SEND", 0x40, "encode", f"to whom it goes: m_axis_tx_tdest; {TO_ALL}: to all",
        (
            Field(
                "block_log2", 29, 3,
                f"log2 of the values of a block, less {MIN_BLOCK_LOG2}: see STATUS.block_log2",
                less=MIN_BLOCK_LOG2,
            ),
        ),
        (),
    ),
    Register(
        "PLAN_SEGMENT", 0x54, "WO", "a write says what the next packet of sums is",
        (
            Field("first", 0, 27, "its first value's number in the gradient"),
            Field("count", 31, 1, "it and those behind it count for the plan"),
        ),
    ),
    Register(
        "PLAN_COMMAND", 0x58, "WO", "a write is the command to make a plan, or to forget what there was",
        (
            Field("nodes", 0, 5, f"chunks, 1..{PLAN_EDGES + 1}"),
            Field("blocks", 8, 16, "of the gradient, each of 2^STATUS.granule_log2 values, or fewer"),
            Field("cut", 30, 1, "make a plan of all sums that counted, and of those before"),
            Field("clear", 31, 1, "forget them all; one of the two is set"),
        ),
    ),
    Register(
        "PLAN_RESULT", 0x5C, "RO", "the plan",
        (
            Field("cuts", 0, 8, "plans that were made, modulo 256"),
            Field("equal", 8, 1, "nothing costs anything: chunks are equal, and PLAN_EDGE_n mean nothing"),
            Field("running", 9, 1, "a PLAN_COMMAND is under way, or memory is cleared behind a reset"),
        ),
    ),
    *(
        Register(name, COUNTERS + WORD_BYTES * n, "RO", text, _whole("modulo 2^32"))
        for n, (name, text) in enumerate(COUNTER_EVENTS)
    ),
    *(
        Register(
            f"PLAN_EDGE_{n + 1}", EDGES + WORD_BYTES * n, "RO", f"where chunk {n + 1} of the plan begins",
            (Field("block", 0, 16, "number of a block"),),
        )
        for n in range(PLAN_EDGES)
    ),
    Register(
        "ENTRY_STATE", 0xFC, "RO", "what an entry of a list still waits for",
        (
            Field("events", 0, 6, "of a SEND: that are still to come"),
            Field("state", 8, 2, "1 waits, 2 fired or under way, 3 ended; 0 no list had it"),
            Field("values", 12, 19, "of a SEND: that packets have still to bring"),
        ),
    ),
)  # fmt: skip

BY_NAME = {register.name: register for register in REGISTERS}
STORED = tuple(register.name for register in REGISTERS if register.access == "RW")  # order of their values

ERROR_ABORTED = 16


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
