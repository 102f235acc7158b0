"""Datasheets of the blocks that engineers use alone, made from the RTL and from recorded synthesis.

What a block and its ports do is said in the source: `Args` and `Clocks` of a block's docstring, `Attributes`
of a bundle's, and the docstring of a block's module for how to use it. Area comes from area.json.

`python -m oscar_hdl.flow.delivery.datasheets` writes docs/reference/blocks. After `make fpga`, --area
build/fpga/report.json takes the results into area.json first.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from myhdl import SignalType

import oscar_hdl
from oscar_hdl.flow.elaboration import driven, shallow_stacks
from oscar_hdl.flow.tools import FlowError, write_json, write_text
from oscar_hdl.flow.tops import TOPS, Value, find, shape
from oscar_hdl.nic.oscar_nic import oscar_nic
from oscar_hdl.streams.bundles import AxiLite, Bundle, PortFrames, Stream

ROOT = Path(oscar_hdl.__file__).parent
SHEETS = tuple(name for name in TOPS if name != "splitter")  # which is for a planner alone
PAGES = ROOT.parents[1] / "docs" / "reference" / "blocks"
FOLDER = "datasheets"  # in the archive
AREA = Path(__file__).parent / "area.json"
PART = "lfe5um5g_85f"  # of these areas
MADE = "python -m oscar_hdl.flow.delivery.datasheets"
COMMON = {
    "clk": "Rising edge.",
    "rst": "Synchronous, active high, for 64 clocks or more.",
    "tdata": "Word.",
    "tvalid": "A word is offered. It does not wait for tready.",
    "tready": "The word is taken.",
    "tlast": "Last word of a packet.",
    "tkeep": "Bytes that count, from bit 0 on; all ones but in the last word.",
    "tid": "Number of who sent the packet.",
    "tdest": "Number of whom the packet is for.",
}
CHANNELS = {
    "aw": "Write address", "w": "Write data", "b": "Write response", "ar": "Read address", "r": "Read data"
}  # fmt: skip
LIKE = {"switch_slice": oscar_nic}  # blocks whose other arguments are those of another one
ECP5 = "LFE5UM5G-85F, speed 8, out of context: yosys, nextpnr"
ULTRASCALE = "UltraScale+, estimated from synthesis (yosys)"
_HEAD = re.compile(r"^(Args|Attributes|Clocks):$", re.MULTILINE)
_ITEM = re.compile(r"^    (\S[^\n]*?): +(\S[^\n]*(?:\n {8}[^\n]*)*)", re.MULTILINE)
_ROW = re.compile(r"^\| `(\w+)` \| (in|out) \| (\d+) \|", re.MULTILINE)
_PAGE = re.compile(r"\bdocs/([\w/-]+\.md)")


@dataclass(frozen=True)
class Port:
    """A port of a block.

    Attributes:
        name: Name in converted files.
        way: "in" or "out".
        bits: Width.
        text: Meaning.
    """

    name: str
    way: str
    bits: int
    text: str


def sections(doc: str) -> tuple[str, dict[str, dict[str, str]]]:
    """Return the text of a docstring before its sections, and name and text of each section's items."""
    text, *parts = _HEAD.split(inspect.cleandoc(doc))
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return text.strip(), {
        head: {name: " ".join(said.split()) for name, said in _ITEM.findall(body)} for head, body in pairs
    }


def arguments_of(function: Any) -> dict[str, str]:
    """Return what the docstring of a block says of each argument."""
    other = LIKE.get(function.__name__)
    said = sections(other.__doc__)[1].get("Args", {}) if other else {}
    return said | sections(function.__doc__)[1].get("Args", {})


