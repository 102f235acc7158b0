"""Copies of signals, by wire or behind registers."""

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
def chain(clk, *signals, load=None):
    """Let each signal be the one before it a clock later (load: as of copied)."""
    return [copied(clk, *two, load=load) for two in pairwise(signals)]


@block
def copied_fields(clk, source: Bundle, target: Bundle, *names: str, load=None):
    """Let fields of `target` be those of `source`, as `copied` does: these names, or all that target has."""
    return [
        copied(clk, getattr(source, name), getattr(target, name), load=load) for name in names or vars(target)
    ]
