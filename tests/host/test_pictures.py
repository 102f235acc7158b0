"""Pictures of the documentation can be read: nothing is written over anything else."""

from __future__ import annotations

import json
import re
from itertools import combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath
from matplotlib.transforms import Bbox

from needs import needs

IMAGES = Path(__file__).parents[2] / "docs" / "images"
TIMINGS = sorted((IMAGES.parent / "timing").glob("*.json"))
SVG = "{http://www.w3.org/2000/svg}"
CLOCK, LETTER = 40, 14.7  # of wavedrom: pixels of a clock at hscale 1, height of letters


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
