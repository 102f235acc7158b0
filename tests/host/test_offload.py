"""The planner of offload cards: rooflines, capacity, and the published gains."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oscar.cli import main
from oscar.errors import ConfigError
from oscar.planning.offload import (
    CARDS,
    PAYS,
    AttentionUnits,
    Card,
    LanguageModel,
    contexts_that_pay,
    find_card,
    parse_cards,
    plan,
)

L40S, U55C = CARDS["L40S"], CARDS["U55C"]


@pytest.mark.parametrize(("batch", "published", "off"), [(16, 1.9, 0.2), (32, 2.9, 0.2), (64, 4.1, 0.25)])
def test_gains_are_those_published(batch: int, published: float, off: float) -> None:
    """At 64 the GPU alone runs two passes here; what the authors' baseline did is not said."""
    assert plan(L40S, U55C, 4, batch, LanguageModel()).gain == pytest.approx(published, rel=off)


def test_time_bends_at_the_ridge(seed: int) -> None:
    card = Card("x", *np.random.default_rng(seed).uniform(1e9, 1e12, 4))
    for size in (1.0, 1e6):
        assert card.seconds(0.5 * card.ridge * size, size) == pytest.approx(size / card.bandwidth)
        assert card.seconds(2 * card.ridge * size, size) == pytest.approx(2 * size / card.bandwidth)


def test_a_card_pays_only_where_transfers_cost_less_than_it_saves() -> None:
    assert plan(L40S, U55C, 4, 16, LanguageModel()).pays
    slow = plan(L40S, replace(U55C, link=1e8), 4, 16, LanguageModel())
    assert not slow.pays
    assert slow.bound == "attention on the cards"


def test_a_gpu_without_room_for_the_batch_takes_more_passes() -> None:
    model = LanguageModel()
    small = replace(L40S, memory=model.weights + 8.5 * model.cache)
    assert plan(small, U55C, 4, 16, model).passes == 2
    assert plan(replace(L40S, memory=1e15), U55C, 4, 16, model).passes == 1


@pytest.mark.parametrize(("cards", "batch", "gpu", "said"), [
    (0, 16, L40S, "at least one card"), (1, 64, L40S, "take more cards, or at most 19 requests"),
    (1, 1, replace(L40S, memory=1e9), "take a larger GPU"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(cards: int, batch: int, gpu: Card, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plan(gpu, U55C, cards, batch, LanguageModel())


def test_cards_by_name() -> None:
    assert parse_cards("U55Cx4") == ("U55C", 4)
    assert parse_cards("H200") == ("H200", 1)
    with pytest.raises(ConfigError, match="did you mean 'U55C'"):
        find_card("U55c")
    host = find_card("host")
    assert 1e8 < host.bandwidth < 1e13
    assert host.memory > 1e8


def test_the_command_prints_a_row_for_each_batch(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["offload", "U55Cx4", "--batch", "16", "32"]) == 0
    assert capsys.readouterr().out.count("linear layers on the GPU") == 2
    assert main(["predict", "--nodes", "4"]) == 2
    assert "predict needs --values, --gbps" in capsys.readouterr().err


def test_units_of_the_rtl_are_as_fast_as_their_memory_or_their_clock() -> None:
    model = replace(LanguageModel(), cache_bytes=1)
    seconds, parts = AttentionUnits(64, 200).attention(model, U55C, 4)
    read = 64 * 8 * 200e6
    assert parts == 1
    assert seconds == pytest.approx(4 * model.cache / read, rel=0.01)
    assert AttentionUnits(1 << 20, 200).attention(model, U55C, 4)[0] == pytest.approx(
        4 * model.cache / U55C.bandwidth
    )
    for number, heads, parts in ((64, 64, 1), (640, 64, 10), (96, 64, 3)):
        clocks = AttentionUnits(number, 200).shared(heads, 3000, 128)
        rounds = heads * parts // number
        assert clocks == (rounds * AttentionUnits.clocks(3000 // parts, 128), parts)
    with pytest.raises(ConfigError, match="units and MHz above 0"):
        AttentionUnits(0, 200)


def test_slow_units_pay_up_to_a_length_and_fast_ones_up_to_what_memory_holds() -> None:
    model = replace(LanguageModel(), cache_bytes=1)
    slow, fast = (
        contexts_that_pay(L40S, U55C, 4, 32, model, units=AttentionUnits(n, 200)) for n in (64, 256)
    )
    assert slow is not None
    assert fast is not None
    assert slow[0] == fast[0] < slow[1] < fast[1]
    assert (slow[2], fast[2]) == (False, True)
    for context, pays in ((slow[0], True), (slow[1], True), (slow[1] * 2, False)):
        one = plan(L40S, U55C, 4, 32, replace(model, prompt=context, output=0), units=AttentionUnits(64, 200))
        assert (one.gain >= PAYS) == pays
    assert (
        contexts_that_pay(L40S, replace(U55C, link=1e6), 4, 32, model, units=AttentionUnits(64, 200)) is None
    )


def test_the_command_says_at_which_length_units_pay(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["offload", "U55Cx4", "--unit", "rtl", "--units", "64", "--batch", "32"]) == 3
    out = capsys.readouterr().out
    assert "64 attention units of 200 MHz a card read 102 GB/s of its 460" in out
    assert "batch 32: cards gain 5 % or more from 83 to 1,218 tokens of context\n" in out
