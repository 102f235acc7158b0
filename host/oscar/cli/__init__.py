"""The command line `oscar`. Heavy packages are imported by the commands that need them, when they run."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

COMMANDS = (
    "allreduce",
    "train",
    "compare",
    "codec",
    "scale",
    "predict",
    "worker",
    "lab",
    "trace",
    "report",
    "bench",
)

NO_CACHE = (
    "compiled kernels can be kept neither beside the code nor in your home: "
    "set NUMBA_CACHE_DIR to a folder you can write to"
)

EXAMPLE = """\
start here:
  oscar allreduce configs/default.yaml               compare codecs and chunk plans on real gradients
  oscar predict --values 25M --nodes 8 --gbps 25     would compression pay?
  oscar codec gradients.npy --all                    what each codec makes of an array
"""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser with every command; each command's module sets `command` to its function."""
    from oscar import __version__

    parser = argparse.ArgumentParser(
        prog="oscar",
        description="Compressed gradient AllReduce: adaptive stepwise coding, compression-aware splitting.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"oscar {__version__}")
    parser.add_argument("--debug", action="store_true", help="show where an error came from")
    commands = parser.add_subparsers(dest="command_name", metavar="COMMAND", title="commands")
    for name in COMMANDS:
        importlib.import_module(f"oscar.cli.{name}").add_command(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    0 done, 1 a check failed, 2 error, 3 `predict` finds that compression does not pay, 130 interrupted,
    141 the reader of standard output has gone.
    """
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.command_name is None:
        parser.print_help()
        return 2
    default = warnings.formatwarning
    warnings.formatwarning = partial(_one_line, default)
    try:
        return int(args.command(args))
    except KeyboardInterrupt:
        print("oscar: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of a pipe has gone, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        no_cache = isinstance(error, RuntimeError) and "no locator available" in str(error)  # numba's
        if args.debug or not (no_cache or _is_expected(error)):
            raise
        text = NO_CACHE if no_cache else " ".join(str(error).split())
        print(f"oscar {args.command_name}: error: {text}", file=sys.stderr)
        return 2
    finally:
        warnings.formatwarning = default


def _one_line(default: Any, message: Any, category: Any, *place: Any, **more: Any) -> str:
    """Return the text of a warning; ours come without the line of code, which says nothing to a user."""
    from oscar.errors import OscarWarning

    ours = issubclass(category, OscarWarning)
    return f"oscar: warning: {message}\n" if ours else str(default(message, category, *place, **more))


def _is_expected(error: Exception) -> bool:
    """Whether `error` is about what the user gave or has, and its text says all there is to say."""
    from oscar.errors import OscarError

    return isinstance(error, (OscarError, ValueError, TypeError, OSError))
