"""`oscar init`: a commented configuration to begin with."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from oscar import shipped
from oscar.cli.common import declare
from oscar.files import check_writable, write_text

EXAMPLE = """\
  oscar init                              oscar.yaml, the default experiment with every key explained
  oscar init mine.yaml --from train       another shipped configuration
  oscar init --list                       all shipped ones

Every command also takes a shipped configuration by its name: oscar allreduce coarse.
"""


def add_command(commands: Any) -> None:
    """Declare the command."""
    parser = declare(
        commands, "init", run, short="write a commented configuration file", example=EXAMPLE, compiles=False
    )
    parser.add_argument(
        "file", metavar="FILE", nargs="?", type=Path, default=Path("oscar.yaml"), help="(%(default)s)"
    )
    parser.add_argument(
        "--from",
        dest="name",
        metavar="NAME",
        choices=shipped.names(),
        default="default",
        help="(%(default)s)",
    )
    parser.add_argument("--force", action="store_true", help="replace FILE where there is one")
    parser.add_argument("--list", action="store_true", help="list the shipped configurations; write nothing")


def run(args: argparse.Namespace) -> int:
    """Write the file, whole or not at all; return the exit status."""
    if args.list:
        for name in shipped.names():
            print(f"{name:20} {_text(name).partition(chr(10))[0].lstrip('# ')}")
        return 0
    if str(args.file) in shipped.names():
        raise ValueError(f"{args.file} is a shipped configuration: oscar init --from {args.file} FILE.yaml")
    check_writable(args.file)
    if args.file.exists() and not args.force:
        raise ValueError(f"{args.file} exists; give another name, or --force to replace it")
    text = _text(args.name).replace(f"configs/{args.name}.yaml", str(args.file))  # as its comments call it
    write_text(args.file, text)
    print(f"# wrote {args.file}; its first lines say what runs it")
    return 0


def _text(name: str) -> str:
    return shipped.find(name).read_text(encoding="utf-8")
