"""Which schedule a configuration means, and what ranks must agree on before the first frame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oscar.coding.registry import make_codec
from oscar.collective.schedule_file import FileSchedule, write_schedule
from oscar.collective.trees import Direct, Star
from oscar.config import Config
from oscar.errors import ConfigError
from oscar.reducers.cluster import LocalCluster
from oscar.reducers.communicator import Communicator
from oscar.reducers.scheduling import schedule_of
from oscar.transports.threads import ThreadTransport, local_transports
from support.ranks import on_ranks

GROUPS = {"kind": "groups", "size": 4, "gbps": 200.0, "nic_gbps": 25.0}
LINE = {"kind": "links", "links": [{"from": r, "to": r + 1, "both": True} for r in range(3)]}


def named(nodes: int, topology: dict[str, Any], name: str = "network", codec: str = "asc") -> Any:
    config = Config.model_validate({"nodes": nodes, "schedule": name, "topology": topology, "method": codec})
    return schedule_of(config, make_codec(codec), nodes, 200_000)


@pytest.mark.parametrize(
    ("nodes", "topology", "codec", "expected"),
    [
        (8, {}, "asc", "direct"),
        (8, {}, "fp32", "direct"),
        (8, GROUPS, "asc", "exchange 4"),
        (12, GROUPS, "asc", "hierarchical 4"),
        (8, GROUPS, "fp32", "hierarchical 4"),
        (4, {"kind": "ring"}, "asc", "duplex"),
        (4, {"kind": "ring", "both": False}, "asc", "ring"),
        (4, {"kind": "ring"}, "fp32", "ring"),
    ],
)
def test_the_network_says_which_schedule(nodes: int, topology: Any, codec: str, expected: str) -> None:
    found = named(nodes, topology, codec=codec)
    assert f"{found.name} {getattr(found, 'group', '')}".strip() == expected


def test_auto_knows_the_groups_of_the_topology() -> None:
    assert (named(8, GROUPS, "auto").name, named(8, GROUPS, "auto").group) == ("exchange", 4)


@pytest.mark.parametrize(
    ("topology", "name", "match"),
    [
        ({"kind": "ring"}, "direct", "rank 0 sends to rank 2, .* no such link: set schedule to network"),
        ({"kind": "ring", "both": False}, "boomerang", "no such link"),
        (LINE, "network", "make a schedule for it: oscar schedule synth"),
        (LINE, "auto", "make a schedule for it: oscar schedule synth"),
    ],
)
def test_a_network_without_the_links_is_refused_before_anything_is_sent(
    topology: Any, name: str, match: str
) -> None:
    with pytest.raises(ConfigError, match=match):
        named(4, topology, name)


def communicators(configs: list[Config], call: bool = False) -> list[Any]:
    """Return what each rank gets, or the ConfigError that it raises."""

    def work(transport: ThreadTransport) -> Any:
        try:
            made = Communicator(configs[transport.rank], transport, timeout_s=20)
            return made.allreduce([np.ones(900, np.float32)]) if call else made
        except ConfigError as error:
            return error

    return on_ranks(local_transports(len(configs)), work)


def test_ranks_with_other_ports_or_files_are_told_alike(tmp_path: Path) -> None:
    plan = {"shares": "auto"}
    ports = [{"gbps": [100.0, 100.0, rate]} for rate in (100.0, 100.0, 25.0)]
    came = communicators([Config.model_validate({"plan": plan, "topology": t}) for t in ports], call=True)
    assert all(isinstance(error, ConfigError) and "rank 2 has plan.shares" in str(error) for error in came)

    alone = [{"topology": LINE if rank == 1 else {}} for rank in range(4)]
    came = communicators([Config.model_validate(changes) for changes in alone])
    assert all('rank 1 has schedule = "refused: expected links' in str(error) for error in came)

    for name, kind in (("a", Direct), ("b", Star)):
        made = kind(3)
        write_schedule(tmp_path / name, FileSchedule(3, routes=made.routes))
    files = [Config.model_validate({"schedule": {"name": "file", "file": str(tmp_path / f)}}) for f in "aab"]
    came = communicators(files)
    assert all(isinstance(error, ConfigError) and "rank 2 has schedule = " in str(error) for error in came)
    files[2] = Config.model_validate({"schedule": {"name": "file", "file": str(tmp_path / "gone")}})
    assert all('rank 2 has schedule = "refused: ' in str(error) for error in communicators(files))


def test_a_state_is_of_its_schedule(tmp_path: Path) -> None:
    path, gradients = tmp_path / "s.json", [[np.linspace(-1, 1, 5000, dtype=np.float32)]] * 3
    file = Config.model_validate({"schedule": {"name": "file", "file": str(path)}})
    write_schedule(path, FileSchedule(3, routes=Direct(3).routes))
    run = LocalCluster(file)
    first = run.allreduce(gradients)
    path.unlink()
    assert run.allreduce([[np.zeros(7, np.float32)]] * 3).stats.reset  # the file is read once
    saved = LocalCluster(Config.model_validate({"schedule": "direct"}))
    saved.allreduce(gradients)
    write_schedule(path, FileSchedule(3, routes=Star(3).routes))
    other = LocalCluster(file)
    other.allreduce(gradients)
    for config, state in ((file, saved), (Config.model_validate({"schedule": "ring"}), saved)):
        with pytest.raises(ConfigError, match="schedule: state was saved under"):
            LocalCluster(config).load_state_dict(state.state_dict())
    assert first.stats.exact


def test_shares_are_for_codecs() -> None:
    config = Config.model_validate({"method": "powersgd", "plan": {"shares": [0.5, 0.5]}})
    with pytest.raises(ConfigError, match=r"plan\.shares is for codecs, powersgd is a scheme"):
        LocalCluster(config).allreduce([[np.ones((4, 4), np.float32)]] * 2)
