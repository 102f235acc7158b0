"""Pictures of the documentation can be read: nothing is written over anything else."""

from __future__ import annotations

import json
import re
import struct
import zlib
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from matplotlib.colors import to_hex
from matplotlib.font_manager import FontProperties
from matplotlib.text import Text
from matplotlib.textpath import TextPath
from matplotlib.transforms import Bbox

from needs import needs
from oscar import plotting
from oscar.collective.schedules import make_schedule
from oscar.config import load_config
from oscar.planning.schedule_figure import draw_points, draw_schedule, schedule_points
from oscar.timeline.equal import assumed_frames
from oscar.timeline.link import LinkModel
from oscar.timeline.topology import switch
from oscar_studies.contest import fp32_row, large_time
from oscar_studies.contest_report import draw, edge, families

IMAGES = Path(__file__).parents[2] / "docs" / "images"
HDL = IMAGES.parents[1] / "hdl"
TIMINGS = sorted((IMAGES.parent / "timing").glob("*.json"))
PICTURES = [path for path in sorted(IMAGES.parents[1].glob("docs/**/*")) if path.suffix in (".png", ".svg")]
SVG = "{http://www.w3.org/2000/svg}"
CLOCK, LETTER = 40, 14.7  # of wavedrom: pixels of a clock at hscale 1, height of letters


def decode(picture: bytes) -> tuple[int, int]:
    """Return width and height of a PNG whose chunks are whole and whose pixels are all there."""
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    chunks, place = [], 8
    while place < len(picture):
        size, kind = struct.unpack_from(">I4s", picture, place)
        body = picture[place + 8 : place + 8 + size]
        (crc,) = struct.unpack_from(">I", picture, place + 8 + size)
        assert zlib.crc32(kind + body) == crc, f"chunk {kind.decode()} at byte {place}: wrong CRC"
        chunks.append((kind, body))
        place += 12 + size
    assert chunks[-1] == (b"IEND", b"")
    width, height, depth, colour = struct.unpack_from(">IIBB", chunks[0][1])
    row = (width * depth * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour] + 7) // 8 + 1  # and the filter's byte
    pixels = zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))
    assert len(pixels) == row * height
    assert set(pixels[::row]) <= set(range(5)), "a row has an unknown filter"
    return width, height


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_every_picture_can_be_decoded(path: Path) -> None:
    if path.suffix == ".svg":
        root = ElementTree.parse(path).getroot()
        assert root.tag == f"{SVG}svg"
        assert len(list(root.iter(f"{SVG}text"))) > 5
    else:
        width, height = decode(path.read_bytes())
        assert min(width, height) > 300


@pytest.mark.parametrize("kind", [b"IHDR", b"IDAT"])
def test_a_damaged_picture_is_noticed(kind: bytes) -> None:
    picture = bytearray((IMAGES / "allreduce.png").read_bytes())
    picture[picture.index(kind) + 8] ^= 1
    with pytest.raises(AssertionError, match="wrong CRC"):
        decode(bytes(picture))


def text_width(text: str, pixels: float, *, bold: bool = False) -> float:
    font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")
    return float(TextPath((0, 0), text, size=pixels, prop=font).get_extents().width)


@pytest.mark.parametrize("source", TIMINGS, ids=lambda path: path.stem)
def test_every_word_of_a_timing_diagram_fits_its_place(source: Path) -> None:
    timing = json.loads(source.read_text())
    clock = CLOCK * timing.get("config", {}).get("hscale", 1)
    for row in timing["signal"]:
        places = [len(place) * clock for place in re.findall(r"[=3-9][.|]*", row["wave"])]
        for place, word in zip(places, row.get("data", ()), strict=True):
            assert text_width(word, LETTER) <= place - 12, f"{row['name']}: {word}"
    longest = max(len(row["wave"]) for row in timing["signal"])
    assert text_width(timing["head"]["text"], LETTER) < longest * clock


