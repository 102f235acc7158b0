"""The score of a row: the product of its key and the query."""

from myhdl import always, block

from oscar_hdl.attention.ports import RowWord, Score, signed
from oscar_hdl.attention.twin import LANES
from oscar_hdl.streams.bundles import word

DEPTH = 5  # clocks from a word to the sum of its products


@block
def lane_product(clk, LANE: int, data, found, product):
    """Multiply bytes of two words; product s16 comes two clocks later."""
    LOW, HIGH = 8 * LANE, 8 * LANE + 8
    left, right = signed(8), signed(8)

    @always(clk.posedge)
    def multiply():
        left.next = data[HIGH:LOW].signed()
        right.next = found[HIGH:LOW].signed()
        product.next = left * right

    return multiply


@block
def key_score(clk, words: RowWord, found, score: Score):
    """Add the products of a key's words; found u64: the query's word words.at. A score comes 6 clocks behind
    its key's last word.
    """
    products = [signed(16) for _ in range(LANES)]
    p0, p1, p2, p3, p4, p5, p6, p7 = products
    pair0, pair1, pair2, pair3 = (signed(17) for _ in range(4))
    low, high, whole = signed(18), signed(18), signed(19)
    valid, begins, ends = word(DEPTH), word(DEPTH), word(DEPTH)
    lanes = [lane_product(clk, n, words.data, found, products[n]) for n in range(LANES)]

    @always(clk.posedge)
    def add():
        pair0.next = p0 + p1
        pair1.next = p2 + p3
        pair2.next = p4 + p5
        pair3.next = p6 + p7
        low.next = pair0 + pair1
        high.next = pair2 + pair3
        whole.next = low + high
        valid.next = valid << 1
        begins.next = begins << 1
        ends.next = ends << 1
        valid.next[0] = words.valid and not words.value
        begins.next[0] = words.at == 0
        ends.next[0] = words.end
        score.made.next = valid[DEPTH - 1] and ends[DEPTH - 1]
        score.first.next = words.first  # a row's value has more words than there are clocks to here
        if valid[DEPTH - 1]:
            if begins[DEPTH - 1]:
                score.score.next = whole
            else:
                score.score.next = score.score + whole

    return lanes, add
