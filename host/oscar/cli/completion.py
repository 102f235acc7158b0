"""`oscar --print-completion SHELL`: a static script, so that completing a word starts no Python."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any


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
