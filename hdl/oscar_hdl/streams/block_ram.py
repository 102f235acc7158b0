"""A block RAM with two ports: one writes, the other reads, or both read."""

from myhdl import always, block

from oscar_hdl.streams.bundles import word


@block
def block_ram(clk, write, write_at, data, read_at, read, found=None):
    """Keep a word for each address; the width of the addresses says how many.

    write: strobe, the word at write_at becomes data. read: the word at read_at two clocks later; found (None:
    nobody asks): the same of write_at. Nothing sensible comes of a word that is written in the clock in which
    it is read. The addresses are registers.
    """
    width, depth = len(data), len(write_at)
    if not width == len(read) == len(data if found is None else found) or depth != len(read_at):
        raise ValueError("data and addresses of both ports have the same widths")
    memory = [word(width) for _ in range(1 << depth)]
    fetched, own_fetched = word(width), word(width)

    if found is None:

        @always(clk.posedge)
        def access():
            if write:
                memory[write_at].next = data
            fetched.next = memory[read_at]
            read.next = fetched

    else:

        @always(clk.posedge)
        def access():
            if write:
                memory[write_at].next = data
            own_fetched.next = memory[write_at]
            fetched.next = memory[read_at]
            found.next = own_fetched
            read.next = fetched

    return access
