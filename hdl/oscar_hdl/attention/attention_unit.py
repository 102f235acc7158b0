"""Attention of a query to rows of keys and values that a memory streams, eight bytes a clock."""

from myhdl import always, always_comb, block, concat

from oscar_hdl.attention.key_score import key_score
from oscar_hdl.attention.ports import AT_BITS, SUM_BITS, Give, Head, RowWord, Score, Weight, signed
from oscar_hdl.attention.query_store import query_store
from oscar_hdl.attention.quotients import quotients
from oscar_hdl.attention.row_intake import row_intake
from oscar_hdl.attention.row_weight import row_weight
from oscar_hdl.attention.twin import LANES
from oscar_hdl.attention.value_lane import value_lane
from oscar_hdl.streams.bundles import Stream, bit, word
from oscar_hdl.streams.lane_delay import lane_delay
from oscar_hdl.streams.reset_hold import reset_hold

# Clocks of a value's word: 15 at least, until its row has a weight; 22 at most, then the next one has.
WAIT = 16


@block
def attention_unit(clk, rst, s_axis_query: Stream, s_axis_rows: Stream, m_axis_result: Stream, refused):
    """Answer each query and its rows by a result, in order; docs/reference/attention.md has the packets.

    Args:
        rst: Synchronous, active high, one clock or more. Streams are not ready for 64 clocks after it.
        s_axis_query: A packet for each query.
        s_axis_rows: A packet of keys and values for each query, in the same order.
        m_axis_result: A packet for each query, in the same order.
        refused: Queries that were refused since the reset; it wraps.

    Clocks:
        1: A word on `s_axis_rows`; between two packets 32 clocks without one.
        max(2 W rows + 32, 188 W + 31): From a head to the next, for rows of W words.
    """
    held, phase, weighs = bit(), word(4), bit()
    head, words, late, give, score, weight = Head(), RowWord(), RowWord(), Give(), Score(), Weight()
    now, behind, found, read_at = word(AT_BITS + 67), word(AT_BITS + 67), word(64), word(AT_BITS)
    sums = [signed(SUM_BITS) for _ in range(LANES)]

    hold = reset_hold(clk, rst, held)
    queries = query_store(clk, held, s_axis_query, head, words.at, found)
    intake = row_intake(clk, held, s_axis_rows, head, words, give, refused)
    scores = key_score(clk, words, found, score)
    weights = row_weight(clk, head, score, weight)
    delay = lane_delay(clk, phase, now, behind, WAIT)
    lanes = [value_lane(clk, n, late, weight, read_at, sums[n]) for n in range(LANES)]
    results = quotients(clk, held, head, weight, give, read_at, sums, m_axis_result)

    @always(clk.posedge)
    def count():
        phase.next = phase + 1

    @always_comb
    def pack():
        now.next = concat(weighs, words.first, words.last, words.at, words.data)

    @always_comb
    def unpack():
        weighs.next = words.valid and words.value
        late.valid.next = behind[AT_BITS + 66]
        late.first.next = behind[AT_BITS + 65]
        late.last.next = behind[AT_BITS + 64]
        late.at.next = behind[AT_BITS + 64 : 64]
        late.data.next = behind[64:]

    return hold, queries, intake, scores, weights, delay, lanes, results, count, pack, unpack
