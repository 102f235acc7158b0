"""What `oscar trial flips` runs on every rank: small exchanges of every kind, in which one bit is flipped."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from oscar.checkpoint import digest
from oscar.config import Config
from oscar.errors import OscarError
from oscar.reducers.communicator import Communicator
from oscar.schemes.registry import is_scheme
from oscar.transports.base import CONTROL_TAGS, GATHER_TAGS, STATE_TAG, Bytes, Transport
from oscar.transports.keyed import KEY_BYTES, KeyedTransport
from oscar.transports.threads import local_transports
from oscar_lab.trials._ranks import config_of, laplace

RANKS = 3
TIMEOUT_S = 5.0
SHORT_S = 0.3  # timeout of a play with a late rank: the others have to send signs of life
LATE_S = 0.2
HANG_S = 60.0  # a case may take this long
START_S = 120.0  # the first case, which loads kernels
TRIES = 5
KEY = bytes(range(KEY_BYTES))
SHAPES = ((13, 5), (), (31,))

Did = tuple[str, str]  # "done", "told" or "raised"; a digest, or the error's text
Case = tuple[str, int, str, tuple[int, int, int]]  # play, rank, kind of message, (message, byte, bit)


@dataclass(frozen=True)
class Play:
    """An exchange by a codec or a scheme. spoilt: rank 1's last gradient has NaN; late: rank 1 comes late."""

    config: Config
    spoilt: bool = False
    late: bool = False

    @property
    def scheme(self) -> bool:
        """Whether its method is a scheme, which needs the extra torch."""
        return is_scheme(self.config.method)

    @property
    def control(self) -> bool:
        """Whether bits of control messages are flipped, and of no others; other plays send none."""
        return self.spoilt or self.late


def _codec(codec: str, schedule: str = "ring", name: str = "equal") -> Config:
    return config_of(codec, schedule, plan={"name": name, "granule": 8})


def _scheme(name: str, **options: Any) -> Config:
    return Config(method=name, scheme=options)


PLAYS: dict[str, Play] = {
    "asc": Play(_codec("asc", "boomerang", "splitter")),
    "asc duplex": Play(_codec("asc", "duplex", "snake")),
    "asc ring": Play(_codec("asc")),
    "asc direct": Play(_codec("asc", "direct")),
    "fp32": Play(_codec("fp32")),
    "bf16": Play(_codec("bf16")),
    "int16": Play(_codec("int16", "boomerang")),
    "int8": Play(_codec("int8")),
    "notice": Play(_codec("asc", "boomerang"), spoilt=True),
    "sign of life": Play(_codec("asc", "boomerang"), late=True),
    "oscar-sw": Play(_scheme("oscar-sw")),
    "oscar-sw coded": Play(_scheme("oscar-sw", coded=True)),
    "lhc": Play(_scheme("lhc")),
    "s2 gathered": Play(_scheme("s2-reducer", index="gather")),
    "powersgd": Play(_scheme("powersgd")),
}


def run_play(play: Play, transport: Transport) -> str:
    """Run a play on one rank; return a digest of its means, messages and state, or raise the rank's error."""
    timeout_s = SHORT_S if play.late else TIMEOUT_S
    config = play.config.variant(transport={"timeout_s": timeout_s, "survive": False})
    communicator = Communicator(config, transport, timeout_s=timeout_s)
    means = []
    for iteration in range(2):
        given = laplace([transport.rank, iteration], SHAPES)
        if iteration and transport.rank == 1:
            if play.spoilt:
                given[0][0, 0] = np.nan
            time.sleep(LATE_S if play.late else 0)
        means.append(communicator.allreduce(given).mean)
    told = communicator.gather(f"rank {transport.rank} is done".encode(), 32)
    transport.part(time.monotonic() + timeout_s)
    return digest({"means": means, "told": told, "state": communicator.state_dict()})


