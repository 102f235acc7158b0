"""Frames encrypted and authenticated (AES-256-GCM, extra secure) over any transport (docs/how-to/mpi-tcp.md).

All ranks have one key. At the start each sends a nonce of its own; the key of the session is derived from the
key and all nonces, so messages of an earlier run cannot be replayed. Within a session a message is
bound to its sender, receiver, tag and number between them. Its nonce is made of these and never sent, so a
message costs 16 bytes. Frames are compressed first; their lengths stay visible, as they are or padded.
"""

from __future__ import annotations

import binascii
import logging
import os
import re
import stat
import struct
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from oscar.errors import ConfigError, MissingExtraError, install
from oscar.transports import handshake
from oscar.transports.base import CONTROL_TAG, KEYED_CONTROL_TAG, Bytes, Notice, Transport, TransportError

LEAST_BYTES = 64  # bytes of the shortest padded message
MOST_BYTES = 1 << 40
LEAST_PERCENT, MOST_PERCENT = 1.0, 100.0
PAD_NEEDS_SECURITY = "who reads plain frames reads their sizes, too; set transport.security to aes-gcm"
_LENGTH = struct.Struct("<Q")  # in front of a padded message
KEY_BYTES = 32
KEY_VARIABLE = "OSCAR_KEY"
TAG_BYTES = 16
HELLO = b"OSCAR keyed 1\n"
SESSION_BYTES = 32  # of a rank's part of the session
INFO = b"OSCAR frames, AES-256-GCM, 1"
CHECK_BYTES = 8  # of what ranks compare before the first frame: it differs with the key, and reveals nothing
CHECK_INFO = b"OSCAR check value, 1"
LIKE_A_KEY = re.compile(r"[0-9a-fA-F]{32}")
LOCAL_RANKS = ("OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK")  # mpirun's and torchrun's variables
LOG = logging.getLogger("oscar.transports")
MAX_MESSAGES = 1 << 32  # under one key, by peer and tag: far more than are ever sent
_NONCE = struct.Struct(">HHHHI")  # sender, receiver, tag, 0, number


class Padding:
    """Pads messages by at most about `percent` per cent.

    percent: 0 for no padding, or 1 to 100. A larger value hides sizes better and costs more bytes. Raises
    ValueError for other values. A padded message is a u64 length, the message, and zeros. Its size is a step
    of a ladder: 64 bytes, then each step larger by `percent` per cent, rounded down, but at least by one
    byte. `plain_bytes` and `padded_total` sum the bytes of all messages before and after `pad`.
    """

    def __init__(self, percent: float) -> None:
        if percent and not LEAST_PERCENT <= percent <= MOST_PERCENT:
            raise ValueError(f"expected a pad of 0, or of 1 to 100 per cent, got {percent}")
        self.percent = percent
        self.plain_bytes = self.padded_total = 0
        self._rungs = [LEAST_BYTES] if percent else []  # sizes of padded messages
        while percent and self._rungs[-1] < MOST_BYTES:
            self._rungs.append(self._rungs[-1] + max(1, int(self._rungs[-1] * percent / 100)))
        self._room = bytearray()

    def padded_bytes(self, size: int) -> int:
        """Return the padded size in bytes of a message of `size` bytes; it never falls as `size` grows."""
        if not self.percent:
            return size
        return self._rungs[bisect_left(self._rungs, size + _LENGTH.size)]

    def pad(self, message: Bytes) -> Bytes:
        """Return the padded message, valid until the next call; without padding, `message` itself."""
        size, total = len(message), self.padded_bytes(len(message))
        self.plain_bytes += size
        self.padded_total += total
        if not self.percent:
            return message
        if total > len(self._room):
            self._room = bytearray(total)  # kept, so that pages stay mapped
        padded = memoryview(self._room)[:total]
        end = _LENGTH.size + size
        _LENGTH.pack_into(padded, 0, size)
        padded[_LENGTH.size : end] = message
        padded[end:] = bytes(total - end)
        return padded

    def unpad(self, padded: memoryview) -> memoryview:
        """Return the message in `padded`. Raises ValueError where `pad` did not make it."""
        if not self.percent:
            return padded
        if len(padded) < LEAST_BYTES:
            raise ValueError(f"expected {LEAST_BYTES} bytes at least, got {len(padded)}")
        (size,) = _LENGTH.unpack_from(padded)
        if size > len(padded) - _LENGTH.size:
            raise ValueError(f"it says that it has {size} bytes, and has {len(padded) - _LENGTH.size}")
        return padded[_LENGTH.size : _LENGTH.size + size]


