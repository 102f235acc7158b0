"""Changes the code in one place at a time and looks whether a test fails: `make mutants`.

Mutants are drawn anew each time, and run in a copy of the tree. A test kills a mutant if it fails with it and
passes without it. A mutant with which tests take longer than the limit survives, as one that hangs would.

Code is that of host/oscar or, with `hdl` or paths below it, the RTL, which tests of tests/hdl judge.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).parents[1]
COPIED = "host", "hdl", "sim", "tests", "configs", "docs", "examples", "pyproject.toml", "README.md"
RTL, FLOW = "hdl", "hdl/oscar_hdl/flow"  # what paths of RTL begin with; what converts it is none of it
SUBJECTS = "coding", "numerics", "collective", "reducers", "schemes", "transports", "state.py", "adapters"
OPERATORS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or,
    ast.Or: ast.And, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Add, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr, ast.Pow: ast.Mult,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A file as it is and as it is changed, and what the change is."""

    path: Path
    source: bytes
    changed: bytes
    text: str


def _changed(node: ast.AST) -> str | None:
    """Return the text that replaces a node, or None."""
    match node:
        case ast.Compare(ops=[operator, *rest]) if type(operator) in OPERATORS:
            return _unparsed(node, ops=[OPERATORS[type(operator)](), *rest])
        case ast.BoolOp(op=operator) | ast.BinOp(op=operator) if type(operator) in OPERATORS:
            return _unparsed(node, op=OPERATORS[type(operator)]())
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            return f"({ast.unparse(operand)})"
        case ast.Constant(value=bool() as value):
            return str(not value)
        case ast.Constant(value=int() | float() as value):
            return f"({value + 1!r})"
        case ast.Expr(value=ast.Call() | ast.YieldFrom()) | ast.AugAssign() | ast.Raise():
            return "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return "pass"
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            return "return None"
    return None


def _unparsed(node: ast.AST, **fields: Any) -> str:
    """Return the text of a node with other values of some fields."""
    other = copy.copy(node)
    vars(other).update(fields)
    return f"({ast.unparse(other)})"


