"""SIGTERM and SIGHUP as exceptions, as SIGINT is: a command takes down what it has started on its way out."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SAID = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}


class Stopped(SystemExit):
    """A signal asked this process to end; `code` is 128 and its number, as shells say it."""


@contextmanager
def stops_raise() -> Iterator[list[int]]:
    """Let SIGTERM and SIGHUP raise Stopped meanwhile and SIGINT KeyboardInterrupt; yields those that came.

    The list tells of a signal whose exception was lost on its way up, as compilers do. A signal that this
    process was started to ignore (nohup, the background of a shell) stays ignored. Outside the main thread,
    which alone may set handlers, this does nothing.
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return

    def stop(number: int, frame: object) -> None:
        came.append(number)
        raise KeyboardInterrupt if number == signal.SIGINT else Stopped(128 + number)

    before = {number: signal.getsignal(number) for number in SAID}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