class KeyedTransport(Transport):
    """`inner` with every message sealed under `key` (32 bytes, equal on all ranks); collective.

    pad: by how many per cent at most messages are lengthened before, so that their sizes tell less: 0, or 1
    to 100, equal on all ranks; `padding` counts what that costs. Raises ConfigError, on all ranks, where keys
    or pads differ, TransportError where a peer speaks without a key or dies, MissingExtraError without the
    package cryptography, ValueError for another length of key or another pad.
    """

    keyed = True

    def __init__(self, inner: Transport, key: bytes, *, pad: float = 0.0, timeout_s: float = 60.0) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"expected a key of {KEY_BYTES} bytes, got {len(key)}")
        self.inner, self._key, self._timeout_s = inner, key, timeout_s
        self.padding, self.pad = Padding(pad), pad
        self.can_survive = inner.can_survive
        self._aead, self._invalid = _session(inner, key, pad, timeout_s)
        self._sent: Counter[tuple[int, int]] = Counter()  # messages by (peer, tag)
        self._opened: Counter[tuple[int, int]] = Counter()
        super().__init__(inner.rank, inner.nodes, members=inner.members)

    def _wire_bytes(self, tag: int, size: int) -> int:
        return self.padding.padded_bytes(size) + TAG_BYTES

    def _seal(self, peer: int, tag: int, message: Bytes) -> tuple[Bytes, ...]:
        nonce = self._nonce(self.rank, peer, tag, self._sent)
        self._sent[peer, tag] += 1  # first: even after an interrupt, no number is used twice
        return (self._aead.encrypt(nonce, self.padding.pad(message), None),)

    def _open(self, peer: int, tag: int, arrived: memoryview) -> memoryview:
        try:
            plain = self._aead.decrypt(self._nonce(peer, self.rank, tag, self._opened), arrived, None)
        except self._invalid:
            self._refuse(peer, tag, len(arrived))
        self._opened[peer, tag] += 1
        try:
            return self.padding.unpad(memoryview(plain))
        except ValueError as error:
            text = f"a message of tag {tag} from rank {peer} is not padded as it should be ({error})"
            raise TransportError(text, peer=peer, kind="aborted", tag=tag) from None

    def _make_room(self, peer: int, tag: int, cap: int) -> None:
        self.inner._make_room(peer, _under_key(tag), cap)

    def _send(self, peer: int, tag: int, parts: tuple[Bytes, ...]) -> None:
        self.inner._send(peer, _under_key(tag), parts)

    def _arrived(self, peer: int, tag: int) -> memoryview | None:
        arrived = self.inner._arrived(peer, _under_key(tag))
        if arrived is None:
            self.dead.update(self.inner.dead)
        return arrived

    def _nonce(self, sender: int, receiver: int, tag: int, counter: Counter[tuple[int, int]]) -> bytes:
        peer = receiver if sender == self.rank else sender
        number = counter[peer, tag]
        if number >= MAX_MESSAGES:
            raise TransportError(
                "the key of this session is used up; start again", peer=peer, kind="aborted", tag=tag
            )
        return _NONCE.pack(sender, receiver, tag, 0, number)

    def _refuse(self, peer: int, tag: int, size: int) -> NoReturn:
        short = f"; it has {size} bytes, a seal alone {TAG_BYTES}" if size < TAG_BYTES else ""
        why = f"(changed, cut short or sent before{short}; do not trust this network)"
        raise TransportError(
            f"message {self._opened[peer, tag]} of tag {tag} from rank {peer} is not authentic {why}",
            peer=peer,
            kind="aborted",
            tag=tag,
        )

    def _unsent(self) -> list[tuple[int, int]]:
        unsent = self.inner._unsent()
        return [(peer, CONTROL_TAG if tag == KEYED_CONTROL_TAG else tag) for peer, tag in unsent]

    def _pause(self, tries: int) -> None:
        self.inner._pause(tries)

    def _glance(self) -> None:
        self.inner._glance()

    @property
    def closed(self) -> bool:
        return self.inner.closed

    def close(self) -> None:
        self.inner.close()

    def leave(self, status: int) -> NoReturn:
        self.inner.was_told |= self.was_told
        self.inner.leave(status)

    def survivors(self, timeout_s: float = 60.0) -> Transport:
        """See Transport.survivors; those that are left agree on a session of their own."""
        inner = self.inner.survivors(timeout_s)
        return KeyedTransport(inner, self._key, pad=self.pad, timeout_s=self._timeout_s)


