"""Where a long run will write its results, looked at before it starts."""

from __future__ import annotations

from pathlib import Path

from oscar.errors import ConfigError
from oscar.files import check_writable


def prepared(path: Path | None) -> None:
    """Make the folder of a results file, if one is asked for; raises ConfigError when that cannot be."""
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        check_writable(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot write there ({error.strerror}); choose another file") from None
