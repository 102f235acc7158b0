"""Check the folder that `make vhdl` wrote: all is listed, no path or date told, files are short, Verilog's
arrays have drivers of one kind, datasheets have the ports that there are, and the NIC is the same twice.

Run by .ci/run as `python tests/check_conversion.py FOLDER`; exits with what is wrong.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from oscar_hdl.flow import convert, vhdl_bench
from oscar_hdl.flow.delivery import datasheets
from oscar_hdl.flow.tops import TOPS

LONGEST = 1000  # lines of a file


def faults(folder: Path, names: Sequence[str] = tuple(TOPS)) -> list[str]:
    """Return what is wrong with the files of these tops in `folder`."""
    made = {
        file.relative_to(folder).as_posix()
        for room in convert.LANGUAGES
        for file in (folder / room).rglob("*.v*")
    }
    wanted = {f"{room}/{name}/{name}{suffix}" for room, suffix in convert.LANGUAGES.items() for name in names}
    wanted.add(f"vhdl/{convert.PACKAGE}")
    found = [f"lacks {name}" for name in sorted(wanted - made)]
    told = {"the folder": str(folder.resolve()), "a home": f"{Path.home()}/", "a date": "UTC"}
    told["a path"] = f"{tempfile.gettempdir()}/"
    for name in sorted(made | {"files.txt", "oscar.core"}):
        text = (folder / name).read_text(encoding="utf-8")
        found += [f"{name} tells {what}: {part}" for what, part in told.items() if part in text]
        if name in made and text.count("\n") > LONGEST:  # the other two list all files
            found.append(f"{name} has {text.count(chr(10)):,} lines, more than {LONGEST:,}")
        if name.startswith("verilog/"):
            found += [
                f"{name}: {array} is driven by `assign` and by a process" for array in mixed_arrays(text)
            ]
    listed = (folder / "files.txt").read_text(encoding="utf-8").split()
    if listed[0] != f"vhdl/{convert.PACKAGE}" or set(listed) != made:
        found.append(f"files.txt and the folder differ in {sorted(set(listed) ^ made)}")
    core = (folder / "oscar.core").read_text(encoding="utf-8")
    found += [f"oscar.core lacks {name}" for name in sorted(made) if name not in core]
    return found if core.startswith("CAPI=2:\n") else [*found, "oscar.core is of another format"]


def sheet_faults(folder: Path, name: str) -> list[str]:
    """Return what a top's datasheet says otherwise than its VHDL and its page."""
    text = (folder / datasheets.FOLDER / f"{name}.md").read_text(encoding="utf-8")
    vhdl = {
        (re.sub(r"_\d+(?=_t)", "_n", port), way)
        for port, way, _ in vhdl_bench.ports_of(folder / "vhdl" / name / f"{name}.vhd")
    }
    faults = []
    if vhdl != {(port, way) for port, way, _ in datasheets.shown_ports(text)}:
        faults.append(f"the datasheet of {name} has other ports than its VHDL")
    page = (datasheets.PAGES / f"{name}.md").read_text(encoding="utf-8")
    if datasheets.linked(text) != page:
        faults.append(f"docs/reference/blocks/{name}.md is old: run {datasheets.MADE}")
    return faults


def mixed_arrays(text: str) -> list[str]:
    """Return arrays of registers in Verilog that `assign` drives, too: Icarus refuses them."""
    arrays = set(re.findall(r"^reg .*?(\w+) \[0:", text, re.M))
    return sorted(arrays & set(re.findall(r"^assign (\w+)\[", text, re.M)))


def differences(folder: Path, name: str) -> list[str]:
    """Convert a top to VHDL again; return the files that have other bytes."""
    with tempfile.TemporaryDirectory() as again:
        files = convert.convert_tree(name, "vhdl", Path(again))
        pairs = {file: folder / file.relative_to(again) for file in files}
        return [
            f"{old.name} is not the same twice"
            for new, old in pairs.items()
            if not old.exists() or new.read_bytes() != old.read_bytes()
        ]


if __name__ == "__main__":
    made_in = Path(sys.argv[1])
    wrong = faults(made_in) + differences(made_in, "oscar_nic")
    wrong += [fault for name in datasheets.SHEETS for fault in sheet_faults(made_in, name)]
    sys.exit("\n".join(wrong) if wrong else 0)
