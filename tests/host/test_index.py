"""Index streams: the codecs equal the reference, refuse what is damaged, and cost what the page says."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscar.array import Array
from oscar.coding.index import INDEX_CODECS, Popular, Popularity, make_index
from oscar.coding.index.base import SEAL_BYTES, seal
from oscar.errors import ConfigError, FrameError
from oscar_lab.trials import index_mutations
from support import index_reference as reference

OURS = "coo", "bitmap", "gaps", "popular"
Draw = np.random.Generator


def sets(draw: Draw) -> list[tuple[int, Array]]:
    """Spaces, and sets in them: empty, all, one, the last position, random ones, one dense run."""
    found = []
    for size in (0, 1, 2, 7, 8, 9, 64, int(draw.integers(10, 900))):
        every = np.arange(size)
        some = [every[:0], every, every[-1:], every[size // 2 :], every[:1]]
        some += [np.sort(draw.permutation(size)[: int(size * share)]) for share in (0.03, 0.3, 0.9)]
        found += [(size, one.astype(np.int64)) for one in some]
    return found


def classes_of(draw: Draw, size: int) -> Array:
    some = draw.integers(0, 16, size) * (draw.random(size) < draw.random())
    return some.astype(np.uint8)


def own_bytes(stream: Array) -> bytes:
    """What the codec wrote itself, between count and CRC."""
    at = 1
    while stream[at] & 128:
        at += 1
    return stream[at + 1 : -SEAL_BYTES].tobytes()


def resealed(data: bytes, history: int = 0) -> Array:
    return np.frombuffer(data + seal(np.frombuffer(data, np.uint8), history), np.uint8)


def trained(draw: Draw, size: int, *, ends: int = 2, streams: int = 3) -> tuple[list[Popular], Array]:
    """Ends of one direction that saw the same streams, and classes of a popularity that saw them, too."""
    found, popularity, chance = [Popular() for _ in range(ends)], Popularity(size), draw.random(size) ** 6
    for _ in range(streams):
        hit = np.flatnonzero(draw.random(size) < chance)
        for end in found:
            end.encode(hit, size, popularity.classes)
        popularity.observe(hit)
    return found, popularity.classes


@pytest.mark.parametrize("name", ["coo", "bitmap", "gaps"])
def test_plain_streams_equal_the_reference(name: str, seed: int) -> None:
    codec = make_index(name)
    pack, unpack = (getattr(reference, f"{way}_{name}") for way in ("pack", "unpack"))
    for size, positions in sets(np.random.default_rng(seed)):
        stream = codec.encode(positions, size)
        assert own_bytes(stream) == pack(positions.tolist(), size)
        found = codec.decode(stream, size)
        assert found.dtype == np.int64
        assert found.tolist() == positions.tolist() == unpack(own_bytes(stream), positions.size, size)


def test_popular_streams_equal_the_reference_while_both_ends_learn(seed: int) -> None:
    draw = np.random.default_rng(seed)
    encoder, decoder = Popular(), Popular()
    for size, positions in sets(draw) * 2:
        counts, classes = tuple(encoder.counts.tolist()), classes_of(draw, size)
        stream = encoder.encode(positions, size, classes)
        code, plain = own_bytes(stream), (positions.tolist(), classes.tolist(), counts)
        assert code == reference.pack_popular(*plain)
        assert decoder.decode(stream, size, classes).tolist() == plain[0]
        assert plain[0] == reference.unpack_popular(code, positions.size, classes.tolist(), counts)
        assert encoder.counts.tolist() == decoder.counts.tolist()
        assert tuple(encoder.counts.tolist()) == reference.moved(classes.tolist(), *plain[::2])


def test_popularity_equals_the_reference(seed: int) -> None:
    draw = np.random.default_rng(seed)
    popularity, share, chance = Popularity(300), [0] * 300, draw.random(300) ** 4
    chance[:20] = 1, *[0] * 9, *[0.999] * 10
    for iteration in range(150):
        kept = popularity.classes, popularity.classes.copy(), popularity.share, popularity.share.copy()
        hit = np.flatnonzero(draw.random(300) < chance)
        popularity.observe(hit)
        share, classes = reference.observe(share, hit.tolist(), iteration)
        assert (popularity.share.tolist(), popularity.classes.tolist()) == (share, classes)
        assert all((kept[i] == kept[i + 1]).all() for i in (0, 2))  # replaced, not written to
    assert {0, 15} < set(classes)
    assert len(set(classes)) > 7


@pytest.mark.parametrize("name", OURS)
def test_damaged_bodies_are_judged_as_the_reference_does(name: str, seed: int) -> None:
    """With the CRC made right again, so that the codecs themselves are asked."""
    draw, taken = np.random.default_rng(seed), 0
    for turn in range(250):
        size = int(draw.integers(1, 90))
        (writer, reader), classes = trained(draw, size)
        codec = reader if name == "popular" else make_index(name)
        counts = tuple(reader.counts.tolist())
        positions = np.flatnonzero(draw.random(size) < draw.random())
        body = bytearray(own_bytes((writer if name == "popular" else codec).encode(positions, size, classes)))
        for _ in range(turn % 3 + 1):
            at, gone = int(draw.integers(len(body) + 1)), int(draw.integers(2))
            body[at : at + gone] = draw.bytes(gone if draw.random() < 0.8 else int(draw.integers(3)))
        count = min(size, max(0, positions.size + int(draw.choice([0, 0, 0, -1, 1]))))
        stream = resealed(bytes([0xB0 | codec.kind, count]) + body, codec._history(size, classes))
        try:
            if name == "popular":
                right = reference.unpack_popular(bytes(body), count, classes.tolist(), counts)
            else:
                right = getattr(reference, f"unpack_{name}")(bytes(body), count, size)
        except FrameError:
            with pytest.raises(FrameError):
                codec.decode(stream, size, classes)
            assert tuple(reader.counts.tolist()) == counts
        else:
            taken += 1
            assert codec.decode(stream, size, classes).tolist() == right
    assert taken > 10


def test_mutated_streams_are_refused_or_decode(seed: int) -> None:
    args = argparse.Namespace(count=2000, seed=seed, jobs=1, boundscheck=False)
    result = index_mutations.run(args)
    assert result["ok"], result["faults"]
    assert result["mutations"] == result["returned"] + result["frame_errors"] == 2000
    assert result["returned"] > 60
    assert {"popular 900 of 70000", "gaps 4 of 9"} <= result["subjects"].keys()


@pytest.mark.parametrize(
    ("name", "data", "size", "text"),
    [
        ("coo", "b102 03000000 64000000", 100, "ascending positions of 0 to 99, got 100 as number 1"),
        ("coo", "b102 03000000 03000000", 100, "ascending positions of 0 to 99, got 3 as number 1"),
        ("coo", "b102 03000000", 100, "8 bytes of 2 positions, got 4"),
        ("coo", "b105 03000000", 4, "at most 4 positions, got 5"),
        ("coo", "b18100 03000000", 4, "a count of up to 5 bytes, got 8100"),
        ("bitmap", "b201 0100", 8, "a bitmap of 1 bytes for 8 places, got 2"),
        ("bitmap", "b201 10", 4, "ascending positions of 0 to 3, got 4 as number 0"),
        ("bitmap", "b201 03", 8, "a bitmap of 1 bits that are set, got 2"),
        ("gaps", "b301 20 00", 8, "a Rice parameter of 0 to 31, got 20"),
        ("gaps", "b301 00 ff", 80, "a stream that holds all gaps"),
        ("gaps", "b301 00 0f", 4, "positions inside the space"),
        ("gaps", "b301 00 0100", 4, "1 bytes of 1 gaps|2 bytes of 1 gaps, got 3"),
        ("gaps", "b301 00 05", 4, "zeros after the last gap, got 0x05"),
        ("coo", "b500 0000", 8, "expected an index stream of coo, got one of popular: use the same"),
        ("gaps", "a500 0000", 8, "expected an index stream of gaps, got first byte 0xa5"),
    ],
)
def test_streams_that_no_encoder_writes_are_named(name: str, data: str, size: int, text: str) -> None:
    with pytest.raises(FrameError, match=text):
        make_index(name).decode(resealed(bytes.fromhex(data)), size)


def test_another_history_is_named_and_changes_nothing(seed: int) -> None:
    draw = np.random.default_rng(seed)
    (sender, receiver), classes = trained(draw, 200)
    token, before = receiver.snapshot(), receiver.counts.copy()
    first, second = (sender.encode(np.flatnonzero(draw.random(200) < 0.1), 200, classes) for _ in range(2))
    text = r"history 0x\w{4}, this end has 0x\w{4}: .* resume all ranks"
    other = classes.copy()
    other[7] ^= 1
    for stream, its in ((second, classes), (first, other), (first, np.append(classes, np.uint8(0)))):
        with pytest.raises(FrameError, match=text):
            receiver.decode(stream, its.size, its)
        assert (receiver.counts == before).all()
    receiver.decode(first, 200, classes)
    receiver.restore(token)
    resumed = Popular()
    resumed.load_state_dict(receiver.state_dict())
    for end in (receiver, resumed):  # a restored end and a resumed one go on alike
        end.decode(first, 200, classes)
        end.decode(second, 200, classes)
        assert (end.counts == sender.counts).all()


def test_states_are_saved_and_refused() -> None:
    popularity, resumed = Popularity(9), Popularity(9)
    popularity.observe(np.array([1, 8]))
    resumed.load_state_dict(popularity.state_dict())
    assert resumed.classes.tolist() == popularity.classes.tolist() == [0, 15, 0, 0, 0, 0, 0, 0, 15]
    with pytest.raises(ConfigError, match="share"):
        Popularity(8).load_state_dict(popularity.state_dict())
    with pytest.raises(ConfigError, match="counts"):
        Popular().load_state_dict({"counts": np.full((2, 16), -1)})


def test_popular_refuses_classes_that_are_none() -> None:
    for classes, text in (
        (np.zeros(4, np.uint8), r"expected uint8 classes of 5 positions, got uint8 \(4,\)"),
        (np.full(5, 16, np.uint8), "classes are 0 to 15, got 16"),
    ):
        with pytest.raises(ValueError, match=text):
            Popular().encode(np.array([1]), 5, classes)


def test_names_and_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"'bitmaps'; did you mean 'bitmap'\? valid ones: coo, bitmap, "):
        make_index("bitmaps")
    monkeypatch.setitem(sys.modules, "pyroaring", None)
    with pytest.raises(ConfigError, match=r"needs the package pyroaring.*pip install -e '.\[peers\]'"):
        make_index("roaring")


def zipf(draw: Draw, iterations: int) -> Any:
    """Yield sets of about 570 of 20,000 rows for 8 nodes, and their entropy where chances are known."""
    chance = np.minimum(0.97, 60 / np.arange(1, 20_001))
    chance = draw.permutation(chance * 572 / chance.sum())
    chance = np.minimum(chance, 0.97)
    entropy = -(chance * np.log2(chance) + (1 - chance) * np.log2(1 - chance)).sum()
    for _ in range(iterations):
        yield [np.flatnonzero(draw.random(20_000) < chance) for _ in range(8)], entropy


def test_popular_comes_near_the_entropy(seed: int) -> None:
    """Rows of the page's table: 6.4 % (and .9 to either side) above what known chances would allow."""
    popularity, ends = Popularity(20_000), [Popular(), Popular()]
    sent, bound, rice = 0, 0.0, 0
    for turn, (found, entropy) in enumerate(zipf(np.random.default_rng(seed), 45)):
        stream = ends[0].encode(found[0], 20_000, popularity.classes)
        decoded = ends[1].decode(stream, 20_000, popularity.classes)
        assert np.array_equal(decoded, found[0])
        popularity.observe(np.unique(np.concatenate(found)))
        if turn >= 30:
            sent, bound = sent + 8 * stream.size, bound + entropy
            rice += 8 * make_index("gaps").encode(found[0], 20_000).size
    print(f"{sent / bound:.3f} of the entropy, {sent / rice:.3f} of Rice")
    assert bound < sent < 1.13 * bound
    assert sent < 0.8 * rice


def test_the_page_has_the_numbers_of_the_code() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "sparse.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\d) \|", page, re.MULTILINE)
    assert {name: int(kind) for name, kind in rows} == {name: c.kind for name, c in INDEX_CODECS.items()}
