"""What holds for every block: processes are short, and states are only compared for being equal."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import oscar_hdl

ROOT = Path(oscar_hdl.__file__).parent
LONGEST = 60  # lines of a process, decorator and all
TRIGGERS = {"always", "always_comb", "always_seq", "instance"}
ORDERED = ast.Lt | ast.LtE | ast.Gt | ast.GtE


def modules() -> list[tuple[str, ast.Module]]:
    return [(str(f.relative_to(ROOT)), ast.parse(f.read_text())) for f in sorted(ROOT.rglob("*.py"))]


def names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def processes(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the name and the lines of each process."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(names(d) & TRIGGERS for d in node.decorator_list):
            yield node.name, (node.end_lineno or 0) - node.decorator_list[0].lineno + 1


def assigned(tree: ast.AST, call: str) -> Iterator[tuple[str, ast.AST]]:
    """Yield the names that are given call(...), with the call."""
    for node in ast.walk(tree):
        value = node.value if isinstance(node, ast.Assign) else None
        if isinstance(value, ast.Call) and ast.unparse(value.func) == call:
            yield from ((name, value) for target in node.targets for name in names(target))


def states_of(tree: ast.AST) -> set[str]:
    """Return the names of enumerations, and of signals that begin with a member of one."""
    known = {name for name, _ in assigned(tree, "enum")}
    return known | {name for name, call in assigned(tree, "Signal") if names(call) & known}


def ordered(tree: ast.AST) -> list[str]:
    """Return the comparisons that ask for the order of states."""
    states = states_of(tree)
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        and any(isinstance(op, ORDERED) for op in node.ops)
        and names(node) & states
    ]


def test_processes_are_short() -> None:
    found = {(file, name): lines for file, tree in modules() for name, lines in processes(tree)}
    assert len(found) > 200  # the search finds what there is
    assert [place for place, lines in found.items() if lines > LONGEST] == []


def test_states_have_no_order() -> None:
    found = [(file, ordered(tree)) for file, tree in modules()]
    assert [place for place in found if place[1]] == []
    wrong = "States = enum('IDLE', 'RUN')\nstate = Signal(States.IDLE)\nif state >= States.RUN:\n    pass\n"
    assert ordered(ast.parse(wrong)) == ["state >= States.RUN"]
