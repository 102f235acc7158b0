"""What a NIC's units, or this host's coder, take for a frame: measured, and kept in a JSON file.

Files for the RTL come with the package, one for each part, and name their revision. The host's coder is an
estimate of oscar.coding.costs.
"""

from __future__ import annotations

import math
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from oscar.coding.asc.params import LANES
from oscar.coding.costs import SIZES, Cost, FrameCost, machine
from oscar.coding.registry import make_codec
from oscar.errors import ConfigError
from oscar.files import write_json
from oscar.timeline.clocks import Stage, Terms
from oscar.timeline.driver import Driver, Listing
from oscar.timeline.link import MOST_VALUES, Cores, Pipeline

SHIPPED = {25.0: "ecp5_85f.json", math.inf: "u55c.json"}  # by the fastest link, Gb/s, that each is for
NIC, CORE = ("encode", "decode"), ("encode", "hop", "decode")  # commands that clocks are of
ROW_BYTES = 80, 66  # of a row that is loaded: values, side row; and read: values, descriptor
NANOSECOND = "a clock here is a nanosecond"


class ListFile(BaseModel):
    """What a list takes, as a NIC's file has it.

    writes, reads: of registers, for a list. entry_clocks: of the NIC, until an entry is judged and armed.
    entries: at most. rows: of 32 values, that the NIC's memory holds.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    writes: int = Field(ge=0, le=1000)
    reads: int = Field(ge=0, le=1000)
    entry_clocks: float = Field(ge=0, allow_inf_nan=False)
    entries: int = Field(ge=1, le=1 << 16)
    rows: int = Field(ge=1, le=1 << 30)


class DriverFile(BaseModel):
    """What a board's driver takes: `timeline.driver`, as a NIC's file has it.

    writes, reads: of registers, for a command; write_us, read_us: each. notice_us: until the driver sees an
    end or a frame that comes. load_clocks, read_clocks: of the NIC, to load or read a row of each of its
    units; packet_clocks: to load a frame, beside its rows. dma_gbps: what the host moves each way; None: what
    the NIC takes. list: None: commands are given by registers alone. come_from: where the figures do.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    writes: int = Field(ge=0, le=1000)
    reads: int = Field(ge=0, le=1000)
    write_us: float = Field(ge=0, allow_inf_nan=False)
    read_us: float = Field(ge=0, allow_inf_nan=False)
    notice_us: float = Field(ge=0, allow_inf_nan=False)
    load_clocks: float = Field(ge=0, allow_inf_nan=False)
    packet_clocks: float = Field(default=0, ge=0, allow_inf_nan=False)
    read_clocks: float = Field(ge=0, allow_inf_nan=False)
    dma_gbps: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    list: ListFile | None = None
    come_from: str

    @property
    def command_us(self) -> float:
        """What the registers of a command take."""
        return self.writes * self.write_us + self.reads * self.read_us

    def row_clocks(self, mhz: float, units: int) -> tuple[float, float]:
        """Return clocks for a row of 32 values to be loaded, and read: of the slower of NIC and host."""
        moved = [0.0 if self.dma_gbps is None else size * 8e-3 / self.dma_gbps * mhz for size in ROW_BYTES]
        load, read = (
            max(c / units, m) for c, m in zip((self.load_clocks, self.read_clocks), moved, strict=True)
        )
        return load, read

    def model(self, mhz: float, units: int) -> Driver:
        """Return the driver of a NIC of this clock rate, for the time model."""
        load_s, read_s = (clocks / LANES / mhz * 1e-6 for clocks in self.row_clocks(mhz, units))
        listing = None
        if (few := self.list) is not None:
            listing = Listing(
                few.writes * self.write_us * 1e-6, few.reads * self.read_us * 1e-6,
                (self.write_us + self.read_us) * 1e-6, few.entry_clocks / mhz * 1e-6,
                LANES * few.rows, few.entries,
            )  # fmt: skip
        return Driver(
            self.command_us * 1e-6, self.notice_us * 1e-6, load_s, read_s,
            packet_s=self.packet_clocks / mhz * 1e-6, listing=listing,
        )  # fmt: skip


