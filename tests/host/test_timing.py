"""The time of rings against closed forms, and what is scaled from it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from oscar.coding.costs import Cost
from oscar.collective.actions import Phase
from oscar.collective.frames import ROW, Frames
from oscar.collective.ring import (
    BOOMERANG,
    DUPLEX,
    FORWARD,
    RAW,
    Boomerang,
    Duplex,
    Gather,
    Ring,
    ring_chunk_sent,
    ring_chunks,
)
from oscar.timeline.equal import equal_time
from oscar.timeline.link import Cores, LinkModel, algbw, busbw
from oscar.timeline.lowering import cut_for, divide
from oscar.timeline.replay import Replay, Span, replay, time_of
from oscar.timeline.scale import Measured, generator, scale
from oscar_studies.perfetto import write_trace

WIRE = LinkModel.of(gbps=1, latency_us=5)
GATHERS = [FORWARD, BOOMERANG, DUPLEX]
SLOW = LinkModel.of(gbps=10, latency_us=3, codec_gvalues=0.5, codec_latency_us=1)
LANES = LinkModel(coder=Cores(Cost(6e-9, 5e-6), Cost(7e-9, 6e-6), Cost(6e-9, 2e-6), 12))


def ring_frames(schedule: Ring, frame_bytes: np.ndarray, counts: np.ndarray) -> Frames:
    """Return tables as frames; those without values are left out."""
    phase, step, sender, sub = np.nonzero(counts)
    rows = np.zeros(len(phase), ROW)
    back = phase * bool(schedule.gather.boomerang)
    rows["phase"], rows["step"], rows["sender"], rows["sub"] = phase, step, sender, sub
    rows["receiver"] = (sender + 1 - 2 * back) % schedule.nodes
    rows["chunk"] = ring_chunks(schedule.nodes, schedule.gather)[phase, step, sender]
    rows["terms"] = np.where((phase == 1) & (back == 0), schedule.nodes, step + 1)
    rows["count"], rows["bytes"] = counts[phase, step, sender, sub], frame_bytes[phase, step, sender, sub]
    return Frames.of(rows)


def spread(per_chunk, gather):
    """Write per-chunk numbers [N, K] onto every hop: int64 [2, N-1, N, K], indexed by sender."""
    return np.asarray(per_chunk, np.int64)[ring_chunks(len(per_chunk), gather)]


def ring_of(nodes: int, subs: int = 1, gather: Gather = FORWARD) -> Ring:
    """Return the ring of `gather`."""
    return {"boomerang": Boomerang, "duplex": Duplex}.get(gather.name, Ring)(nodes, subs, gather.adopt)


def ring(sizes, counts, gather: Gather = FORWARD) -> tuple[Ring, Frames]:
    """Return the ring of `gather`, and its frames with these sizes."""
    schedule = ring_of(*counts.shape[2:], gather)
    return schedule, ring_frames(schedule, sizes, counts)


def ring_time(sizes, counts, link: LinkModel, gather: Gather = FORWARD) -> float:
    """Return the time of a ring's tables."""
    return time_of(*ring(sizes, counts, gather), link, coded=gather.coded)


def replayed(sizes, counts, link: LinkModel, gather: Gather = FORWARD, *, spans: bool = False) -> Replay:
    """Replay a ring's tables."""
    return replay(*ring(sizes, counts, gather), link, coded=gather.coded, spans=spans)


def equal_counts(values: int, nodes: int, subframes: int = 1, gather: Gather = FORWARD) -> np.ndarray:
    """Return the count of values in every frame when chunks and sub-frames are cut evenly."""
    chunks = divide(values, nodes)
    return spread([divide(int(chunk), subframes) for chunk in chunks], gather)


def random_sizes(nodes: int, subs: int, gather: Gather, seed: int, empty: float = 0.2):
    """Draw frames of uneven sizes, some chunks empty on all hops."""
    random = np.random.default_rng(seed)
    per_chunk = random.integers(1, 5000, (nodes, subs)) * (random.random((nodes, subs)) >= empty)
    counts = spread(per_chunk, gather)
    return 24 + random.integers(0, 4000, counts.shape), counts


def test_frames_are_cut_for_cores_without_losing_values():
    for gather in GATHERS:
        schedule, frames = ring(*random_sizes(4, 3, gather, 10), gather)
        cut, more = cut_for(schedule, frames, 12)
        assert cut.subframes == 12
        assert more.values == frames.values
        assert more.bytes == frames.bytes + 24 * (len(more) - len(frames))
        assert cut_for(schedule, frames, 3)[1] is frames
    assert cut_for(*ring(*random_sizes(2, 40, FORWARD, 1)), 64)[0].subframes == 40  # a chunk has 64 at most


