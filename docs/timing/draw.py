"""Draw the timing diagrams of docs/how-to/nic-on-a-board.md: `python docs/timing/draw.py` (extra docs)."""

from __future__ import annotations

from pathlib import Path

import wavedrom


def main() -> None:
    """Write docs/images/timing_<name>.svg for every <name>.json here."""
    here = Path(__file__).parent
    for source in sorted(here.glob("*.json")):
        target = here.parent / "images" / f"timing_{source.stem}.svg"
        drawing = wavedrom.render(source.read_text(encoding="utf-8"), strict_js_features=True)
        target.write_text(drawing.tostring() + "\n", encoding="utf-8")
        print(f"wrote {target}")


if __name__ == "__main__":
    main()
