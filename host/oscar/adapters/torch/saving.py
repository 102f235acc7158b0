"""A tree of state as text, numbers and tensors, which torch.load reads with weights_only."""

from __future__ import annotations

from typing import Any

from oscar.checkpoint import flatten, rebuild
from oscar.state import Saved
from oscar.transports.gloo import load_torch


def packed(tree: Any) -> dict[str, Any]:
    """Return a tree as its text and one tensor for each dtype."""
    text, arrays = flatten(tree)
    torch = load_torch()[0]
    return {"tree": text, "arrays": {dtype: torch.from_numpy(array) for dtype, array in arrays.items()}}


def unpacked(saved: Saved) -> Any:
    """Return the tree that was packed; raises ConfigError where text and tensors do not fit."""
    text, held = saved["tree"].text(), saved["arrays"]
    keys = held.keys(lambda key: type(key) is str, "dtypes")
    try:
        return rebuild(text, {key: held[key].value.numpy() for key in keys})
    except Exception as error:  # what JSON, NumPy and torch raise for foreign content is wide
        raise saved["tree"].refuse("what state_dict wrote", f"what cannot be read ({error!r})") from error
