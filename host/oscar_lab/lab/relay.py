"""A switch that delays each packet by a given time: `python -m oscar_lab.lab.relay DELAY_MS PORT...`.

It runs in the namespace of the switch, in place of the bridge. Kernels without netem cannot delay packets;
this relay does, with packet sockets and a compiled loop, and with real-time priority where that is allowed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types

from oscar.kernels import njit

SLOTS = 8192  # packets that may be under way from one host; more wait in its socket
ROOM = 2048  # bytes of a packet at most
BATCH = 64  # packets of a system call
NAP_NS = 50_000
IDLE_MS = 100
SOCKET_BYTES = 8 << 20
SOL_PACKET, PACKET_IGNORE_OUTGOING, ETH_P_ALL = 263, 23, 3
PR_SET_PDEATHSIG, PR_SET_TIMERSLACK, SO_RCVBUFFORCE = 1, 29, 33
MSG_DONTWAIT, POLLIN = 0x40, 1
CLOCK_MONOTONIC = 1
GROUP = 1  # the multicast bit, in the first byte of an address

_word, _int = types.uintp, types.int32
_recvmmsg = types.ExternalFunction("recvmmsg", _int(_int, _word, types.uint32, _int, _word))
_sendmmsg = types.ExternalFunction("sendmmsg", _int(_int, _word, types.uint32, _int))
_poll = types.ExternalFunction("poll", _int(_word, types.uint64, _int))
_nanosleep = types.ExternalFunction("nanosleep", _int(_word, _word))
_clock_gettime = types.ExternalFunction("clock_gettime", _int(_int, _word))


class DelayLine(NamedTuple):
    """Packets under way from each port: uint8 [port, slot, ROOM], lengths and times of leaving in ns."""

    packets: Any
    lengths: Any
    due: Any


class PacketBatch(NamedTuple):
    """Arguments of a system call for many packets: struct mmsghdr [BATCH] and their struct iovec [BATCH]."""

    headers: Any
    vectors: Any


@njit(cache=True)
def _now(moment: Any) -> Any:
    _clock_gettime(CLOCK_MONOTONIC, moment.ctypes.data)
    return moment[0] * 1_000_000_000 + moment[1]


@njit(cache=True)
def _address(packet: Any, at: int) -> Any:
    value = np.int64(0)
    for byte in packet[at : at + 6]:
        value = (value << 8) | byte
    return value


@njit(cache=True)
def _take(
    fd: int, port: int, head: int, tail: int, ring: DelayLine, call: PacketBatch, known: Any, when: int
) -> int:
    """Receive what has arrived, as far as there is room; return the new head. known: [port] addresses."""
    count = min(BATCH, SLOTS - (head - tail), SLOTS - head % SLOTS)
    for i in range(count):
        call.vectors[i, 0] = ring.packets[port, (head + i) % SLOTS].ctypes.data
        call.vectors[i, 1] = ROOM
    got = _recvmmsg(fd, call.headers.ctypes.data, count, MSG_DONTWAIT, 0) if count > 0 else 0
    for i in range(got):
        slot = (head + i) % SLOTS
        ring.lengths[port, slot] = call.headers[i, 7] & 0xFFFFFFFF
        ring.due[port, slot] = when
        known[port] = _address(ring.packets[port, slot], 6)
    return head + max(got, 0)


@njit(cache=True)
def _give(
    fd: int, out: int, port: int, low: int, high: int, ring: DelayLine, call: PacketBatch, known: Any
) -> None:
    """Send those of the packets low .. high of `port` that are for `out`, for all, or for no known port."""
    count = 0
    for at in range(low, high):
        packet = ring.packets[port, at % SLOTS]
        target = _address(packet, 0)
        if target == known[out] or packet[0] & GROUP or not np.any(known == target):
            call.vectors[count, 0] = packet.ctypes.data
            call.vectors[count, 1] = ring.lengths[port, at % SLOTS]
            count += 1
        if count == BATCH or (at == high - 1 and count > 0):
            sent = 0
            while sent < count:
                some = _sendmmsg(fd, call.headers.ctypes.data + 64 * sent, count - sent, 0)
                sent += max(some, 1)  # one that cannot be sent is lost, as on any switch
            count = 0


@njit(cache=True)
def _serve(fds: Any, delay_ns: int, ring: DelayLine, call: PacketBatch, polled: Any) -> None:
    """Move packets for ever."""
    ports = len(fds)
    heads, tails = np.zeros(ports, np.int64), np.zeros(ports, np.int64)
    known = np.full(ports, -1, np.int64)
    moment, nap = np.zeros(2, np.int64), np.array([0, NAP_NS], np.int64)
    while True:
        moved = False
        when = _now(moment) + delay_ns
        for port in range(ports):
            head = _take(fds[port], port, heads[port], tails[port], ring, call, known, when)
            moved |= head != heads[port]
            heads[port] = head
        now = _now(moment)
        for port in range(ports):
            until = tails[port]
            while until < heads[port] and ring.due[port, until % SLOTS] <= now:
                until += 1
            for out in range(ports):
                if out != port:
                    _give(fds[out], out, port, tails[port], until, ring, call, known)
            moved |= until != tails[port]
            tails[port] = until
        if not moved and (heads == tails).all():
            _poll(polled.ctypes.data, ports, IDLE_MS)
        elif not moved:
            _nanosleep(nap.ctypes.data, 0)


def open_port(name: str) -> socket.socket:
    """Return a socket for all packets that come to a device, and none that leave it."""
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    port.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, SOCKET_BYTES)
    port.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    port.bind((name, ETH_P_ALL))
    return port


def main() -> None:
    """Relay until killed; says "up" when packets move."""
    delay_ns, ports = int(float(sys.argv[1]) * 1e6), [open_port(name) for name in sys.argv[2:]]
    fds = np.array([port.fileno() for port in ports], np.int32)
    shape = (len(ports), SLOTS)
    ring = DelayLine(np.zeros((*shape, ROOM), np.uint8), np.zeros(shape, np.int64), np.zeros(shape, np.int64))
    call = PacketBatch(np.zeros((BATCH, 8), np.uint64), np.zeros((BATCH, 2), np.uint64))
    call.headers[:, 2] = call.vectors.ctypes.data + 16 * np.arange(BATCH)  # msg_iov
    call.headers[:, 3] = 1  # msg_iovlen
    polled = np.zeros((len(ports), 2), np.int32)  # struct pollfd: the file, and what it is polled for
    polled[:, 0], polled[:, 1] = fds, POLLIN
    arguments = (fds, delay_ns, ring, call, polled)
    _serve.compile(tuple(numba.typeof(argument) for argument in arguments))
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # with whoever started it
    libc.prctl(PR_SET_TIMERSLACK, 1)
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    print("up", flush=True)
    _serve(*arguments)


if __name__ == "__main__":
    main()
