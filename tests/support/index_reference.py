"""The index streams of docs/reference/sparse.md in plain Python, as the page says it; slow, for tests.

`pack` and `unpack` work on a codec's own bytes, without the seal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from oscar.errors import FrameError

Bits = Iterator[int]
Set = Sequence[int]
ONE = 1 << 32


def pack_coo(positions: Set, size: int) -> bytes:
    return b"".join(position.to_bytes(4, "little") for position in positions)


def pack_bitmap(positions: Set, size: int) -> bytes:
    return sum(1 << position for position in positions).to_bytes(-(-size // 8), "little")


def pack_gaps(positions: Set, size: int) -> bytes:
    gaps = [after - before - 1 for before, after in zip([-1, *positions], positions, strict=False)]
    parameter = min(range(32), key=lambda r: sum((gap >> r) + 1 + r for gap in gaps))
    bits = [
        bit
        for gap in gaps
        for bit in [1] * (gap >> parameter) + [0] + [gap >> k & 1 for k in range(parameter)]
    ]
    whole = sum(bit << at for at, bit in enumerate(bits))
    return bytes([parameter]) + whole.to_bytes(-(-len(bits) // 8), "little")


def unpack_coo(body: bytes, count: int, size: int) -> list[int]:
    _need(len(body) == 4 * count)
    return _valid([int.from_bytes(body[at : at + 4], "little") for at in range(0, len(body), 4)], size)


def unpack_bitmap(body: bytes, count: int, size: int) -> list[int]:
    whole = int.from_bytes(body, "little")
    positions = [at for at in range(8 * len(body)) if whole >> at & 1]
    _need(len(body) == -(-size // 8) and len(positions) == count)
    return _valid(positions, size)


def unpack_gaps(body: bytes, count: int, size: int) -> list[int]:
    _need(len(body) > 0 and body[0] < 32)
    bits = iter([body[at >> 3] >> (at & 7) & 1 for at in range(8, 8 * len(body))])
    positions, before = list[int](), -1
    try:
        for _ in range(count):
            upper = 0
            while next(bits):
                upper += 1
            before += 1 + (upper << body[0]) + sum([next(bits) << k for k in range(body[0])])
            positions.append(before)
    except StopIteration:
        raise FrameError("bits are missing") from None
    rest = list(bits)
    _need(len(rest) < 8 and not any(rest))
    return _valid(positions, size)


Counts = tuple[list[int], list[int]]  # hits and places of each class, in sixteenths


def pack_popular(positions: Set, classes: Sequence[int], counts: Counts) -> bytes:
    """Return the code behind the history; its number is `low` over 256^shifts, exactly."""
    low, span, shifts = 0, ONE, 0
    hit = set(positions)

    def coded(zero: int, bit: int) -> int:
        nonlocal low, span, shifts
        bound = span * min(max(zero, 1), 65535) >> 16
        low, span = (low + bound, span - bound) if bit else (low, bound)
        while span < 1 << 24:
            low, span, shifts = low << 8, span << 8, shifts + 1
        return bit

    _walk(classes, counts, len(positions), lambda zero, places: coded(zero, not hit.isdisjoint(places)))
    for spare in (32, 24):  # the number in [low, low + span) that ends in the most zeros, of those two
        number = -(-low >> spare) << spare
        if number < low + span:
            break
    return number.to_bytes(shifts + 4, "big").rstrip(b"\0")


def unpack_popular(body: bytes, count: int, classes: Sequence[int], counts: Counts) -> list[int]:
    """Undo `pack_popular`."""
    at, span = 4, ONE
    code = int.from_bytes(body[:4].ljust(4, b"\0"), "big")

    def coded(zero: int, places: Set) -> int:
        nonlocal code, span, at
        bound = span * min(max(zero, 1), 65535) >> 16
        bit = int(code >= bound)
        code, span = (code - bound, span - bound) if bit else (code, bound)
        while span < 1 << 24:
            code, span, at = code << 8 | (body[at] if at < len(body) else 0), span << 8, at + 1
        return bit

    positions = _walk(classes, counts, count, coded)
    _need(len(positions) == count and not body.endswith(b"\0"))
    _need(len(body) <= at - 3 if count else not body)
    return sorted(positions)


def moved(classes: Sequence[int], positions: Set, counts: Counts) -> Counts:
    """Return the counts after a stream."""
    seen = [classes[position] for position in positions], classes
    after = [list(part) for part in counts]
    for kind in set(classes):
        for part, found in zip(after, seen, strict=True):
            part[kind] += (list(found).count(kind) << 4) - (part[kind] >> 3)
    return after[0], after[1]


def observe(share: Sequence[int], hits: Set, seen: int) -> tuple[list[int], list[int]]:
    """Return shares and classes after another iteration; seen: iterations before it."""
    rate, hit = 32768 // min(seen + 1, 32), set(hits)
    after = [held + ((32767 * (at in hit) - held) * rate >> 15) for at, held in enumerate(share)]
    return after, [_class(held) for held in after]


def _class(share: int) -> int:
    if share < 16384:
        return max(1, share.bit_length() - 7) if share else 0
    return 15 - max(0, (32767 - share).bit_length() - 7)


def _walk(classes: Sequence[int], counts: Counts, count: int, coded: Callable[[int, Set], int]) -> list[int]:
    """Go over all places, class 15 first; `coded` codes or reads whether one of some places is hit."""
    found = list[int]()
    for kind in range(15, -1, -1):
        places = [at for at, its in enumerate(classes) if its == kind]
        density = (count << 22) // max(1, len(classes))
        hit = ((counts[0][kind] << 22) + 32 * density) // (counts[1][kind] + 32)
        empty = [ONE - (min(max(hit, 1), (1 << 22) - 1) << 10)]
        while empty[-1] ** 2 >> 32 >= ONE // 2:
            empty.append(empty[-1] ** 2 >> 32)
        while places and len(found) < count:
            level = min(len(empty), len(places).bit_length()) - 1
            run = places[: 1 << level]
            places = places[1 << level :]
            if not coded(empty[level] >> 16, run):
                continue
            while level:
                level -= 1
                half = 1 << level
                if coded((empty[level] << 16) // (ONE + empty[level]), run[:half]):
                    run, places = run[:half], run[half:] + places
                else:
                    run = run[half:]
            found += run
    return found


def _valid(positions: list[int], size: int) -> list[int]:
    _need(positions == sorted(set(positions)) and (not positions or positions[-1] < size))
    return positions


def _need(right: bool) -> None:
    if not right:
        raise FrameError("the stream is not valid")