class Tap:
    """Sits where a rank's messages reach the wire: lists them, and flips one bit of one of them.

    at: (number of the message, byte, bit) or None. control: tap control messages, else all others.
    """

    def __init__(self, wire: Transport, *, control: bool, at: tuple[int, int, int] | None = None) -> None:
        self.control, self.at = control, at
        self.messages: list[tuple[str, int]] = []  # kind and bytes of each
        self._what = "control"
        name = "_put" if hasattr(wire, "_put") else "_send"  # the heads of TCP messages are on the wire, too
        self._forward = getattr(wire, name)
        setattr(wire, name, self._tapped)

    def listen(self, transport: Transport) -> None:
        """Learn from the outermost transport what each message is about."""
        circulate = transport.circulate

        def named(hops: int, cap: int, deadline: float, what: str, give: Any, keep: Any) -> None:
            self._what = what
            circulate(hops, cap, deadline, what, give, keep)

        transport.circulate = named  # type: ignore[method-assign]

    def _tapped(self, peer: int, tag: int, parts: tuple[Bytes, ...]) -> None:
        if (tag in CONTROL_TAGS) != self.control:
            self._forward(peer, tag, parts)
            return
        message = bytearray().join(parts)
        if self.at is not None and self.at[0] == len(self.messages):
            message[self.at[1]] ^= 1 << self.at[2]
        self.messages.append((self._kind(tag), len(message)))
        self._forward(peer, tag, (bytes(message),))

    def _kind(self, tag: int) -> str:
        if tag in CONTROL_TAGS:
            return "control"
        if tag == STATE_TAG:
            return "state digests"
        return self._what if tag >= GATHER_TAGS[0] else "frame"


def outcome(play: Play, transport: Transport) -> Did:
    """Run a play; return ("done", digest), ("told", text) of an OscarError that names a rank, or "raised"."""
    try:
        return "done", run_play(play, transport)
    except OscarError as error:
        return "told" if re.search(r"(rank|node) \d", str(error)) else "raised", f"{error}"
    except Exception as error:
        return "raised", f"{type(error).__name__}: {error}"


def judge(calm: list[Did], came: list[Did]) -> str:
    """Compare what all ranks did with what they do undisturbed; return "told", "harmless" or "wrong".

    Wrong are: another result on any rank, even where others raise; an error that is no OscarError or names no
    rank; a rank that does not raise where it raises undisturbed.
    """
    for (how, text), (kind, result) in zip(calm, came, strict=True):
        if kind == "raised" or (kind == "done" and (how != "done" or result != text)):
            return "wrong"
    if [kind for kind, _ in came] == [kind for kind, _ in calm]:
        return "harmless" if calm[0][0] == "done" or calm == came else "told"
    return "told"


def exchange(
    pool: ThreadPoolExecutor, play: Play, where: str, case: Case | None, limit_s: float = HANG_S
) -> tuple[list[Did], list[Tap]]:
    """Run a play between threads, one bit flipped; return what each rank did, and its tap.

    where: "threads", or "keyed" for keyed ones. Raises TimeoutError where a rank hangs.
    """
    ends = local_transports(RANKS)
    taps = [
        Tap(end, control=play.control, at=None if case is None or case[1] != end.rank else case[3])
        for end in ends
    ]

    def work(rank: int) -> Did:
        taps[rank].listen(ends[rank])
        try:
            transport: Transport = ends[rank]
            if where == "keyed":
                transport = KeyedTransport(transport, KEY, timeout_s=TIMEOUT_S)
                taps[rank].listen(transport)
        except Exception as error:
            return "told" if "rank" in str(error) else "raised", str(error)
        return outcome(play, transport)

    stop = time.monotonic() + limit_s
    running = [pool.submit(work, rank) for rank in range(RANKS)]
    return [one.result(max(0.0, stop - time.monotonic())) for one in running], taps


def undisturbed(pool: ThreadPoolExecutor, play: Play, where: str) -> tuple[list[Did], list[Tap]]:
    """Run a play without a flip, once its kernels are loaded; again where a busy machine made a rank late."""
    exchange(pool, play, where, None, START_S)
    for _ in range(TRIES):
        calm, taps = exchange(pool, play, where, None, START_S)
        if all(kind == ("told" if play.spoilt else "done") for kind, _ in calm):
            return calm, taps
    raise OscarError(f"an undisturbed run fails: {calm}")
