"""A stand-in for asc_tables in the benches of its clients: the same ports, the reference's arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from myhdl import block, instance

from oscar_hdl.format2.params import CONTEXTS, COUNT_STEP, PRIOR, SYMBOLS
from oscar_hdl.format2.reference import frequencies, update

MERGE, MERGE_ONLY, DROP, PRIORS, LOAD, SAVE = range(6)
NAMES = ("MERGE", "MERGE_ONLY", "DROP", "PRIOR", "LOAD", "SAVE")


def reciprocal(f: int) -> int:
    """Return the 18-bit reciprocal that stands beside frequency `f` (docs/hardware.md)."""
    power = 18 if f <= 64 else 24 if f <= 512 else 27
    return min((1 << 18) - 1, (1 << power) // f)


class Tables:
    """What one client of asc_tables owns, and a record of what it asked for.

    stored: histogram that LOAD reads and SAVE replaces; hist: the histogram in use; counts: the two banks;
    log: (name, bank, tbank) of every finished operation; pace: clocks from one table write to the next,
    asked before each write (asc_tables needs 2 to 4 for a decoder, up to 12 for an encoder).
    """

    def __init__(self, pace: Callable[[], int] = lambda: 3) -> None:
        self.stored: list[list[int]] = prior()
        self.hist: list[list[int]] = prior()
        self.counts = [zeros(), zeros()]
        self.log: list[tuple[str, int, int]] = []
        self.pace = pace


def prior() -> list[list[int]]:
    """Return the histogram of a new link."""
    return [list(PRIOR) for _ in range(CONTEXTS)]


def zeros() -> list[list[int]]:
    """Return counts of nothing."""
    return [[0] * SYMBOLS for _ in range(CONTEXTS)]


@block
def tables_model(
    clk: Any, rst: Any, tables: Tables, cnt_valid: Any, cnt_addr: Any, cnt_bank: Any, req: Any, op: Any,
    bank: Any, tbank: Any, ack: Any, tw_en: Any, tw_addr: Any, tw_f: Any, tw_c: Any, tw_rcp: Any = None,
    wipe: Any = None,
) -> Any:  # fmt: skip
    """Serve one client: ports as of asc_tables without X_ in front; state comes from and goes to `tables`.

    Checks the client: counts come at most every second clock and not into a bank that is being merged,
    dropped or overwritten; a request and its operands hold still until `ack`.

    wipe: as enc_wipe; it must come 8 clocks after a count or later, and 40 clocks before the next.
    """

    @instance
    def count():
        before, symbol = False, 0
        now, counted, wiped = 0, -100, -100
        while True:
            yield clk.posedge
            now += 1
            if rst:
                counted = wiped = -100
            if cnt_valid and not rst:
                if now < wiped + 40:
                    raise AssertionError("counted while counts are wiped")
                counted = now
                if before:
                    raise AssertionError("counts in two clocks running")
                tables.counts[int(cnt_bank)][int(cnt_addr) >> 4][int(cnt_addr) & 15] += COUNT_STEP
                symbol = int(cnt_addr) & 15
            if wipe and not rst:
                if now < counted + 8:
                    raise AssertionError("wiped while counts are on their way")
                wiped = now
                for row in tables.counts[int(cnt_bank)]:
                    row[symbol] = 0
            before = bool(cnt_valid) and not rst

    @instance
    def serve():
        while True:
            tw_en.next, ack.next = False, False
            yield clk.posedge
            if rst or not req or ack:
                continue
            asked = (int(op), int(bank), int(tbank))
            for _ in perform(*asked):
                yield clk.posedge
                tw_en.next = False
                if rst:
                    break
                if not req or (int(op), int(bank), int(tbank)) != asked:
                    raise AssertionError("a request changed before ack")
            else:
                tables.log.append((NAMES[asked[0]], asked[1], asked[2]))
                ack.next = True
                yield clk.posedge

    def perform(what: int, from_bank: int, to_bank: int) -> Any:
        """Do an operation; yields once for each clock that it takes."""
        held = [row[:] for row in tables.counts[from_bank]]
        if what in (MERGE, MERGE_ONLY, SAVE):
            update(tables.hist, tables.counts[from_bank])
        elif what in (PRIORS, LOAD):
            tables.hist = prior() if what == PRIORS else [row[:] for row in tables.stored]
        if what == SAVE:
            tables.stored = [row[:] for row in tables.hist]
        yield
        if what in (MERGE, PRIORS, LOAD):
            for q, row in enumerate(tables.hist):
                below = 0
                for s, f in enumerate(frequencies(row)):
                    for _ in range(tables.pace()):
                        yield
                    tw_en.next, tw_addr.next, tw_f.next, tw_c.next = True, to_bank << 8 | q << 4 | s, f, below
                    if tw_rcp is not None:
                        tw_rcp.next = reciprocal(f)
                    below += f
        else:
            for _ in range(256):
                yield
        yield
        if what in (MERGE, MERGE_ONLY, DROP, SAVE):
            if held != tables.counts[from_bank]:
                raise AssertionError("counted into a bank that is being merged or dropped")
            tables.counts[from_bank] = zeros()
        elif what in (PRIORS, LOAD):
            tables.counts = [zeros(), zeros()]

    return count, serve
