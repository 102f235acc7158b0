"""Hosts in network namespaces on one bridge, each host's outgoing link limited by a token bucket (tbf)."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from oscar.errors import OscarError
from oscar_lab.lab.hold import PREFIX, one_lab, undisturbed

DEVICE = "eth0"  # of every host
BURST_S = 0.002  # a smaller bucket loses rate to timers; a larger one lets short transfers pass unlimited
MIN_BURST = 12_500  # bytes
QUEUE_MS = 20
MTU, IP_TCP, ETHERNET = 1500, 52, 14  # bytes; the TCP header has timestamps
SEGMENT = MTU - IP_TCP  # payload of a full frame
FRAME = MTU + ETHERNET  # what tbf counts for it
GOODPUT = SEGMENT / FRAME  # of the rate that tbf is set to
CLONE_NEWNET = 0x40000000
SIOCETHTOOL, ETHTOOL_STXCSUM = 0x8946, 0x17
TOOLS = {"ip": "iproute2", "tc": "iproute2", "nft": "nftables"}  # and the package each is in
TABLE = "oscar"  # of the switch's rules
PARTS = 1_000_000  # nft is given the loss in parts of this
LOSS_RULES = """table bridge {table} {{
  counter seen {{}}
  counter lost {{}}
  chain loss {{
    type filter hook forward priority 0
    ether type ip counter name "seen"
    ether type ip numgen random mod {parts} < {lost} counter name "lost" drop
  }}
}}
"""


@dataclass(frozen=True)
class LinkUse:
    """What has left a host's link: bytes and packets with all headers, and packets dropped from its queue."""

    sent: int
    packets: int
    dropped: int

    def __sub__(self, before: LinkUse) -> LinkUse:
        packets, dropped = self.packets - before.packets, self.dropped - before.dropped
        return LinkUse(self.sent - before.sent, packets, dropped)


def require_root(*tools: str) -> None:
    """Raise OscarError unless this process may make networks and has the tools for it, and `tools`."""
    if os.geteuid() != 0:
        raise OscarError(
            "oscar lab makes network namespaces, which takes root: run it with sudo, or in a container "
            "with --privileged"
        )
    missing = [tool for tool in ("ip", "tc", *tools) if shutil.which(tool) is None]
    if missing:
        packages = " ".join(dict.fromkeys(TOOLS[tool] for tool in missing))
        raise OscarError(f"oscar lab needs {' and '.join(missing)}: apt-get install -y {packages}")


