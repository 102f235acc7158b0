"""Requests of a barrel unit's threads for rows of a bank: kept until one is chosen in a turn and answered."""

from myhdl import always, always_comb, block, concat

from oscar_hdl.coder.unit.ports import THREAD_BITS, THREADS
from oscar_hdl.coder.unit.thread_choice import ring_pick
from oscar_hdl.streams.bundles import bit, word


@block
def thread_rows(clk, blocks, thread, row, place, *, block_bits: int):
    """Give the row in the bank of a row of a thread's block.

    blocks: BankBlock. row u12; block_bits: rows of a block, as a power of two.
    """
    HIGH, BASE = len(place), len(place) - block_bits
    if not 5 <= block_bits < HIGH:
        raise ValueError(f"a block has 2^5 rows or more, and a bank two blocks, got 2^{block_bits}, 2^{HIGH}")
    bases, base = [word(BASE) for _ in range(THREADS)], word(BASE)

    @always(clk.posedge)
    def keep():
        if blocks.start:
            bases[blocks.thread].next = blocks.first[HIGH:block_bits]

    @always_comb
    def find():
        base.next = bases[thread]

    @always_comb
    def join():
        place.next = concat(base, row[block_bits:])

    return keep, find, join


@block
def request_choice(clk, rst, phase, port, request):
    """Choose one of the threads with an open request, in a ring.

    port: CodedSource or CodedPosition, the request and the answer. request: BankRequest.
    """
    pending, above, pick = word(THREADS), word(THREADS), word(THREAD_BITS)

    seek = ring_pick(pending, above, pick)

    @always(clk.posedge)
    def choose():
        if phase[2:] == 1:
            request.thread.next = pick
            request.some.next = pending != 0
        if phase[2:] == 3 and request.some:
            for i in range(THREADS):
                above.next[i] = request.thread < i
        if rst:
            request.some.next = False

    @always(clk.posedge)
    def keep():
        port.given.next = phase[2:] == 3 and request.some and request.served
        if phase[2:] == 3:
            port.given_thread.next = request.thread
        # An answered request is forgotten in phase 0, before the next one is chosen.
        for i in range(THREADS):
            if port.given and port.given_thread == i:
                pending.next[i] = False
            if phase[2:] == 0 and port.take and port.thread == i:
                pending.next[i] = True
        if rst:
            pending.next = 0
            port.given.next = False

    return seek, choose, keep


@block
def bank_requests(clk, rst, phase, port, blocks, arrival, request, *, block_bits: int):
    """Keep what the threads of a unit ask for, and choose a request in each turn.

    port: CodedSource or CodedPosition. blocks: BankBlock. arrival: BankArrival, of which what is found is
    kept until the request is answered. request: BankRequest; `served` says in phase 3 whether it is.
    """
    HIGH, LINE = len(request.row), len(request.row) + 2
    INFO = len(request.info)
    lines, line = [word(LINE) for _ in range(THREADS)], word(LINE)
    infos, fresh_info, kept_info, fresh = [word(INFO) for _ in range(THREADS)], word(INFO), word(INFO), bit()
    came, thread1, flags1 = bit(), word(THREAD_BITS), word(2)

    place = thread_rows(clk, blocks, port.thread, port.row, arrival.asked, block_bits=block_bits)
    choice = request_choice(clk, rst, phase, port, request)

    @always(clk.posedge)
    def receive():
        if phase[2:] == 0:
            came.next = port.take
            thread1.next = port.thread
            flags1.next = concat(port.read, port.header)
            arrival.row.next = arrival.asked
        if rst:
            came.next = False

    @always(clk.posedge)
    def keep():
        if phase[2:] == 1 and came:
            lines[thread1].next = concat(flags1, arrival.row)

    @always(clk.posedge)
    def look_up():
        if phase[2:] == 3:
            if came:
                infos[thread1].next = arrival.found
            fresh_info.next = arrival.found
            kept_info.next = infos[request.thread]
            fresh.next = came and thread1 == request.thread

    @always_comb
    def show():
        line.next = lines[request.thread]

    @always_comb
    def split():
        request.row.next = line[HIGH:]
        request.header.next = line[HIGH]
        request.read.next = line[HIGH + 1]
        request.info.next = kept_info
        if fresh:
            request.info.next = fresh_info

    return place, choice, receive, keep, look_up, show, split
