"""SIGTERM, SIGHUP and SIGALRM as exceptions, like SIGINT: a command ends what it started on its way out."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SAID = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "terminated",
    signal.SIGHUP: "hung up",
    signal.SIGALRM: "ended by an alarm",
}

AGAIN_S = 0.3  # after this time a stop whose exception was lost is raised again


class Stopped(SystemExit):
    """A signal asked this process to end; `code` is 128 and its number, as shells say it."""


@contextmanager
def stops_raise() -> Iterator[list[int]]:
    """Let these signals raise Stopped meanwhile, SIGINT KeyboardInterrupt; yields those that came.

    An exception can get lost, as in a compiler's callbacks: it is raised again until the block ends. It can
    turn into another one: then the list shows the signal. A signal that this process was started to ignore
    (nohup, the background of a shell) stays ignored. Outside the main thread, which alone may set handlers,
    this does nothing.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def stop(number: int, frame: object) -> None:
        received.append(number)
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S, AGAIN_S)
        raise KeyboardInterrupt if number == signal.SIGINT else Stopped(128 + number)

    def again(number: int, frame: object) -> None:
        ignored = not received and before[signal.SIGALRM] is signal.SIG_IGN  # an alarm of somebody else
        if not ignored and not _on_its_way():
            stop(received[0] if received else number, frame)

    def report(lost: Any) -> None:
        if not received:  # afterwards it is the stop, or what callbacks make of objects it left half-made
            hook(lost)

    hook, sys.unraisablehook = sys.unraisablehook, report
    before = {number: signal.getsignal(number) for number in SAID}
    for number in SAID:
        if before[number] is not signal.SIG_IGN:
            signal.signal(number, stop)
    signal.signal(signal.SIGALRM, again)
    try:
        yield received
    finally:
        sys.unraisablehook = hook
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _on_its_way() -> bool:
    """Whether the running code handles a stop: it cleans up on the way out."""
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, (KeyboardInterrupt, Stopped)):
        error = error.__context__
    return error is not None
