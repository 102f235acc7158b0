"""The configurations that come with OSCAR: `configs/` in a clone, `oscar/configs` in a wheel."""

from __future__ import annotations

from pathlib import Path

from oscar.errors import ConfigError, did_you_mean


def folder() -> Path:
    """Return the folder of the shipped configurations."""
    packaged = Path(__file__).with_name("configs")
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "configs"


def names() -> list[str]:
    """Return the names of the shipped configurations: file names without .yaml.

    >>> "default" in names()
    True
    """
    return sorted(path.stem for path in folder().glob("*.yaml"))


def find(path: str | Path) -> Path:
    """Return `path`; or, where that is no file, the shipped file of that name: `coarse` is coarse.yaml.

    Raises ConfigError where there is neither.
    """
    source, known = Path(path), names()
    if source.is_file() or (source.exists() and str(path) not in known):
        return source
    if str(path) in known:
        return folder() / f"{path}.yaml"
    hint = did_you_mean(source.stem, known)
    raise ConfigError(f"{source}: no such file; {hint}shipped configurations: {', '.join(known)}")