@pytest.mark.parametrize("source", TIMINGS, ids=lambda path: path.stem)
def test_timing_diagrams_are_what_their_sources_give(source: Path) -> None:
    needs("docs")
    import wavedrom

    drawn = wavedrom.render(source.read_text(), strict_js_features=True).tostring()
    kept = (IMAGES / f"timing_{source.stem}.svg").read_text()
    assert re.findall(r">([^<>]+)<", drawn) == re.findall(r">([^<>]+)<", kept)


def test_no_arrow_and_no_word_of_the_nic_runs_through_a_word() -> None:
    root = ElementTree.parse(IMAGES / "nic.svg").getroot()
    sizes = {name: float(size) for name, size in re.findall(r"(text|\.s)\{font-size:([\d.]+)px",
             root.findtext(f"{SVG}style") or "")}  # fmt: skip
    words = {}
    for text in root.iter(f"{SVG}text"):
        size = sizes[".s" if text.get("class") == "s" else "text"]
        width = text_width(text.text or "", size, bold=text.get("class") == "t")
        shift = {"start": 0.0, "end": 1.0}.get((text.get("style") or "middle").split(":")[-1], 0.5)
        left, base = float(text.get("x", 0)) - shift * width, float(text.get("y", 0))
        words[f"{text.text} at {left:.0f}, {base:.0f}"] = Bbox.from_extents(
            left, base - 0.75 * size, left + width, base + 0.2 * size
        )
    assert len(words) > 30
    for (one, box), (other, its) in combinations(words.items(), 2):
        assert not box.overlaps(its), f"{one} and {other}"
    for line in root.iter(f"{SVG}polyline"):
        points = [tuple(map(float, point.split(","))) for point in (line.get("points") or "").split()]
        for (x, y), (to_x, to_y) in pairwise(points):
            for part in range(101):
                at = x + (to_x - x) * part / 100, y + (to_y - y) * part / 100
                for word, box in words.items():
                    assert not box.contains(*at), f"an arrow runs through {word}"
    boxes = [Bbox.from_bounds(*(float(rect.get(key, 0)) for key in ("x", "y", "width", "height")))
             for rect in root.iter(f"{SVG}rect") if rect.get("class") in ("b", "e")]  # fmt: skip
    for word, box in words.items():
        for place in boxes:
            if place.overlaps(box):
                assert place.x0 < box.x0, word
                assert box.x1 < place.x1, word


def test_blocks_of_the_nic_that_are_drawn_exist() -> None:
    root, there = ElementTree.parse(IMAGES / "nic.svg").getroot(), {p.stem for p in HDL.rglob("*.py")}
    drawn = {text.text or "" for text in root.iter(f"{SVG}text")}
    blocks = {word for word in drawn if "_" in word and not word.startswith(("s_ax", "m_ax"))}
    assert len(blocks) > 5
    assert blocks <= there


LEAST_POINTS = 8.5  # of letters: 9.5 pixels high at the site's 690


