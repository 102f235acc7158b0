"""Pictures of the documentation decode, and timing diagrams are those of their sources."""

from __future__ import annotations

import re
import struct
import zlib
from pathlib import Path
from xml.etree import ElementTree

import pytest

from needs import needs

IMAGES = Path(__file__).parents[2] / "docs" / "images"
TIMINGS = sorted((IMAGES.parent / "timing").glob("*.json"))
PICTURES = [path for path in sorted(IMAGES.parents[1].glob("docs/**/*")) if path.suffix in (".png", ".svg")]
SVG = "{http://www.w3.org/2000/svg}"


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


@pytest.mark.parametrize("source", TIMINGS, ids=lambda path: path.stem)
def test_timing_diagrams_are_what_their_sources_give(source: Path) -> None:
    needs("docs")
    import wavedrom

    drawn = wavedrom.render(source.read_text(), strict_js_features=True).tostring()
    kept = (IMAGES / f"timing_{source.stem}.svg").read_text()
    assert re.findall(r">([^<>]+)<", drawn) == re.findall(r">([^<>]+)<", kept)
