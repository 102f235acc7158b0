"""Signals again, at once or some clocks later."""

from itertools import pairwise

from myhdl import always, always_comb, block

from oscar_hdl.streams.bundles import Bundle


@block
def copied(clk, source, target, *, load=None):
    """Let `target` be `source` a clock later (load: a level, only with it), or with clk None at once."""
    if clk is None:

        @always_comb
        def copy():
            target.next = source

    elif load is None:

        @always(clk.posedge)
        def copy():
            target.next = source

    else:

        @always(clk.posedge)
        def copy():
            if load:
                target.next = source

    return copy


@block
def chain(clk, *signals):
    """Let each signal be the one before it a clock later."""
    return [copied(clk, *two) for two in pairwise(signals)]


@block
def copied_fields(clk, source: Bundle, target: Bundle, *names: str, load=None):
    """Let fields of `target` be those of `source`, as `copied` does: these names, or all that target has."""
    return [
        copied(clk, getattr(source, name), getattr(target, name), load=load) for name in names or vars(target)
    ]


@block
def part_of(clk, whole, part, *, at: int, bits: int = 0):
    """Let `part` be bits of `whole` from `at` on, as many as it has, a clock later, or with clk None at once.

    bits: other than 0, only so many; those above are 0.
    """
    END = at + (bits or len(part))
    if clk is None:

        @always_comb
        def cut():
            part.next = whole[END:at]

    else:

        @always(clk.posedge)
        def cut():
            part.next = whole[END:at]

    return cut
