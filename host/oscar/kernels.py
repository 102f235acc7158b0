"""How kernels are compiled: where they are cached, what is logged before the first one, what goes wrong.

All kernels are made with this module's `njit`, so that Python and the command line raise the same errors.
"""

from __future__ import annotations

import logging
import os
import stat
import tempfile
import zlib
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import Any

import numba
from numba.core import event

from oscar.errors import OscarError

CACHE_ELSEWHERE = "set NUMBA_CACHE_DIR to a folder you can write to"
NO_JIT = "compiled kernels cannot run while NUMBA_DISABLE_JIT is set; unset it"
COMPILES = "numba:compile"  # the event; a kernel that comes from the cache has none
LOG = logging.getLogger("oscar.kernels")


def njit(*args: Any, **options: Any) -> Any:
    """Return `numba.njit(*args, **options)`, whose cache has a folder of its own where numba finds none.

    Numba looks beside the code and in the user's home. An installation that another user made, without a
    home, has neither. Raises OscarError where the folder cannot be made either.
    """
    if args and callable(args[0]):
        return njit(*args[1:], **options)(args[0])

    def decorate(function: Any) -> Any:
        if numba.config.DISABLE_JIT:
            return _plain(function)
        try:
            return _stamped(numba.njit(*args, **options)(function))
        except RuntimeError as error:
            if "no locator available" not in str(error):
                raise
        before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(_private_folder())
        try:
            return _stamped(numba.njit(*args, **options)(function))
        except RuntimeError as error:
            raise OscarError(f"compiled kernels cannot be kept anywhere: {CACHE_ELSEWHERE}") from error
        finally:
            numba.config.CACHE_DIR = before

    return decorate


def _stamped(kernel: Any) -> Any:
    """Let a cached kernel depend on all modules beside its own: their functions are compiled into it.

    Numba looks at the kernel's own file only, and would go on with code of before an update.
    """
    file = getattr(kernel._cache, "_cache_file", None)
    if file is not None:
        file._source_stamp = file._source_stamp, _stamp(Path(kernel.py_func.__code__.co_filename).parent)
    return kernel


@cache
def _stamp(folder: Path) -> int:
    """Return a checksum of the modules of a folder and of the one around it."""
    files = sorted((*folder.glob("*.py"), *folder.parent.glob("*.py")))
    return zlib.crc32(b"".join(file.read_bytes() for file in files))


def part(*args: Any, **options: Any) -> Any:
    """Return `njit` of a function that only kernels call: it is compiled with its callers."""
    return njit(*args, nogil=True, no_cpython_wrapper=True, **options)


def _plain(function: Any) -> Any:
    """Return a kernel as Python runs it, for numba without its compiler: some have no such form."""

    @wraps(function)
    def call(*args: Any) -> Any:
        try:
            return function(*args)
        except NotImplementedError as error:
            raise OscarError(NO_JIT) from error

    return call


@cache
def _private_folder() -> Path:
    """Return a folder for compiled kernels in the temporary folder, which nobody else can write to.

    Kernels are code, so one that another user made, or could change, is refused with an OscarError.
    """
    nowhere = "compiled kernels can be kept neither beside the code nor in your home"
    try:
        folder = Path(tempfile.gettempdir()) / f"oscar-kernels-{os.getuid()}"
        folder.mkdir(0o700, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise OscarError(f"{nowhere}, nor in the temporary folder ({error}): {CACHE_ELSEWHERE}") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise OscarError(f"{nowhere}, and others can write to {folder}: {CACHE_ELSEWHERE}")
    LOG.info("%s: they are kept in %s; NUMBA_CACHE_DIR names another folder", nowhere, folder)
    return folder


class Compiling(event.Listener):
    """Calls `tell` when one of our kernels is about to be compiled, the first time alone."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = cache(tell)

    def on_start(self, event: Any) -> None:
        """Leave the kernels of others, as a user may have them; what was made by exec has no module."""
        function = getattr(event.data["dispatcher"], "py_func", None)
        if str(getattr(function, "__module__", None)).startswith("oscar"):
            self._tell()

    def on_end(self, event: Any) -> None:
        """Say nothing."""


def log_compiling(rank: int) -> None:
    """From now on log one line on rank 0, at level WARNING, before this process compiles its first kernel.

    A training that hangs would look the same: compiling takes half a minute, or minutes of busy cores.
    """
    if rank == 0:
        _listen()


@cache
def _listen() -> None:
    event.register(COMPILES, Compiling(_log))


def _log() -> None:
    LOG.warning(
        "compiling kernels, once per machine and version: half a minute of a free core, more of a busy one; "
        "`python -m oscar.warm` does it ahead of a training"
    )