def _visited(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that may change: nothing of annotations, decorators and texts of errors."""
    yield node
    if not isinstance(node, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom):
        for name, value in ast.iter_fields(node):
            if name not in ("annotation", "returns", "decorator_list"):
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        yield from _visited(child)


def mutants_of(tree: Path, path: Path) -> list[Mutant]:
    """Return all mutants of a file, which is given by its path in the tree."""
    source = (tree / path).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    result = []
    for node in _visited(ast.parse(source)):
        after = _changed(node)
        if after is not None:
            ends = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
            first, last = (starts[line - 1] + column for line, column in ends)
            changed = source[:first] + after.encode() + source[last:]
            shown = (" ".join(text.split())[:80] for text in (source[first:last].decode(), after))
            result.append(Mutant(path, source, changed, f"{path}:{node.lineno}: {'  ->  '.join(shown)}"))
    return result


@cache
def _named(file: Path) -> set[str]:
    """Return the modules that a file names, in imports or in the strings of a registry."""
    names = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        match node:
            case ast.Import():
                names |= {alias.name for alias in node.names}
            case ast.ImportFrom(module=str() as module):
                names |= {module} | {f"{module}.{alias.name}" for alias in node.names}
            case ast.Constant(value=str() as text) if re.fullmatch(r"oscar[\w.]*:\w+", text):
                names.add(text.partition(":")[0])
    return names


def importers_of(tree: Path, subject: Path) -> dict[Path, int]:
    """Return the files of host, or hdl and sim, and tests that import a file, and over how many imports."""
    known = {}
    for top in (("hdl", "sim") if subject.parts[0] == RTL else ("host",)) + ("tests",):
        for path in set((tree / top).rglob("*.py")) - set((tree / FLOW).rglob("*.py")):
            name = ".".join(path.relative_to(tree / top).with_suffix("").parts)
            known[name.removesuffix(".__init__")] = path.relative_to(tree)
    importers = defaultdict(set)
    for path in known.values():
        for name in _named(tree / path) & known.keys():
            importers[known[name]].add(path)
    steps, waiting = {subject: 0}, deque([subject])
    while waiting:
        path = waiting.popleft()
        for importer in importers[path] - steps.keys():
            steps[importer] = steps[path] + 1
            waiting.append(importer)
    return steps


def tests_of(tree: Path, steps: dict[Path, int], count: int) -> list[str]:
    """Return the `count` nearest test files by imports, and then the contract suite.

    Files that start processes come last among equally near ones, and large files after small ones.
    """

    def cost(path: Path) -> tuple[int, bool, int]:
        text = (tree / path).read_text(encoding="utf-8")
        return steps[path], "needs(" in text or "subprocess" in text, len(text)

    tests = sorted((path for path in steps if path.name.startswith("test_")), key=cost)
    rtl = any(path.parts[0] == RTL for path in steps)
    near = [path for path in tests if path.parts[1] == (RTL if rtl else "host")][:count]
    return [str(path) for path in [*near, *(path for path in tests if path.parts[1] == "contract")]]


class Tree:
    """A copy of the tree, with its compiled kernels."""

    def __init__(self, folder: Path, limit_s: float) -> None:
        self.folder, self.limit_s, self.passing = folder, limit_s, {}
        for name in COPIED:
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy2)(ROOT / name, folder / name)

    def failed(self, tests: list[str]) -> str | None:
        """Return the first test that fails, "limit" after the time limit, or None."""
        path = os.pathsep.join(str(self.folder / name) for name in ("host", "hdl", "sim", "tests"))
        words = [sys.executable, "-m", "pytest", "-xq", "--tb=no", "-p", "no:cacheprovider", *tests]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        environment = os.environ | {"PYTHONPATH": path}
        with subprocess.Popen(
            words, cwd=self.folder, env=environment, text=True, start_new_session=True, **pipes
        ) as run:
            try:
                output = run.communicate(timeout=self.limit_s)[0]
            except subprocess.TimeoutExpired:
                return "limit"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(run.pid, signal.SIGKILL)
        lines = re.findall(r"^(?:FAILED|ERROR) (\S+?(?:\[.*?\])?)(?: - .*)?$", output, re.MULTILINE)
        return (lines or ["crash"])[0] if run.returncode not in (0, 5) else None

    def killer(self, mutant: Mutant, steps: dict[Path, int], tests: list[str]) -> str | None:
        """Return the test that kills a mutant; None or "limit" if it survives."""
        subject, kernels = self.folder / mutant.path, {}
        for path in steps:  # kernels of importers may have the mutated one inlined
            if path.parts[0] == "host":
                for file in (self.folder / path.parent / "__pycache__").glob(f"{path.stem}.*.nb?"):
                    kernels[file] = file.read_bytes()
                    file.unlink()
        written = subject.stat()
        subject.write_bytes(mutant.changed)
        try:
            failing = self.failed(tests)
        finally:
            subject.write_bytes(mutant.source)
            os.utime(subject, ns=(written.st_atime_ns, written.st_mtime_ns))
            for path in steps:
                for file in (self.folder / path.parent / "__pycache__").glob(f"{path.stem}.*.nb?"):
                    file.unlink()
            for file, content in kernels.items():
                file.write_bytes(content)
        if failing is None or failing == "limit":
            return failing
        if failing not in self.passing:
            self.passing[failing] = self.failed(tests if failing == "crash" else [failing]) is None
        return failing if self.passing[failing] else None


def main() -> int:
    """Draw mutants, and print which survive."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=30, help="mutants to draw (30)")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    parser.add_argument("--tests", type=int, default=6, help="test files beside the contract suite (6)")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for the tests of a mutant (300)")
    parser.add_argument(
        "paths", nargs="*", default=SUBJECTS, help="files and folders below host/oscar, or hdl, or below that"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # tests that run are ended then, too
    (ROOT / "build").mkdir(exist_ok=True)
    with TemporaryDirectory(prefix="mutants-", dir=ROOT / "build") as folder:
        run(Tree(Path(folder), options.limit), options)
    return 0


def _place(folder: Path, name: str) -> Path:
    """Return a file or folder that a path of the command line names."""
    first, *rest = Path(name).parts
    return folder.joinpath("hdl/oscar_hdl", *rest) if first == RTL else folder / "host/oscar" / name


def _is_subject(folder: Path, file: Path) -> bool:
    """Return True for a file of the host, and for one that has blocks of the NIC in it."""
    blocks = "@block" in file.read_text(encoding="utf-8") and not file.is_relative_to(folder / FLOW)
    return blocks or file.is_relative_to(folder / "host")


def run(tree: Tree, options: argparse.Namespace) -> None:
    """Draw mutants of a tree, and print what becomes of each."""
    places = [_place(tree.folder, name) for name in options.paths]
    files = sorted(file for place in places for file in ([place] if place.is_file() else place.rglob("*.py")))
    files = [file for file in files if _is_subject(tree.folder, file)]
    every = [one for file in files for one in mutants_of(tree.folder, file.relative_to(tree.folder))]
    drawn = random.Random(options.seed).sample(every, min(options.count, len(every)))
    print(f"# {len(drawn)} of {len(every)} mutants, seed {options.seed}", flush=True)
    counts: Counter[str] = Counter()
    for mutant in drawn:
        began, steps = time.monotonic(), importers_of(tree.folder, mutant.path)
        killer = tree.killer(mutant, steps, tests_of(tree.folder, steps, options.tests))
        verdict = {None: "SURVIVED", "limit": "LIMIT"}.get(killer, "killed")
        counts[verdict] += 1
        by = f"  [{killer}]" if verdict == "killed" else ""
        print(f"{verdict:8} {time.monotonic() - began:4.0f} s  {mutant.text}{by}", flush=True)
    print(f"{counts['killed']} of {len(drawn)} killed")


if __name__ == "__main__":
    sys.exit(main())