def test_frames_of_another_schedule_are_refused():
    _, frames = ring(*random_sizes(3, 1, FORWARD, 6, empty=0))
    for call in (
        lambda: time_of(Duplex(3), frames, WIRE),
        lambda: replay(Duplex(3), frames, WIRE),
        lambda: time_of(Ring(4), frames, WIRE),
        lambda: Measured(frames, Duplex(3)),
        lambda: replay(Ring(3), Frames(frames.rows[1:]), WIRE),
        lambda: time_of(Ring(3), Frames(frames.rows[1:]), WIRE),
    ):
        with pytest.raises(
            ValueError, match=r"expected (a frame|(the )?frames) of .*(schedule that ran|one AllReduce)"
        ):
            call()


def test_engines_by_hand():
    """N=3 duplex on one engine: encodes, hops and decodes of both directions follow one another on it."""
    coder = Cores(Cost(1e-9, 10e-6), Cost(2e-9, 15e-6), Cost(1e-9, 5e-6))
    link = LinkModel(1e15, 0.0, coder=coder)
    counts = equal_counts(3000, 3, gather=DUPLEX)
    encode, hop, decode = 11e-6, 17e-6, 6e-6
    assert ring_time(counts + 24, counts, link, DUPLEX) == pytest.approx(
        2 * (encode + hop + decode), rel=1e-6
    )
    two = replace(link, coder=replace(coder, count=2))  # half a chunk on each
    encode, hop, decode = 10.5e-6, 16e-6, 5.5e-6
    assert ring_time(counts + 24, counts, two, DUPLEX) == pytest.approx(2 * (encode + hop + decode), rel=1e-6)


def test_room_is_made_for_every_message_before_the_first_one_leaves():
    slow = replace(WIRE, message_s=1e-3)
    counts = equal_counts(4000, 4)
    took = [ring_time(4 * counts, counts, link, RAW) for link in (WIRE, slow)]
    assert took[1] - took[0] == pytest.approx(6e-3)


@pytest.mark.parametrize("gather", [RAW, Gather("boomerang", coded=False)])
@pytest.mark.parametrize("nodes", [2, 3, 8])
def test_raw_floats_take_the_closed_form(nodes, gather):
    values = 1000 * nodes
    counts = equal_counts(values, nodes, gather=gather)
    expected = 2 * (nodes - 1) * (4 * values / nodes * 8 / 1e9 + 5e-6)
    for time_s in (
        ring_time(4 * counts, counts, WIRE, gather),
        equal_time(ring_of(nodes, 1, gather), values, WIRE, coded=False),
    ):
        assert time_s == pytest.approx(expected, rel=1e-12)


