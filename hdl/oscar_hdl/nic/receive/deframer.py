"""Takes frames into the store's ring, and keeps those that are whole (protocol.md, "Frame")."""

from myhdl import Signal, always, always_comb, block, concat, enum

from oscar.coding.asc.params import ASC_CODE
from oscar.coding.frame import HEADER_BYTES, MAGIC
from oscar_hdl.nic.crc.frame_crc import frame_crc
from oscar_hdl.nic.ports import PEER_BITS
from oscar_hdl.nic.receive.ports import CameFrame
from oscar_hdl.streams.bundles import Stream, bit, word


@block
def crc_feed(clk, rst, taken, data, keep, final, header, fed, fed_data, fed_last, fed_missing):
    """Give the words of frame_crc with a lead of 4 bytes, which is where the CRC's 4 bytes went.

    taken (strobe): a word, data, with keep; final: the frame's last. header: one bit, for the word of the
    header that it is, 0 behind it. fed (strobe), fed_data, fed_last, fed_missing: a clock later.
    """
    size, bits = len(keep), len(data)
    PART = 8 * (HEADER_BYTES % size)  # bits of the header in its last word, 0 for all
    LAST = len(header) - 1
    held, moved, chosen, missing = word(32), word(bits), word(bits), word(len(fed_missing))

    @always_comb
    def count():
        moved.next = concat(data[bits - 32 :], held)
        missing.next = 0
        for n in range(1, size):
            if keep[n - 1] and not keep[n]:
                missing.next = size - n

    if PART == 0:

        @always_comb
        def choose():
            chosen.next = data
            if header != 0:
                chosen.next = moved

    else:

        @always_comb
        def choose():
            chosen.next = data
            if header[LAST]:
                chosen.next = concat(data[bits:PART], moved[PART:])
            elif header != 0:
                chosen.next = moved

    @always(clk.posedge)
    def feed():
        fed.next = taken
        fed_last.next = final
        for n in range(bits):
            fed_data.next[n] = chosen[n] and keep[n // 8]
        if taken:
            fed_missing.next = missing
            held.next = data[bits : bits - 32]
        if (taken and final) or rst:
            held.next = 0
        if rst:
            fed.next = False

    return choose, count, feed


@block
def frame_head(clk, rst, taken, data, peer, header, came: CameFrame, foreign, unknown):
    """Take the fields of a frame's first words, all but length and CRC.

    taken (strobe): the next word, data, comes from `peer`. header: a bit for each word of the header; that of
    the next word is 1. It is 0 behind the header. foreign: magic or version is another; unknown: codec is.
    """
    size, LAST = len(data) // 8, len(header) - 1
    SECOND, S = 8 // size, 8 * (8 % size)  # the word of the frame's bytes 8 to 15, and their place in it
    MAGIC_BYTE, CODEC_BYTE = MAGIC, ASC_CODE

    @always(clk.posedge)
    def keep():
        if taken:
            if header[0]:
                foreign.next = data[8:] != MAGIC_BYTE
                unknown.next = data[16:8] != CODEC_BYTE
                came.peer.next = peer
                came.step.next = data[32:16]
                came.chunk.next = data[48:32]
                came.sub.next = data[56:48]
                came.width.next = data[64:56]
            if header[SECOND]:
                came.sequence.next = data[S + 16 : S]
                came.checksum.next = data[S + 32 : S + 16]
                came.count.next = data[S + 51 : S + 32]
                came.more.next = data[S + 64 : S + 51] != 0
        came.put.next = taken and header[LAST] and not rst

    return keep


# Why a frame was dropped.
LENGTH, VERSION, CODEC, DAMAGED, TOO_LONG = range(1, 6)
STEP, CHUNK, SUB_WIDTH, SEQUENCE, CHECKSUM, COUNT, PEER = range(6, 13)
_WORDS = (
    "length", "magic or version", "codec", "CRC", "too long for the store",
    "step", "chunk", "sub-frame or width", "sequence", "checksum", "count", "peer",
)  # fmt: skip
REASONS = dict(enumerate(_WORDS, LENGTH))


@block
def deframer(
    clk, rst, s_axis_rx: Stream, wr_en, wr_addr, wr_data, head, tail, came: CameFrame, reason,
):  # fmt: skip
    """Write frames to the store, each from a word on; `head` moves behind a frame that is whole.

    s_axis_rx: frames_in(8 size), a frame up to tlast, whose first word has the tid. wr_en, wr_addr, wr_data:
    the store. Frames lie between tail (an input) and head. came: the frame that comes, pushed as `head`
    moves, if it is whole and right; while `full`, no other is taken. reason u4 comes with came.lost.
    """
    size, at_bits = len(s_axis_rx.tkeep), len(head)
    rest_bits = (size - 1).bit_length()
    if size not in (8, 16, 32, 64):
        raise ValueError(f"expected words of 8, 16, 32 or 64 bytes, got {size}")
    WORDS, REST = HEADER_BYTES // size, HEADER_BYTES % size  # of the header
    HEAD_BITS = WORDS + (REST > 0)
    PLACE = 16 // size  # the word of length and CRC, and where they are in it
    AT, LENGTH_BITS = 8 * (16 % size), at_bits + rest_bits
    NONE = -WORDS % (1 << at_bits)
    NEARLY = (1 << (at_bits - 3)) - 1

    states = enum("RECEIVE", "SETTLE", "COMPARE", "JUDGE", "TELL", "REST")
    state = Signal(states.RECEIVE)
    accept, taken, data, keep, final = bit(), bit(), word(8 * size), word(size), bit()
    whole = bit()  # the word has all its bytes
    peer = word(PEER_BITS)
    header = word(HEAD_BITS, 1)  # the word of the header that comes, 0 behind it
    used, room, dropping = word(at_bits), bit(), bit()
    length, announced, measured, expected = word(32), word(32), word(LENGTH_BITS), word(LENGTH_BITS)
    full, short = word(at_bits, NONE), word(rest_bits)
    alone, fault = bit(), word(4)
    keep_error, keep_gap, wrong, length_right, sum_right, foreign, unknown = (bit() for _ in range(7))
    crc_done, crc = bit(), word(32)
    fed, fed_data, fed_last, fed_missing = bit(), word(8 * size), bit(), word(rest_bits)

    feed = crc_feed(clk, rst, taken, data, keep, final, header, fed, fed_data, fed_last, fed_missing)
    check = frame_crc(clk, rst, fed, fed_data, fed_last, fed_missing, crc_done, crc, lead=4)
    heads = frame_head(clk, rst, taken, data, peer, header, came, foreign, unknown)

    @always_comb
    def give():
        s_axis_rx.tready.next = accept
        wr_en.next = taken and not dropping
        wr_data.next = data
        used.next = wr_addr - tail
        came.length.next = length[20:]
        short.next = -fed_missing

    @always(clk.posedge)
    def take():
        taken.next = accept and s_axis_rx.tvalid
        data.next = s_axis_rx.tdata
        keep.next = s_axis_rx.tkeep
        peer.next = s_axis_rx.tid
        final.next = s_axis_rx.tlast
        room.next = used[at_bits:3] != NEARLY
        accept.next = state == states.RECEIVE and (room or dropping)
        if (accept and s_axis_rx.tvalid and s_axis_rx.tlast) or (taken and final):
            accept.next = False
        if rst:
            accept.next = False
            taken.next = False

    @always_comb
    def fill():
        whole.next = True
        for n in range(size):
            if not keep[n]:
                whole.next = False

    @always_comb
    def look():
        keep_gap.next = not whole and not final
        for n in range(1, size):
            if keep[n] and not keep[n - 1]:
                keep_gap.next = True
        fault.next = 0
        if dropping:
            fault.next = TOO_LONG
        elif keep_error or header != 0 or not length_right:
            fault.next = LENGTH
        elif foreign:
            fault.next = VERSION
        elif not sum_right:
            fault.next = DAMAGED
        elif unknown:
            fault.next = CODEC

    @always(clk.posedge)
    def measure():
        if taken:
            header.next = header << 1
            if whole:
                full.next = full + 1
            if keep_gap or not keep[0]:
                keep_error.next = True
            if header[PLACE]:
                length.next = data[AT + 32 : AT]
                announced.next = data[AT + 64 : AT + 32]
        measured.next = concat(full, short)
        expected.next = length[LENGTH_BITS:] + REST
        length_right.next = measured == expected and length[32:LENGTH_BITS] == 0
        sum_right.next = announced == crc
        if state == states.TELL or rst:
            header.next = 1
            full.next = NONE
            keep_error.next = False

    @always(clk.posedge)
    def run():
        came.lost.next = False
        came.push.next = False
        alone.next = head == tail
        if state == states.RECEIVE:
            if taken and not dropping:
                wr_addr.next = wr_addr + 1
            if alone and not room:
                dropping.next = True
            if taken and final:
                state.next = states.SETTLE
        elif state == states.SETTLE:
            if crc_done:
                state.next = states.COMPARE
        elif state == states.COMPARE:
            state.next = states.JUDGE
        elif state == states.JUDGE:
            reason.next = fault
            wrong.next = fault != 0
            state.next = states.TELL
        elif state == states.TELL:
            came.lost.next = wrong
            dropping.next = False
            if wrong:
                wr_addr.next = head
            else:
                head.next = wr_addr
                came.push.next = True
            state.next = states.REST
        elif state == states.REST and not came.full:  # until there is room again
            state.next = states.RECEIVE
        if rst:
            state.next = states.RECEIVE
            head.next = 0
            wr_addr.next = 0
            came.lost.next = False
            came.push.next = False
            dropping.next = False

    return feed, check, heads, give, take, fill, look, measure, run
