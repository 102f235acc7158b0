"""The registers of oscar_nic: one table for the hardware, the driver and docs/registers.md.

`python -m oscar_hdl.registers` prints the page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Access = Literal["RW", "RO", "W1C", "WO"]
WORD_BYTES = 4
SPACE = 256  # bytes of addresses
MAX_LANES = 8
VERSION = 1
ID_VALUE = int.from_bytes(b"OSCA", "big")


@dataclass(frozen=True)
class Field:
    """Bits `low` and up of a register."""

    name: str
    low: int
    bits: int
    text: str

    @property
    def mask(self) -> int:
        """The field's bits within the register."""
        return ((1 << self.bits) - 1) << self.low

    def of(self, value: int) -> int:
        """Return the field's part of a register."""
        return (value & self.mask) >> self.low

    def put(self, value: int) -> int:
        """Return `value` at the field's place; raises ValueError when it does not fit."""
        if not 0 <= value < 1 << self.bits:
            raise ValueError(f"{self.name} has {self.bits} bits, got {value}")
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


def _whole(text: str) -> tuple[Field, ...]:
    return (Field("value", 0, 32, text),)


def _in_out(bits: int, text_in: str, text_out: str) -> tuple[Field, ...]:
    return Field("in", 0, bits, text_in), Field("out", 16, bits, text_out)


def _frames(bits: int) -> tuple[Field, ...]:
    return _in_out(bits, "of the frame to come", "of the frame to make")


# Counters of a lane: name, what one count is. They stand in this order from COUNTERS on.
COUNTER_EVENTS = (
    ("CYCLES", "clock in which a command runs"),
    ("VALUES_IN", "value decoded"),
    ("VALUES_OUT", "value encoded"),
    ("WORDS_IN", "16-bit word received, headers included, frames of other lanes too"),
    ("WORDS_OUT", "16-bit word sent, headers included"),
    ("FRAMES_IN", "frame received, intact and expected"),
    ("FRAMES_OUT", "frame made"),
    ("FRAMES_BAD", "frame dropped"),
    ("STALL_FRAME", "clock in which a command waits for its frame"),
    ("STALL_VALUES", "clock in which the encoder waits for values or classes"),
    ("STALL_TABLES", "clock in which the encoder waits for tables"),
    ("STALL_OUTPUT", "clock in which the encoder waits for the frame store"),
    ("STALL_SUM", "clock in which a value waits for m_axis_sum"),
)
COUNTERS = 0x80

_COMMAND_FIELDS = (
    Field("decode", 0, 1, "a frame comes in"),
    Field("add", 1, 1, "add s_axis_local to what was decoded"),
    Field("encode", 2, 1, "a frame goes out"),
    Field("keep", 3, 1, "send values or sums to m_axis_sum"),
    Field("fresh_in", 4, 1, "the frame that comes is the first of its tables: LOAD in is not looked at"),
    Field("fresh_out", 5, 1, "the frame that goes is the first of its tables: LOAD out is not looked at"),
    Field("lane", 8, 3, "which lane"),
)

