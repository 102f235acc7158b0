"""Schedule files: versioned JSON. docs/reference/schedules.md describes every key."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from oscar.collective.actions import MAX_SLOTS
from oscar.collective.check import check
from oscar.collective.routes import Routed, Routes, Transfer
from oscar.errors import ConfigError
from oscar.files import write_text

FORMAT, VERSION = "oscar-schedule", 1
MAX_NODES, MAX_CHUNKS, MAX_TEXT = 256, MAX_SLOTS, 400
MAX_BYTES = 16 << 20  # four times the file size of MAX_NODES ranks and MAX_CHUNKS chunks
NEEDED = ("format", "version", "name", "nodes", "owners", "reduce", "gather", "digest")
OPTIONAL = ("shares", "made")
MADE = {"topology": str, "synthesiser": str, "modelled_s": float, "bound_s": float}
REMEDY = "write it anew with `oscar schedule synth`"


@dataclass(frozen=True)
class FileSchedule(Routed):
    """A schedule with given routes, from a file or from synthesis.

    Attributes:
        shares: Each chunk's share of the gradient; None: as the plan cuts it.
        title: A name for people.
        made: The schedule's origin, with the keys topology, synthesiser, modelled_s and bound_s
            (seconds). title and made do not affect the actions, so equal schedules may differ in them.
    """

    name: ClassVar[str] = "file"

    routes: Routes = field(kw_only=True)  # a field in place of the property
    shares: tuple[float, ...] | None = field(default=None, kw_only=True)
    title: str = field(default="", kw_only=True, compare=False, repr=False)
    made: Mapping[str, Any] = field(default_factory=dict, kw_only=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.routes.nodes != self.nodes:
            raise ValueError(f"expected routes between {self.nodes} ranks, got routes of {self.routes.nodes}")

    def for_nodes(self, nodes: int, path: str | os.PathLike[str] = "schedule") -> FileSchedule:
        """Return this schedule. Raises ConfigError, which names `path`, unless it is for `nodes` ranks."""
        if nodes != self.nodes:
            raise ConfigError(
                f"{path}: expected a schedule for {nodes} ranks, got one for {self.nodes}; "
                f"run {self.nodes} ranks, or make a schedule with `oscar schedule synth`"
            )
        return self

    def describe(self) -> str:
        """See Schedule.describe."""
        named = f" {self.title!r}" if self.title else ""
        return f"{self.name}{named}, {super().describe().partition(', ')[2]}"


def write_schedule(path: str | os.PathLike[str], schedule: FileSchedule) -> None:
    """Write `schedule` to `path`, whole or not at all. The file holds neither sub-frames nor `adopt`.

    Raises ConfigError where the schedule cannot be written, or could not be read again. `read_schedule` has
    an example.
    """
    routes = schedule.routes
    body: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "name": schedule.title,
        "nodes": schedule.nodes,
        "owners": list(routes.owners),
        "reduce": [list(transfer) for transfer in routes.reduce],
        "gather": [list(transfer) for transfer in routes.gather],
    }
    if schedule.shares is not None:
        body["shares"] = [float(share) for share in schedule.shares]
    if schedule.made:
        body["made"] = dict(schedule.made)
    _Reader(str(path), body | {"digest": _digest(body, path)}).schedule(1, adopt=False)
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in body.items()]
    lines.append(f' "digest": "{_digest(body, path)}"')
    write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")


def read_schedule(
    path: str | os.PathLike[str], *, nodes: int | None = None, subframes: int = 1, adopt: bool = False
) -> FileSchedule:
    """Return the schedule in a file, checked by `oscar.collective.check`.

    Args:
        nodes: Required number of ranks; None: any.
        subframes: As in Schedule.
        adopt: As in Schedule.

    Raises:
        ConfigError: For an unusable file; the message says how to correct it.
        ValueError: For subframes out of range.

    >>> import tempfile
    >>> from oscar.collective.routes import Routes, Transfer
    >>> routes = Routes(2, (0,), (Transfer(0, 1, 0),), (Transfer(0, 0, 1),))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_schedule(f"{folder}/pair.json", FileSchedule(2, routes=routes, title="pair"))
    ...     read_schedule(f"{folder}/pair.json").describe()
    "file 'pair', 2 ranks, 1 chunks of 1 sub-frames"
    """
    data = _load(Path(path))
    return _Reader(str(path), data).schedule(subframes, adopt=adopt, nodes=nodes)


def _digest(body: Mapping[str, Any], path: object) -> str:
    """Return the SHA-256 of a file's content as 64 hexadecimal digits; the layout does not matter."""
    try:
        text = json.dumps(dict(body), sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{path}: expected numbers and texts that JSON can hold, got {error}; {REMEDY}"
        ) from None
    return hashlib.sha256(text.encode()).hexdigest()


def _load(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: no such file; `oscar schedule synth TOPOLOGY -o {path}` writes one"
        ) from None
    except OSError as error:
        raise ConfigError(
            f"{path}: expected a schedule file, got {error.strerror}; name another file"
        ) from None
    if len(raw) > MAX_BYTES:
        raise ConfigError(
            f"{path}: expected a schedule file of at most {MAX_BYTES >> 20} MiB, got more; {REMEDY}"
        )
    try:
        return json.loads(raw.decode(), parse_constant=_no_constant, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path}: expected a schedule file in JSON, got {_short(error)}; {REMEDY}"
        ) from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name}, which is no number in JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key that comes twice")
    return result


