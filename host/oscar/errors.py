"""The run-time faults that OSCAR raises; bad arguments raise ValueError or TypeError instead."""

from __future__ import annotations

import difflib
import importlib.util
import os
import sys
import warnings
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

PACKAGES = "oscar", "oscar_gpu", "oscar_studies", "oscar_lab"  # that are OSCAR; the last one in a clone alone
OWN_FOLDERS = tuple(f"{Path(__file__).parents[1] / name}{os.sep}" for name in PACKAGES)
IN_CLONE = (Path(__file__).parents[2] / "pyproject.toml").is_file()  # else installed from a wheel


class OscarError(Exception):
    """Base of every run-time fault; its text says what was expected, what came and what to do.

    Attributes: ``fact``, the text without the advice, and ``advice``, the end of the text, separator
    included. Code whose callers cannot follow the advice sets it to "" (the torch hook does).
    """

    def __init__(self, *fact: object, advice: str = "") -> None:
        super().__init__(*fact)
        self.advice = advice

    @property
    def fact(self) -> str:
        """What happened, without what to do about it."""
        return super().__str__()

    def __str__(self) -> str:
        return self.fact + self.advice


class WrongSumError(OscarError):
    """A sum that should be exact was not, or nodes ended with different bits: a bug of ours."""


class FrameError(OscarError):
    """A frame is damaged, foreign, out of order, or its tables drifted from the receiver's."""


class WrongBaseError(OscarError, ValueError):
    """Tensors that a message of `oscar.delta` changes are other ones than those it was made for."""


class GradientError(OscarError, ValueError):
    """A gradient cannot be reduced: NaN or Inf, or shapes that differ between nodes."""


class GradientOverflowError(GradientError):
    """The mean of finite gradients is beyond float32. All ranks raise it, and may go on with the next call.

    Attributes: ``tensor``, -1 where it is not one tensor's; ``what``, the text after the tensor's name.
    """

    def __init__(self, what: str, *, tensor: int = -1, advice: str = "") -> None:
        super().__init__(what if tensor < 0 else f"tensor {tensor}: {what}", advice=advice)
        self.what, self.tensor = what, tensor

    def __reduce__(self) -> tuple[Any, ...]:
        """Survive pickling, keyword arguments included."""
        return partial(GradientOverflowError, tensor=self.tensor, advice=self.advice), (self.what,)


class ConfigError(OscarError, ValueError):
    """A configuration or trace file is not valid; names the key and the nearest valid one."""


class PeerError(OscarError):
    """A peer died, stalled past the deadline or sent a bad frame; gradients were left untouched.

    Attributes: ``rank`` (who noticed), ``peer``, ``step`` (of the whole AllReduce) and ``chunk``.
    """

    def __init__(
        self, message: str, *, rank: int, peer: int, step: int, chunk: int, advice: str = ""
    ) -> None:
        super().__init__(message, advice=advice)
        self.rank, self.peer, self.step, self.chunk = rank, peer, step, chunk

    def __reduce__(self) -> tuple[Any, ...]:
        """Survive pickling, keyword arguments included."""
        make = partial(PeerError, rank=self.rank, peer=self.peer, step=self.step, chunk=self.chunk)
        return partial(make, advice=self.advice), (self.fact,)


class OscarWarning(UserWarning):
    """Base of every warning: results are as documented, but probably not what you want."""


class SaturationWarning(OscarWarning):
    """Values beyond the quantiser's range were cut off, and what they lost is not carried over."""


class CautionWarning(OscarWarning):
    """Training with this scheme and these options may diverge, or end at a bad loss."""


class MissingExtraError(OscarError, ImportError):
    """An optional package is needed; the text names the extra to install."""


REQUIRED = {  # what every installation has: the module that is imported, and the package that brings it
    **{
        name: name
        for name in ["isal", "matplotlib", "numba", "numpy", "pydantic", "rich", "shtab", "zstandard"]
    },
    "yaml": "pyyaml",
}


def lacking(*modules: str) -> str:
    """Return the line for modules of other packages that are not installed: which, and what to do."""
    names = " ".join(REQUIRED.get(module, module).replace("sklearn", "scikit-learn") for module in modules)
    setup = IN_CLONE and modules[0] in REQUIRED
    remedy = "`make setup`, or pip install -e . in the checkout" if setup else f"pip install {names}"
    return f"expected Python packages that are not installed: {names}; {remedy}"


def check_packages() -> None:
    """Raise MissingExtraError where one of REQUIRED is not installed; imports none of them."""
    gone = [module for module in REQUIRED if importlib.util.find_spec(module) is None]
    if gone:
        raise MissingExtraError(lacking(*gone))


def install(extra: str, *, target: str | None = None) -> str:
    """Return how to install `extra`, in words; target: of make, where one brings it to a clone."""
    if not IN_CLONE:
        return f"pip install 'oscar-allreduce[{extra}]'"
    pip = f"pip install -e '.[{extra}]' in the checkout"
    return pip if target is None else f"`make {target}`, or {pip}"


def needed(module: str, purpose: str, extra: str, *, target: str | None = None) -> Any:
    """Import a module of the optional package that `extra` brings, and return it.

    Raises MissingExtraError without it: `purpose` is the subject of the text, target as for `install`.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0].replace("sklearn", "scikit-learn")
        remedy = install(extra, target=target)
        raise MissingExtraError(f"{purpose} needs {package}: {remedy} ({error})") from None


def did_you_mean(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return a question that names the nearest of `known`, and a space; nothing where none is near."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=cutoff)
    near.sort(key=lambda word: sorted(word) != sorted(name))  # letters that changed places are the nearest
    return f"did you mean {near[0]!r}? " if near else ""


def one_line(text: str) -> str:
    """Return `text` in one line, with unprintable characters as escapes."""
    words = " ".join(text.split())
    return words if words.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in words)


def warn(text: str, category: type[Warning]) -> None:
    """Warn of the line outside OSCAR's packages that called into them."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(OWN_FOLDERS):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)
