"""Reading a configuration: YAML, then the overrides of the command line, then every rule."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oscar import yaml_core
from oscar.config.base import validated
from oscar.config.experiment import Config
from oscar.errors import ConfigError, one_line
from oscar.shipped import find


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Read a YAML file and return the validated configuration.

    path: path of a file, or name of a shipped configuration such as `default` (oscar.shipped).
    overrides: `key=value` texts with dotted keys and YAML values, as for the option --set.
    Raises ConfigError that names the file, the key, the expected value and the nearest valid key.

    >>> load_config("default", ["link.gbps=25"]).link.gbps
    25.0
    """
    source = find(path)
    try:
        return _read(source, overrides)
    except ConfigError as error:
        where = str(source)
        if overrides and _is_valid(source):
            where = " ".join(f"--set {text}" for text in overrides)
        raise ConfigError(one_line(f"{where}: {error}")) from None


def _read(source: Path, overrides: Sequence[str]) -> Config:
    """Return the configuration in a file with `overrides`, checked whole; raises ConfigError."""
    data = yaml_core.read(source)
    if not isinstance(data, dict):
        raise ConfigError(f"expected a mapping of keys at the top, got {type(data).__name__}")
    for text in overrides:
        _override(data, text)
    config = validated(Config, data)
    list(config.compared())
    list(config.contenders())
    return config


def _is_valid(source: Path) -> bool:
    """Whether a file is right by itself, so that only what overrides it can be wrong."""
    try:
        _read(source, ())
    except ConfigError:
        return False
    return True


def _override(data: dict[Any, Any], text: str) -> None:
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise ConfigError("expected key=value, for example --set link.gbps=25")
    try:
        parsed = yaml_core.parse(value)
    except ValueError as error:
        raise ConfigError(f"the value is not YAML: {error}") from None
    *path, last = key.strip().split(".")
    for part in path:
        inner = data.setdefault(part, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{part} is a value, not a section")
        data = inner
    data[last] = parsed
