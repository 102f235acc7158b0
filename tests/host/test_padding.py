"""Padded messages: few sizes on the wire, the same bits at the other end, and one pad on all ranks."""

from __future__ import annotations

import os
import random
import time
from typing import Any

import pytest

from oscar.config.sections import TransportSection
from oscar.errors import ConfigError
from oscar.transports.base import CONTROL_TAGS, Notice, Transport, TransportError
from oscar.transports.keyed import LEAST_BYTES, TAG_BYTES, KeyedTransport, Padding, secured
from oscar.transports.threads import ThreadTransport, local_transports
from support.ranks import on_ranks

KEY = os.urandom(32)
LENGTH_BYTES = 8


class Spy(ThreadTransport):
    """Keeps what it sends under the key, and may change it."""

    def _send(self, peer: int, tag: int, parts: tuple[Any, ...]) -> None:
        kept, message = self.__dict__.setdefault("kept", []), b"".join(parts)
        kept.append((tag, message))
        super()._send(peer, tag, (self.__dict__.get("change", bytes)(message),))


def pair(pad: float) -> list[KeyedTransport]:
    ends = local_transports(2)
    for end in ends:
        end.__class__ = Spy
    made = on_ranks(ends, lambda end: KeyedTransport(end, KEY, pad=pad, timeout_s=20))
    for end in ends:
        end.__dict__["kept"].clear()
    return made


def rungs(percent: float, most: int) -> list[int]:
    """Return the ladder's rungs up to `most`, by its definition."""
    found = [LEAST_BYTES]
    while found[-1] < most:
        found.append(found[-1] + max(1, int(found[-1] * percent / 100)))
    return found


def test_the_ladder_has_few_rungs_and_none_costs_more_than_it_may(draw: random.Random) -> None:
    for percent in (1, 100, *(draw.uniform(1, 100) for _ in range(5))):
        padding, ladder = Padding(percent), rungs(percent, 1 << 31)
        for size in (0, 1, 56, 57, *(int(2 ** draw.uniform(0, 30)) for _ in range(200))):
            padded, least = padding.padded_bytes(size), size + LENGTH_BYTES
            assert padded in ladder
            assert least <= padded <= max(LEAST_BYTES, least + 1, int(least * (1 + percent / 100)))
    assert [Padding(10).padded_bytes(size) for size in (0, 56, 57, 62, 63)] == [64, 64, 70, 70, 77]
    assert len(rungs(10, 1 << 30)) < 200
    assert len([rung for rung in rungs(100, 1 << 30) if rung > 1 << 20]) == 10  # one an octave


@pytest.mark.parametrize("pad", [0.0, 1.0, 10.0, 100.0])
def test_messages_come_back_bit_by_bit_and_their_sizes_are_rungs(pad: float, draw: random.Random) -> None:
    one, two = pair(pad)
    sizes = [0, 1, 24, 56, 57, 1000, 1001, draw.randrange(100_000)]
    print(f"sizes {sizes}")
    for number, size in enumerate(sizes):
        message = os.urandom(size)
        for tag in (number, 32640):
            two.post_recv(0, tag, size)  # the cap: not a byte more fits
            one.post_send(1, tag, message)
            assert bytes(two.wait(0, tag, time.monotonic() + 20)) == message
    wire = [len(message) - TAG_BYTES for _, message in one.inner.kept]  # type: ignore[attr-defined]
    ladder = set(rungs(pad, 1 << 20)) if pad else set(sizes)
    assert len(wire) == 2 * len(sizes)
    assert set(wire) <= ladder
    assert (one.padding.plain_bytes, one.padding.padded_total) == (2 * sum(sizes), sum(wire))


def test_sizes_of_one_class_cannot_be_told_apart() -> None:
    one, _ = pair(10.0)
    for tag, size in enumerate((960, 990, 1053, 1054)):
        one.post_send(1, tag, bytes(size))
    one.abort(Notice(0, -1, -1, -1, "a reason"))
    sizes = [len(message) for _, message in one.inner.kept]  # type: ignore[attr-defined]
    assert len(set(sizes[:3])) == 1
    assert len(set(sizes[:4])) == 2
    ((tag, notice),) = one.inner.kept[4:]  # type: ignore[attr-defined]
    assert tag in CONTROL_TAGS
    assert len(notice) - TAG_BYTES in rungs(10, 4096)


def test_padding_that_is_none_is_refused() -> None:
    one, two = pair(25.0)
    for lie in ((93).to_bytes(8, "little") + bytes(92), bytes(63)):
        with pytest.raises(
            ValueError, match=r"it says that it has 93 bytes, and has 92|64 bytes at least, got 63"
        ):
            two.padding.unpad(memoryview(lie))
    one.padding = Padding(0)  # a rank that has the key and does not pad
    two.post_recv(0, 7, 100)
    one.post_send(1, 7, b"\xff" * 90)
    with pytest.raises(TransportError, match="tag 7 from rank 0 is not padded as it should be") as caught:
        two.wait(0, 7, time.monotonic() + 20)
    assert (caught.value.peer, caught.value.kind) == (0, "aborted")


def test_unequal_pads_are_refused_on_all_ranks_alike() -> None:
    def make(end: Transport) -> KeyedTransport:
        return KeyedTransport(end, KEY, pad=5.0 if end.rank == 2 else 10, timeout_s=20)

    errors = on_ranks(local_transports(4), make)
    assert all(isinstance(error, ConfigError) for error in errors), errors
    (text,) = {str(error) for error in errors}
    assert "keys: rank 2 has transport.pad = 5.0, rank 0 has 10.0; start all ranks with" in text


def test_survivors_pad_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    left = local_transports(2)
    ends = pair(10.0)
    for end, inner in zip(ends, left, strict=True):
        monkeypatch.setattr(end.inner, "survivors", lambda timeout_s, inner=inner: inner)
    again = on_ranks(ends, lambda end: end.survivors(10))
    assert [(end.pad, end.padding.percent, end.inner) for end in again] == [(10, 10, inner) for inner in left]


def test_a_pad_that_hides_nothing_or_is_no_number_of_per_cent_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"transport\.security is none: who reads plain frames reads their"):
        TransportSection(pad=10)
    with pytest.raises(ConfigError, match=r"expected no pad without security, got 10: .* to aes-gcm"):
        secured(local_transports(2)[0], "none", key=None, pad=10)
    assert TransportSection.model_validate({"pad": "none"}).pad == 0
    assert TransportSection.model_validate({"pad": 12.5, "security": "aes-gcm"}).pad == 12.5
    for pad in (0.5, 101, -1, float("nan"), True, "10 %"):
        said = "expected none, or a number of per cent from 1 to 100"
        with pytest.raises(ConfigError, match=said):
            TransportSection.model_validate({"pad": pad, "security": "aes-gcm"})
    with pytest.raises(ValueError, match=r"expected a pad of 0, or of 1 to 100 per cent, got 0\.5"):
        KeyedTransport(local_transports(2)[0], KEY, pad=0.5)
