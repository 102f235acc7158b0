"""Receives frames and has their blocks decoded: docs/develop/engine.md, "Receiver and sender"."""

from myhdl import always, always_comb, block, concat, modbv

from oscar_hdl.coder.ports import BANK_BITS, TablesPort, banks_of
from oscar_hdl.nic.ports import FrameCommand, check_block
from oscar_hdl.nic.receive import ports
from oscar_hdl.nic.receive.block_counter import Blocks, block_counter
from oscar_hdl.nic.receive.block_places import block_places
from oscar_hdl.nic.receive.byte_feeder import byte_feeder
from oscar_hdl.nic.receive.chunk_reader import ChunkAsk, UnitPort, chunk_reader
from oscar_hdl.nic.receive.decode_dealer import decode_dealer
from oscar_hdl.nic.receive.deframer import deframer
from oscar_hdl.nic.receive.directory_reader import directory_reader
from oscar_hdl.nic.receive.frame_blocks import frame_blocks
from oscar_hdl.nic.receive.frame_match import frame_match
from oscar_hdl.nic.receive.frame_names import frame_names
from oscar_hdl.nic.receive.frame_places import Places, frame_places
from oscar_hdl.nic.receive.frame_store import CHUNK_BITS, chunk_bits, columns_of, frame_store
from oscar_hdl.nic.receive.line_turns import ThreadSpan
from oscar_hdl.nic.receive.ports import FRAMES
from oscar_hdl.nic.receive.prefix_reader import prefix_reader
from oscar_hdl.nic.receive.raw_feeder import raw_feeder
from oscar_hdl.nic.receive.raw_unpack import raw_unpack
from oscar_hdl.nic.receive.raw_words import raw_words
from oscar_hdl.nic.receive.receive_front import receive_front
from oscar_hdl.streams.block_ram import block_ram
from oscar_hdl.streams.bundles import Stream, bit, word

KEPT_BITS = 44  # of an entry of the directory that is right: 20 of its bytes


