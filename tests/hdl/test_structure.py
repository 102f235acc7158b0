"""What holds for every block: short processes, few ports, states without an order, no small files."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import oscar_hdl

ROOT = Path(oscar_hdl.__file__).parent
REPOSITORY = Path(__file__).parents[2]
LONGEST = 60  # lines of a process, decorator and all
TRIGGERS = {"always", "always_comb", "always_seq", "instance"}
PORTS = 12  # of a block, a bundle is one
LEAF = 60  # lines of a file that only one block uses
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


def test_blocks_have_a_dozen_ports_at_most() -> None:
    wide = {
        node.name
        for file, tree in modules()
        if not file.startswith("flow")
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(d) == "block" for d in node.decorator_list)
        if len(node.args.args) > PORTS
    }
    assert wide == set()


def imported(tree: ast.AST) -> set[str]:
    """Return the modules that one imports from, and what it takes if that is a module."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {
        name
        for node in found
        for name in (node.module or "", *(f"{node.module}.{a.name}" for a in node.names))
    }


def test_small_parts_are_in_the_file_of_the_block_that_uses_them() -> None:
    """Unless a test or a proof has them alone."""
    known = {f"oscar_hdl.{file[:-3].replace('/', '.')}": tree for file, tree in modules()}
    alone = [
        imported(ast.parse(path.read_text()))
        for folder in ("sim", "tests")
        for path in (REPOSITORY / folder).rglob("*.py")
    ]
    alone += [imported(tree) for name, tree in known.items() if ".flow." in name]
    leaves = [
        name
        for name, tree in known.items()
        if ".flow." not in name
        and not name.endswith("__init__")
        and (ROOT.parent / f"{name.replace('.', '/')}.py").read_text().count("\n") < LEAF
        if sum(name in imported(other) for user, other in known.items() if ".flow." not in user) == 1
        if not any(name in taken for taken in alone)
    ]
    assert leaves == []
