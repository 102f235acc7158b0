"""Translates processes of synthesisable MyHDL to Python functions on lists of integers.

Signals are booleans, unsigned words that wrap (modbv), and states. What a process may say is what converts;
what is not known here raises TypeError.
"""

from __future__ import annotations

import ast
import inspect
import operator
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from types import FunctionType
from typing import Any

from myhdl import EnumItemType, EnumType, SignalType, intbv, modbv
from myhdl._ShadowSignal import _ShadowSignal, _SliceSignal

MOST_UNROLLED = 1100
STATIC = (int, str, tuple, EnumItemType, EnumType, type(None))
OPERATORS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%", ast.BitAnd: "&",
    ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>", ast.Pow: "**",
}  # fmt: skip
OPERATIONS = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
    ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.Pow: operator.pow,
}  # fmt: skip
COMPARISONS = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip


class Store:
    """Values of all signals, now and next, by number. changed: numbers of those that may differ."""

    def __init__(self) -> None:
        self.now: list[Any] = []
        self.next: list[Any] = []
        self.signals: list[Any] = []
        self.index: dict[int, int] = {}
        self.lists: dict[int, tuple[Any, tuple[int, ...]]] = {}
        self.changed: list[int] = []

    def number(self, signal: Any) -> int:
        """Return a signal's number."""
        result = self.index.get(id(signal))
        if result is None:
            result = self.index[id(signal)] = len(self.now)
            value = signal._val
            if isinstance(value, intbv):
                if not isinstance(value, modbv) or value._min != 0 or not value._nrbits:
                    raise TypeError(f"a signal of {value!r} is not simulated here: it is no unsigned modbv")
                value = value._val
            elif not isinstance(value, (bool, EnumItemType)):
                raise TypeError(f"a signal of {type(value).__name__} is not simulated here")
            self.now.append(value)
            self.next.append(value)
            self.signals.append(signal)
        return result

    def numbers(self, signals: list[Any]) -> tuple[int, ...]:
        """Return the numbers of a list of signals."""
        if id(signals) not in self.lists:
            self.lists[id(signals)] = signals, tuple(self.number(signal) for signal in signals)
        return self.lists[id(signals)][1]

    def copy(self) -> Store:
        """Return a store of the same signals with values of its own."""
        made = Store()
        made.now, made.next, made.signals = list(self.now), list(self.next), self.signals
        return made


def bits_of(signal: Any) -> int | None:
    """Return the width of a signal, None of a state."""
    value = signal._val
    if isinstance(value, intbv):
        return int(value._nrbits)
    return 1 if isinstance(value, bool) else None


def one_bit(value: int) -> int:
    """Return what a one-bit signal is given; raises ValueError unless it is 0 or 1."""
    if value not in (0, 1):
        raise ValueError(f"expected a boolean value, got {value}")
    return value


@dataclass
class Translated:
    """A process, compiled, and the numbers of signals that it reads."""

    make: Callable[..., Callable[[], None]]
    constants: list[Any]
    inputs: set[int]

    def bind(self, store: Store) -> Callable[[], None]:
        """Return the process on the values of a store."""
        return self.make(store.now, store.next, store.changed, self.constants, one_bit)


@dataclass
class Term:
    """An expression: its text, and its width where it has one."""

    text: str
    bits: int | None = None


@cache
def _parsed(code: Any) -> ast.FunctionDef:
    """Return the syntax tree of a function's code."""
    function = FunctionType(code, {}, closure=tuple(_cell() for _ in code.co_freevars) or None)
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    result = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return result


def _cell() -> Any:
    value = None
    return (lambda: value).__closure__[0]  # type: ignore[index]


