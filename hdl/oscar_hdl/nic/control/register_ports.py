"""Bundles between registers and what they command; a strobe lasts a clock."""

from collections.abc import Sequence

from myhdl import SignalType

from oscar_hdl.nic.control.registers import KEPT_ERRORS
from oscar_hdl.nic.ports import ERROR_BITS
from oscar_hdl.streams.bundles import Bundle, bit, word


class RegisterWrite(Bundle):
    """A WO register is written: strobe, with index u6, its word's place, and data u32."""

    strobe, index, data = bit(), word(6), word(32)


class RegisterRead(Bundle):
    """A register is read: index u6, its word's place; value u32 is taken 4 clocks later if it is RO."""

    index, value = word(6), word(32)


class CommandFields:
    """What a command takes besides its order: COMMAND_FRAME, COMMAND_SHAPE and COMMAND_TABLES, u32 each."""

    def __init__(self, parts: Sequence[SignalType] | None = None) -> None:
        self.frame, self.shape, self.tables = parts or [word(32) for _ in range(3)]


class CommandAsk:
    """A command, and the answer.

    issue: strobe, a command is given.
    order: u32, the word of its COMMAND register.
    fields: its other three registers.
    locked: level, a command waits.
    refused: strobe.
    trial: level from issue until `judged` (strobe), with which `bad` comes: the command is only judged, and
    is not counted.

    Several ports may share the signals trial, order and fields.
    """

    def __init__(
        self, trial: SignalType | None = None, order: SignalType | None = None,
        fields: CommandFields | None = None,
    ) -> None:  # fmt: skip
        self.issue, self.trial = bit(), bit() if trial is None else trial
        self.order, self.fields = word(32) if order is None else order, fields or CommandFields()
        self.locked, self.refused, self.judged, self.bad = bit(), bit(), bit(), bit()


class CommandState(Bundle):
    """Commands of a direction: running u3, under way, four at most; result u23: how many ended u8, and their
    last five errors; abort: strobe, end them.
    """

    running, result, abort = word(3), word(8 + KEPT_ERRORS * ERROR_BITS), bit()
