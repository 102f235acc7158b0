"""`make results`: list the pages of figures with what changed since they were measured, or measure one again.

`python docs/results/measure.py` lists; `... NAME` runs the commands of a page, one after the other, and keeps
what they print in build/results/NAME. pages.yaml beside this file says what each page stands on.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oscar import yaml_core
from oscar.results import write_results
from oscar.version import METHOD_VERSIONS

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("pages.yaml")


@dataclass(frozen=True)
class Measured:
    """Figures of one revision: what of the page they are, and the versions of methods where they are old."""

    revision: str
    what: str = ""
    python: str = ""  # exact; not kept of older figures
    methods: dict[str, int] = field(default_factory=dict)

    def text(self) -> str:
        """Return what a page says of these figures."""
        old = [
            f"ASC's format {number}" if name == "asc" else f"{name} {number}"
            for name, number in self.methods.items()
            if number != METHOD_VERSIONS.get(name, 1)
        ]
        python = f"on Python {self.python}" if self.python else ""
        versions = f"({', '.join(old)})" if old else ""
        return " ".join(filter(None, (self.what, "at revision", self.revision, python, versions)))


@dataclass(frozen=True)
class Page:
    """Figures of a page, as an entry of pages.yaml has them; sources are paths from the root."""

    name: str
    file: Path
    commands: tuple[str, ...]
    sources: tuple[str, ...]
    minutes: int
    needs: tuple[str, ...]
    measured: tuple[Measured, ...]
    digest: str

    @property
    def first_line(self) -> str:
        """The first line of the section with these figures: what they stand on."""
        return f"Measured {'; '.join(one.text() for one in self.measured)}."

    def changed(self) -> str:
        """Return what changed in the sources since the newest figures; nothing if they are equal."""
        if digest(self.sources) == self.digest:
            return ""
        names = git("diff", "--name-only", self.measured[0].revision, "--", *self.sources).splitlines()
        few = [Path(name).name for name in names if not name.endswith("__init__.py")][:3]
        more = ", ..." if len(names) > len(few) else ""
        return f"{len(names)} files changed: {', '.join(few)}{more}" if names else "sources changed"


def read_pages() -> dict[str, Page]:
    """Return all pages by name."""
    tree = yaml_core.parse(FILE.read_text(encoding="utf-8"))
    pages = {}
    for name, entry in tree["pages"].items():
        pages[name] = Page(
            name=name,
            file=ROOT / entry.get("file", f"docs/results/{name}.md"),
            commands=tuple(entry["commands"]),
            sources=tuple(flat(entry["sources"])),
            minutes=entry["minutes"],
            needs=tuple(entry.get("needs", ())),
            measured=tuple(Measured(**one) for one in entry["measured"]),
            digest=entry["digest"],
        )
    return pages


def flat(tree: Any) -> Iterator[str]:
    """Yield the texts of nested lists."""
    for item in tree:
        yield from [item] if isinstance(item, str) else flat(item)


def git(*words: str) -> str:
    """Return what git prints, nothing where it fails: outside a clone, or without that revision."""
    try:
        done = subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""


def digest(sources: tuple[str, ...], revision: str | None = None) -> str:
    """Return a digest of names and contents of the files below `sources`, as they are or at a revision."""
    if revision is None:
        found = {}
        for path in (file for name in sources for file in below(ROOT / name)):
            data = path.read_bytes()
            blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()  # as git names it
            found[path.relative_to(ROOT).as_posix()] = blob
    else:
        rows = git("ls-tree", "-r", revision, "--", *sources).splitlines()
        found = {row.split("\t")[1]: row.split()[2] for row in rows}
    return hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()[:12]


def below(path: Path) -> list[Path]:
    """Return the file, or all files of the folder but what running leaves there."""
    files = [path] if path.is_file() else path.rglob("*")
    return [file for file in files if file.is_file() and "__pycache__" not in file.parts]


def list_pages(pages: dict[str, Page]) -> None:
    """Print a line for each page."""
    print(f"{'page':<17} {'revision':<8} {'minutes':>7} {'needs':<18} since then")
    for page in pages.values():
        old = [one.text() for one in page.measured if one.what or one.methods]
        state = "; ".join([page.changed() or "nothing changed", *old])
        needs = ", ".join(page.needs)
        print(f"{page.name:<17} {page.measured[0].revision:<8} {page.minutes:>7} {needs:<18} {state}")


def words_of(command: str) -> list[str]:
    """Return a command as the words to run."""
    words = shlex.split(command)
    return [sys.executable, "-m", *words] if words[0] == "oscar" else words


def measure(page: Page, only: list[int]) -> int:
    """Run the page's commands; return 1 where one failed. Says which table each output takes the place of."""
    folder = ROOT / "build" / "results" / page.name
    folder.mkdir(parents=True, exist_ok=True)
    statuses: dict[str, int] = {}
    for number in only or range(1, len(page.commands) + 1):
        command, out = page.commands[number - 1], folder / f"{number}.txt"
        print(f"$ {command}", flush=True)
        if "FILE" in command:
            print(f"# not run: {page.file.name} says what FILE is")
            continue
        with out.open("w", encoding="utf-8") as file, subprocess.Popen(
            words_of(command), cwd=ROOT, stdout=subprocess.PIPE, text=True
        ) as process:  # fmt: skip
            for line in process.stdout or ():
                print(line, end="", flush=True)
                file.write(line)
        statuses[command] = process.returncode
        told = f"takes the place of the table at {line_of(page.file, command)}"
        if process.returncode:
            told = f"the command ended with status {process.returncode}"
        print(f"# wrote {out.relative_to(ROOT)}: {told}")
    write_results(folder / "results.json", {"page": page.name, "statuses": statuses})
    revision = git("rev-parse", "--short", "HEAD").strip()
    if git("status", "--porcelain", "--", *page.sources):
        print("# the sources are not committed, so a page can name no revision: commit and measure again")
    else:
        print(f'# in pages.yaml: revision "{revision}", digest "{digest(page.sources)}"')
    return int(any(statuses.values()))


def line_of(file: Path, command: str) -> str:
    """Return the place in a page where the command stands, or the page."""
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if re.sub(r"^[\s$]+", "", line) == command:
            return f"{file.relative_to(ROOT)}:{number}"
    return str(file.relative_to(ROOT))


def main() -> int:
    """List the pages, or measure the named one."""
    parser = argparse.ArgumentParser(prog="measure.py", description=__doc__)
    parser.add_argument("page", nargs="?", help="without it, list all")
    parser.add_argument("--only", type=int, nargs="+", default=[], help="numbers of its commands, from 1")
    args = parser.parse_args()
    pages = read_pages()
    if args.page is None:
        list_pages(pages)
        return 0
    if args.page not in pages:
        parser.error(f"unknown page {args.page!r}; there are {', '.join(pages)}")
    count = len(pages[args.page].commands)
    if not all(1 <= number <= count for number in args.only):
        parser.error(f"--only: expected numbers of 1 to {count}, got {args.only}")
    return measure(pages[args.page], args.only)


if __name__ == "__main__":
    sys.exit(main())
