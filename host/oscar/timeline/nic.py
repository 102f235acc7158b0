"""What a NIC's lanes, or this host's coder, take for a frame: measured, and kept in a JSON file.

`make rtl` writes such a file of the converted RTL; one comes with the package and names its revision. The
host's is an estimate of oscar.coding.costs.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from oscar.coding.costs import SIZES, Cost, FrameCost, machine
from oscar.coding.registry import make_codec
from oscar.errors import ConfigError
from oscar.files import write_json
from oscar.timeline.link import Engines

SHIPPED = "asc_lane.json"
NANOSECOND = "a clock here is a nanosecond"


class NicFile(BaseModel):
    """A NIC: so many engines (lanes, or a core) at a clock rate, and what a frame costs one of them.

    clocks: of `encode`, `hop` (decoded, added to, coded again) and `decode` those for each value and those
    for the frame. revision, measured_by, mhz_from: where the figures come from. `derived` is what they make,
    for readers; it is not read back.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    revision: str
    measured_by: str
    engines: int = Field(ge=1, le=1024)
    mhz: float = Field(gt=0, allow_inf_nan=False)
    mhz_from: str
    clocks: dict[str, tuple[float, float]]
    derived: dict[str, float] = Field(default_factory=dict)

    def seconds(self, command: str, values: float) -> float:
        """Return what one engine takes for a frame of `values`."""
        each, once = self.clocks[command]
        return (values * each + once) / self.mhz * 1e-6

    def model(self) -> Engines:
        """Return the engines for the time model."""
        costs = {
            name: Cost(self.seconds(name, 1) - self.seconds(name, 0), self.seconds(name, 0))
            for name in ("encode", "hop", "decode")
        }
        return Engines(**costs, count=self.engines)

    def text(self) -> str:
        """Return the line that names the clock beside modelled times."""
        rate = "" if self.mhz_from == NANOSECOND else f" at {self.mhz:g} MHz"
        return (
            f"{self.engines} x {self.name}{rate}: {self.gvalues:.3g} G values/s, and a frame "
            f"costs {self.seconds('hop', 0) * 1e6:.3g} us beside its values"
        )

    @property
    def gvalues(self) -> float:
        """10^9 values/s of all engines at the hops of a ring."""
        return self.engines * self.mhz / self.clocks["hop"][0] / 1e3

    def write(self, path: Path) -> None:
        """Write the file, whole or not at all, with the derived figures."""
        derived = {"gvalues_per_s": self.gvalues, "values_per_clock_and_engine": 1 / self.clocks["hop"][0]}
        derived |= {f"{name}_us_a_frame": self.seconds(name, 0) * 1e6 for name in self.clocks}
        tree = self.model_dump(mode="json") | {"derived": {k: round(v, 4) for k, v in derived.items()}}
        write_json(path, tree)


def load_nic(path: str | None = None) -> NicFile:
    """Return the NIC in the file at `path`, or the one that comes with the package; raises ConfigError."""
    place: Any = resources.files("oscar.timeline") / "nics" / SHIPPED if path is None else Path(path)
    try:
        return parse_nic(place.read_text(encoding="utf-8"), str(place))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{place}: expected a NIC's file, as `make rtl` writes it to build/rtl/nic.json: {error}"
        ) from None


@cache
def parse_nic(text: str, place: str) -> NicFile:
    """Return the NIC that `text` describes in JSON; raises ConfigError that names `place`."""
    try:
        nic = NicFile.model_validate_json(text)
        missing = {"encode", "hop", "decode"} ^ set(nic.clocks)
        if missing:
            raise ValueError(f"clocks: expected encode, hop and decode, got {', '.join(sorted(nic.clocks))}")
        nothing = [name for name, (each, _) in nic.clocks.items() if not each > 0]
        if nothing:
            raise ValueError(
                f"clocks.{nothing[0]}: expected more than 0 for a value, got {nic.clocks[nothing[0]][0]:g}"
            )
        nic.model()
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise ConfigError(
            f"{place}: expected a NIC's file, as `make rtl` writes it; {where}: {first['msg']}"
        ) from None
    except ValueError as error:
        raise ConfigError(f"{place}: expected a NIC's file, as `make rtl` writes it; {error}") from None
    return nic


@cache
def host_nic() -> NicFile:
    """Return this host's compiled coder as one engine; see `core`."""
    return core("compiled coder on a core", make_codec("asc").cost())


def core(name: str, cost: FrameCost) -> NicFile:
    """Return a core of this host, whose frames cost `cost`, as one engine."""
    (encode, encoded), (decode, decoded) = (
        (part.per_value_s * 1e9, part.once_s * 1e9) for part in (cost.encode, cost.decode)
    )
    return NicFile(
        name=name,
        revision=machine(),
        measured_by=f"at first use, the best of some calls on {SIZES} values",
        engines=1,
        mhz=1000,
        mhz_from=NANOSECOND,
        clocks={
            "encode": (encode, encoded),
            "hop": (encode + decode, encoded + decoded),
            "decode": (decode, decoded),
        },
    )