REGISTERS: tuple[Register, ...] = (
    Register("ID", 0x00, "RO", 'the text "OSCA"', _whole(f"0x{ID_VALUE:08x}")),
    Register(
        "CONFIG", 0x04, "RO", "what the hardware was built with",
        (
            Field("lanes", 0, 4, "lanes"),
            Field("block_log2", 4, 4, "log2 of the values of a block"),
            Field("sets_log2", 8, 4, "log2 of the table sets of a lane"),
            Field("depth_log2", 12, 5, "log2 of the 16-bit words of a frame store"),
            Field("width_max", 17, 5, "bits of the widest value"),
            Field("version", 24, 8, f"of this page: {VERSION}"),
        ),
    ),
    Register(
        "STATUS", 0x08, "RO", "what goes on",
        (
            Field("busy", 0, MAX_LANES, "a bit for each lane: a command runs"),
            Field("frame", 8, MAX_LANES, "a bit for each lane: the command waits for its frame"),
            Field("pending", 16, 1, "a command waits for its lane: do not touch the command registers"),
        ),
    ),
    Register(
        "IRQ_STATUS", 0x0C, "W1C", "why irq is raised; write 1 to clear",
        (
            Field("done", 0, MAX_LANES, "a bit for each lane: a command has ended, see RESULT"),
            Field("error", 8, MAX_LANES, "a bit for each lane: and not well"),
            Field("bad_frame", 16, MAX_LANES, "a bit for each lane: a frame was dropped, see RESULT"),
            Field("lost", 24, 1, "COMMAND was written while one was pending, or for no such lane: ignored"),
        ),
    ),
    Register(
        "IRQ_ENABLE", 0x10, "RW", "which bits of IRQ_STATUS raise irq",
        (
            Field("done", 0, MAX_LANES, ""),
            Field("error", 8, MAX_LANES, ""),
            Field("bad_frame", 16, MAX_LANES, ""),
            Field("lost", 24, 1, ""),
        ),
    ),
    Register(
        "LANE", 0x14, "RW", "which lane RESULT and the counters show",
        (Field("lane", 0, 3, "number of the lane"),),
    ),
    Register(
        "RESULT", 0x18, "RO", "how the last command ended, and why the last frame was dropped",
        (
            Field("error", 0, 5, "0 none; 1..15 as asc_decoder; 16 aborted; 17 frame too long for the store"),
            Field("reason", 8, 4, "1 length, 2 magic or version, 3 codec, 4 CRC, 5 too long for the store, "
                  "6 step, 7 chunk, 8 sub-frame or width, 9 sequence, 10 checksum, 11 count"),
        ),
    ),
    Register(
        "COUNT", 0x20, "RW", "values of the command's frames",
        (Field("count", 0, 19, "at most 2^18"),),
    ),
    Register("STEP", 0x24, "RW", "header field", _frames(16)),
    Register("CHUNK", 0x28, "RW", "header field", _frames(16)),
    Register(
        "SUB_WIDTH", 0x2C, "RW", "header fields",
        (
            Field("sub_in", 0, 8, "sub-frame to come; modulo lanes it is the lane"),
            Field("width_in", 8, 5, "bits of a raw value in it"),
            Field("sub_out", 16, 8, "sub-frame to make"),
            Field("width_out", 24, 5, "bits of a raw value in it"),
        ),
    ),
    Register(
        "SEQUENCE", 0x30, "RW", "header field",
        _in_out(16, "frames that came with these tables so far", "frames made with these tables so far"),
    ),
    Register(
        "SETS", 0x34, "RW", "table sets; those saved hold nothing of use if the command ends with an error",
        (
            Field("load_in", 0, 8, "the frame to come was coded with"),
            Field("save_in", 8, 8, "what was learnt from it goes to"),
            Field("load_out", 16, 8, "the frame to make is coded with"),
            Field("save_out", 24, 8, "what was learnt from it goes to"),
        ),
    ),
    Register("COMMAND", 0x38, "WO", "a write starts the command, once its lane is free", _COMMAND_FIELDS),
    Register(
        "ABORT", 0x3C, "WO", "end commands that still wait for their frame, with error 16",
        (Field("lanes", 0, MAX_LANES, "a bit for each lane"),),
    ),
    *(
        Register(name, COUNTERS + WORD_BYTES * n, "RO", f"{text}; of the lane in LANE", _whole("modulo 2^32"))
        for n, (name, text) in enumerate(COUNTER_EVENTS)
    ),
)  # fmt: skip

BY_NAME = {register.name: register for register in REGISTERS}
STORED = tuple(register.name for register in REGISTERS if register.access == "RW")  # order of their values

ERROR_ABORTED, ERROR_TOO_LONG = 16, 17


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


HEAD = """# Registers of oscar_nic

Made by `python -m oscar_hdl.registers > docs/registers.md` from the table that the hardware is built from;
do not edit. AXI4-Lite, 32 bits, 8-bit byte addresses, little-endian. All registers are 0 after reset but ID
and CONFIG. A write to an address without a register or to one that is read only, and a read of an address
without one, are answered with SLVERR and do nothing else. Write strobes hold for RW and W1C; a WO register
takes whole words only.

RW: read and write. RO: read only. W1C: written ones clear. WO: a write does something; reads as 0.

A command: wait until STATUS.pending is 0; write COUNT to SETS (what is not used may hold anything); write
COMMAND. When IRQ_STATUS.done of the lane is set, read RESULT. Exactly these combinations are commands:

| decode | add | encode | keep | |
|---|---|---|---|---|
| 0 | 0 | 1 | 0 | local values into a frame |
| 1 | 1 | 1 | 0, 1 | frame + local into a frame, and out |
| 1 | 1 | 0 | 1 | frame + local out |
| 1 | 0 | 0 | 1 | frame out |
| 1 | 0 | 1 | 0, 1 | frame into a frame of other tables, and out |

A command does not start to decode before its frame has come whole and is the expected one. A bad frame is
dropped (IRQ_STATUS.bad_frame) and the command goes on waiting; ABORT ends it. A table set is loaded from
one number and saved under another, so that a command that failed changes nothing: the driver keeps the old
number until the command is done without an error. Counters may lag 16 clocks.
"""


def markdown() -> str:
    """Return docs/registers.md."""
    lines = [HEAD, "| offset | register | access | |", "|---|---|---|---|"]
    lines += [f"| 0x{r.offset:02x} | {r.name} | {r.access} | {r.text} |" for r in REGISTERS]
    for register in REGISTERS:
        if register.offset >= COUNTERS:
            continue
        lines += ["", f"## {register.name}", "", "| bits | field | |", "|---|---|---|"]
        for field in register.fields:
            high = field.low + field.bits - 1
            bits = f"{high}..{field.low}" if field.bits > 1 else f"{field.low}"
            lines.append(f"| {bits} | {field.name} | {field.text} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
