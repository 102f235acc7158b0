"""Whether a memory card beside a GPU pays for decoding: the roofline planner of HPU (arXiv 2504.16112).

Decoding one token of every request has two stages in each layer. The linear layers read all weights once,
whatever the batch. Attention reads each request's own keys and values, and gains nothing from a batch: it is
bound by memory. A card with much memory bandwidth takes attention. Two sub-batches take turns, so that the
GPU works on one while the cards work on the other; vectors cross PCIe in both directions between the stages.

Time of a stage is max(flops / F, bytes / B): the roofline. Everything runs at its published peak. Or a card's
attention takes the clocks of the units of docs/reference/attention.md, which read keys and values of 8 bits.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass, replace

import numpy as np

from oscar.errors import ConfigError, did_you_mean
from oscar.tables import Table

GIGA = 1e9
# Of an attention unit's RTL, which a test compares: values of a word, rows of a head, and clocks between two
# heads, of division for each word of a row, and around it.
LANES, MOST_ROWS, BETWEEN, DIVISION, AROUND = 8, 1 << 16, 32, 188, 31
PAYS = 1.05  # a gain that is worth a card
LONGEST = 1 << 20  # tokens of a context that are looked at


@dataclass(frozen=True)
class Card:
    """flops: per second, of 16-bit floats. bandwidth: bytes/s of its memory. link: bytes/s of its PCIe."""

    name: str
    flops: float
    bandwidth: float
    memory: float
    link: float

    @property
    def ridge(self) -> float:
        """Flops per byte above which work is bound by arithmetic."""
        return self.flops / self.bandwidth

    def seconds(self, flops: float, size: float) -> float:
        """Return the roofline's time of work of so many flops and bytes."""
        return max(flops / self.flops, size / self.bandwidth)


CARDS = {
    card.name: card
    for card in (
        Card("L40S", 362e12, 864e9, 48e9, 64e9),
        Card("U55C", 1e12, 460e9, 16e9, 32e9),  # the HPU prototype
        Card("HPU", 39.3e12, 4_900e9, 144e9, 64e9),  # the HPU as its authors plan it
        Card("H200", 989e12, 4_800e9, 141e9, 64e9),
    )
}
TABLE = Table(
    "batch >5", "alone_s:GPU alone ms >12.2f", "passes >6", "linear_s:linear ms >9.2f",
    "attention_s:attention ms >12.2f", "transfer_s:transfer ms >11.2f", "offloaded_s:offloaded ms >12.2f",
    "gain >5.2f", "bound <1",
)  # fmt: skip
THIS = "host"  # this machine's own processor, measured


@dataclass(frozen=True)
class LanguageModel:
    """A transformer that decodes: by default Llama-2 7B, 16-bit weights, 1,024 tokens in and out."""

    layers: int = 32
    heads: int = 32
    hidden: int = 4096
    parameters: float = 6.74e9
    prompt: int = 1024
    output: int = 1024
    bytes_each: int = 2
    cache_bytes: int = 2  # of a key's or a value's number

    @property
    def context(self) -> float:
        """Tokens that a request attends to, on average while it decodes."""
        return self.prompt + self.output / 2

    @property
    def weights(self) -> float:
        """Bytes of all weights."""
        return self.parameters * self.bytes_each

    @property
    def cache(self) -> float:
        """Bytes of one request's keys and values, on average: requests are of all ages."""
        return 2 * self.context * self.hidden * self.layers * self.cache_bytes

    def linear(self, card: Card, batch: float) -> float:
        """Return the seconds of the linear layers for one token of each request."""
        return card.seconds(2 * self.parameters * batch, self.weights)

    def attention(self, card: Card, batch: float) -> float:
        """Return the seconds of attention for one token of each request."""
        flops = 4 * self.context * self.hidden * self.layers * batch
        return card.seconds(flops, self.cache * batch)

    def transfer(self, card: Card, batch: float, parts: int = 1) -> float:
        """Return the seconds in which queries, keys, values go to the card and parts of results come back."""
        return (3 + parts) * self.hidden * self.layers * self.bytes_each * batch / card.link


