"""Under which addresses ranks reach each other."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

DEVICES = "GLOO_SOCKET_IFNAME"  # the variable that names the network device, as for Gloo
MASTER = "MASTER_ADDR"  # torchrun's variable
BACKLOG = 512  # calls that the kernel keeps until this rank takes them
SIOCGIFADDR = 0x8915


def listener() -> socket.socket:
    """Return a socket that listens at a free port of all addresses."""
    with suppress(OSError):
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG)
    return socket.create_server(("", 0), backlog=BACKLOG)


def addresses() -> list[str]:
    """Return addresses under which peers may reach this rank, the likeliest first."""
    named = [address for name in os.environ.get(DEVICES, "").split(",") if (address := _of_device(name))]
    if not named:
        with suppress(OSError, KeyError):  # of the device on the way to the rank that all ranks reach
            info = socket.getaddrinfo(os.environ[MASTER], 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(info[0], socket.SOCK_DGRAM) as probe:
                probe.connect(info[4])  # sends nothing
                named.append(probe.getsockname()[0])
        with suppress(OSError):
            named.append(socket.gethostbyname(socket.gethostname()))
        named.append("127.0.0.1")
    return [*dict.fromkeys(named)]


def resolved(name: str | None) -> list[str]:
    """Return the numeric addresses of a host, none where it is not known; may ask the network."""
    numeric = list[str]()
    with suppress(OSError):
        for info in socket.getaddrinfo(name, 9, type=socket.SOCK_STREAM) if name else ():
            numeric.append(socket.getnameinfo(info[4], socket.NI_NUMERICHOST)[0])
    return numeric


def places(names: Sequence[str], port: int) -> list[tuple[int, Any]]:
    """Return family and socket address of numeric addresses, each once."""
    several: dict[tuple[int, Any], None] = {}
    for name in names:
        with suppress(OSError):
            for info in socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST):
                several[info[0], info[4]] = None
    return [*several]


def _of_device(name: str) -> str | None:
    """Return the IPv4 address of a network device, or None."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        asked = struct.pack("256s", name.strip().encode()[:15])
        return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), SIOCGIFADDR, asked)[20:24])
    return None
