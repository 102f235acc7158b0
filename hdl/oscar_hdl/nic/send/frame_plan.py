"""How many blocks a frame has, and how many values the last one."""

from myhdl import always, block, concat

from oscar_hdl.streams.bundles import bit, word

VALUES_BITS = 18


@block
def frame_plan(clk, rst, start, count, block_log2, ready, last_block, size, last_size):
    """Cut `count` u19 values into blocks of 2^block_log2.

    start (strobe); ready: 20 clocks later (the rest one clock behind it), until the next start. last_block
    u8: the number of the last block; size u18: values of all blocks but that one; last_size u18: of that
    one.
    """
    steps, blocks, rest, some, move = word(5), word(len(count)), word(VALUES_BITS), bit(), bit()

    @always(clk.posedge)
    def run():
        # The low bits of the count move from `blocks` into `rest`, 18 steps in all. That they do in the next
        # step is found a step before.
        if not ready:
            steps.next = steps + 1
            rest.next = rest >> 1
            move.next = steps < block_log2
            if move:
                blocks.next = blocks >> 1
                size.next = size << 1
                rest.next = concat(blocks[0], rest[VALUES_BITS:1])
                if blocks[0]:
                    some.next = True
            if steps == VALUES_BITS + 1:
                ready.next = True
                rest.next = rest
        if start:
            steps.next = 1
            move.next = True
            blocks.next = count
            size.next = 1
            some.next = False
            ready.next = False
        if rst:
            ready.next = True
        last_size.next = size
        last_block.next = blocks - 1
        if some:
            last_size.next = rest
            last_block.next = blocks[8:]

    return run
