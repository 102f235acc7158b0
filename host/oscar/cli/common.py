"""Shared by the commands: how they are declared, their common options, and completion in shells."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oscar.errors import did_you_mean
from oscar.plugins import outdated

if TYPE_CHECKING:
    from oscar.config import Config

MOST = 4_000_000_000_000  # values


class Parser(argparse.ArgumentParser):
    """A parser that names what is nearest to a wrong command, choice or option, as do those below it."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:  # argparse offers no other way
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            near = did_you_mean(str(value), map(str, action.choices or ()))
            stale = outdated() if action.dest == "command_name" else ""
            text = "; ".join(filter(None, (error.message, near.strip(), stale)))
            raise argparse.ArgumentError(action, text) from None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Leave no argument over: an error of the command that it was for."""
        known, rest = super().parse_known_args(args, namespace)
        if rest:
            name = rest[0].partition("=")[0]
            near = did_you_mean(name, [word for action in self._actions for word in action.option_strings])
            if any(not action.option_strings and f"--{action.dest}" == name for action in self._actions):
                near = f"leave out {name}, and give its value alone"
            self.error(f"unrecognized arguments: {' '.join(rest)}; {near}".rstrip("; "))
        return known, rest


def declare(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    *,
    short: str,
    example: str,
    compiles: bool = True,
    keeps_signals: bool = False,
) -> argparse.ArgumentParser:
    """Add a command and return its parser.

    Args:
        commands: Where it is added, of `ArgumentParser.add_subparsers`.
        name: How it is called.
        run: Runs it and returns its exit status.
        short: One line that says what it does.
        example: Lines that show it.
        compiles: False if neither it nor a command below it needs compiled kernels.
        keeps_signals: True if signals end it at once, as a launcher of ranks expects.
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=short,
        description=short[0].upper() + short[1:] + ".",
        epilog=f"example:\n{example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=run)
    if not compiles:
        parser.set_defaults(compiles=False)  # also of the commands below it
    if keeps_signals:
        parser.set_defaults(keeps_signals=True)
    return parser


def add_config(parser: argparse.ArgumentParser, *, default: str | None) -> None:
    """Add the configuration file and what changes it; `default`: the shipped one that is taken without."""
    without = "" if default is None else f" (default: {default})"
    parser.add_argument(
        "config",
        metavar="CONFIG",
        nargs="?",
        default=default,
        help=f"YAML file, or the name of a shipped configuration, see `oscar init --list`{without}",
    )
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="replace a key, for example --set link.gbps=25; may be given again",
    )
    parser.add_argument("--seed", type=int, metavar="S", help="the same as --set seed=S")


def read_config(args: argparse.Namespace, *extra: str) -> Config:
    """Return the configuration that the options of `add_config` ask for; `extra` overrides come first."""
    from oscar.config import load_config

    overrides = [*extra, *args.set]
    if args.seed is not None:
        overrides.append(f"seed={args.seed}")
    return load_config(args.config, overrides)


def add_workers(parser: argparse.ArgumentParser) -> None:
    """Add how many processes may work; `check_workers` looks at it."""
    parser.add_argument("--workers", type=int, metavar="N", help="processes (default: one per core)")


def check_workers(args: argparse.Namespace) -> None:
    """Raise ValueError for fewer workers than one."""
    if args.workers is not None and args.workers < 1:
        raise ValueError(f"--workers: expected 1 or more, got {args.workers}")


def amount(text: str) -> int:
    """Parse a count of values: 288440, 25e6, 25M, 1.5G or 1.5B; `check_values` looks at it."""
    scale = {"k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9}.get(text[-1:].lower(), 0.0)
    try:
        count = float(text[:-1]) * scale if scale else float(text)
        return int(count)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"expected a count like 288440, 25e6, 25M or 7B, got {text!r}"
        ) from None


def check_values(args: argparse.Namespace) -> None:
    """Raise ValueError for fewer values than one, and for more than times can be modelled of."""
    if args.values is not None and not 1 <= args.values <= MOST:
        raise ValueError(f"--values: expected 1 to {MOST:,}, got {args.values:.15g}")


class PrintCompletion(argparse.Action):
    """Print the script for bash, zsh, fish, tcsh or powershell, and exit."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: Any, shell: Any, option_string: str | None = None
    ) -> None:
        import shtab

        if shell not in shtab.SUPPORTED_SHELLS:
            parser.error(
                f"{option_string}: expected one of {', '.join(shtab.SUPPORTED_SHELLS)}, got {shell!r}"
            )
        for action in _actions(parser):
            if action.type is Path or action.dest == "config":
                action.complete = shtab.FILE  # type: ignore[attr-defined]
        print(shtab.complete(parser, shell))
        parser.exit()


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield every argument of `parser` and of the commands below it."""
    for action in parser._actions:  # argparse offers no other way; shtab itself goes this one
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