def _under_key(tag: int) -> int:
    """Return the tag inside: plain control messages of the inner transport keep their own tag."""
    return KEYED_CONTROL_TAG if tag == CONTROL_TAG else tag


def _session(inner: Transport, key: bytes, pad: float, timeout_s: float) -> tuple[Any, type[Exception]]:
    """Return the cipher of a new session, and the exception that says that a message is not authentic."""
    try:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF
    except ImportError as error:
        raise MissingExtraError(
            f"security aes-gcm needs cryptography: {install('secure')} ({error})"
        ) from None
    mine = HELLO + os.urandom(SESSION_BYTES)
    with _telling(inner):
        deadline = time.monotonic() + timeout_s
        # Room for the greeting of a rank without a key, which must not end the process.
        parts = inner.gather(mine, handshake.CAP, deadline, "parts of the session's key")
    for rank, part in enumerate(parts):
        if not part.startswith(HELLO) or len(part) != len(mine):
            raise TransportError(
                f"rank {rank} speaks without a key; set transport.security alike on all ranks",
                peer=rank,
                kind="aborted",
            )
    derived = HKDF(SHA256(), KEY_BYTES, salt=b"".join(parts), info=INFO).derive(key)
    check = HKDF(SHA256(), CHECK_BYTES, salt=b"".join(parts), info=CHECK_INFO).derive(key)
    with _telling(inner):
        deadline = time.monotonic() + timeout_s  # a new one: parts may have come late
        pairs = {"check value": check.hex(), "transport.pad": float(pad)}
        advice = "start all ranks with the same key and the same transport.pad"
        handshake.compare(inner, pairs, deadline, "keys", advice=advice)
    return AESGCM(derived), InvalidTag


@contextmanager
def _telling(inner: Transport) -> Iterator[None]:
    """Tell the neighbours if a peer fails meanwhile."""
    try:
        yield
    except TransportError as error:
        inner.abort(error.notice or Notice(inner.rank, error.peer, -1, -1, str(error)))
        raise


def read_key(path: str | None) -> bytes:
    """Return the key in the file at `path`, or else in the variable OSCAR_KEY: 64 hexadecimal digits.

    Warns, once on each host, of a file that others may read. Raises ConfigError that says how to make one;
    never shows what it read, or a key that was given in the place of a path.
    """
    how = f"make one with `openssl rand -hex {KEY_BYTES}`, the same for all ranks"
    if path is None:
        text, where = os.environ.get(KEY_VARIABLE, ""), f"the environment's {KEY_VARIABLE}"
        if not text:
            raise ConfigError(f"expected a key in transport.key (a file) or in {where}; {how}")
    else:
        where = "transport.key (not shown, it looks like a key itself)" if LIKE_A_KEY.search(path) else path
        try:
            text = Path(path).read_text(encoding="ascii")
            others = os.stat(path).st_mode & (stat.S_IRGRP | stat.S_IROTH)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{where}: expected a file with a key, got {type(error).__name__}; {how}"
            ) from None
        # Of the ranks on a host one warns, as far as their launcher numbers them.
        if others and all(os.environ.get(name, "0") == "0" for name in LOCAL_RANKS):
            LOG.warning("%s: others can read this key; chmod 600 it", where)
    try:
        key = binascii.unhexlify(text.strip())
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigError(f"{where}: expected {2 * KEY_BYTES} hexadecimal digits, got something else; {how}")
    return key


def secured(
    transport: Transport, security: str, *, key: str | None, pad: float = 0.0, timeout_s: float = 60.0
) -> Transport:
    """Return `transport`, or, where `security` is aes-gcm, its keyed form.

    For `key` see `read_key`, for `pad` KeyedTransport. Raises ConfigError for a pad without security.
    """
    if security == "none":
        if pad:
            raise ConfigError(f"expected no pad without security, got {pad}: {PAD_NEEDS_SECURITY}")
        return transport
    return KeyedTransport(transport, read_key(key), pad=pad, timeout_s=timeout_s)
