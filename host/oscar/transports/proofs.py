"""How two ranks prove who they are: Diffie-Hellman values that all may read, then HMAC-SHA256 over nonces.

A rank publishes a public value and gives its exponent to nobody. Only the two ranks of a pair can compute the
pair's key, so nobody who reads the public values can take a rank's place. Who can replace them can: the
values are not signed (SECURITY.md). The group is number 14 of RFC 3526 (2048 bits), exponents have 256 bits.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from collections.abc import Generator, Mapping

PRIME = int(
    "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD"
    "EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED"
    "EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F"
    "83655D23DCA3AD961C62F356208552BB9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B"
    "E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF6955817183995497CEA956AE515D2261898FA0510"
    "15728E5A8AACAA68FFFFFFFFFFFFFFFF",
    16,
)
GENERATOR = 2
PUBLIC_BYTES = 256
EXPONENT_BITS = 256
NONCE_BYTES = 16
PROOF_BYTES = 32
CONTEXT = b"OSCAR ranks of a pair, 1\n"
DONE = b"!"  # who was called takes the connection
HELLO = struct.Struct(f"<{NONCE_BYTES}sI")  # nonce and rank of who calls

# What one end says: yields bytes to send and how many to await, is sent these, and returns the peer's rank.
Script = Generator[tuple[bytes, int], bytes, int]


class Exponent:
    """The secret of a rank in one meeting. public: what it publishes, in hexadecimal digits."""

    def __init__(self) -> None:
        self._exponent = secrets.randbits(EXPONENT_BITS)
        self._public = pow(GENERATOR, self._exponent, PRIME)
        self.public = self._public.to_bytes(PUBLIC_BYTES, "big").hex()

    def key(self, public: str) -> bytes:
        """Return the key of the pair with the rank that published `public`. Raises ValueError for no such."""
        theirs = int.from_bytes(bytes.fromhex(public), "big")
        if len(public) != 2 * PUBLIC_BYTES or not 1 < theirs < PRIME - 1:
            raise ValueError(
                f"expected a public value of {PUBLIC_BYTES} bytes in the group, got {public:.20}"
            )
        shared = pow(theirs, self._exponent, PRIME)
        values = (*sorted((self._public, theirs)), shared)
        return hashlib.sha256(
            CONTEXT + b"".join(value.to_bytes(PUBLIC_BYTES, "big") for value in values)
        ).digest()


def calling(key: bytes, peer: int, rank: int) -> Script:
    """Say what `rank` says when it calls `peer`. Raises ConnectionError for another who answers.

    Who was called acknowledges at last, so a caller is never alone in taking itself for connected.
    """
    nonce = secrets.token_bytes(NONCE_BYTES)
    answer = yield HELLO.pack(nonce, rank), NONCE_BYTES + PROOF_BYTES
    nonces = nonce + answer[:NONCE_BYTES]
    if not hmac.compare_digest(answer[NONCE_BYTES:], _proof(b"called", key, nonces)):
        raise ConnectionError("another process answers")
    done = yield _proof(b"caller", key, nonces), len(DONE)
    if done != DONE:
        raise ConnectionError("it sent no acknowledgement")
    return peer


def called(keys: Mapping[int, bytes]) -> Script:
    """Say what a rank says to a caller. keys: by rank that may call. Raises ConnectionError for others."""
    theirs, peer = HELLO.unpack((yield b"", HELLO.size))
    if peer not in keys:
        raise ConnectionError(f"rank {peer} does not call this rank")
    nonce = secrets.token_bytes(NONCE_BYTES)
    nonces = theirs + nonce
    proof = yield nonce + _proof(b"called", keys[peer], nonces), PROOF_BYTES
    if not hmac.compare_digest(proof, _proof(b"caller", keys[peer], nonces)):
        raise ConnectionError(f"it does not prove that it is rank {peer}")
    yield DONE, 0
    return int(peer)


def _proof(role: bytes, key: bytes, nonces: bytes) -> bytes:
    """Return what only the two ranks of a pair can say, in this role and to these nonces."""
    return hmac.digest(key, role + nonces, "sha256")