def ports_of(top: Any) -> Iterator[tuple[str, list[Port]]]:
    """Yield each argument of a block that has ports, as a heading, and its ports.

    Raises ValueError for a port without a meaning.
    """
    signature = inspect.signature(top.func)
    arguments = signature.bind(*top.args, **top.kwargs).arguments
    said = arguments_of(top.func)
    outputs = driven(top)
    for name, value in arguments.items():
        parts = list(_parts(name, value))
        if not parts:
            continue
        text = said.get(name, COMMON.get(name, ""))
        if isinstance(value, SignalType):
            parts = [(name, value, text)]
        elif text:
            several = f" n is 0 to {len(vars(value)) - 1}." if isinstance(value, PortFrames) else ""
            text = f"**{name}** ({type(value).__name__}): {text}{several}"
        if not text or not all(meaning for _, _, meaning in parts):
            lacking = next((port for port, _, meaning in parts if not meaning), name)
            raise ValueError(f"{top.func.__name__}: port {lacking} has no text in Args or Attributes")
        heading = "" if isinstance(value, SignalType) else text
        yield (
            heading,
            [
                Port(port, "out" if id(signal) in outputs else "in", len(signal) or 1, meaning)
                for port, signal, meaning in parts
            ],
        )


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any, str]]:
    """Yield name, signal and meaning of the ports of an argument."""
    if isinstance(value, SignalType):
        yield name, value, ""
    elif isinstance(value, PortFrames):
        yield from _parts(f"{name}_n", value.streams[0])
    elif isinstance(value, Bundle | Stream | AxiLite):
        said = sections(type(value).__doc__ or "")[1].get("Attributes", {})
        for part, signal in vars(value).items():
            text = _channel(part) if isinstance(value, AxiLite) else said.get(part, COMMON.get(part, ""))
            yield f"{name}_{part}", signal, text


def _channel(part: str) -> str:
    """Return what a signal of AXI4-Lite is."""
    channel = next(c for c in ("aw", "ar", "w", "b", "r") if part.startswith(c))
    kind = part.removeprefix(channel)
    return f"{CHANNELS[channel]}: {'0 OKAY, 2 SLVERR' if kind == 'resp' else kind}."


def sheet(name: str, parameters: Mapping[str, Value] | None = None) -> str:
    """Return the datasheet of a top in Markdown.

    Args:
        name: Of `SHEETS`.
        parameters: As for its conversion.
    """
    top = find(name)(**(parameters or {}))
    text, about = sections(top.func.__doc__)
    source = Path(inspect.getsourcefile(top.func) or "").resolve()
    use = (inspect.getmodule(top.func).__doc__ or "").partition("\n")[2].strip()  # type: ignore[union-attr]
    lines = [f"# {name}", "", text, "", f"Source: `hdl/oscar_hdl/{source.relative_to(ROOT)}`."]
    lines += ["", "## Ports", ""]
    if shown := shape(name, parameters or {}):
        lines += [f"With {shown}.", ""]
    lines += ["| port | direction | bits | |", "|---|---|--:|---|"]
    for heading, ports in ports_of(top):
        lines += [f"| | | | {heading} |"] if heading else []
        lines += [f"| `{port.name}` | {port.way} | {port.bits} | {port.text} |" for port in ports]
    if known := inspect.signature(find(name)).parameters:
        said = arguments_of(top.func)
        lines += [
            "",
            "## Parameters",
            "",
            f'`make vhdl ARGS="--top {name} --with NAME=VALUE"` sets them.',
            "",
        ]
        lines += ["| parameter | default | |", "|---|--:|---|"]
        lines += [f"| {each} | {known[each].default} | {said[each]} |" for each in known]
    if clocks := about.get("Clocks"):
        lines += ["", "## Latency", "", "| clocks | |", "|--:|---|"]
        lines += [f"| {count} | {what} |" for count, what in clocks.items()]
    lines += ["", "## Area", "", *_area(name)]
    if use:
        lines += ["", "## Use it alone", "", use]
    return "\n".join(lines) + "\n"


def shown_ports(text: str) -> list[tuple[str, str, int]]:
    """Return name, direction and width of each port that a datasheet shows."""
    return [(name, way, int(bits)) for name, way, bits in _ROW.findall(text)]