def translate(function: FunctionType, store: Store) -> Translated:
    """Return a process, compiled; its signals are numbered in `store`."""
    names = dict(function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        names[name] = cell.cell_contents
    writer = _Writer(names, store)
    tree = _parsed(function.__code__)
    try:
        writer.body(tree.body, 2)
    except TypeError as error:
        raise TypeError(f"{function.__qualname__}: {error}") from None
    single = sorted(writer.outputs)
    begin = [f"  n{i} = V[{i}]" for i in single]
    end = [f"  if n{i} != V[{i}]: N[{i}] = n{i}; C.append({i})" for i in single]
    lines = [
        "def make(V, N, C, K, one_bit):",
        " def process():",
        *begin,
        *writer.lines,
        *end,
        " return process",
    ]
    text = "\n".join(lines)
    scope: dict[str, Any] = {}
    exec(compile(text, f"<{function.__qualname__}>", "exec"), scope)
    return Translated(scope["make"], writer.constants, writer.inputs)


@dataclass
class _Writer:
    """Writes a process."""

    names: dict[str, Any]
    store: Store
    lines: list[str] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    inputs: set[int] = field(default_factory=set)
    outputs: set[int] = field(default_factory=set)
    bits: dict[str, int | None] = field(default_factory=dict)  # of local variables
    loops: dict[str, int] = field(default_factory=dict)  # variables of loops that are unrolled

    # --- what is known before the simulation

    def resolve(self, node: ast.expr) -> Any:
        """Return the object that an expression names; raises LookupError if it names none."""
        if isinstance(node, ast.Name):
            if node.id in self.loops:
                return self.loops[node.id]
            if node.id in self.bits:
                raise LookupError(node.id)
            return self.names[node.id]
        if isinstance(node, ast.Attribute):
            owner = self.resolve(node.value)
            if isinstance(owner, SignalType):
                raise LookupError(node.attr)
            return getattr(owner, node.attr)
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Slice):
            owner = self.resolve(node.value)
            if isinstance(owner, (list, tuple)) and self.static(node.slice):
                return owner[self.value(node.slice)]
        raise LookupError(node)

    def named(self, node: ast.expr) -> Any:
        """Return the object that an expression names, None if it names none."""
        try:
            return self.resolve(node)
        except (LookupError, AttributeError):
            return None

    def static(self, node: ast.expr) -> bool:
        """Return whether an expression is a number, or the like, that no signal changes."""
        if isinstance(node, ast.Constant):
            return True
        if isinstance(node, (ast.Name, ast.Attribute)):
            result = self.named(node)
            return result is not None and isinstance(result, STATIC) and not isinstance(result, SignalType)
        if isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Name) or node.func.id not in (
                "len",
                "int",
                "bool",
                "min",
                "max",
            ):
                return False
            if node.func.id == "len":
                return isinstance(self.named(node.args[0]), (SignalType, list, tuple))
            return all(map(self.static, node.args))
        if isinstance(node, ast.Subscript):
            return self.static(node.value) and self.static(node.slice)
        if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp)):
            return all(self.static(part) for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr))
        return False

    def value(self, node: ast.expr) -> Any:
        """Return the value of a static expression."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self.resolve(node)
        if isinstance(node, ast.BinOp):
            return OPERATIONS[type(node.op)](self.value(node.left), self.value(node.right))
        return eval(compile(ast.Expression(node), "<static>", "eval"), {**self.names, **self.loops})

    def constant(self, value: Any) -> str:
        """Return the text of a constant."""
        if isinstance(value, (bool, int)):
            return repr(int(value))
        self.constants.append(value)
        return f"K[{len(self.constants) - 1}]"

    # --- expressions

    def read(self, signal: Any) -> Term:
        """Return a signal's value."""
        if isinstance(signal, _SliceSignal):
            base = self.read(signal._sig)
            left, right = signal._left, signal._right
            if right is None:
                return Term(f"({base.text} >> {left} & 1)", 1)
            return Term(f"({base.text} >> {right} & {(1 << left - right) - 1})", left - right)
        if isinstance(signal, _ShadowSignal):
            raise TypeError(f"a {type(signal).__name__} is not simulated here")
        number = self.store.number(signal)
        self.inputs.add(number)
        return Term(f"V[{number}]", bits_of(signal))

    def term(self, node: ast.expr) -> Term:
        """Return an expression."""
        if self.static(node):
            value = self.value(node)
            return Term(self.constant(value), 1 if isinstance(value, bool) else None)
        result = self.named(node)
        if isinstance(result, SignalType):
            return self.read(result)
        if isinstance(result, intbv):
            return Term(repr(int(result)), int(result._nrbits) or None)
        write = getattr(self, f"_{type(node).__name__.lower()}", None)
        if write is None:
            raise TypeError(f"not translated: {ast.unparse(node)}")
        return write(node)

    def _name(self, node: ast.Name) -> Term:
        if node.id not in self.bits:
            raise TypeError(f"not translated: {node.id}")
        return Term(f"l_{node.id}", self.bits[node.id])

    def _binop(self, node: ast.BinOp) -> Term:
        left, right = self.term(node.left), self.term(node.right)
        return Term(f"({left.text} {OPERATORS[type(node.op)]} {right.text})")

    def _unaryop(self, node: ast.UnaryOp) -> Term:
        term = self.term(node.operand)
        if isinstance(node.op, ast.Not):
            return Term(f"(not {term.text})", 1)
        if isinstance(node.op, ast.Invert):
            if term.bits is None:
                return Term(f"(~{term.text})")
            return Term(f"({term.text} ^ {(1 << term.bits) - 1})", term.bits)
        return Term(f"(-{term.text})")

    def _boolop(self, node: ast.BoolOp) -> Term:
        word = " and " if isinstance(node.op, ast.And) else " or "
        parts = [self.term(part) for part in node.values]
        return Term(
            f"({word.join(part.text for part in parts)})", 1 if all(p.bits == 1 for p in parts) else None
        )

    def _compare(self, node: ast.Compare) -> Term:
        text = self.term(node.left).text
        state = any(isinstance(self.named(part), EnumItemType) for part in (node.left, *node.comparators))
        for kind, part in zip(node.ops, node.comparators, strict=True):
            word = COMPARISONS[type(kind)]
            if state:
                word = {"==": "is", "!=": "is not"}[word]
            text += f" {word} {self.term(part).text}"
        return Term(f"({text})", 1)

    def _ifexp(self, node: ast.IfExp) -> Term:
        if self.static(node.test):
            return self.term(node.body if self.value(node.test) else node.orelse)
        body, other = self.term(node.body), self.term(node.orelse)
        bits = None if body.bits is None or other.bits is None else max(body.bits, other.bits)
        return Term(f"({body.text} if {self.term(node.test).text} else {other.text})", bits)

    def _call(self, node: ast.Call) -> Term:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name == "concat":
            return self._concat(node.args)
        if name in ("int", "bool", "modbv", "intbv") and len(node.args) == 1:
            term = self.term(node.args[0])
            return Term(f"bool({term.text})", 1) if name == "bool" else Term(term.text)
        raise TypeError(f"not translated: {ast.unparse(node)}")

    def _concat(self, nodes: list[ast.expr]) -> Term:
        parts, place = [], 0
        for node in reversed(nodes):
            term = self.term(node)
            if self.static(node) and isinstance(value := self.value(node), str):
                term = Term(repr(int(value, 2)), len(value))
            if term.bits is None:
                raise TypeError(f"width not known: {ast.unparse(node)}")
            parts.append(f"({term.text}) << {place}" if place else f"({term.text})")
            place += term.bits
        return Term("(" + " | ".join(reversed(parts)) + ")", place)

    def _subscript(self, node: ast.Subscript) -> Term:
        owner = self.named(node.value)
        if isinstance(owner, list):
            numbers = self.store.numbers(owner)
            self.inputs.update(numbers)
            return Term(f"V[{self.item(numbers, self.term(node.slice).text)}]", bits_of(owner[0]))
        if isinstance(owner, tuple):
            return Term(f"{self.constant(owner)}[{self.term(node.slice).text}]")
        whole = self.term(node.value)
        if not isinstance(node.slice, ast.Slice):
            if self.static(node.slice):
                return Term(f"({whole.text} >> {self.value(node.slice)} & 1)", 1)
            return Term(f"({whole.text} >> {self.term(node.slice).text} & 1)", 1)
        upper, lower = node.slice.upper, node.slice.lower
        if not all(part is None or self.static(part) for part in (upper, lower)):
            raise TypeError(f"not translated: {ast.unparse(node)}")
        top = whole.bits if lower is None else self.value(lower)
        low = 0 if upper is None else self.value(upper)
        text = f"{whole.text} >> {low}" if low else whole.text
        if top is None:
            return Term(f"({text})")
        if lower is not None or whole.bits is None:
            text = f"{text} & {(1 << top - low) - 1}"
        return Term(f"({text})", top - low)

    def item(self, numbers: tuple[int, ...], index: str) -> str:
        """Return the number of a list's item."""
        if numbers == tuple(range(numbers[0], numbers[0] + len(numbers))):
            return f"{index} + {numbers[0]}"
        return f"{self.constant(numbers)}[{index}]"

    # --- statements

    def emit(self, depth: int, text: str) -> None:
        """Write a line."""
        self.lines.append(" " * depth + text)

    def body(self, nodes: list[ast.stmt], depth: int) -> None:
        """Write statements."""
        before = len(self.lines)
        for node in nodes:
            write = getattr(self, f"_do_{type(node).__name__.lower()}", None)
            if write is None:
                raise TypeError(f"not translated: {ast.unparse(node)}")
            write(node, depth)
        if len(self.lines) == before:
            self.emit(depth, "pass")

    def _do_pass(self, node: ast.Pass, depth: int) -> None:
        pass

    def _do_expr(self, node: ast.Expr, depth: int) -> None:
        if not isinstance(node.value, ast.Constant):
            raise TypeError(f"not translated: {ast.unparse(node)}")

    def _do_if(self, node: ast.If, depth: int) -> None:
        if self.static(node.test):
            for inner in node.body if self.value(node.test) else node.orelse:
                getattr(self, f"_do_{type(inner).__name__.lower()}")(inner, depth)
            return
        self.emit(depth, f"if {self.term(node.test).text}:")
        self.body(node.body, depth + 1)
        if node.orelse:
            self.emit(depth, "else:")
            self.body(node.orelse, depth + 1)

    def _do_for(self, node: ast.For, depth: int) -> None:
        call = node.iter
        fine = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not node.orelse
        if not fine or call.func.id not in ("range", "downrange") or not isinstance(node.target, ast.Name):
            raise TypeError(f"not translated: {ast.unparse(node)}")
        if any(isinstance(part, (ast.Break, ast.Continue)) for part in ast.walk(node)):
            raise TypeError(f"break is not translated: {ast.unparse(node)}")
        steps = list(eval(compile(ast.Expression(call), "<range>", "eval"), {**self.names, **self.loops}))
        if len(steps) > MOST_UNROLLED:
            raise TypeError(f"a loop of {len(steps)} steps is not unrolled")
        for step in steps:
            self.loops[node.target.id] = step
            for inner in node.body:
                getattr(self, f"_do_{type(inner).__name__.lower()}")(inner, depth)
        self.loops.pop(node.target.id, None)

    def _do_augassign(self, node: ast.AugAssign, depth: int) -> None:
        if not isinstance(node.target, ast.Name) or self.bits.get(node.target.id) is None:
            raise TypeError(f"not translated: {ast.unparse(node)}")
        name, mask = f"l_{node.target.id}", (1 << (self.bits[node.target.id] or 0)) - 1
        self.emit(depth, f"{name} = {name} {OPERATORS[type(node.op)]} {self.term(node.value).text} & {mask}")

    def _do_assign(self, node: ast.Assign, depth: int) -> None:
        (target,) = node.targets
        part: ast.expr | None = None
        if isinstance(target, ast.Subscript) and not _is_next(target):
            part, target = target.slice, target.value
        value = self.term(node.value)
        if isinstance(target, ast.Name):
            self._local(target.id, part, value, depth)
        elif _is_next(target):
            assert isinstance(target, ast.Attribute)
            self._signal(target.value, part, value, depth)
        else:
            raise TypeError(f"not translated: {ast.unparse(node)}")

    def _local(self, name: str, part: ast.expr | None, value: Term, depth: int) -> None:
        if part is None:
            self.bits[name] = value.bits
            self.emit(depth, f"l_{name} = {value.text}")
            return
        text = self.changed(f"l_{name}", self.bits[name], part, value)
        self.emit(depth, f"l_{name} = {text}")

    def _signal(self, target: ast.expr, part: ast.expr | None, value: Term, depth: int) -> None:
        result = self.named(target)
        if isinstance(result, SignalType):
            number = self.store.number(result)
            self.outputs.add(number)
            place, bits, like = f"n{number}", bits_of(result), result._val
        elif isinstance(target, ast.Subscript) and isinstance(owner := self.named(target.value), list):
            numbers = self.store.numbers(owner)
            self.emit(depth, f"w = {self.item(numbers, self.term(target.slice).text)}")
            self.emit(depth, "C.append(w)")
            place, bits, like = "N[w]", bits_of(owner[0]), owner[0]._val
        else:
            raise TypeError(f"not translated: {ast.unparse(target)}")
        if part is not None:
            text = self.changed(place, bits, part, value)
        elif isinstance(like, bool):
            text = value.text if value.bits == 1 else f"one_bit({value.text})"
        elif bits is None or (value.bits is not None and value.bits <= bits):
            text = value.text
        else:
            text = f"{value.text} & {(1 << bits) - 1}"
        self.emit(depth, f"{place} = {text}")

    def changed(self, place: str, bits: int | None, part: ast.expr, value: Term) -> str:
        """Return a word in which a slice or a bit is replaced."""
        if isinstance(part, ast.Slice):
            bounds = part.lower, part.upper
            if not all(bound is None or self.static(bound) for bound in bounds):
                raise TypeError("a slice with moving ends is not translated")
            top = bits if part.lower is None else self.value(part.lower)
            low = 0 if part.upper is None else self.value(part.upper)
            if top is None:
                raise TypeError("the width of a variable is not known")
            mask = (1 << top - low) - 1
            if bits == top - low:
                return f"({value.text}) & {mask}"
            return f"{place} & ~{mask << low} | (({value.text}) & {mask}) << {low}"
        if self.static(part):
            at = self.value(part)
            return f"{place} | {1 << at} if {value.text} else {place} & ~{1 << at}"
        at = self.term(part).text
        return f"{place} | 1 << {at} if {value.text} else {place} & ~(1 << {at})"


def _is_next(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "next"
