"""Options of methods and of configurations: what is wrong is named, with what is right."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import pytest

from oscar.config import Config
from oscar.errors import ConfigError
from oscar.schemes.registry import make_scheme, method_names, parse, scheme_class, scheme_names

SHAPES = [(40, 50), (33,), (7,)]
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("oscar-sw", {"ratio": -0.1}, "ratio is cells"),
    ("oscar-sw-best", {"zero_shift": -17}, "-16 to 16 octaves, got -17"),
    ("count-sketch", {"rows": 6}, "1 to 5 rows, got 6"),
    ("count-sketch", {"ratio": 0.0}, "ratio is cells"),
    ("count-sketch", {"estimate": "mode"}, "estimate must be one of median, mean"),
    ("sketched-sgd", {"momentum": 1.0, "exact": False}, "momentum < 1"),
    ("sketched-sgd", {"momentum": 0.9}, "set exact to false, or momentum to 0"),
    ("lhc", {"cells": "none"}, "cells is one of sketch, values"),
    ("s2-reducer", {"index": "xor"}, "index is one of or, gather"),
    ("qsgd", {"norm": "l1"}, "norm is one of max, l2"),
    ("exdyna", {"density": 1.5}, "density is a share .* got 1.5"),
    ("exdyna", {"partition": "released", "blocks": 9000}, "at most as many blocks as there are .*, got 9000"),
    ("exdyna", {"partition": "range"}, "partition is one of released, learnt, got 'range'"),
    ("micro", {"partition": "hash"}, "partition is one of range, learnt, got 'hash'"),
    ("micro", {"controller": "none"}, "controller is one of corrected, released, got 'none'"),
    ("sidco", {"fit": "normal"}, "fit is one of exponential, pareto, got 'normal'"),
    ("oktopk", {"values": "asc"}, "sets of their own"),
    ("adatopk", {"rates": "1, x"}, "numbers above 0 with commas"),
    ("adatopk", {"rates": "1, 2, 3"}, "a rate for each of 2 ranks, got 3"),
    ("demo", {"density": 0.0}, "above 0 and at most 1"),
    ("topk", {"values": "int9"}, "values is one of fp32, "),
    ("topk", {"index": "rice"}, "index is one of coo, bitmap, "),
    ("zen", {"push": "popular"}, "index popular learns from gathered sets: take values: asc"),
    ("zen", {"error_feedback": True}, "fp32 loses nothing: leave error_feedback out"),
    ("zen", {"exchange": "balance"}, "exchange is one of auto, balanced"),
    ("zen", {"values": "asc", "exchange": "doubling"}, "exchange is auto, all-gather or dense there"),
    ("zen", {"partition": "hashed"}, "partition is one of range, interleave, hash, learnt"),
]


@pytest.mark.parametrize(
    ("name", "options", "text"), WRONG, ids=lambda one: one if isinstance(one, str) else str(one)
)
def test_scheme_refuses_options(name: str, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=f"scheme {name}: .*{text}"):
        make_scheme(name, options, shapes=SHAPES, nodes=2, seed=0)


LIMITS: list[tuple[str, str, list[Any], list[Any]]] = [  # values that are taken, and values just beyond
    ("zen", "bits", [8, 16], [7, 17]), ("zen", "below", [0.0, 1.0], [-0.01, 1.01]),
    ("zen", "profile", [1], [0]), ("zen", "block", [1], [0]), ("zen", "tries", [1, 16], [0, 17]),
    ("zen", "slots", [64.0], [0.0, 64.5]), ("zen", "serial", [0.0, 64.0], [-0.1, 64.5]),
    ("lhc", "bits", [2, 16], [1, 17]), ("lhc", "ratio", [1.0, 16.0], [0.99, 16.1]),
    ("lhc", "spare", [0], [-1]), ("lhc", "message_bits", [0], [-1]), ("lhc", "hashes", [2, 8], [1, 9]),
    ("oscar-sw-lossless", "widths", [0, 4], [-1, 5]), ("oscar-sw-lossless", "stages", [1, 4], [0, 5]),
    ("oscar-sw", "share", [0.0, 1.0], [-0.1, 1.01]), ("oscar-sw", "zero_shift", [-16, 16], [-17, 17]),
    ("oscar-sw", "weight", [1.0], [0.0, 1.01]), ("oscar-sw", "hysteresis", [0.0], [-0.1]),
    ("oscar-sw", "every", [1], [0]), ("oscar-sw", "rows", [1, 5], [0, 6]),
    ("oscar-sw-best", "period", [1], [0]), ("count-sketch", "bits", [2, 16], [1, 17]),
    ("count-sketch", "cell_bits", [28], [3, 29]), ("count-sketch", "threshold", [0.0], [-0.1]),
    ("sketched-sgd", "share", [1.0], [0.0, 1.01]), ("sketched-sgd", "candidates", [1], [0]),
    ("micro", "density", [1.0], [0.0, 1.01]), ("topk", "momentum", [0.0, 0.99], [-0.1, 1.0]),
    ("topk", "warmup", [0], [-1]), ("exdyna", "blocks", [0], [-1]),
    ("fedft", "chunk", [2, 1024], [1, 1025]), ("demo", "decay", [0.0, 1.0], [-0.1, 1.01]),
    ("scalecom", "beta", [1.0], [0.0, 1.01]), ("sidco", "stages", [1], [0]),
    ("dct-threshold", "every", [1], [0]), ("oktopk", "reuse", [1], [0]), ("oktopk", "regions", [1], [0]),
    ("oktopk", "uneven", [1.0], [0.99]), ("powersgd", "rank", [1, 256], [0, 257]),
    ("s2-reducer", "bits", [2, 16], [1, 17]), ("terngrad", "clip", [0.0, 1e6], [-0.1, 1.1e6]),
    ("qsgd", "levels", [1, 32767], [0, 32768]), ("qsgd", "bucket", [1], [0]),
    ("thc", "bits", [1, 4], [0, 7]), ("thc", "granularity", [15, 128], [14, 129]),
    ("thc", "tail", [1e-6, 0.5], [9e-7, 0.51]), ("thc", "block", [64, 1024], [32, 96]),
    ("dynamiq", "bits", [2.6875, 8.6875], [2.68, 8.69]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "option", "taken", "refused"), LIMITS, ids=lambda one: str(one))
def test_scheme_options_end_at_their_limits(
    name: str, option: str, taken: list[Any], refused: list[Any]
) -> None:
    for value in taken:
        make_scheme(name, {option: value}, shapes=SHAPES, nodes=2, seed=0)
    for value in refused:
        with pytest.raises(ConfigError, match=f"scheme {name}: .*{re.escape(str(value))}"):
            make_scheme(name, {option: value}, shapes=SHAPES, nodes=2, seed=0)


def test_scheme_refuses_fields_too_narrow_for_its_workers() -> None:
    with pytest.raises(ConfigError, match=r"scheme oscar-sw: .* 2 bits hold no sum over 9 workers"):
        make_scheme("oscar-sw", {"lane_bits": 2}, shapes=SHAPES, nodes=9, seed=0)


@pytest.mark.parametrize("name", scheme_names())
def test_scheme_refuses_options_of_another_name_or_type(name: str) -> None:
    kind = scheme_class(name)
    with pytest.raises(ConfigError, match=f"scheme {name} has no option 'bogus'; .*valid ones: "):
        parse(name, kind, {"bogus": 1})
    for option in fields(kind.Options):
        wrong = 1.5 if option.type in ("int", int) else b"x"
        with pytest.raises(ConfigError, match=f"scheme {name}: option {option.name}: expected "):
            parse(name, kind, {option.name: wrong})
        with pytest.raises(ConfigError, match=rf"no option '{option.name}s'; did you mean '"):
            parse(name, kind, {f"{option.name}s": option.default})


@pytest.mark.parametrize("name", method_names())
def test_method_refuses_the_section_of_another_kind(name: str) -> None:
    with pytest.raises(ValueError, match=r"is a codec, not a scheme|has no option 'bogus'"):
        Config.model_validate({"method": name, "scheme": {"bogus": 1}})


QUANTISERS: list[tuple[dict[str, Any], str]] = [
    ({"step": "value", "scale": "max"}, 'step "value" needs scale "sigma"'),
    ({"step": "value", "controller": "bandit"}, "bandit moves the steps of tensors; set step to tensor"),
    ({"step": "row"}, r"quantiser\.step.*'tensor' or 'value'"),
    ({"controller": "bandits"}, "'fixed' or 'bandit'"),
    ({"controller": "bandit", "scale": "max"}, "set scale to sigma"),
    ({"arms": [1.0]}, "two or more coarsenesses"),
    ({"arms": [1.0, 0.5]}, "that rise"),
]


@pytest.mark.parametrize(("quantiser", "text"), QUANTISERS, ids=str)
def test_config_refuses_quantisers(quantiser: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Config.model_validate({"quantiser": quantiser})
