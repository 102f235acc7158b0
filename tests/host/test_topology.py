"""The section topology: what it means, and how it says what is wrong."""

from __future__ import annotations

import json

import pytest

from oscar.config import Config
from oscar.config.base import validated
from oscar.config.link import OPTIONS, LinkSection, TopologySection, read_topology
from oscar.errors import ConfigError
from oscar.timeline.topology import grouped, switch, wires

LINK = LinkSection(gbps=10, latency_us=3)


def made(nodes: int, /, **keys):
    """Return the topology of a section with these keys."""
    return validated(TopologySection, keys).model(nodes, LINK)


def test_a_section_is_the_network_that_it_names():
    assert made(3) == switch([10.0] * 3, 3e-6)
    assert made(2, gbps=[1, 2.5], latency_us=0) == switch([1, 2.5], 0.0)
    ring = {(i, (i + step) % 4): (10.0, 3e-6) for step in (1, -1) for i in range(4)}
    assert made(4, kind="ring").links.keys() == wires(4, ring).links.keys()
    assert len(made(4, kind="ring", both=False).links) == 4
    groups = made(4, kind="groups", size=2, gbps=200, latency_us=1, nic_gbps=25)
    assert groups == grouped(2, 2, inside=(200, 1e-6), between=(25, 3e-6))
    listed = made(2, kind="links", links=[{"from": 1, "to": 0, "gbps": 5, "both": True}], message_us=2)
    assert listed.links == wires(2, {(1, 0): (5.0, 3e-6), (0, 1): (5.0, 3e-6)}).links
    assert listed.message_s == pytest.approx(2e-6)


@pytest.mark.parametrize(
    "keys",
    [
        {"gbps": [1, 2.5, 4]},
        {"kind": "ring", "both": False, "gbps": 5},
        {"kind": "groups", "size": 3, "nic_gbps": 25, "nic_latency_us": 1},
        {"kind": "links", "links": [{"from": i, "to": (i + 1) % 3, "both": True} for i in range(3)]},
    ],
    ids=OPTIONS,
)
def test_what_is_dumped_can_be_read_again(keys):
    """Each row of a comparison, each rank and each results file has the configuration by these ways."""
    config = validated(Config, {"nodes": 3, "topology": {"kind": "switch", "message_us": 2, **keys}})
    assert config.variant(seed=1).topology == config.topology
    kept = json.loads(json.dumps(config.model_dump(mode="json")))
    assert validated(Config, kept) == config
    assert validated(Config, config.model_dump(by_alias=True)) == config
    assert validated(Config, json.loads(config.model_dump_json())) == config


BROKEN = [{"from": 0, "to": 1, "both": True}, {"from": 2, "to": 1}]


@pytest.mark.parametrize(
    ("nodes", "keys", "error"),
    [
        (3, {"kind": "links", "links": BROKEN}, "a way between all ranks, there is none from rank 0 to 2"),
        (3, {"kind": "links", "links": [*BROKEN[:1], {"from": 0, "to": 2}]}, "none from rank 2 to 0"),
        (2, {"kind": "links", "links": BROKEN}, "links.1: expected ranks 0 to 1, got 2"),
        (2, {"kind": "links", "links": [BROKEN[0], {"from": 1, "to": 0}]}, "each link once, got a second"),
        (2, {"kind": "links", "links": [{"from": 1, "to": 1}]}, "a link between two ranks, got one from 1"),
        (2, {"kind": "links", "links": [{"from": 1, "to": 0, "gbps": -3}]}, r"links.0.gbps: .*got -3"),
        (2, {"kind": "links"}, "needs the key links"),
        (3, {"gbps": [1, 2]}, "a number for each of 3 ranks, got 2"),
        (3, {"gbps": [1, float("nan"), 1]}, "expected rates from 1e-06 to 1e.09, got nan"),
        (3, {"gbps": 0}, "expected rates from .* got 0"),
        (3, {"gbps": -1.0}, "expected rates from .* got -1.0"),
        (3, {"kind": "ring", "gbps": [1, 2, 3]}, "a list is for the kind switch, not ring"),
        (6, {"kind": "groups", "size": 4}, "a divisor of 6 ranks, got 4"),
        (6, {"kind": "groups"}, "needs the key size"),
        (6, {"size": 2}, "size is for the kind groups, not switch"),
        (6, {"nodes": 4}, "topology.nodes: expected 6, the ranks that run, got 4"),
        (2, {"kind": "links", "links": [{"form": 0, "to": 1}]}, "'from'[?] valid keys here: from, to, gbps"),
        (6, {"latency": 4}, "unknown key 'latency'; did you mean 'latency_us'"),
    ],
)
def test_bad_input_is_refused_with_the_key(nodes, keys, error):
    with pytest.raises(ConfigError, match=error):
        made(nodes, **keys)


def test_a_file_of_its_own(tmp_path):
    path = tmp_path / "net.yaml"
    for text, nodes in (
        ("gbps: [1, 2, 3]", 3),
        ("kind: ring\nnodes: 5", 5),
        ("topology: {kind: groups, size: 2, nodes: 6}", 6),
        ("kind: links\nlinks: [{from: 0, to: 1, both: true}]", 2),
    ):
        path.write_text(text)
        assert read_topology(path).nodes == nodes
    for text, error in (
        ("[1]", "a mapping of keys at the top, got list"),
        ("kind: ring", "expected the key nodes"),
        ("gbps: fast", "gbps"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=rf"net.yaml: .*{error}"):
            read_topology(path)
