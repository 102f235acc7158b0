"""Does compression pay: the gain over each rival, or the cost that keeps it from paying."""

from __future__ import annotations

import re

import pytest

from oscar.collective.ring import Duplex, Ring
from oscar.collective.trees import Direct
from oscar.planning.predict import predict
from oscar.timeline.link import LinkModel


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
            r"latency-bound: 2\(N-1\) = 126 hops of 2 us are 99\.\d% of",
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
            r"coding is not hidden.* 1 sub-frame\(s\) per chunk; use more",
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
