"""The command line `oscar`. Heavy packages are imported by the commands that need them, when they run."""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from oscar.cli import installed
from oscar.cli.common import Parser, PrintCompletion

COMMANDS = (  # of this package; others come by entry points (oscar.cli.common)
    "init",
    "codec",
    "predict",
    "predict-policy",
    "offload",
    "schedule",
)

CACHE_ELSEWHERE = "set NUMBA_CACHE_DIR to a folder you can write to"  # as oscar.kernels has it
NO_ROOM = errno.ENOSPC, errno.EDQUOT, errno.EFBIG  # our own writes name their file

SMALLER = "lower nodes, iterations or the workload's sizes (batch, hidden, ...)"
ADDRESS_SPACE = 768 << 20  # bytes: with less, OpenBLAS and LLVM end or hang while they are loaded

EXAMPLE = """\
start here:
  oscar allreduce                                    compare codecs, schemes and chunk plans on real gradients
  oscar init                                         a commented configuration of your own
  oscar predict --values 25M --nodes 8 --gbps 25     would compression pay?
  oscar codec gradients.npy --all                    what each codec makes of an array

completion in the shell (bash here; zsh, fish and others likewise):
  oscar --print-completion bash > ~/.local/share/bash-completion/completions/oscar
"""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser with every command; each command's module sets `command` to its function."""
    from oscar.version import __version__

    parser = Parser(
        prog="oscar",
        description="Compressed gradient AllReduce: adaptive stepwise coding, chunk plans.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"oscar {__version__}")
    parser.add_argument("--debug", action="store_true", help="show where an error came from")
    parser.add_argument(
        "--print-completion", metavar="SHELL", action=PrintCompletion, help="print a completion script"
    )
    commands = parser.add_subparsers(dest="command_name", metavar="COMMAND", title="commands")
    for name in COMMANDS:
        module = name.replace("-", "_")
        importlib.import_module(f"oscar.cli.{module}").add_command(commands)
    installed.add_commands(commands, COMMANDS)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    0 done, 1 a check failed, 2 error, 3 what was asked about does not pay, 4 a training diverged,
    141 the reader of standard output has gone; 128 and a signal's number where one ended the command.
    """
    from oscar.errors import WrongSumError, check_packages
    from oscar.signals import SAID, stops_raise

    parser = build_parser()
    args = parser.parse_args(argv)
    if args.command_name is None:
        parser.print_help()
        return 2
    # In a rank, signals keep their own effect: its launcher ends it at once, wherever it is.
    keeps_signals = getattr(args, "keeps_signals", False)
    default = warnings.formatwarning
    warnings.formatwarning = partial(_one_line, default)
    stops: AbstractContextManager[list[int]] = nullcontext([]) if keeps_signals else stops_raise()
    with stops as received:
        try:
            check_packages()  # all of them: a figure is drawn at the end of a long run
            _check_machine()
            with _announced_compilation(getattr(args, "compiles", True)):
                return int(args.command(args))
        except BaseException as error:
            if received or isinstance(error, KeyboardInterrupt):
                number = received[0] if received else signal.SIGINT
                print(f"oscar: {SAID[signal.Signals(number)]}", file=sys.stderr)
                return 128 + number
            if isinstance(error, BrokenPipeError):  # the reader of a pipe has gone, as `| head` does
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return 141
            text = None if args.debug else _error_text(error)
            if text is None:
                raise
            print(f"oscar {args.command_name}: error: {text}", file=sys.stderr)
            return 1 if isinstance(error, WrongSumError) else 2
        finally:
            warnings.formatwarning = default


def _announced_compilation(compiles: bool) -> AbstractContextManager[Any]:
    """Print a line when a command compiles; the listener imports numba, which takes a second."""
    from oscar.cli.progress import compiling_said

    return compiling_said() if compiles else nullcontext()


def _one_line(default: Any, message: Any, category: Any, *place: Any, **more: Any) -> str:
    """Return the text of a warning; ours come without the line of code, which says nothing to a user."""
    from oscar.errors import OscarWarning

    ours = issubclass(category, OscarWarning)
    return f"oscar: warning: {message}\n" if ours else str(default(message, category, *place, **more))


def _error_text(error: BaseException) -> str | None:
    """Return the line for an error that the user or the machine caused; None for any other error."""
    from oscar.errors import PACKAGES, OscarError, lacking, one_line

    if isinstance(error, ModuleNotFoundError) and error.name and not isinstance(error, OscarError):
        root = error.name.partition(".")[0]
        return None if root in PACKAGES else lacking(root)  # a missing module of ours is our fault
    if isinstance(error, MemoryError):
        return one_line(f"not enough memory ({error or 'an allocation failed'}); {SMALLER}")
    if isinstance(error, OSError) and error.errno in NO_ROOM and error.filename is None:  # numba's cache
        return f"no room for the compiled kernels ({error.strerror}); make room, or {CACHE_ELSEWHERE}"
    expected = isinstance(error, (OscarError, ValueError, TypeError, OSError))
    return one_line(str(error)) if expected else None


def _check_machine() -> None:
    """Raise OscarError where the libraries would end with messages of their own, or hang."""
    import resource

    from oscar.errors import OscarError

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < ADDRESS_SPACE:
        raise OscarError(
            f"expected {ADDRESS_SPACE >> 20} MiB of address space or more, the limit is {limit >> 20} MiB; "
            "raise it (ulimit -v)"
        )