class TermClocks(BaseModel):
    """Clocks for each term of a frame: `clocks.Terms`, as a NIC's file has them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bound: float = Field(default=0, ge=0, allow_inf_nan=False)
    busiest: float = Field(default=0, ge=0, allow_inf_nan=False)
    longest: float = Field(default=0, ge=0, allow_inf_nan=False)
    mean: float = Field(default=0, ge=0, allow_inf_nan=False)
    blocks: float = Field(default=0, ge=0, allow_inf_nan=False)
    raw_rows: float = Field(default=0, ge=0, allow_inf_nan=False)
    raw_turns: float = Field(default=0, ge=0, allow_inf_nan=False)
    once: float = Field(default=0, ge=0, allow_inf_nan=False)

    def terms(self) -> Terms:
        """Return the same for the time model."""
        return Terms(**self.model_dump())


class StageFile(BaseModel):
    """Clocks of a NIC's encoders or decoders: `clocks.Stage`, as a NIC's file has it.

    error: relative errors of these clocks against RTL simulation, of frames alone and of queues of frames.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    front: float = Field(ge=0, allow_inf_nan=False)
    result: TermClocks
    hold: TermClocks
    error: dict[str, float] = Field(default_factory=dict)

    def stage(self) -> Stage:
        """Return the same for the time model."""
        return Stage(self.front, self.result.terms(), self.hold.terms())


class NicFile(BaseModel):
    """A NIC with its barrel units, or a core of a host: its clock rate, and what a frame costs.

    Attributes:
        name: What it is.
        revision: Of the sources that were measured.
        measured_by: How.
        units: Units of a NIC, or cores.
        mhz: Its clock rate.
        mhz_from: Where that comes from.
        clocks: Of a NIC `encode` and `decode`. Of a core `encode`, `hop` (decode, add, encode again) and
            `decode`, each as clocks for a value and clocks once.
        block: Values of a block of the NIC's frames.
        bus_bits: Of a word of its frames; None: the bus is never slower than the link.
        driver: Of a board with this NIC; None: it takes no time.
        derived: Figures for readers, computed from the others and not read back.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    revision: str
    measured_by: str
    units: int = Field(ge=1, le=1024)
    mhz: float = Field(gt=0, allow_inf_nan=False)
    mhz_from: str
    clocks: dict[str, StageFile | tuple[float, float]]
    block: int = Field(default=1 << 12, ge=1 << 10, le=1 << 17)
    bus_bits: int | None = Field(default=None, ge=64, le=512)
    driver: DriverFile | None = None
    derived: dict[str, float] = Field(default_factory=dict)

    def once_s(self, command: str) -> float:
        """Return the seconds from a frame to its result, beside its values."""
        clocks = self.clocks[command]
        once = clocks.front + clocks.result.once if isinstance(clocks, StageFile) else clocks[1]
        return once / self.mhz * 1e-6

    def stage(self, command: str) -> StageFile:
        """Return a NIC's clocks of a command; raises TypeError for a core."""
        clocks = self.clocks[command]
        if not isinstance(clocks, StageFile):
            raise TypeError(f"clocks.{command}: expected those of a NIC, got those of a core")
        return clocks

    def model(self) -> Cores | Pipeline:
        """Return what codes frames, for the time model."""
        clock_s = 1e-6 / self.mhz
        costs = {
            name: Cost(*(each * clock_s for each in clocks))
            for name, clocks in self.clocks.items()
            if not isinstance(clocks, StageFile)
        }
        if costs:
            return Cores(**costs, count=self.units)
        return Pipeline(
            self.stage("encode").stage(), self.stage("decode").stage(), clock_s, self.units, self.block,
            self.frame_values, math.inf if self.bus_bits is None else self.bus_bits * self.mhz * 1e6,
        )  # fmt: skip

    @property
    def frame_values(self) -> int:
        """Values of a frame at most: as many as the NIC counts, and as its memory holds if that is known."""
        few = None if self.driver is None else self.driver.list
        return MOST_VALUES if few is None else min(MOST_VALUES, LANES * few.rows)

    def driver_model(self) -> Driver | None:
        """Return what gives it commands, for the time model."""
        return None if self.driver is None else self.driver.model(self.mhz, self.units)

    def text(self, *, driven: bool = False) -> str:
        """Return the line that names the clock beside modelled times; driven: with the NIC's driver."""
        rate = "" if self.mhz_from == NANOSECOND else f" at {self.mhz:g} MHz"
        behind = sum(self.once_s(name) for name in self.clocks if name != "hop") * 1e6
        text = (
            f"{self.units} x {self.name}{rate}: {self.gvalues:.3g} G values/s, and a hop "
            f"costs {behind:.3g} us beside its values"
        )
        if driven and (driver := self.driver) is not None:
            load, read = driver.row_clocks(self.mhz, self.units)
            rows = (
                f"{text}; its driver takes {driver.command_us:.3g} us a command, and for a row of "
                f"{LANES} values {load:.3g} clocks to load it, {read:.3g} to read it"
            )
            return rows if driver.list is None else f"{rows}; or gives a list of commands, if that is faster"
        return f"{text}; without a driver" if "hop" not in self.clocks else text

    @property
    def gvalues(self) -> float:
        """10^9 values/s that are decoded, added and encoded again."""
        model = self.model()
        if isinstance(model, Pipeline):
            return model.values_per_s / 1e9
        return model.count / model.hop.per_value_s / 1e9

    def write(self, path: Path) -> None:
        """Write the file, whole or not at all, with the derived figures."""
        each = self.gvalues * 1e3 / self.mhz / self.units
        derived = {"gvalues_per_s": self.gvalues, "values_per_clock_and_unit": each}
        derived |= {f"{name}_us_a_frame": self.once_s(name) * 1e6 for name in self.clocks}
        tree = self.model_dump(mode="json") | {"derived": {k: round(v, 4) for k, v in derived.items()}}
        write_json(path, tree)


