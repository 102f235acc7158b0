"""The hunt with mutated frames: it passes, and it would notice what is wrong."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from oscar.coding.asc import Encoder
from oscar.coding.frame import unpack_frame
from oscar.errors import FrameError
from oscar_lab.trials import mutate
from oscar_lab.trials._mutate_subjects import FrameSubject
from oscar_lab.trials._mutations import reseal


def test_mutated_frames_are_refused_or_decode(seed: int) -> None:
    args = argparse.Namespace(count=6000, seed=seed, jobs=1, boundscheck=False)
    result = mutate.run(args)
    assert result["ok"], result["faults"]
    assert result["mutations"] == result["returned"] + result["frame_errors"] == 6000
    assert result["returned"] > 300
    assert {"asc coded", "asc sent rows", "asc raw", "asc constant", "zstd", "frame"} <= result[
        "subjects"
    ].keys()


def test_the_attack_would_notice() -> None:
    frame = Encoder().encode(np.arange(40), step=0)

    def attack(decode: Callable[[Any], Any], sealed: bool = True) -> dict[str, int]:
        tally: Counter[str] = Counter()
        subject = FrameSubject("x", (frame, frame), decode, decode, [1, 1])
        mutate._judge(subject, bytearray(frame), sealed, tally)
        return dict(tally)

    def crash(view: memoryview) -> Any:
        raise IndexError("index out of bounds")

    def refuse(view: memoryview) -> Any:
        raise FrameError("damaged")

    assert attack(crash) == {"crashes": 1}
    assert attack(refuse) == {"frame_errors": 1}
    assert attack(lambda view: bytes(view.obj)[len(view)]) == {"over_reads": 1}
    assert attack(lambda view: 1, sealed=False) == {"returned": 1}
    assert attack(lambda view: 2) == {"returned": 1}
    assert attack(lambda view: 2, sealed=False) == {"wrong": 1}
    resealed = bytearray(frame)
    reseal(resealed)
    assert unpack_frame(bytes(resealed)) == unpack_frame(frame)
