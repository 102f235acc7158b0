"""Correct the text that MyHDL writes where VHDL, Verilog or a simulator takes it otherwise."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from oscar_hdl.flow.keywords import KEYWORDS

NAMES = {"vhdl": "VHDL", "verilog": "Verilog"}
COMMENT = {"vhdl": "--", "verilog": "//"}


class ConvertError(Exception):
    """A conversion or a check of its result failed; the message holds what the tool said."""


def rename(text: str, language: str) -> str:
    """Lengthen names of a converted file that the language does not take, which MyHDL does not look after.

    Keywords; `table` becomes table_0. In VHDL, where capitals do not matter, names of states too, which
    are in capitals beside signals and keywords that are not; NEXT becomes S_NEXT.
    Raises ConvertError for a port, whose name must stay.
    """
    names = KEYWORDS[language]
    head, end = ("\nmodule ", ");") if language == "verilog" else ("\nentity ", "end entity")
    ports = re.sub(
        rf"{COMMENT[language]}.*|\binput\b|\boutput\b", "", text.partition(head)[2].partition(end)[0]
    )
    if found := set(re.findall(r"\w+", ports)) & set(names):
        raise ConvertError(f"a port is called {found.pop()!r}, a word of {NAMES[language]}")
    text = _started(_replaced(text, names, r"\1_0", COMMENT[language]), language)
    if language == "verilog":
        return _of_constant_widths(_looked_at(text))
    types = re.findall(r"\btype t_enum_\w+ is \(([^)]*)\)", text)
    states = sorted({name for literals in types for name in re.findall(r"\w+", literals)})
    return _cut_to_slices(_replaced(text, states, r"S_\1", COMMENT[language]))


def _started(text: str, language: str) -> str:
    """Return a file whose outputs begin at 0, as they do in MyHDL, which only says so of other registers."""
    if language == "vhdl":
        head, end, rest = text.partition("end entity")
        head = re.sub(r"(: (?:out|inout) std_logic)(?=;?$)", r"\1 := '0'", head, flags=re.M)
        head = re.sub(
            r"(: (?:out|inout) std_logic_vector\(.*?\))(?=;?$)", r"\1 := (others => '0')", head, flags=re.M
        )
        return head + end + rest
    for name in re.findall(r"^output (?:\[.*\] )?(\w+);$", text, flags=re.M):
        text = re.sub(rf"^(reg (?:\[.*\] )?{name});$", r"\1 = 0;", text, flags=re.M)
    return text


def _looked_at(text: str) -> str:
    """Return Verilog whose combinational logic is looked at when a simulation starts, as MyHDL does.

    Otherwise what depends on registers that have not changed yet may keep a wrong 0 for ever.
    """
    text, count = re.subn(r"^(always @\((?!posedge)[^)]*)\)", r"\1, at_start)", text, flags=re.M)
    start = r"\1reg at_start = 0;\ninitial at_start <= 1;\n"
    return re.sub(r"^(module [^;]*;\n)", start, text, count=1, flags=re.M) if count else text


def _value(bound: str, at: int) -> int:
    """Return what a sum of products comes to where its only name is `at`."""
    tree = ast.parse(bound.strip(), mode="eval").body

    def worth(node: ast.expr) -> int:
        if isinstance(node, ast.BinOp):
            left, right = worth(node.left), worth(node.right)
            return {ast.Add: left + right, ast.Sub: left - right, ast.Mult: left * right}[type(node.op)]
        return at if isinstance(node, ast.Name) else int(ast.literal_eval(node))

    return worth(tree)


def _of_constant_widths(text: str) -> str:
    """Return Verilog whose slices in loops say their width: both their bounds may not depend on the loop.

    The bounds are sums and products of numbers and the loop's variable.
    """

    def width(slice_: re.Match[str]) -> str:
        bounds = slice_["high"], slice_["low"]
        names = set(re.findall(r"[A-Za-z_]\w*", " ".join(bounds)))
        if len(names) != 1:
            return slice_[0]
        places = [[_value(bound, at) for bound in bounds] for at in range(3)]
        widths = {high - low for high, low in places}
        return f"[{slice_['low']} +: {widths.pop()}]" if len(widths) == 1 else slice_[0]

    bound = r"[\w\s()*+-]+"
    return re.sub(rf"\[(?P<high>{bound})-1:(?P<low>{bound})\]", width, text)


def _cut_to_slices(text: str) -> str:
    """Return VHDL in which the terms of a slice have its width; MyHDL gives them the whole signal's."""

    def cut(line: re.Match[str]) -> str:
        width = int(line["high"]) - int(line["low"])
        return line["head"] + re.sub(r"resize\((\w+), \d+\)", rf"resize(\1, {width})", line["terms"])

    slices = r"^(?P<head> *\w+\((?P<high>\d+)-1 downto (?P<low>\d+)\) <= )(?P<terms>.* (?:or|and|xor) .*)$"
    return re.sub(slices, cut, text, flags=re.M)


def _replaced(text: str, names: Sequence[str], new: str, comment: str) -> str:
    """Put `new` in the place of words, not in lines of comment."""
    if not names:
        return text
    word = re.compile(rf"(?<![\w$])({'|'.join(names)})(?![\w$])")
    return "\n".join(x if x.lstrip().startswith(comment) else word.sub(new, x) for x in text.split("\n"))