def _area(name: str) -> list[str]:
    """Return the recorded area of a top."""
    known = json.loads(AREA.read_text(encoding="utf-8")).get(name)
    if known is None:
        return ["Not measured."]
    lines = [known["of"], ""] if "of" in known else []
    for title, part in ((ECP5, "ecp5"), (ULTRASCALE, "ultrascale")):
        if cells := known.get(part):
            lines += [f"| {title} | {' | '.join(cells)} |", f"|---|{'--:|' * len(cells)}"]
            lines += [f"| at revision {known['revision']} | {' | '.join(map(_number, cells.values()))} |", ""]
    return lines[:-1]  # an empty line is last


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def page(name: str) -> str:
    """Return docs/reference/blocks/`name`.md."""
    return linked(sheet(name))


def linked(text: str) -> str:
    """Return a datasheet with links to pages below docs, and with where it comes from."""
    text = _PAGE.sub(lambda found: f"[{Path(found[1]).name}]({_way(found[1])})", text)
    return text.replace("\n## Ports\n", f"\nThis page is made: `{MADE}`. Do not edit it.\n\n## Ports\n", 1)


def _way(target: str) -> str:
    """Return the link from docs/reference/blocks to a page below docs."""
    return f"../{target.removeprefix('reference/')}" if target.startswith("reference/") else f"../../{target}"


def index(pages: Mapping[str, str]) -> str:
    """Return docs/reference/blocks/README.md: all datasheets with the first line of each."""
    rows = [f"| [{name}]({name}.md) | {text.split(chr(10))[2]} |" for name, text in pages.items()]
    return "\n".join(
        [
            "# Datasheets of blocks",
            "",
            "`make vhdl` converts these blocks on their own. The [archive](../../how-to/archive.md)",
            f"of a release has them with their datasheets. The pages are made: `{MADE}`.",
            "",
            "| block | |",
            "|---|---|",
            *rows,
            "",
        ]
    )


def write(names: Sequence[str], out: Path, parameters: Mapping[str, Value] | None = None) -> None:
    """Write the datasheets of tops into `out`/datasheets; not all have one."""
    (out / FOLDER).mkdir(parents=True, exist_ok=True)
    for name in names:
        if name in SHEETS:
            write_text(out / FOLDER / f"{name}.md", sheet(name, parameters))


def take_area(report: Path, revision: str) -> None:
    """Take the results of `make fpga` into area.json; raises FlowError for those of another part."""
    known = json.loads(AREA.read_text(encoding="utf-8")) if AREA.exists() else {}
    tree = json.loads(report.read_text(encoding="utf-8"))
    if (part := tree["tools"].get("part")) != PART:
        raise FlowError(
            f"{report}: expected a report of {PART}, got one of {part}: run make fpga for that part"
        )
    for result in tree["results"]:
        ecp5 = {**result["cells"], "MHz": round(min(result["mhz"].values()))}
        known.setdefault(result["top"], {}).update(revision=revision, ecp5=ecp5)
        if result["ultrascale"]:
            known[result["top"]]["ultrascale"] = result["ultrascale"]
    write_json(AREA, known)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    p = argparse.ArgumentParser(prog=MADE, description=__doc__)
    p.add_argument("--area", type=Path, nargs="+", default=[], help="report.json of make fpga")
    p.add_argument("--revision", help="of these reports (HEAD)")
    p.add_argument("--out", type=Path, default=PAGES, help="folder of the pages (%(default)s)")
    args = p.parse_args(argv)
    shallow_stacks()
    if args.area:
        head = ["git", "rev-parse", "--short=8", "HEAD"]
        revision = args.revision or subprocess.run(head, capture_output=True, text=True, check=True).stdout
        try:
            for report in args.area:
                take_area(report, revision.strip())
        except FlowError as error:
            p.error(str(error))
    args.out.mkdir(parents=True, exist_ok=True)
    pages = {name: page(name) for name in SHEETS}
    for name, text in {**pages, "README": index(pages)}.items():
        write_text(args.out / f"{name}.md", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