@dataclass(frozen=True)
class AttentionUnits:
    """Attention units on a card (docs/reference/attention.md): how many, and their clock."""

    number: int
    mhz: float

    def __post_init__(self) -> None:
        if self.number < 1 or not 0 < self.mhz < math.inf:
            raise ConfigError(f"offload: expected units and MHz above 0, got {self.number}, {self.mhz}")

    @staticmethod
    def clocks(rows: int, width: int) -> int:
        """Return the clocks from one head of rows of `width` values to the next: reading, or division."""
        words = width // LANES
        return max(2 * words * rows + BETWEEN, DIVISION * words + AROUND)

    def shared(self, heads: int, rows: int, width: int) -> tuple[int, int]:
        """Return the clocks of `heads` heads at once, and in how many parts units share a context."""
        least = -(-rows // MOST_ROWS)
        most = min(rows, max(least + 15, self.number // heads))
        result = (
            (-(-heads * parts // self.number) * self.clocks(-(-rows // parts), width), parts)
            for parts in range(least, most + 1)
        )
        return min(result)

    def attention(self, model: LanguageModel, card: Card, batch: float) -> tuple[float, int]:
        """Return the seconds of attention for one token of `batch` requests, in two turns, and the parts."""
        heads, rows = math.ceil(batch / 2) * model.heads, math.ceil(model.context)
        clocks, parts = self.shared(heads, rows, model.hidden // model.heads)
        seconds = 2 * model.layers * clocks / (1e6 * self.mhz)
        return max(seconds, model.cache * batch / card.bandwidth), parts


@dataclass(frozen=True)
class OffloadPlan:
    """What one batch takes. times in seconds for a token of every request; rates in tokens per second.

    passes: in which the GPU alone must do the batch, as its memory holds no more. pays: the cards save more
    than transfers cost. bound: what limits the two stages together.
    """

    batch: int
    alone_s: float
    passes: int
    linear_s: float
    attention_s: float
    transfer_s: float
    offloaded_s: float
    gain: float
    pays: bool
    bound: str


def plan(
    gpu: Card,
    card: Card,
    cards: int,
    batch: int,
    model: LanguageModel,
    *,
    units: AttentionUnits | None = None,
) -> OffloadPlan:
    """Return the plan of `batch` requests on a GPU alone, and with `cards` cards that do attention.

    units: on each card, instead of its roofline.
    Raises ConfigError for fewer than one card or request, and where weights or caches fit nowhere.
    """
    if cards < 1 or batch < 1:
        raise ConfigError(f"offload: expected at least one card and one request, got {cards} and {batch}")
    room = gpu.memory - model.weights
    if room < model.cache:
        raise ConfigError(
            f"offload: {gpu.name} has {gpu.memory / GIGA:g} GB, the weights of the model take "
            f"{model.weights / GIGA:.1f}, a request {model.cache / GIGA:.2f}: take a larger GPU"
        )
    if cards * card.memory < model.cache * batch:
        raise ConfigError(
            f"offload: {batch} requests keep {batch * model.cache / GIGA:.1f} GB of keys and values, {cards} "
            f"of {card.name} hold {cards * card.memory / GIGA:g}: take more cards, or at most "
            f"{int(cards * card.memory / model.cache)} requests"
        )
    passes = -(-batch // int(room / model.cache))
    each = batch / passes
    alone = passes * (model.linear(gpu, each) + model.attention(gpu, each))
    # Each card has its own PCIe and its own share of the requests. The batch is one of two that take turns.
    linear, attention, parts = model.linear(gpu, batch), model.attention(card, batch / cards), 1
    if units is not None:
        attention, parts = units.attention(model, card, batch / cards)
    transfer = model.transfer(card, batch / cards, parts)
    behind = attention + transfer
    offloaded = max(linear, behind)
    return OffloadPlan(
        batch=batch,
        alone_s=alone,
        passes=passes,
        linear_s=linear,
        attention_s=attention,
        transfer_s=transfer,
        offloaded_s=offloaded,
        gain=alone / offloaded,
        pays=offloaded < alone,
        bound="linear layers on the GPU" if linear >= behind else "attention on the cards",
    )


def contexts_that_pay(
    gpu: Card,
    card: Card,
    cards: int,
    batch: int,
    model: LanguageModel,
    *,
    units: AttentionUnits | None = None,
) -> tuple[int, int, bool] | None:
    """Return the shortest and the longest context with which the cards gain PAYS; None: there is none.

    Contexts of eight lengths an octave are looked at, as long as GPU and cards hold them. The bool: it ends
    there, not because the cards are too slow.
    """
    lengths = sorted({round(2 ** (n / 8)) for n in range(8 * LONGEST.bit_length() - 7)})
    paying, looked = [], 0
    for context in lengths:
        try:
            result = plan(gpu, card, cards, batch, replace(model, prompt=context, output=0), units=units)
        except ConfigError:
            break
        looked = context
        if result.gain >= PAYS:
            paying.append(context)
    return (paying[0], paying[-1], paying[-1] == looked) if paying else None


def parse_cards(text: str) -> tuple[str, int]:
    """Return name and number of "U55Cx4"; one card without a number. Raises ConfigError."""
    name, cross, number = text.rpartition("x")
    if not cross or not number.isdigit():
        return text, 1
    return name, int(number)


def find_card(name: str) -> Card:
    """Return a card by name; "host" measures this machine. Raises ConfigError that names the nearest one."""
    if name == THIS:
        return measured()
    if name not in CARDS:
        known = [*CARDS, THIS]
        raise ConfigError(f"unknown card {name!r}; {did_you_mean(name, known)}there are {', '.join(known)}")
    return CARDS[name]


def measured() -> Card:
    """Return this machine as a card: the best of a few copies and matrix products in float32."""
    order = 768
    source, out = np.ones(1 << 24, np.float32), np.empty(1 << 24, np.float32)
    matrix = np.ones((order, order), np.float32)
    copies, products = [], []
    for _ in range(5):
        began = time.perf_counter()
        np.copyto(out, source)
        between = time.perf_counter()
        matrix @ matrix
        copies.append(between - began)
        products.append(time.perf_counter() - between)
    bandwidth = 2 * source.nbytes / min(copies)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Card(THIS, 2 * order**3 / min(products), bandwidth, float(memory), bandwidth)
