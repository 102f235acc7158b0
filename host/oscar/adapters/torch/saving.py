"""The hook's state as text, numbers and tensors, which torch.load reads with weights_only."""

from __future__ import annotations

from typing import Any

from oscar.adapters.torch.bypass import read_decided
from oscar.adapters.torch.layout import BucketLayout
from oscar.adapters.torch.policies import Policies
from oscar.checkpoint import flatten, rebuild
from oscar.errors import ConfigError
from oscar.reducers.communicator import Communicator
from oscar.state import Saved
from oscar.transports.gloo import load_torch

FORMAT = 1  # of state_dict


def packed(tree: Any, method: str) -> dict[str, Any]:
    """Return a state with this tree: its text, and one tensor for each dtype."""
    text, arrays = flatten(tree)
    torch = load_torch()[0]
    tensors = {dtype: torch.from_numpy(array) for dtype, array in arrays.items()}
    return {"format": FORMAT, "codec": method, "tree": text, "arrays": tensors}


def read_tree(state: Any, method: str) -> Saved:
    """Return the tree that `packed` took. Raises ConfigError if it is of another method, or no state."""
    saved = Saved.of(state)
    given = (saved["format"].value, saved["codec"].value)
    if list(map(type, given)) != [int, str] or given != (FORMAT, method):  # a tensor compares as a tensor
        raise ConfigError(
            f"expected a state of (format, codec) {(FORMAT, method)}, "
            f"got ({saved['format'].shown}, {saved['codec'].shown}); "
            "resume with the release and configuration of the run that saved it"
        )
    return Saved(_unpacked(saved))


def read_state(state: Any, method: str, *, policed: bool) -> tuple[Saved, Any, dict[int, BucketLayout]]:
    """Return the tree of a state, the decisions of its bypass, and the layouts of buckets.

    policed: the state must have a policy. Raises ConfigError if it is of another method, or no state.
    """
    tree = read_tree(state, method)
    layouts, decided = tree["layouts"], read_decided(tree["bypass"])
    known = layouts.keys(lambda key: type(key) is int and key >= 0, "indices of buckets")
    names = _names(tree)
    if policed == tree["policy"].missing:
        raise tree["policy"].refuse("that of a policy" if policed else "none", "the other")
    fresh = {index: BucketLayout(layouts[index].shapes(), None, names=names.get(index)) for index in known}
    return tree, decided, fresh


def _names(tree: Saved) -> dict[int, list[str]]:
    """Return the names of parameters by bucket; a state of an earlier release has none."""
    if "names" not in tree.keys(lambda key: type(key) is str, "names of parts"):
        return {}
    saved = tree["names"]
    indices = saved.keys(lambda key: type(key) is int and key >= 0, "indices of buckets")
    return {index: [name.text() for name in saved[index].items()] for index in indices}


def load_reducers(tree: Saved, communicator: Communicator, policies: Policies | None, backwards: int) -> None:
    """Take over all reducers' state, or none; raises ConfigError."""
    before, refused = communicator.state_dict(), None
    try:
        communicator.load_state_dict(tree["reducer"])
    except ConfigError as error:
        refused = error
    try:
        if policies is not None:
            policies.load_state_dict(tree["policy"], backwards, refused)
        elif refused is not None:
            raise refused
    except BaseException:
        communicator.load_state_dict(before)
        raise


def _unpacked(saved: Saved) -> Any:
    text, tensors = saved["tree"].text(), saved["arrays"]
    keys = tensors.keys(lambda key: type(key) is str, "dtypes")
    try:
        return rebuild(text, {key: tensors[key].value.numpy() for key in keys})
    except Exception as error:  # what JSON, NumPy and torch raise for foreign content is wide
        raise saved["tree"].refuse("what state_dict wrote", f"what cannot be read ({error!r})") from error
