"""Describe converted tops for FuseSoC."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from oscar.version import __version__

LANGUAGES = {"vhdl": "vhdlSource-2008", "verilog": "verilogSource"}


def core_file(blocks: Sequence[str], files: Sequence[Path], out: Path) -> str:
    """Return a FuseSoC description (CAPI2) with a target for each top, in VHDL and in Verilog.

    Args:
        blocks: Tops, the largest one last.
        files: Their files, in an order in which they compile.
        out: Folder of the description.
    """
    lines = [
        "CAPI=2:",
        f"name: oscar:nic:oscar:{__version__}",
        "description: OSCAR NIC, converted from MyHDL",
        "filesets:",
    ]
    names = [file.relative_to(out).as_posix() for file in files]
    for language, kind in LANGUAGES.items():
        for block in blocks:
            own = [name for name in names if name.startswith(f"{language}/{block}/")]
            shared = [name for name in names if name.startswith(f"{language}/") and name.count("/") == 1]
            lines += [f"  {block}_{language}:", "    files:"]
            lines += [f"      - {name}" for name in (*shared, *own)]
            lines += [f"    file_type: {kind}"]
    lines.append("targets:")
    for n, block in enumerate(reversed(blocks)):
        for language in LANGUAGES:
            target = "default: &default" if n == 0 and language == "vhdl" else f"{block}_{language}:"
            lines += [f"  {target}", f"    filesets: [{block}_{language}]", f"    toplevel: {block}"]
            lines += [f"  {block}_vhdl: *default"] * target.startswith("default")
    return "\n".join(lines) + "\n"
