"""The time model's clocks of an AllReduce, beside those of simulated NICs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from oscar.collective.frames import Moved
from oscar.timeline.driver import Driver
from oscar.timeline.link import LinkModel, Pipeline
from oscar.timeline.nic import SHIPPED, NicFile, load_nic
from oscar.timeline.replay import replay

if TYPE_CHECKING:
    from oscar_sim.allreduce.run import Options

CLOCK_S = 1e-8  # of the model: its times are told in clocks


def shipped_nic(units: int) -> NicFile | None:
    """Return the package's NIC that has so many units, or None."""
    nics = (load_nic(None, gbps) for gbps in SHIPPED)
    return next((nic for nic in nics if nic.units == units), None)


def model_clocks(options: Options, moved: Moved) -> float | None:
    """Return the clocks that the time model gives an AllReduce, as a run counts them.

    None where values are made while the NICs run, or come as floats, nodes are in software, or no NIC of the
    package has as many units.
    """
    nic = shipped_nic(options.units)
    loads = options.driver in ("triggered", "adding")
    if (
        nic is None
        or nic.driver is None
        or options.software
        or options.floats
        or (loads and (options.make or not options.asks))
    ):
        return None
    shape = {"mhz": 1e-6 / CLOCK_S, "block": 1 << options.block_log2, "bus_bits": options.bus_bits}
    coder = nic.model_copy(update=shape).model()
    assert isinstance(coder, Pipeline)
    link = LinkModel(
        options.bus_bits * options.rate / CLOCK_S, options.latency * CLOCK_S, coder=coder,
        driver=_driver(options, nic, moved, loads=loads),
    )  # fmt: skip
    return options.make * options.values + replay(moved.schedule, moved.frames, link).total_s / CLOCK_S


def _driver(options: Options, nic: NicFile, moved: Moved, *, loads: bool) -> Driver | None:
    """Return the driver of a run: its registers' clocks, and those of loading and reading if they count."""
    times = zip(("write_us", "read_us", "notice_us"), options.host, strict=True)
    known = {name: clocks * CLOCK_S * 1e6 for name, clocks in times}
    assert nic.driver is not None
    assert nic.driver.list is not None
    room = nic.driver.list.model_copy(update={"rows": 1 << 30})
    moves = {"dma_gbps": None, "list": room} | ({} if loads else {"load_clocks": 0.0, "packet_clocks": 0.0})
    moves |= {} if options.asks else {"read_clocks": 0.0}
    driver = nic.driver.model_copy(update=known | moves).model(1e-6 / CLOCK_S, nic.units)
    if options.driver == "registers":
        return replace(driver, listing=None)
    listed = driver.listed(moved.schedule, moved.frames.gradient)
    return listed if options.asks or listed is None else replace(listed, ask_s=0.0)
