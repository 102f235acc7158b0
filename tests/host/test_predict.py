"""Does compression pay: the gain over each rival, or the cost that keeps it from paying."""

from __future__ import annotations

import math
import re

import pytest

from oscar.collective.ring import Duplex, Ring
from oscar.collective.trees import Direct
from oscar.planning.predict import last_rate, last_text, predict
from oscar.timeline.driver import Driver
from oscar.timeline.link import LinkModel
from oscar.timeline.nic import load_nic
from oscar.timeline.topology import wires


def test_duplex_halves_the_hops_and_int8_may_go_with_it():
    far = LinkModel.of(gbps=100_000, codec_latency_us=0)
    fits = predict(10**6, Duplex(8), far, 4.0, peak=15)
    assert fits.int8_time_s is not None
    no = predict(10_000, Duplex(64), LinkModel.of(codec_latency_us=0), 7.0, peak=1)
    assert "63 hops of 2 us" in no.reason


def test_direct_is_two_hops_and_compared_with_fp32_sent_so():
    far = LinkModel.of(gbps=100_000, codec_latency_us=0)
    found = predict(10**5, Direct(8), far, 4.0)
    assert found.time_s == pytest.approx(2 * 2e-6, rel=0.05)
    assert found.fp32_time_s == pytest.approx(14 * 2e-6, rel=0.05)
    assert found.fp32_direct_time_s == pytest.approx(2 * 2e-6, rel=0.05)
    assert (found.pays, "2 hops" in found.reason) == (False, True)


def test_predictor_approves_with_the_gain_over_each_rival():
    link = LinkModel.of(gbps=10, codec_gvalues=6)
    yes = predict(100_000_000, Ring(8, 8), link, 4.0)
    assert yes.pays
    assert yes.speedup == pytest.approx(8, rel=0.05)
    assert "7.9" in yes.reason
    assert "over bf16" in yes.reason
    assert yes.int8_time_s is None  # 127 x 8 overflows
    fits = predict(100_000_000, Ring(8), link, 4.0, peak=15)
    assert fits.int8_time_s == pytest.approx(yes.bf16_time_s / 2, rel=0.01)
    assert yes.breakeven_values is not None
    assert yes.breakeven_gbps is not None
    for values, gbps in ((yes.breakeven_values, 10), (100_000_000, yes.breakeven_gbps)):
        for factor, pays in ((0.97, False), (1.03, True)):
            at = LinkModel.of(gbps=gbps if gbps == 10 else gbps / factor, codec_gvalues=6)
            size = round(values * factor) if gbps == 10 else values
            assert predict(size, Ring(8, 8), at, 4.0).pays is pays


def test_the_last_rate_that_pays_is_found_behind_rates_that_do_not() -> None:
    """Coding that pays up to 3 Gb/s, not up to 40, and again up to 700: a bisection alone ends at 3."""
    gbps, below = last_rate(lambda rate: rate <= 3 or 40 <= rate <= 700)
    assert gbps == pytest.approx(700, rel=2e-3)
    assert not below
    assert last_rate(lambda rate: rate < 12.5) == (pytest.approx(12.5, rel=2e-3), True)
    assert last_rate(lambda rate: False) == (None, True)
    assert last_rate(lambda rate: True) == (math.inf, True)


@pytest.mark.parametrize(
    ("gbps", "text"),
    [(0.0123, "12.3 Mb/s"), (9.876, "9.88 Gb/s"), (999.9, "1 Tb/s"), (2244, "2.24 Tb/s"),
     (math.inf, "10 Tb/s"), (None, "no rate")],
)  # fmt: skip
def test_a_rate_is_said_in_the_unit_in_which_it_is_read(gbps: float | None, text: str) -> None:
    assert last_text(gbps) == text


def test_a_network_of_links_has_the_rivals_that_it_has_links_for() -> None:
    """Direct has no links on a ring of wires; coding and fp32's ring have."""
    wired = wires(4, {((i + a) % 4, (i + b) % 4): (1.0, 2e-6) for i in range(4) for a, b in ((0, 1), (1, 0))})
    found = predict(10**6, Ring(4), LinkModel(), 4.0, topology=wired)
    assert found.pays
    assert found.fp32_direct_time_s == math.inf
    assert found.fp32_time_s == pytest.approx(8 * found.time_s, rel=0.05)
    assert (found.searched, found.breakeven_gbps, found.breakeven_values) == (False, None, None)


@pytest.mark.parametrize(
    ("driver", "reason"),
    [
        (Driver(4e-5, 0.0, 0.0, 0.0), r"driver takes.*; commands are what costs: use fewer sub-frames"),
        (Driver(0.0, 0.0, 5e-9, 5e-9), r"driver takes.*; commands are not all of it: rows are moved"),
    ],
)
def test_a_nic_held_up_by_its_driver_is_no_reason_for_more_sub_frames(driver: Driver, reason: str) -> None:
    nic = load_nic(None, 100.0).model()
    alone, driven = (LinkModel.of(gbps=40, coder=nic, driver=each) for each in (None, driver))
    assert predict(10**6, Direct(8, 2), alone, 2.0).pays
    no = predict(10**6, Direct(8, 2), driven, 2.0)
    assert not no.pays
    assert re.search(reason, no.reason), no.reason