def test_codec_time_by_hand():
    """N=2, K=1: encode, send, decode-add, twice, none hidden; adopting ends before the frame is in."""
    counts = equal_counts(2000, 2)
    frame = counts + 24
    once = 1000 / 0.5e9 + 1e-6  # one engine, with its pipeline
    expected = 2 * (once + 1024 * 8 / 10e9 + 3e-6 + once)
    assert ring_time(frame, counts, SLOW, Gather(adopt=True)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("nodes", [2, 3, 8])
def test_duplex_takes_half_the_hops(nodes):
    """Short frames: N-1 hops of latency. Long ones: the other direction's frame hides all but one."""
    far = LinkModel(1e15, 2e-6, None, 0.5e-6)
    hop = 2e-6 + 2 * 0.5e-6  # encode, link, decode-add
    short = equal_time(Duplex(nodes), 1000 * nodes, far)
    assert short == pytest.approx((nodes - 1) * hop, rel=1e-4)
    assert equal_time(Boomerang(nodes), 1000 * nodes, far) > 1.99 * short
    values, frame = 10_000 * nodes, 40_000 * 8 / 1e9
    long = equal_time(Duplex(nodes), values, WIRE, coded=False)
    assert long == pytest.approx(2 * (nodes - 1) * frame + 5e-6, rel=1e-12)


def test_duplex_by_hand():
    """N=2, K=1: both sends leave at once, one after the other on the port; coding overlaps with sending."""
    counts = equal_counts(2000, 2)
    engine, pipeline, wire, latency = 1000 / 0.5e9, 1e-6, 1024 * 8 / 10e9, 3e-6
    second = 2 * engine + pipeline  # the encoder is slower than the port, and has both frames to make
    expected = second + wire + latency + engine + pipeline
    table = equal_counts(2000, 2, gather=DUPLEX)
    assert ring_time(counts + 24, table, SLOW, DUPLEX) == pytest.approx(expected, rel=1e-12)


def test_a_ring_of_equals_is_one_rank():
    for nodes, subs in ((2, 1), (5, 3), (8, 4), (48, 1)):
        values = 120 * nodes * subs
        for gather in (*GATHERS, Gather(adopt=True)):
            schedule, counts = ring_of(nodes, subs, gather), equal_counts(values, nodes, subs, gather)
            alone = equal_time(schedule, values, SLOW, bits=4, header_bytes=24)
            assert alone == ring_time(24 + counts // 2, counts, SLOW, gather)


def test_more_bytes_never_take_less_time_and_subframes_hide_coding():
    sizes, counts = random_sizes(5, 2, FORWARD, 1, empty=0)
    random = np.random.default_rng(2)
    before = ring_time(sizes, counts, SLOW)
    for _ in range(20):
        sizes = sizes + random.integers(0, 300, sizes.shape)
        after = ring_time(sizes, counts, SLOW)
        assert after >= before
        before = after
    whole, cut = (equal_time(Ring(4, k), 4_000_000, SLOW, bits=20) for k in (1, 8))
    assert 0.4 * whole < cut < 0.75 * whole  # coding and sending take about as long, and overlap


def test_one_long_frame_delays_less_than_lockstep():
    """Two long frames in different steps, far apart on the ring, cost their delay once, not twice."""
    nodes = 6
    counts = equal_counts(6000, nodes)
    sizes = 4 * counts
    even = ring_time(sizes, counts, WIRE, RAW)
    sizes[0, 1, 0] += 4000  # rank 0 at step 1; its delay reaches rank r at step 1 + r
    alone = ring_time(sizes, counts, WIRE, RAW)
    sizes[0, 2, 4] += 4000  # rank 4 at step 2, which the first delay has not reached yet
    both = ring_time(sizes, counts, WIRE, RAW)
    lockstep = (sizes.max(axis=(2, 3)) * 8 / 1e9 + 5e-6).sum()
    assert alone - even == pytest.approx(4000 * 8 / 1e9)
    assert both == pytest.approx(alone, rel=1e-12)
    assert lockstep - both == pytest.approx(4000 * 8 / 1e9)


def test_empty_frames_cost_nothing():
    sizes, counts = random_sizes(4, 2, FORWARD, 3, empty=1)
    assert ring_time(sizes, counts, SLOW) == 0 == replayed(sizes, counts, SLOW, spans=True).total_s


def test_chunk_map_is_the_schedules():
    for nodes in (2, 5):
        for phase in Phase:
            for gather in GATHERS:
                for step in range(nodes - 1):
                    for rank in range(nodes):
                        expected = ring_chunk_sent(rank, nodes, phase, step, gather)
                        assert ring_chunks(nodes, gather)[phase, step, rank] == expected


@pytest.mark.parametrize("bad", [0, -1, 1e-308, 1e308, math.nan, math.inf, "1", True])
def test_link_refuses_what_is_no_rate(bad):
    for field in ("bandwidth_bps", "codec_values_per_s"):
        with pytest.raises(ValueError, match=f"{field}: expected a rate from 1000 to 1e"):
            LinkModel(**{field: bad})
    if bad not in (0, 1e-308):
        with pytest.raises(ValueError, match="latency_s: expected seconds from 0 to 1000"):
            LinkModel(latency_s=-1.0 if bad is True else bad)


@pytest.mark.parametrize("link", [SLOW, LANES])
@pytest.mark.parametrize("gather", [BOOMERANG, DUPLEX])
def test_trace_holds_every_stage_without_overlap(tmp_path: Path, gather, link):
    sizes, counts = random_sizes(4, 3, gather, 5)
    result = replayed(sizes, counts, link, gather, spans=True)
    write_trace(tmp_path / "trace.json", result.spans, {"nodes": 4, "plan": "equal"})
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert trace["otherData"] == {"nodes": 4, "plan": "equal"}
    names = {e["args"]["name"] for e in trace["traceEvents"] if e["name"] in ("process_name", "thread_name")}
    assert names >= {"node 0", "node 1", "node 2", "node 3", "encode", "send", "wait", "decode-add"}
    assert ("decode-add 11" in names) == (link is LANES)
    rows: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            rows.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["dur"]))
    assert len(rows) == 4 * (4 if link is SLOW else 2 + 2 * 12)
    for bars in rows.values():
        bars.sort()
        assert all(dur >= 0 for _, dur in bars)
        # nanoseconds as the viewer reads them
        assert all(round((a + d) * 1000) <= round(b * 1000) for (a, d), (b, _) in pairwise(bars))
    last = max(ts + dur for bars in rows.values() for ts, dur in bars)
    assert last <= result.total_s * 1e6 <= last + 1.001  # the rest is the decoder's pipeline
    with pytest.raises(ValueError, match="stage among encode, send, wait, decode-add, got 'think'"):
        write_trace(tmp_path / "no.json", [Span(0, "think", 0, 1, 0, 0, 0, 0)])


