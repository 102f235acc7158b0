"""The hunt with mutated frames: it passes, and it would notice what is wrong."""

from __future__ import annotations

import argparse

from oscar_lab.trials import mutate


def test_mutated_frames_are_refused_or_decode(seed: int) -> None:
    args = argparse.Namespace(count=6000, seed=seed, jobs=1, boundscheck=False)
    result = mutate.run(args)
    assert result["ok"], result["faults"]
    assert result["mutations"] == result["returned"] + result["frame_errors"] == 6000
    assert result["returned"] > 300
    assert {"asc coded", "asc sent rows", "asc raw", "asc constant", "zstd", "frame"} <= result[
        "subjects"
    ].keys()
