"""One flow over each link, whose goodput must be what the rate allows before anything is measured."""

from __future__ import annotations

import math
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from oscar.errors import OscarError
from oscar_lab.lab.network import FRAME, GOODPUT, SEGMENT, HostNetwork, LinkUse, address

MESSAGES = 32  # small messages that every host sends and receives at once, to time one of them
FLOW_S = 0.8  # duration of a flow at the expected goodput
LEAST = 1 << 20  # bytes of the shortest flow
SETTLED = 0.2  # part of a flow that is not timed: the full bucket, and slow start
TRIES = 3
TIMEOUT_S = 30.0
PIECE = 1 << 16

ACKS = 66 / SEGMENT  # at most one acknowledgement of 66 bytes for a segment that came
LOSS = 0.01  # share of the segments that TCP may retransmit
MORE_ACK = 66 + 36  # bytes that acknowledge a segment out of order: they list what arrived
SIGMAS = 6  # standard deviations that a random count may be off
TOGETHER = 0.93  # share of the goodput that is left when every link carries acknowledgements too
LATE = 1.1, 1e-3  # the delay may be exceeded by this factor, and by these seconds of software
SPARE = 8192  # bytes of ARP, opening and closing


@dataclass(frozen=True)
class Flow:
    """Goodput of one link in bit/s, what was expected, and the bytes that the link's counter saw."""

    host: int
    goodput_bps: float
    expected_bps: float
    payload: int
    wire: LinkUse

    @property
    def error(self) -> float:
        """How far the goodput is off, as a fraction."""
        return self.goodput_bps / self.expected_bps - 1


def calibrate(network: HostNetwork, rate_bps: float, *, tolerance: float) -> list[Flow]:
    """Return a flow of each host to the next, the network shaped to `rate_bps`.

    Raises OscarError when a goodput is off by more than `tolerance` in all of `TRIES`, or the bytes on the
    wire do not fit what was sent.
    """
    return [_best(network, host, rate_bps, tolerance) for host in range(network.hosts)]


def calibrate_together(network: HostNetwork, rate_bps: float, *, tolerance: float) -> list[Flow]:
    """Return a flow of each host to the next, all at once; raises OscarError where one is too slow."""
    with ThreadPoolExecutor(network.hosts) as pool:
        flows = list(pool.map(lambda host: pour(network, host, rate_bps), range(network.hosts)))
    slowest = min(flows, key=lambda flow: flow.goodput_bps)
    if slowest.goodput_bps < (TOGETHER - tolerance) * slowest.expected_bps:
        raise OscarError(
            f"host {slowest.host}: {slowest.goodput_bps / 1e6:.2f} Mb/s with all links busy, "
            f"expected {TOGETHER:.0%} of {slowest.expected_bps / 1e6:.2f}: the relay cannot keep up; "
            "leave the machine alone, or ask for a lower rate"
        )
    return flows


def message_cost(seconds: float, latency_s: float) -> float:
    """Return the seconds that one small message takes a host, where `MESSAGES` took `seconds`."""
    return max(0.0, seconds - latency_s) / MESSAGES


def check_delay(latency_s: float, delay_s: float) -> None:
    """Raise OscarError unless the smallest message takes the configured delay, and little more."""
    factor, software_s = LATE
    if not delay_s <= latency_s <= delay_s * factor + software_s:
        raise OscarError(
            f"the smallest message takes {latency_s * 1e3:.2f} ms from host to host, expected "
            f"{delay_s * 1e3:g} ms and little more; leave the machine alone"
        )


def _best(network: HostNetwork, host: int, rate_bps: float, tolerance: float) -> Flow:
    for _ in range(TRIES):
        flow = pour(network, host, rate_bps)
        if abs(flow.error) <= tolerance:
            break
    else:
        raise OscarError(
            f"host {host}: one flow reaches {flow.goodput_bps / 1e6:.2f} Mb/s, expected "
            f"{flow.expected_bps / 1e6:.2f} within {tolerance:.1%}: nothing is measured on such a "
            "network; leave the machine alone, or ask for a lower rate"
        )
    check_wire(flow.payload, 0, flow.wire, messages=1, what=f"host {host}, one flow")
    return flow


def check_wire(
    sent: int, received: int, wire: LinkUse, *, messages: int, what: str, again: int = 0, again_all: int = 0
) -> None:
    """Raise OscarError unless the bytes that left a host fit the payload it sent and what it received.

    Each 1448 bytes of payload make a frame of 1514. received: bytes that the other hosts sent; this host may
    acknowledge each of their segments. A message adds up to 256 bytes: headers of the library, our own, and
    those of the short segment at its end. This finds a transport that bypasses the wire, and traffic that
    nobody counted. again, again_all: segments that TCP retransmitted, on this host and on all hosts.
    """
    low = sent * (FRAME / SEGMENT) - 1
    high = (sent + 256 * messages) * (1 + LOSS) * FRAME / SEGMENT + ACKS * received + SPARE
    high += again * FRAME + again_all * MORE_ACK
    if not low <= wire.sent <= high:
        raise OscarError(
            f"{what}: {wire.sent:,} bytes left its link, {sent:,} bytes were sent, which makes {low:,.0f} "
            f"to {high:,.0f} with headers: what was measured did not go over this wire alone"
        )


def check_loss(seen: int, lost: int, fraction: float) -> None:
    """Raise OscarError unless `lost` of `seen` packets fits a random loss of this fraction."""
    expected = seen * fraction
    if abs(lost - expected) > SIGMAS * math.sqrt(expected) + 1:
        raise OscarError(
            f"the switch dropped {lost:,} of {seen:,} packets, expected about {expected:,.0f}: "
            f"a loss of {fraction:g} was asked for"
        )


def pour(network: HostNetwork, host: int, rate_bps: float) -> Flow:
    """Send for about `FLOW_S` from `host` to the next one; return the goodput that the receiver measured."""
    expected = rate_bps * GOODPUT
    total = max(LEAST, int(expected / 8 * FLOW_S))
    before = network.wires()[host]
    with network.socket((host + 1) % network.hosts) as server, network.socket(host) as sender:
        server.bind((address((host + 1) % network.hosts), 0))
        server.listen(1)
        server.settimeout(TIMEOUT_S)
        sender.settimeout(TIMEOUT_S)
        sender.connect(server.getsockname())
        receiver, _ = server.accept()
        with receiver:
            receiver.settimeout(TIMEOUT_S)
            thread = threading.Thread(target=_send, args=(sender, total), daemon=True)
            thread.start()
            goodput = _receive(receiver, total)
            thread.join(TIMEOUT_S)
    return Flow(host, goodput, expected, total, network.wires()[host] - before)


def _send(sender: socket.socket, total: int) -> None:
    piece = bytes(PIECE)
    while total > 0:
        total -= sender.send(piece[:total])


def _receive(receiver: socket.socket, total: int) -> float:
    """Return the goodput in bit/s between the settled point and the last byte."""
    got, room = 0, bytearray(4 * PIECE)
    start, mark = 0.0, 0
    while got < total:
        count = receiver.recv_into(room)
        if count == 0:
            raise OscarError(f"a flow ended after {got} of {total} bytes")
        got += count
        if not mark and got >= SETTLED * total:
            start, mark = time.perf_counter(), got
    return (got - mark) * 8 / (time.perf_counter() - start)
