"""`oscar bench` and `oscar trial`: modules of two packages, found by their files, imported when asked for."""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import importlib.util
import pkgutil
from functools import partial
from pathlib import Path
from typing import Any

from oscar.cli.common import declare
from oscar.files import check_writable

PACKAGES = {"bench": "oscar_lab.bench", "trial": "oscar_lab.trials"}


class _Help(argparse.RawDescriptionHelpFormatter):
    """Adds the default of an option to its help, where it is a number or a word."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        shown = isinstance(action.default, (int, float, str)) and not isinstance(action.default, bool)
        shown = shown and action.default is not argparse.SUPPRESS and "default" not in (action.help or "")
        return f"{action.help} (default: %(default)s)" if shown and action.help else action.help


def add_bench(commands: Any) -> None:
    """Declare `oscar bench`."""
    _add_runner(
        commands,
        "bench",
        short="run one of the measurements behind the figures",
        example="  oscar bench                  list them\n"
        "  oscar bench ratios --help    options of one\n"
        "  oscar bench ratios --nodes 4 8 --json ratios.json",
    )


def add_trial(commands: Any) -> None:
    """Declare `oscar trial`."""
    _add_runner(
        commands,
        "trial",
        short="search for what breaks: faults, flipped bits, mutated input, soak, convergence",
        example="  oscar trial                  list them\n"
        "  oscar trial soak --help      options of one\n"
        "  oscar trial flips --json flips.json",
    )


def _add_runner(commands: Any, command: str, *, short: str, example: str) -> None:
    """Declare `command`, of PACKAGES; what follows the module's name belongs to the module."""
    parser = declare(commands, command, partial(run, command), short=short, example=example)
    parser.add_argument("name", metavar="NAME", nargs="?", help="without it, list all")
    parser.add_argument("rest", metavar="...", nargs=argparse.REMAINDER, help="options of NAME")


def modules(command: str) -> dict[str, str]:
    """Return names and first lines of what `command` can run, without importing it."""
    spec = importlib.util.find_spec(PACKAGES[command])
    folders = list(spec.submodule_search_locations or []) if spec else []
    result = {}
    for module in pkgutil.iter_modules(folders):
        if module.name.startswith("_"):
            continue
        tree = ast.parse((Path(folders[0]) / f"{module.name}.py").read_text(encoding="utf-8"))
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        if {"add_arguments", "run"} <= functions:
            result[module.name] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return result


def run(command: str, args: argparse.Namespace) -> int:
    """List what there is, or run one; status 1 where its result says ok: false."""
    known = modules(command)
    if args.name is None:
        for name, summary in known.items():
            print(f"{name:16} {summary}")
        return 0
    if args.name not in known:
        raise ValueError(f"unknown {command} {args.name!r}; {_elsewhere(args.name, known)}")
    module = importlib.import_module(f"{PACKAGES[command]}.{args.name}")
    parser = argparse.ArgumentParser(
        prog=f"oscar {command} {args.name}",
        description=module.__doc__,
        formatter_class=_Help,
    )
    module.add_arguments(parser)
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the result here")
    options = parser.parse_args(args.rest)
    if options.json is not None:
        with contextlib.suppress(OSError):  # check_writable says what is wrong
            options.json.parent.mkdir(parents=True, exist_ok=True)
        check_writable(options.json)
    result = module.run(options)
    if options.json is not None:
        from oscar.results import write_results

        write_results(options.json, result)
    return 1 if result.get("ok") is False else 0


def _elsewhere(name: str, known: dict[str, str]) -> str:
    """Return the command that `name` belongs to, or what there is."""
    for command in PACKAGES:
        if name in modules(command):
            return f"run `oscar {command} {name}`"
    return f"there are {', '.join(known) or 'none'}"
