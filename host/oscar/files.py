"""Files that are written whole or not at all, and checked before a long run; a folder held by one run."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from io import BufferedWriter, FileIO, UnsupportedOperation
from pathlib import Path
from typing import Any, BinaryIO

from oscar.errors import ConfigError

LOCK = ".oscar-lock"  # in an output folder while a run writes there; names the run

Name = str | os.PathLike[str]


@contextmanager
def replacing(path: Name) -> Iterator[BinaryIO]:
    """Open a new file that takes the place of `path` when the block ends without an error.

    Until then, and after an error, `path` stays as it was. Links are followed. A device, a pipe or a name of
    an open file, such as /dev/stdout, is written to directly. Raises ConfigError, with the reason, when the
    file cannot be written; other errors of the block pass through.
    """
    target = Path(os.path.realpath(path))
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    said = partial(_said, path)
    number = _descriptor(path)
    if number is not None or _is_device(target):
        with said():
            sys.stdout.flush()  # what was printed comes first
            number = os.open(target, os.O_WRONLY) if number is None else os.dup(number)
        with BufferedWriter(_Raw(number, said)) as file:
            yield file
        return
    try:
        with said():
            number = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        with BufferedWriter(_Raw(number, said)) as file:
            with said():
                if target.exists():
                    os.fchmod(number, stat.S_IMODE(target.stat().st_mode))
            yield file
            file.flush()
            with said():
                os.fsync(number)  # the data before the name
        with said():
            os.replace(part, target)
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


@contextmanager
def _said(path: Name) -> Iterator[None]:
    """Raise ConfigError, with the reason and what to do, for an OSError."""
    try:
        yield
    except OSError as error:
        remedy = "make room" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "choose another place"
        raise ConfigError(f"{path}: cannot write there ({error.strerror or error}); {remedy}") from error


class _Raw(FileIO):
    """A file to write to whose own errors go through `said`; libraries cannot write past it."""

    def __init__(self, number: int, said: Callable[[], AbstractContextManager[None]]) -> None:
        super().__init__(number, "wb")
        self._said = said

    def fileno(self) -> int:
        raise UnsupportedOperation("fileno")  # or numpy and Pillow would write to it directly

    def write(self, data: Any) -> int:
        with self._said():
            return super().write(data)

    def close(self) -> None:
        with self._said():
            super().close()


def _descriptor(path: Name) -> int | None:
    """Return the number of the open file that `path` is a name of, such as /dev/stdout; else None."""
    named = os.path.abspath(path)
    if named in ("/dev/stdin", "/dev/stdout", "/dev/stderr"):
        return ("/dev/stdin", "/dev/stdout", "/dev/stderr").index(named)
    match = re.fullmatch(r"/(?:dev|proc/self)/fd/(\d+)", named)
    return int(match[1]) if match else None


def write_text(path: Name, text: str) -> None:
    """Write `text` to `path` as UTF-8, whole or not at all; raises ConfigError."""
    with replacing(path) as file:
        file.write(text.encode())


def write_json(path: Name, data: Any, *, indent: int | None = 1) -> None:
    """Write `data` to `path` as JSON, whole or not at all; raises ConfigError."""
    write_text(path, json.dumps(data, indent=indent) + "\n")


def save_figure(figure: Any, path: Name, **how: Any) -> None:
    """Write a matplotlib figure to `path`, whole or not at all, in the format that its name ends with."""
    with replacing(path) as file:
        figure.savefig(file, format=Path(path).suffix[1:] or "png", **how)


def check_outputs(outputs: Iterable[Path | None], inputs: Iterable[Path | None] = ()) -> None:
    """Raise ConfigError unless each of `outputs` can be written and is none of `inputs` or the others.

    Called before the work that would be lost; None stands for an option that was not given.
    """
    seen = [(path, "it is an input of this command") for path in inputs if path is not None]
    for path in outputs:
        if path is None:
            continue
        check_writable(path)
        for other, why in seen:
            if _same_file(path, other):
                raise ConfigError(f"{path}: expected another file to write to, {why}; choose another name")
        seen.append((path, "another output goes there"))


def check_writable(path: Path) -> None:
    """Raise ConfigError unless a file can be written at `path`."""
    number = _descriptor(path)
    if number is not None:
        with _said(path):
            os.fstat(number)
        return
    if path.is_dir():
        raise ConfigError(f"{path}: expected the name of a file to write, this is a folder")
    parent = Path(os.path.realpath(path)).parent
    if not parent.is_dir():
        raise ConfigError(
            f"{path}: expected an existing folder to write to, {path.parent} is none; create it"
        )
    if not os.access(path if _is_device(path) else parent, os.W_OK):
        raise ConfigError(f"{path}: cannot write there (permission denied); choose another place")


def _is_device(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


def _same_file(one: Path, other: Path) -> bool:
    """Whether two names mean one file, through links of any kind; a device is never in the way."""
    if _is_device(one) or _descriptor(one) is not None:
        return False
    with contextlib.suppress(OSError):
        return os.path.samefile(one, other)
    return os.path.realpath(one) == os.path.realpath(other)


@contextmanager
def output_folder(path: Name) -> Iterator[Path]:
    """Make a folder and hold it for one run: another run that asks for it meanwhile is refused.

    Raises ConfigError when it cannot be written to, or names who holds it.
    """
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = _lock(folder / LOCK)
    except OSError as error:
        raise ConfigError(
            f"{folder}: cannot write there ({error.strerror}); choose another folder: --set output=FOLDER"
        ) from None
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):
            (folder / LOCK).unlink()
        os.close(lock)


@contextmanager
def waiting_lock(path: Name, most_s: float) -> Iterator[None]:
    """Wait for a file that one process at a time may hold, and hold it; raises ConfigError after `most_s`.

    The file stays, empty. Where the file system has no locks, nobody waits. Raises OSError where it cannot be
    made.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        until = time.monotonic() + most_s
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise ConfigError(f"{path}: another process has held it for {most_s:g} s") from None
                time.sleep(0.01)
            except OSError:
                break
        yield
    finally:
        os.close(file)


def _lock(path: Path) -> int:
    """Return the descriptor of a locked file that names this process; raises ConfigError or OSError."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _hold(file, path.parent)
            if os.path.exists(path) and os.path.samestat(os.fstat(file), os.stat(path)):
                os.truncate(file, 0)
                os.write(file, f"process {os.getpid()}: {' '.join(sys.argv)}"[:200].encode())
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)  # its holder ended and removed it before we had locked it


def _hold(file: int, folder: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(file, 400).decode(errors="replace")
        raise ConfigError(
            f"{folder}: another run is writing there ({holder or 'it is just starting'}); wait for its end, "
            "or choose another folder: --set output=FOLDER"
        ) from None
    except OSError:  # a file system without locks
        return