@block
def frame_receiver(
    clk, rst, s_axis_rx: Stream, command: FrameCommand, row, dropped: ports.Dropped,
    oldest_frame: ports.OldestFrame, held_frame: ports.HeldFrame, tables: TablesPort,
    units: ports.DecodeUnits, clear: ports.ClearPort, *, bus_bits: int = 64, store_log2: int = 12,
    block_log2: int = 12,
):  # fmt: skip
    """Take the frames that commands name, and give their blocks to barrel decoders, several at a time.

    s_axis_rx: frames_in(bus_bits). row (14 bits or more, holds as the command's fields do): the first one of
    the frame. tables: link_tables. store_log2: of the words of bus_bits in which frames wait; 8 stay empty.
    block_log2: of frames that are not refused.
    """
    jobs, feeds = units.jobs, units.feeds
    if bus_bits not in (64, 128, 256, 512):
        raise ValueError(f"bus_bits is 64, 128, 256 or 512, got {bus_bits}")
    if not 6 <= store_log2 <= 17:
        raise ValueError(f"store_log2 is 6 to 17, got {store_log2}")
    check_block(block_log2)
    word_bits, COLUMNS = (bus_bits // 8 - 1).bit_length(), columns_of(bus_bits)
    CHUNK, LINE = chunk_bits(bus_bits, store_log2), min(chunk_bits(bus_bits, store_log2), store_log2)
    banks = banks_of(len(units.jobs))
    UNIT_ADDRESS = CHUNK + 3

    # The store, and what is read from it.
    wr_en, wr_addr, wr_data = bit(), word(store_log2), word(bus_bits)
    head, tail, fault = word(store_log2), word(store_log2), word(4)
    # The first frame that the front has not handed on; of which banks frames are still read, of which the
    # oldest of them is, and where each begins.
    oldest, held, eldest = word(store_log2), word(FRAMES), word(BANK_BITS)
    begins = [word(store_log2) for _ in range(FRAMES)]
    TAG = 4 + 2 * COLUMNS
    line, tag, chunks = word(LINE), word(TAG), [word(CHUNK_BITS) for _ in range(COLUMNS)]
    tags = [word(TAG) for _ in range(COLUMNS)]
    AT = 3 + len(jobs).bit_length() - 1
    span, chunk, raw = ThreadSpan(AT, CHUNK), ChunkAsk(CHUNK), ports.RawWord(AT)
    store = frame_store(clk, wr_en, wr_addr, wr_data, line, tag, chunks, tags)
    feeder = byte_feeder(clk, rst, span, chunk, raw, line, tag, chunks, tags, feeds)
    came, match = ports.CameFrame(), ports.MatchPort()
    frames = deframer(clk, rst, s_axis_rx, wr_en, wr_addr, wr_data, head, tail, came, fault)
    names = frame_names(clk, rst, came, match.gone, oldest_frame)

    # One reader of units: prefix, directory and raw blocks have their turns.
    port, prefix_units, list_units, raw_units = (UnitPort() for _ in range(4))
    for user in (prefix_units, list_units, raw_units):
        user.ready, user.soon, user.units = port.ready, port.soon, port.units
    opened, opened_at, raw_opened = bit(), word(UNIT_ADDRESS), bit()
    reader = chunk_reader(clk, rst, opened, opened_at, chunk, port)

    # Where things are, and the walk over blocks: of the directory's reader, and of the dealer.
    places, frame = Places(store_log2, word_bits), ports.FrontFrame()
    match_places, list_places = Places(store_log2, word_bits), Places(store_log2, word_bits)
    for user in (match_places, list_places):
        user.start, user.end, user.same = places.start, places.end, places.same
    match_places.begin, match_places.at = places.begin, places.at
    entry = word(48)  # of the directory, as it is read
    deal = ports.DealPort(len(row), len(places.start), entry_bits=48)
    list_blocks, deal_blocks, deal_places = Blocks(len(row)), deal.blocks, deal.places
    deal_places.begin, deal_places.first = frame.taken, places.start
    block_bytes = word(20)
    placing = [
        frame_places(clk, places, oldest_frame.length, entry(44, 24), word_bits=word_bits),
        block_places(clk, deal_places, block_bytes),
    ]
    counting = [
        block_counter(clk, list_blocks, command.count, row, block_log2=block_log2),
        block_counter(clk, deal_blocks, deal.count, deal.row, block_log2=block_log2),
    ]

    # Entries of the directories of all frames wait here until they are dealt.
    keep, keep_at = bit(), word(8)
    dealt, keep_place, deal_place = word(KEPT_BITS), word(8 + BANK_BITS), word(8 + BANK_BITS)
    entries = block_ram(clk, keep, keep_place, entry(KEPT_BITS, 0), deal_place, dealt)

    # The steps of a command.
    use, prefix, listing, raw_feed = ports.ReaderUse(), ports.StepPort(), ports.StepPort(), ports.StepPort()
    matcher = frame_match(
        clk, rst, match=match, command=command, checksum=tables.checksum, head=head, oldest=oldest,
        named=oldest_frame, held=held_frame, places=match_places, use=use, word_bits=word_bits,
    )  # fmt: skip
    read_prefix = prefix_reader(
        clk, rst, go=prefix.go, units=prefix_units, build=tables.build, last=tables.last, done=prefix.done,
        right=prefix.right, block_log2=block_log2,
    )  # fmt: skip
    directory = directory_reader(
        clk, rst, go=listing.go, width=command.width, units=list_units, blocks=list_blocks,
        places=list_places, keep=keep, entry=entry, done=listing.done, right=listing.right,
    )  # fmt: skip
    front = receive_front(
        clk, rst, command, tables, match=match, empty=places.same, prefix=prefix, listing=listing, use=use,
        less=places.less, frame=frame, frames=banks,
    )  # fmt: skip
    back = frame_blocks(
        clk, rst, command, tables, row=row, frame=frame, deal=deal, match=match, held=held, oldest=eldest,
        clear=clear, frames=banks,
    )  # fmt: skip
    raw_block, raw_bytes, raw_begins, raw_valid = ports.RawBlock(), Stream(16), bit(), bit()
    raw_value, raw_may, raw_idle = word(16), bit(), bit()
    dealer = decode_dealer(
        clk, rst, deal, span, raw_opened, use, units, raw_block, raw, raw_feed, raw_idle,
        block_log2=block_log2,
    )  # fmt: skip
    plain = [
        raw_feeder(
            clk, rst, raw_feed.go, deal_places.start(0), block_bytes, raw_units, raw_bytes, raw_feed.done
        ),
        raw_unpack(clk, rst, raw_block, raw_bytes, raw_may, raw_begins, raw_valid, raw_value),
        raw_words(
            clk, rst, raw_begins, raw_valid, raw_value, [feed.room for feed in feeds], raw, raw_may, raw_idle
        ),
    ]

    @always_comb
    def share():
        opened.next = use.opens or raw_opened
        opened_at.next = deal_places.start[UNIT_ADDRESS + 1 : 1]
        if use.opens:
            opened_at.next = places.start[UNIT_ADDRESS + 1 : 1]
        match.heard.next = match.refuse and not came.lost
        port.get.next = prefix_units.get or list_units.get or raw_units.get
        port.amount.next = list_units.amount
        if prefix_units.get:
            port.amount.next = prefix_units.amount
        elif raw_units.get:
            port.amount.next = raw_units.amount
        places.add.next = match_places.add or list_places.add
        block_bytes.next = dealt[44:24]
        keep_place.next = concat(frame.bank, keep_at)
        deal_place.next = concat(deal.bank, deal.number)
        deal.entry.next = concat(modbv(0)[4:], dealt)

    @always(clk.posedge)
    def run():
        places.get.next = port.get and not raw_units.get
        places.amount.next = port.amount
        dropped.bad.next = came.lost or match.refuse
        dropped.reason.next = match.reason
        dropped.peer.next = oldest_frame.peer
        if came.lost:
            dropped.reason.next = fault
            dropped.peer.next = came.peer
        if keep:
            keep_at.next = keep_at + 1
        if listing.go:
            keep_at.next = 0
        if frame.taken:
            begins[frame.bank].next = oldest
        tail.next = oldest
        if held != 0:
            tail.next = begins[eldest]
        if rst:
            dropped.bad.next = False
            tail.next = 0

    return (
        store, feeder, frames, names, reader, placing, counting, entries, matcher, read_prefix, directory,
        front, back, dealer, plain, share, run,
    )  # fmt: skip