def load_nic(path: str | None = None, gbps: float = 100.0) -> NicFile:
    """Return the NIC in the file at `path`, or the one that comes with the package for links of such a rate.

    Raises ConfigError.
    """
    shipped = next(name for most, name in SHIPPED.items() if gbps <= most)
    folder: Any = resources.files("oscar.timeline") / "nics"
    place = folder / shipped if path is None else Path(path)
    try:
        return parse_nic(place.read_text(encoding="utf-8"), str(place))
    except FileNotFoundError:
        raise ConfigError(f"{place}: no such file; the package has examples: {folder}/*.json") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{place}: expected a NIC's file, as those in nics of the package are: {error}"
        ) from None


def shipped_text(gbps: float) -> str:
    """Return which links the package's NIC for such a rate is for."""
    least = min(SHIPPED)
    return f"of the package, for links {'of up to' if gbps <= least else 'above'} {least:g} Gb/s"


@cache
def parse_nic(text: str, place: str) -> NicFile:
    """Return the NIC that `text` describes in JSON; raises ConfigError that names `place`."""
    try:
        nic = NicFile.model_validate_json(text)
        wanted = CORE if "hop" in nic.clocks else NIC
        if set(nic.clocks) != set(wanted):
            raise ValueError(
                f"clocks: expected {', '.join(NIC)} of a NIC, or {', '.join(CORE)} of a core, got "
                f"{', '.join(nic.clocks) or 'none'}"
            )
        form = StageFile if wanted is NIC else tuple
        for name, clocks in nic.clocks.items():
            if not isinstance(clocks, form):
                raise ValueError(
                    f"clocks.{name}: expected {'result and hold' if wanted is NIC else 'two numbers'}, as "
                    f"{', '.join(wanted)} of {'a NIC' if wanted is NIC else 'a core'} have them"
                )
            each = sum(clocks.hold.terms()[:-1]) if isinstance(clocks, StageFile) else clocks[0]
            if not each > 0:
                raise ValueError(f"clocks.{name}: expected more than 0 for values, got {each:g}")
        nic.model()
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise ConfigError(
            f"{place}: expected a NIC's file, as those in nics of the package are; {where}: {first['msg']}"
        ) from None
    except ValueError as error:
        raise ConfigError(
            f"{place}: expected a NIC's file, as those in nics of the package are; {error}"
        ) from None
    return nic


@cache
def host_nic() -> NicFile:
    """Return this host's compiled coder alone; see `core`."""
    return core("compiled coder on a core", make_codec("asc").cost())


def core(name: str, cost: FrameCost) -> NicFile:
    """Return a core of this host, whose frames cost `cost`, alone."""
    (encode, encoded), (decode, decoded) = (
        (part.per_value_s * 1e9, part.once_s * 1e9) for part in (cost.encode, cost.decode)
    )
    return NicFile(
        name=name,
        revision=machine(),
        measured_by=f"at first use, the best of some calls on {SIZES} values",
        units=1,
        mhz=1000,
        mhz_from=NANOSECOND,
        clocks={
            "encode": (encode, encoded),
            "hop": (encode + decode, encoded + decoded),
            "decode": (decode, decoded),
        },
    )
