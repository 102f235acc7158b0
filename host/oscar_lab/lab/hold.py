"""What a lab holds while it runs: the lock, a folder of gradients; and clean-ups in one piece."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oscar.errors import OscarError
from oscar.signals import SAID

PREFIX = "oscar-lab-"  # of all namespaces and folders of labs, and of nothing else
LOCK = "/run/oscar-lab.lock"


@contextmanager
def one_lab() -> Iterator[None]:
    """Hold the lock that admits one lab at a time; raises OscarError where another lab holds it."""
    with open(LOCK, "w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise OscarError(
                f"another oscar lab is running (it holds {LOCK}); wait for it or end it"
            ) from None
        yield


@contextmanager
def gradient_folder() -> Iterator[Path]:
    """Make a temporary folder, after removing those of killed labs: the caller must hold `one_lab`."""
    for stale in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            ours = stale.lstat().st_uid == os.geteuid() and not stale.is_symlink()
            if ours and all(path.suffix == ".npy" for path in stale.iterdir()):
                shutil.rmtree(stale)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        yield folder
    finally:
        with undisturbed():
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Delay SIGINT, SIGTERM and SIGHUP until the block ends; outside the main thread, do nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in SAID}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
    if came:
        signal.raise_signal(came[0])