def measured_run(nodes: int = 8, values: int = 80_000, gather: Gather = FORWARD) -> Measured:
    """Frames whose bits grow half a bit per doubling, chunk c 2 % x (c mod 3 - 1) off the mean."""
    counts = equal_counts(values, nodes, 2, gather)
    bits = np.empty((2, nodes - 1))
    bits[:] = 3 + 0.5 * np.log2(np.arange(1, nodes))
    if not gather.boomerang:
        bits[1] = 3 + 0.5 * math.log2(nodes)
    off = spread([[98, 100] if c % 2 else [100, 102] for c in range(nodes)], gather)
    payload = np.ceil(counts * bits[:, :, None, None] * off / 800).astype(np.int64)
    schedule, frames = ring(payload + 24, counts, gather)
    return Measured(frames, schedule)


@pytest.mark.parametrize("gather", [FORWARD, BOOMERANG])
def test_scaling_keeps_the_measured_law_deviations_and_headers(gather):
    law, link = measured_run(gather=gather).law, LinkModel()
    assert law.slope() == pytest.approx(0.5, abs=0.01)
    for terms in (1, 7, 8, 63):
        assert law.bits_at(0, terms) == pytest.approx(3 + 0.5 * math.log2(terms), abs=0.02)
    assert law.bits_at(1, 64) == pytest.approx(6, abs=0.02)
    assert 0.975 < law.deviation.min() < 0.985
    assert 1.015 < law.deviation.max() < 1.025
    drawn = law.draw(64, 6_400_000, link, generator(0, 64))
    assert drawn.values == 6_400_000
    assert drawn == law.draw(64, 6_400_000, link, generator(0, 64))
    uneven = [law.draw(60, 6_400_000, link, generator(seed, 60)) for seed in range(2)]
    assert len(set(uneven)) > 1


def test_rates_are_capped_at_the_raw_width():
    wide = replace(measured_run(), raw_bits=5).law
    assert max(wide.bits_at(phase, 512) for phase in range(2)) == 5
    frames = 2 * 511 * 512 * 2
    assert (
        wide.draw(512, 5_120_000, LinkModel(), generator(0, 512)).bytes
        <= 2 * 511 * 5_120_000 * 5 / 8 + 25 * frames
    )


def test_duplex_scales_with_its_own_hops():
    run, far = measured_run(gather=BOOMERANG), LinkModel.of(gbps=100_000, codec_latency_us=0)
    duplex = replace(run, schedule=Duplex(8, 2))
    once, both = (scale(each, [64], link=far)[0] for each in (run, duplex))
    assert both.time_s == pytest.approx(once.time_s / 2, rel=0.01)
    assert both.bits_per_value == once.bits_per_value


def test_scale_explains_what_it_cannot_use():
    run = measured_run()
    with pytest.raises(ValueError, match="2 to 1024 nodes, got 1"):
        scale(run, [1], link=WIRE)
    with pytest.raises(ValueError, match=r"at least the 5000 header bytes.*set header_bytes"):
        replace(run, header_bytes=5000)


def test_scale_reports_1024_nodes():
    link = LinkModel.of(gbps=10)
    two, many = scale(measured_run(values=10_000_000), [2, 1024], link=link, values=100_000_000)
    assert two.time_s < two.fp32_time_s == pytest.approx(0.32, rel=1e-4)
    assert two.bits_per_value == pytest.approx(3 + 0.5 / 2, rel=0.02)
    assert 32 / 9 < many.speedup < 32 / 7  # 3 + log2(1023)/2 bits and some, the slowest chunk counts
    assert many.busbw == pytest.approx(busbw(algbw(100_000_000, many.time_s), 1024))
    assert many.busbw > 10e9 / 8  # uncompressed bytes: above the line rate
    assert scale(measured_run(values=10_000_000), [1024], link=link, values=100_000_000) == [many]


def test_bandwidths_follow_nccl_tests():
    assert algbw(250_000_000, 0.1) == pytest.approx(1e10)
    assert busbw(1e10, 4) == pytest.approx(1.5e10)
    assert busbw(1e10, 1) == 0
