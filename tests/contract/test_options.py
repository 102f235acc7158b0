"""Options of methods and of configurations: what is wrong is named, with what is right."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from oscar.config import Config
from oscar.errors import ConfigError
from oscar.schemes.registry import make_scheme, method_names, parse, scheme_class, scheme_names

SHAPES = [(40, 50), (33,), (7,)]
WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("oscar-sw", {"share": 2.0}, "share is a part of all values"),
    ("oscar-sw", {"rows": 0}, "1 to 5 rows, got 0"),
    ("oscar-sw", {"ratio": -0.1}, "ratio is cells"),
    ("oscar-sw-best", {"zero_shift": -17}, "-16 to 16 octaves, got -17"),
    ("count-sketch", {"rows": 6}, "1 to 5 rows, got 6"),
    ("count-sketch", {"ratio": 0.0}, "ratio is cells"),
    ("count-sketch", {"estimate": "mode"}, "estimate must be one of median, mean"),
    ("count-sketch", {"bits": 1}, "2 to 16 bits, got 1"),
    ("count-sketch", {"cell_bits": 32}, "4 to 28 bits"),
    ("count-sketch", {"threshold": -1.0}, "threshold is in units"),
    ("sketched-sgd", {"share": 0.0}, "share is a part"),
    ("sketched-sgd", {"momentum": 1.0, "exact": False}, "momentum < 1"),
    ("sketched-sgd", {"momentum": 0.9}, "set exact to false, or momentum to 0"),
    ("lhc", {"cells": "none"}, "cells is one of sketch, values"),
    ("lhc", {"bits": 1}, "2 to 16 bits"),
    ("lhc", {"ratio": 0.5}, "1 to 16 cells per key"),
    ("lhc", {"hashes": 1}, "2 to 8 hashes"),
    ("lhc", {"message_bits": -1}, "message_bits is 0 or more"),
    ("oscar-sw-lossless", {"stages": 0}, "1 to 4 stages"),
    ("oscar-sw-lossless", {"widths": 5}, "0 to 4 widths"),
    ("s2-reducer", {"index": "xor"}, "index is one of or, gather"),
    ("terngrad", {"clip": -1.0}, "standard deviations"),
    ("qsgd", {"levels": 0}, "levels, got 0"),
    ("qsgd", {"bucket": 0}, "at least one value"),
    ("qsgd", {"norm": "l1"}, "norm is one of max, l2"),
    ("powersgd", {"rank": 0}, "rank must be 1 to 256"),
    ("thc", {"bits": 9}, "1 to 6 bits, got 9"),
    ("thc", {"granularity": 14}, "granularity is 15 to 128 at 4 bits, got 14"),
    ("thc", {"tail": 0.0}, "tail is 1e-6 to 0.5"),
    ("thc", {"block": 100}, "block is a power of two, 64 at least, got 100"),
    ("dynamiq", {"bits": 2.0}, r"bits is 2.6875 to 8.6875, got 2.0"),
    ("micro", {"density": 0.0}, "density is a share of all values, above 0 and at most 1, got 0.0"),
    ("exdyna", {"density": 1.5}, "density is a share .* got 1.5"),
    ("exdyna", {"partition": "released", "blocks": 9000}, "at most as many blocks as there are .*, got 9000"),
    ("exdyna", {"blocks": -1}, "blocks >= 0, got -1"),
    ("exdyna", {"partition": "range"}, "partition is one of released, learnt, got 'range'"),
    ("micro", {"partition": "hash"}, "partition is one of range, learnt, got 'hash'"),
    ("micro", {"controller": "none"}, "controller is one of corrected, released, got 'none'"),
    ("scalecom", {"beta": 0.0}, "beta is the weight .* got 0.0"),
    ("sidco", {"stages": 0}, "expected 1 stage at least, got 0"),
    ("sidco", {"fit": "normal"}, "fit is one of exponential, pareto, got 'normal'"),
    ("dct-threshold", {"every": 0}, "expected every >= 1, got 0"),
    ("oktopk", {"values": "asc"}, "sets of their own"),
    ("oktopk", {"reuse": 0}, "reuse >= 1"),
    ("adatopk", {"rates": "1, x"}, "numbers above 0 with commas"),
    ("adatopk", {"rates": "1, 2, 3"}, "a rate for each of 2 ranks, got 3"),
    ("fedft", {"chunk": 1}, "2 to 1024 values"),
    ("demo", {"decay": 1.5}, "a factor of 0 to 1"),
    ("demo", {"density": 0.0}, "above 0 and at most 1"),
    ("zen", {"exchange": "balance"}, "exchange is one of auto, balanced"),
    ("zen", {"values": "asc", "exchange": "doubling"}, "exchange is auto, all-gather or dense there"),
    ("zen", {"below": 2.0}, "0 <= below <= 1"),
    ("zen", {"tries": 0}, "1 to 16 tries"),
    ("zen", {"partition": "hashed"}, "partition is one of range, interleave, hash, learnt"),
]


@pytest.mark.parametrize(
    ("name", "options", "text"), WRONG, ids=lambda one: one if isinstance(one, str) else str(one)
)
def test_scheme_refuses_options(name: str, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=f"scheme {name}: .*{text}"):
        make_scheme(name, options, shapes=SHAPES, nodes=2, seed=0)


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
