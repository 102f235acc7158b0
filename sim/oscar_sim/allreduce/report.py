"""What `make sim` prints: a line for each AllReduce, in clocks and in microseconds, beside the time model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from oscar.tables import Table
from oscar_sim.allreduce.model import shipped_nic
from oscar_sim.allreduce.run import Options, Outcome

DRIVERS = {  # how a NIC gets its commands
    "registers": "a command at a time",
    "list": "all commands at once",
    "triggered": "a list that waits for values which replace what memory holds",
    "adding": "a list that waits for values which are added to what memory holds",
}
SIMULATORS = {"verilator": "converted RTL under Verilator", "myhdl": "the MyHDL source"}
TABLE = Table(
    "schedule <8", "driver <9", "nics:NICs >4d", "iteration:call >4d", "clocks >8,d", "us >8.1f",
    "gbps:Gb/s >6.2f", "model_us:model us >8.1f", "error >6", "frames >6d", "bytes >9,d",
    "less:fp32/bytes >10.2f", "equal >5",
)  # fmt: skip


def default_mhz(units: int) -> tuple[float, str]:
    """Return the clock rate of the package's NIC of so many units, and where it comes from."""
    nic = shipped_nic(units) or shipped_nic(1)
    assert nic is not None
    origin = f"the clock of the {nic.name}"
    if nic.units != units:
        origin = f"{origin}, since no NIC of {units} units was placed"
    elif nic.mhz_from.startswith("assumed"):
        origin = f"{origin}, assumed"
    return nic.mhz, f"{origin} (docs/results/hardware.md)"


def host_clocks(mhz: float) -> tuple[int, int, int]:
    """Return clocks of the package's host: to write a register, to read one, to notice an interrupt."""
    nic = shipped_nic(1)
    assert nic is not None
    assert nic.driver is not None
    driver = nic.driver
    write, read, notice = (round(us * mhz) for us in (driver.write_us, driver.read_us, driver.notice_us))
    return write, read, notice


def heading(jobs: Sequence[Options], mhz: float, origin: str) -> list[str]:
    """Return the lines above the table."""
    o, drivers = jobs[0], dict.fromkeys(job.driver for job in jobs)
    mixed = ["# NICs: those in RTL; the other ranks are software, which takes no clocks"]
    write, read, notice = (clocks / mhz for clocks in o.host)
    units, made = "1 unit" if o.units == 1 else f"{o.units} units", ""
    gbps = o.bus_bits * o.rate * mhz * 1e-3
    if o.floats:
        made = f", given as {o.floats}"
    if o.make:
        made += f", made in {o.make:g} clocks each ({o.order})"
    return [
        f"# {o.nodes} NICs of {units}, {SIMULATORS[o.simulator]}, links of {gbps:.3g} Gb/s",
        f"# {o.values:,} gradient values of {o.workload}{made}: seed {o.seed}, after {o.warmup} iterations, "
        f"{o.bits} bits, blocks of {1 << o.block_log2:,}",
        f"# us at {mhz:g} MHz, {origin}",
        f"# a host takes {write:.2g} us to write a register, {read:.2g} to read one, "
        f"{notice:.2g} to notice an interrupt",
        f"# commands by {'; '.join(f'{name}: {DRIVERS[name]}' for name in drivers)}",
        "# Gb/s: the gradient's 32 bits a value over the time; fp32/bytes: its frames uncoded over coded",
        *(mixed if any(job.software for job in jobs) else []),
        TABLE.heading,
    ]


def line(row: dict[str, Any]) -> str:
    """Return the table's line of an AllReduce, whose row is `timed`."""
    error = None if row["model_error"] is None else f"{row['model_error']:+.1%}"
    less = row["fp32_bytes"] / row["bytes"] if row["bytes"] else None
    return TABLE.line(row, error=error, less=less, equal="yes" if row["equal"] else "NO")


def timed(row: dict[str, Any], mhz: float) -> dict[str, Any]:
    """Return a row with its times at a clock rate."""
    clocks, model = row["clocks"], row["model_clocks"]
    us = clocks / mhz
    return row | {
        "nics": row["options"]["nodes"] - row["options"]["software"],
        "mhz": mhz,
        "us": us,
        "gbps": 32 * row["options"]["values"] / us * 1e-3 if us else None,
        "model_us": None if model is None else model / mhz,
    }


def summary(rows: Sequence[dict[str, Any]], outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield the lines below the table, without the verdict."""
    # Where NICs reduced among themselves, those counts, not the ones of a NIC among ranks in software.
    by_software = sorted(rows, key=lambda row: -row["options"]["software"])
    of_drivers = {row["driver"]: row["registers"][0] for row in by_software}
    used = [
        f"{name}: {count['write']} writes, {count['read']} reads, {count['interrupts']} interrupts"
        for name, count in of_drivers.items()
    ]
    yield f"# a NIC's {'; '.join(used)}" if len(used) < 3 else "# a NIC's\n#   " + "\n#   ".join(used)
    if any("plan" in row for row in rows):
        yield "# the NICs cut the chunks of the next call where the host does"
    seconds, clocks = sum(each.seconds for each in outcomes), sum(each.clocks for each in outcomes)
    yield f"# {clocks:,} clocks simulated in {seconds:.0f} s"


def written(files: dict[str, Path | None]) -> Iterator[str]:
    """Yield a line for each file that was written, by what is in it."""
    for what, file in files.items():
        if file is not None:
            yield f"# {what}: {file}"


def verdict(rows: Sequence[dict[str, Any]], total: int) -> str:
    """Return the last line: how many AllReduces of how many came out as the host's."""
    equal = sum(row["equal"] for row in rows)
    if equal == total:
        return f"{equal} of {total} AllReduces equal the host, bit for bit"
    return f"FAILED: {equal} of {total} AllReduces equal the host"
