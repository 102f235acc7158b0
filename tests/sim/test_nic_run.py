"""NicRun, the driver of a whole NIC: what a NIC refuses, or never does, is an error. The NIC is a fake."""

from __future__ import annotations

from collections import defaultdict

import pytest

from oscar_hdl.nic.control.registers import BY_NAME
from oscar_sim.cosim.nic_run import NicRun
from oscar_sim.errors import RtlError


def fake(**ports: int) -> NicRun:
    """Return a driver whose NIC shows these ports, whatever happens."""
    nic = NicRun.__new__(NicRun)
    nic.model = defaultdict(int, {f"s_axil_{name}": value for name, value in ports.items()})
    nic.step = lambda clocks=1: None
    return nic


def test_a_refused_access_is_an_error() -> None:
    always = dict.fromkeys(("wready", "bvalid", "arready", "rvalid"), 1)
    with pytest.raises(RtlError, match="write to COMMAND_FRAME is answered with 2, not OKAY"):
        fake(**always, bresp=2).write("COMMAND_FRAME", step=1)
    with pytest.raises(RtlError, match="read of STATUS is answered with 2, not OKAY"):
        fake(**always, rresp=2).read("STATUS")
    nic = fake(**always)
    nic.write("COMMAND_FRAME", step=1)
    assert nic.read("STATUS")["send_pending"] == 0


@pytest.mark.parametrize("silent", ["wready", "bvalid"])
def test_a_nic_that_says_nothing_is_an_error(silent: str) -> None:
    with pytest.raises(RtlError, match=f"s_axil_{silent} stays 0: looked 60,000 times"):
        fake(**{name: 1 for name in ("wready", "bvalid") if name != silent}).write("COMMAND_FRAME")


def test_a_command_that_waits_for_ever_is_an_error() -> None:
    nic = fake(wready=1, bvalid=1, arready=1, rvalid=1, rdata=BY_NAME["STATUS"].pack(send_pending=1))
    with pytest.raises(RtlError, match="send_pending stays 1"):
        nic.command("SEND")