def _short(value: object) -> str:
    text = str(value) if isinstance(value, Exception) else ascii(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


class _Reader:
    """Reads the content of one file; every value is checked before it is used."""

    def __init__(self, path: str, data: Any) -> None:
        self.path, self.data = path, data

    def refuse(self, key: str, expected: str, given: object, remedy: str = REMEDY) -> ConfigError:
        return ConfigError(f"{self.path}: {key}: expected {expected}, got {_short(given)}; {remedy}")

    def schedule(self, subframes: int, *, adopt: bool, nodes: int | None = None) -> FileSchedule:
        self._head()
        count = self._whole("nodes", self.data["nodes"], 1, MAX_NODES)
        owners = self._owners(count)
        routes = Routes(
            count, owners, *(self._transfers(key, count, len(owners)) for key in ("reduce", "gather"))
        )
        result = FileSchedule(
            count, subframes, adopt, routes=routes, shares=self._shares(len(owners)),
            title=self._text("name", self.data["name"]), made=self._made(),
        )  # fmt: skip
        if nodes is not None:
            result.for_nodes(nodes, self.path)
        try:
            check(replace(result, subframes=min(subframes, 2)))  # further sub-frames repeat the second one
        except ConfigError as error:
            raise ConfigError(f"{self.path}: {error}") from None
        return result

    def _head(self) -> None:
        """Raise ConfigError unless this is an unchanged schedule file of a supported version."""
        if type(self.data) is not dict or self.data.get("format") != FORMAT:
            given = self.data.get("format") if type(self.data) is dict else self.data
            raise self.refuse("format", repr(FORMAT), given, "name a file that `oscar schedule synth` wrote")
        version = self.data.get("version")
        if type(version) is not int or version < 1:
            raise self.refuse("version", f"a whole number of 1 to {VERSION}", version)
        if version > VERSION:
            raise self.refuse(
                "version",
                f"at most {VERSION}, which this OSCAR reads",
                version,
                "update OSCAR, or write it anew",
            )
        for key in NEEDED:
            if key not in self.data:
                raise self.refuse(key, "a value", "none")
        for key in self.data:
            if key not in NEEDED + OPTIONAL:
                raise self.refuse("keys", f"{', '.join(NEEDED + OPTIONAL)}", key)
        digest = _digest({key: value for key, value in self.data.items() if key != "digest"}, self.path)
        if self.data["digest"] != digest:
            raise self.refuse(
                "digest", f"{digest}, the digest of the content", self.data["digest"],
                "the file was changed after it was written: take the original, or " + REMEDY,
            )  # fmt: skip

    def _whole(self, key: str, value: Any, low: int, high: int) -> int:
        if type(value) is not int or not low <= value <= high:
            raise self.refuse(key, f"a whole number of {low} to {high}", value)
        return value

    def _list(self, key: str, value: Any, expected: str, most: int) -> list[Any]:
        if type(value) is not list:
            raise self.refuse(key, f"a list of {expected}", value)
        if len(value) > most:
            raise self.refuse(key, f"at most {most:,} {expected}", f"{len(value):,}")
        return value

    def _text(self, key: str, value: Any) -> str:
        if type(value) is not str or len(value) > MAX_TEXT or (value and not value.isprintable()):
            raise self.refuse(key, f"a text of at most {MAX_TEXT} characters in one line", value)
        return value

    def _owners(self, nodes: int) -> tuple[int, ...]:
        owners = self._list("owners", self.data["owners"], "ranks", MAX_CHUNKS)
        if not owners:
            raise self.refuse("owners", "a rank for each chunk", "none")
        return tuple(self._whole(f"owners[{i}]", owner, 0, nodes - 1) for i, owner in enumerate(owners))

    def _transfers(self, key: str, nodes: int, chunks: int) -> tuple[Transfer, ...]:
        """Return the transfers of a phase; each chunk crosses N - 1 links."""
        most = chunks, nodes, nodes
        rows = self._list(key, self.data[key], "transfers", MAX_CHUNKS * MAX_NODES)
        if len(rows) != chunks * (nodes - 1):
            raise self.refuse(
                key, f"{chunks * (nodes - 1):,} transfers, nodes - 1 for each chunk", f"{len(rows):,}"
            )
        for i, row in enumerate(rows):
            if type(row) is not list or len(row) != 3:
                raise self.refuse(f"{key}[{i}]", "[chunk, sender, receiver]", row)
            for value, limit, what in zip(row, most, ("chunk", "rank", "rank"), strict=True):
                if type(value) is not int or not 0 <= value < limit:
                    raise self.refuse(f"{key}[{i}]", f"a {what} of 0 to {limit - 1}", value)
            if row[1] == row[2]:
                raise self.refuse(f"{key}[{i}]", "a sender and another receiver", row)
        return tuple(Transfer(*row) for row in rows)

    def _shares(self, chunks: int) -> tuple[float, ...] | None:
        if "shares" not in self.data:
            return None
        shares = self._list("shares", self.data["shares"], "shares", chunks)
        known = [type(share) in (int, float) and 0 <= share <= 1 for share in shares]
        if len(shares) != chunks or not all(known) or not math.isclose(math.fsum(shares), 1, abs_tol=1e-6):
            raise self.refuse(
                "shares", f"{chunks} numbers of 0 to 1, one for each chunk, whose sum is 1", shares
            )
        return tuple(float(share) for share in shares)

    def _made(self) -> dict[str, Any]:
        made = self.data.get("made", {})
        if type(made) is not dict or not made.keys() <= MADE.keys():
            raise self.refuse("made", f"a mapping with keys of {', '.join(MADE)}", made)
        for key, value in made.items():
            if MADE[key] is str:
                self._text(f"made.{key}", value)
            elif type(value) not in (int, float) or not 0 <= value <= 1e9:
                raise self.refuse(f"made.{key}", "seconds, 0 or more", value)
        return made
