"""Keeps what is known of frames whose blocks are dealt, until they are collected, one after another."""

from myhdl import always, always_comb, block

from oscar_hdl.coder.ports import BANK_BITS, BANKS
from oscar_hdl.nic.ports import FrameCommand
from oscar_hdl.nic.send.head_writer import HeadFields
from oscar_hdl.nic.send.ports import PlannedFrame, SentFrame
from oscar_hdl.streams.balance import balance
from oscar_hdl.streams.bundles import word


@block
def queued_field(clk, put, put_at, given, take, take_at, held):
    """Keep a field of each frame; held: of the one that was taken last."""
    memory = [word(len(given)) for _ in range(BANKS)]

    @always(clk.posedge)
    def run():
        if put:
            memory[put_at].next = given
        if take:
            held.next = memory[take_at]

    return run


@block
def frame_queue(
    clk, rst, put, command: FrameCommand, row, last, frame: PlannedFrame, take, some, coded: SentFrame,
    fields: HeadFields, peer, *, frames: int,
):  # fmt: skip
    """Give frames in the order in which they came, `frames` of them at most.

    put (strobe): the command's frame, with its first row and last symbol. take (strobe, while `some`): the
    oldest one's fields are those of coded, fields and peer from the next clock on.
    """
    LAST_BANK = frames - 1
    oldest, kept = word(BANK_BITS), word(BANK_BITS + 1)
    both = (
        (frame.bank, coded.bank), (frame.empty, coded.empty), (frame.last_block, coded.last_block),
        (frame.last_size, coded.last_size), (row, coded.row),
        (command.width, coded.width), (command.step, fields.step), (command.chunk, fields.chunk),
        (command.sub, fields.sub), (command.sequence, fields.sequence), (command.count, fields.count),
        (frame.checksum, fields.checksum), (last, fields.last), (command.peer, peer),
    )  # fmt: skip
    fields.width = coded.width
    parts = [queued_field(clk, put, frame.bank, given, take, oldest, held) for given, held in both]

    @always_comb
    def look():
        some.next = kept != 0

    @always(clk.posedge)
    def count():
        if take:
            oldest.next = oldest + 1
            if oldest == LAST_BANK:
                oldest.next = 0
        if rst:
            oldest.next = 0

    return parts, balance(clk, rst, put, take, kept), look, count