def contest(kind: str) -> dict[str, Any]:
    """Return what compare.json held, from the table in docs/results/compare.md."""
    config = load_config(IMAGES.parents[1] / "configs" / f"compare_{kind}.yaml")
    codecs = {entry.name: entry.method for entry in config.compare.contenders}
    page = (IMAGES.parent / "results" / "compare.md").read_text()
    title, _, _, _, *lines = page.split(f"$ oscar compare configs/compare_{kind}.yaml\n")[1].splitlines()
    rows: list[dict[str, Any]] = []
    for line in lines:
        if line.startswith("```"):
            break
        name, label, (_, *cells) = line[:22].strip(), line[23:67], line[67:].split()
        mean, spread, _, _, holds, bits, sync = cells[:7]
        rows.append({
            "contender": name, "codec": codecs[name], "label": label, "metric": config.compare.metric,
            "mean": float(mean), "spread": float(spread), "holds": holds == "yes", "bits": float(bits),
            "diverged": int("diverged" in label),
            "large_s": large_time(float(sync), config.nodes, config.link.model()),
        })  # fmt: skip
    return {"title": title.lstrip("# "), "metric": config.compare.metric, "rows": rows}


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that holds every figure once it is drawn."""
    kept: list[Any] = []
    monkeypatch.setattr(plotting, "save_figure", lambda figure, path, **_: kept.append(figure))
    return kept


def check_words(figure: Any) -> None:
    """Every word is large enough and inside the figure, and none lies on another."""
    words: list[Text] = []
    with pytest.MonkeyPatch.context() as patch:
        paint = Text.draw
        patch.setattr(Text, "draw", lambda text, renderer: (words.append(text), paint(text, renderer)))
        figure.draw_without_rendering()  # the layout is settled
        words.clear()
        figure.canvas.draw()
    boxes = {
        text: text.get_window_extent() for text in words if text.get_visible() and text.get_text().strip()
    }
    assert figure.get_figwidth() == plotting.WIDTH
    assert len(boxes) > 5
    for text, box in boxes.items():
        assert text.get_fontsize() >= LEAST_POINTS, text
        assert box.x0 > -1, text
        assert box.x1 < figure.bbox.x1 + 1, text
    for (one, box), (other, its) in combinations(boxes.items(), 2):
        assert not box.padded(-1.5).overlaps(its.padded(-1.5)), (one, other)


@pytest.mark.parametrize("kind", ["cnn", "transformer"])
def test_a_comparison_of_many_methods_can_be_read(kind: str, drawn: list[Any]) -> None:
    results = contest(kind)
    rows = results["rows"]
    assert len(rows) >= 35
    draw(results, Path("compare.png"))
    (figure,) = drawn
    check_words(figure)
    legends = [axes.get_legend() for axes in figure.findobj(lambda a: hasattr(a, "get_legend"))]
    named = {text.get_text(): to_hex(text.get_color())
             for legend in legends if legend and legend.legend_handles for text in legend.get_texts()
             if not text.get_text().endswith("%")}  # fmt: skip
    assert set(named) == {row["contender"] for row in rows} - {"fp32"}
    assert len(set(named.values())) == len(named)


def test_what_is_far_from_all_others_does_not_stretch_the_axis() -> None:
    rows = contest("cnn")["rows"]
    worst = edge(rows, fp32_row(rows))
    assert 0.79 < worst < 0.81
    assert [row["mean"] for row in rows if row["mean"] < worst] == [0.7217, 0.5777, 0.7919, 0.5933]
    assert edge([{**row, "metric": "loss", "mean": -row["mean"]} for row in rows], None) == pytest.approx(
        -edge(rows, None)
    )


def test_a_panel_has_methods_of_one_family_and_the_last_those_of_one_point() -> None:
    found = families([row for row in contest("cnn")["rows"] if row["codec"] != "fp32"])
    assert [len(names) for names in found] == [1, 3, 2, 2, 1, 8]
    assert found[1] == ["OSCAR-SW", "OSCAR-SW, ASC", "OSCAR-SW 3 rows"]


@pytest.mark.parametrize(("name", "nodes"), [("direct", 8), ("ring", 12), ("exchange", 4)])
def test_schedules_can_be_read(name: str, nodes: int, drawn: list[Any]) -> None:
    schedule, link = make_schedule(name, nodes), LinkModel()
    frames = assumed_frames(schedule, 10_000, lambda workers: 4.0)
    draw_schedule(Path("s.png"), schedule, switch([100.0] * nodes, 2e-6), link, frames)
    check_words(drawn[0])


def test_schedules_by_ranks_can_be_read(drawn: list[Any]) -> None:
    draw_points(schedule_points([2, 8, 32], 100_000, LinkModel()), Path("s.png"))
    check_words(drawn[0])
    names = [text for text in drawn[0].axes[0].texts if text.get_text()]
    assert len(names) > 6
    assert len({to_hex(text.get_color()) for text in names}) == len(names)