def test_more_sub_frames_are_advice_only_where_they_are_faster() -> None:
    nic = load_nic()
    driven, alone = (
        LinkModel.of(gbps=200, coder=nic.model(), driver=driver) for driver in (nic.driver_model(), None)
    )
    for link, values, said in (
        (driven, 400_000, "the NIC's driver takes"),
        (alone, 10**6, "no faster: latency"),
    ):
        whole = predict(values, Direct(8, 1), link, 1.97)
        advice = re.search(r"use more .*: (\d+) take", whole.reason)
        assert advice, whole.reason
        frames = int(advice[1])
        cut, more = (predict(values, Direct(8, number), link, 1.97) for number in (frames, 2 * frames))
        assert re.search(said, cut.reason), cut.reason
        assert cut.time_s < min(whole.time_s, more.time_s)


def test_frames_that_a_nic_does_not_take_are_refused_with_what_would_do() -> None:
    """The ECP5's memory has 1,024 rows of 32 values; the U55C's holds the largest frame there is."""
    ecp5, u55c = (LinkModel.of(gbps=gbps, coder=load_nic(None, gbps).model()) for gbps in (10.0, 100.0))
    assert predict(3 * 8 * 32_768, Direct(8, 3), ecp5, 2.0).time_s > 0
    for link, values, said in (
        (ecp5, 3 * 8 * 32_768 + 1, r"has 32,769 values, this NIC's memory holds 32,768: add --subframes 4$"),
        (u55c, 3 * 8 * 262_143 + 1, r"has 262,144 values, a NIC's frame holds 262,143: add --subframes 4$"),
        (ecp5, 25 * 10**6, r"takes 96 sub-frames a chunk, and 64 is the most: .* up to 16,777,216 values"),
    ):
        with pytest.raises(ValueError, match=said):
            predict(values, Direct(8, 3), link, 2.0)


@pytest.mark.parametrize(
    ("values", "nodes", "link", "bits", "reason"),
    [
        (10**6, 1, LinkModel(), 3.0, "N=1: nothing to send"),
        (
            10**8,
            8,
            LinkModel.of(gbps=400, codec_gvalues=0.2),
            3.0,
            "link is faster than the codec: 400 Gb/s carries bf16 at 25 G values/s, codec makes 0.2 G",
        ),
        (
            10_000,
            64,
            LinkModel.of(codec_latency_us=0),
            3.0,
            r"latency-bound: 126 hops of 2 us are 99\.\d% of",
        ),
        (10**8, 8, LinkModel.of(gbps=1), 15.9, "too few bits saved: 15.9 bits/value coded, 16 as bf16"),
        (
            300,
            8,
            LinkModel.of(gbps=1e-3),
            12.0,
            "frames too small: 24 bytes of header for 37 values; use larger",
        ),
        (
            10**8,
            8,
            LinkModel.of(gbps=10, codec_gvalues=0.8),
            8.0,
            r"coding is not hidden.* use more sub-frames per chunk: 64 take",
        ),
        (
            10_000,
            64,
            LinkModel.of(codec_gvalues=0.1),
            3.0,
            "several costs together: link is faster than the codec.*; .*hops of 2 us",
        ),
    ],
)
def test_predictor_refuses_with_the_reason(values, nodes, link, bits, reason):
    no = predict(values, Ring(nodes), link, bits)
    assert not no.pays
    assert re.search(reason, no.reason), no.reason


def test_the_number_of_sub_frames_is_that_of_the_fastest_call() -> None:
    """Few for a NIC whose driver gives commands, as many as its memory asks for, more for a slow codec."""
    nic, small = load_nic(), load_nic(None, 10.0)
    driven = LinkModel.of(coder=nic.model(), driver=nic.driver_model())
    for values, link, bits in (
        (4_000_000, driven, 2.0),
        (3 * 8 * 32_768 + 1, LinkModel.of(gbps=10, coder=small.model()), 2.0),
        (10**8, LinkModel.of(gbps=10, codec_gvalues=0.8), 8.0),
    ):
        free = predict(values, Direct(8), link, bits, any_subframes=True)
        fixed = predict(values, Direct(8, free.subframes), link, bits)
        assert free.time_s == fixed.time_s
        for other in (free.subframes // 2, 2 * free.subframes):
            if 1 <= other <= 64 and (link.coder is None or values <= 8 * other * link.coder.most):
                assert predict(values, Direct(8, other), link, bits).time_s >= free.time_s
