"""A link cut in the middle of an AllReduce: both sides report it and name a rank across the cut."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

import pytest

from needs import TRANSPORTS, needs
from oscar_lab.lab.launch import Ended, launch
from oscar_lab.lab.network import HostNetwork
from oscar_lab.trials import transport_faults


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    transport_faults.add_arguments(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize("transport", ["mpi", "tcp"])
def test_a_cut_is_told_on_both_sides(alone: None, transport: str) -> None:
    needs(TRANSPORTS[transport])
    words = ("--transport", transport, "--kinds", "cut", "--points", "1", "--ranks", "3", "--timeout-s", "3")
    result = transport_faults.run(arguments(*words))
    assert result["ok"], result["wrong"]
    (row,) = result["rows"]
    assert (row["told"], row["wrong"], row["hung"]) == (1, 0, 0)
    assert row["slowest_s"] > 1  # the deadline had to pass: a cut is no reset


def test_where_no_network_can_be_made_a_cut_is_left_out_and_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    result = transport_faults.run(arguments("--transport", "tcp", "--kinds", "cut"))
    assert (result["ok"], result["rows"]) == (True, [])
    assert "takes root" in result["left_out"][0]["why"]
    assert "# tcp, cut: not run: oscar lab makes network namespaces" in capsys.readouterr().out


def test_each_side_must_blame_the_other() -> None:
    case = {"kind": "cut", "victim": 1, "timeout_s": 2.0, "schedule": "ring"}
    text = "was silent while its frame of step 0 of the all-gather, chunk 1 was due"

    def judged(peers: tuple[int, ...]) -> str:
        lines: list[dict[str, Any]] = [{"struck": 5.0}]
        for rank, peer in enumerate(peers):
            line = {"rank": rank, "type": "PeerError", "text": text, "peer": peer, "step": 0, "chunk": 1}
            lines.append({**line, "at": 6.0, "untouched": True})
        output = "\n".join(json.dumps(line) for line in lines)
        return transport_faults.judge(case, Ended(75, (75,), output, False, 0), ranks=4)[1]

    assert judged((1, 0, 1, 1)) == ""
    assert judged((1, 2, 1, 1)) == ""
    assert "rank 1: PeerError blames rank 3" in judged((1, 3, 1, 1))  # no neighbour of its
    assert "rank 1: PeerError blames rank 1" in judged((1, 1, 1, 1))
    assert "rank 3: PeerError blames rank 2" in judged((1, 0, 1, 2))
    assert "ranks [3] said nothing" in judged((1, 0, 1))


def test_the_launcher_needs_a_host_of_its_own() -> None:
    with pytest.raises(ValueError, match="expected a network of 3 hosts for 2 ranks, got 2"):
        launch("mpi", 2, ["-c", ""], limit_s=1, token="x", network=HostNetwork(2))