class HostNetwork:
    """`hosts` hosts at 10.77.0.1 and up; `with HostNetwork(4) as network:` removes all of it.

    One lab runs at a time: a second one is refused. What a killed lab left behind is removed. locked: the
    caller holds `one_lab` already. Raises OscarError without root or tools.
    """

    def __init__(self, hosts: int, *, congestion: str = "reno", locked: bool = False) -> None:
        if not 2 <= hosts <= 64:
            raise ValueError(f"expected 2 to 64 hosts, got {hosts}")
        self.hosts, self.congestion, self.locked = hosts, congestion, locked
        self._lock = ExitStack()
        self._relay: subprocess.Popen[str] | None = None

    def __enter__(self) -> HostNetwork:
        require_root()
        if not self.locked:
            self._lock.enter_context(one_lab())
        try:
            remove_all()
            self._build()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock, undisturbed():
            self._stop_relay()
            remove_all()

    def _build(self) -> None:
        bridge = f"{PREFIX}bridge"
        _ip("netns", "add", bridge)
        _ip("-n", bridge, "link", "add", "br0", "type", "bridge")
        _write(bridge, "/proc/sys/net/ipv6/conf/all/disable_ipv6", "1")  # nothing speaks unasked
        _ip("-n", bridge, "link", "set", "br0", "up")
        for host in range(self.hosts):
            name = namespace(host)
            _ip("netns", "add", name)
            _write(name, "/proc/sys/net/ipv6/conf/all/disable_ipv6", "1")
            _write(name, "/proc/sys/net/ipv4/tcp_congestion_control", self.congestion)
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("link", "add", DEVICE, "netns", name, "type", "veth",
                "peer", "name", f"port{host}", "netns", bridge)  # fmt: skip
            _ip("-n", bridge, "link", "set", f"port{host}", "master", "br0", "up")
            _ip("-n", name, "addr", "add", f"{address(host)}/24", "dev", DEVICE)
            _ip("-n", name, "link", "set", DEVICE, "up")

    def shape(self, rate_bps: float) -> None:
        """Limit every host's outgoing link to `rate_bps`, all headers included; counters start anew."""
        burst = max(MIN_BURST, int(rate_bps / 8 * BURST_S))
        for host in range(self.hosts):
            with contextlib.suppress(OscarError):  # there is none the first time
                _run("tc", "-n", namespace(host), "qdisc", "del", "dev", DEVICE, "root")
            _run(
                "tc", "-n", namespace(host), "qdisc", "add", "dev", DEVICE, "root",
                "tbf", "rate", f"{int(rate_bps)}bit", "burst", f"{burst}b", "latency", f"{QUEUE_MS}ms",
            )  # fmt: skip

    def segment(self) -> None:
        """Let TCP send one segment at a time, so that a lost packet is one segment; for new connections."""
        for host in range(self.hosts):
            _ip("-n", namespace(host), "link", "set", DEVICE, "gso_max_segs", "1")

    def lose(self, fraction: float) -> None:
        """Drop this fraction of the IP packets in the switch, at random, behind all links; 0 ends the loss.

        Raises OscarError without nft.
        """
        require_root("nft")
        rules = f"table bridge {TABLE} {{}}\ndelete table bridge {TABLE}\n"
        if fraction > 0:
            rules += LOSS_RULES.format(table=TABLE, parts=PARTS, lost=round(fraction * PARTS))
        _run(*_in_bridge("nft", "-f", "-"), said=rules)

    def delay(self, delay_ms: float) -> None:
        """Replace the bridge by a relay that delays each packet; for new connections.

        Raises OscarError where it does not come up.
        """
        self._stop_relay()
        self.segment()
        ports = [f"port{host}" for host in range(self.hosts)]
        for host, port in enumerate(ports):
            _ip("-n", f"{PREFIX}bridge", "link", "set", port, "nomaster")
            self._sum_in_software(host)
        words = [sys.executable, "-m", "oscar_lab.lab.relay", str(delay_ms), *ports]
        self._relay = subprocess.Popen(_in_bridge(*words), stdout=subprocess.PIPE, text=True)
        if self._relay.stdout is None or self._relay.stdout.readline() != "up\n":
            raise OscarError("the lab's relay, which delays packets, did not start; see what it said above")

    def _stop_relay(self) -> None:
        if self._relay is not None:
            self._relay.kill()
            self._relay.wait()
            if self._relay.stdout is not None:
                self._relay.stdout.close()
            self._relay = None

    def _sum_in_software(self, host: int) -> None:
        """Compute checksums in software: a veth leaves them out, and a relay passes packets as they are."""
        value = ctypes.create_string_buffer(struct.pack("II", ETHTOOL_STXCSUM, 0))
        request = struct.pack("16sP16x", DEVICE.encode(), ctypes.addressof(value))
        with self.socket(host) as place:
            fcntl.ioctl(place, SIOCETHTOOL, request)

    def losses(self) -> tuple[int, int]:
        """Return how many packets have reached the switch since `lose`, and how many of them it dropped."""
        text = _run(*_in_bridge("nft", "-j", "list", "counters"))
        counters = [entry["counter"] for entry in json.loads(text)["nftables"] if "counter" in entry]
        packets = {counter["name"]: int(counter["packets"]) for counter in counters}
        return packets.get("seen", 0), packets.get("lost", 0)

    def renew(self) -> None:
        """Make the network anew: earlier processes, connections, rates and cuts are gone."""
        self._stop_relay()
        remove_all()
        self._build()

    def tune(self, host: int, key: str, value: str) -> None:
        """Set a kernel parameter of a host, for example net/ipv4/tcp_retries2."""
        _write(namespace(host), f"/proc/sys/{key}", value)

    def pids(self) -> set[int]:
        """Return the processes on all hosts."""
        result = (_ip("netns", "pids", namespace(host)).split() for host in range(self.hosts))
        return {int(pid) for pids in result for pid in pids}

    def wires(self) -> list[LinkUse]:
        """Return what has left each host's link, by host."""
        result = []
        for host in range(self.hosts):
            text = _run("tc", "-n", namespace(host), "-s", "-j", "qdisc", "show", "dev", DEVICE)
            root = next(q for q in json.loads(text) if q.get("root"))
            result.append(LinkUse(int(root["bytes"]), int(root["packets"]), int(root["drops"])))
        return result

    def resent(self) -> list[int]:
        """Return how many segments TCP has retransmitted, by host."""
        return [_resent(namespace(host)) for host in range(self.hosts)]

    def command(self, host: int, words: list[str]) -> list[str]:
        """Return the command that runs `words` on a host."""
        return ["ip", "netns", "exec", namespace(host), *words]

    def socket(self, host: int) -> socket.socket:
        """Return a new TCP socket of a host, for use in this process."""

        def make() -> socket.socket:
            with open(f"/run/netns/{namespace(host)}") as place:
                libc = ctypes.CDLL(None, use_errno=True)
                if libc.setns(place.fileno(), CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), f"cannot enter {namespace(host)}")
            return socket.socket()

        with ThreadPoolExecutor(1) as thread:  # a thread enters a namespace for itself alone
            return thread.submit(make).result()


def namespace(host: int) -> str:
    """Return the name of a host's network namespace."""
    return f"{PREFIX}{host}"


def address(host: int) -> str:
    """Return a host's address."""
    return f"10.77.0.{host + 1}"


def cut(host: int) -> None:
    """Take a host off the switch, from any process of root's on this machine."""
    _ip("-n", f"{PREFIX}bridge", "link", "set", f"port{host}", "down")


def remove_all() -> None:
    """Remove the namespaces of all labs, and end the processes in them; what is already gone is no error."""
    listed = json.loads(_run("ip", "-j", "netns", "list") or "[]")
    for name in (entry["name"] for entry in listed):
        if not name.startswith(PREFIX):
            continue
        with contextlib.suppress(OscarError):
            for pid in _ip("netns", "pids", name).split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            _ip("netns", "del", name)


def _write(name: str, path: str, text: str) -> None:
    _ip("netns", "exec", name, "sh", "-c", f"test ! -e {path} || echo {text} > {path}")


def _resent(name: str) -> int:
    text = _ip("netns", "exec", name, "cat", "/proc/net/snmp")
    names, counts = (line.split() for line in text.splitlines() if line.startswith("Tcp:"))
    return int(counts[names.index("RetransSegs")])


def _in_bridge(*words: str) -> tuple[str, ...]:
    return "ip", "netns", "exec", f"{PREFIX}bridge", *words


def _ip(*words: str) -> str:
    return _run("ip", *words)


def _run(*words: str, said: str = "") -> str:
    """Return what a command prints; said: its standard input."""
    done: Any = subprocess.run(  # in a session of its own: Ctrl-C is not for it
        words, input=said, capture_output=True, text=True, check=False, start_new_session=True
    )
    if done.returncode != 0:
        raise OscarError(f"`{' '.join(words)}` failed: {' '.join(done.stderr.split())}")
    return str(done.stdout)
