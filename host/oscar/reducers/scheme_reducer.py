"""What reduces a bucket: a codec around the ring, or a scheme over rings of its messages; state by bucket."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from oscar.array import Array
from oscar.coding.registry import asc_codec
from oscar.config import Config
from oscar.numerics.saturation import Saturation, SaturationNotice
from oscar.numerics.tensors import check_tensors
from oscar.reducers.communicator import Communicator
from oscar.reducers.remote_wire import Party, RemoteWire
from oscar.reducers.scheme_cluster import CautionNotice, scheme_fingerprint
from oscar.schemes.base import ADVICE, Scheme, Worker
from oscar.schemes.registry import SCHEMES, make_scheme
from oscar.state import Saved, crc
from oscar.transports import handshake
from oscar.transports.base import Transport


class Reducer(ABC):
    """The mean over all ranks of one rank's tensors; collective, one thread, state under a key per bucket.

    `sent_bytes` grows by what this rank sends, `clipped` by its values that saturated; `clipped_energy` is
    the largest share of a bucket's energy that they took so far. A call that raises is the last one.
    `communicator` is for what ranks have to agree on beside.
    """

    communicator: Communicator
    sent_bytes = 0
    clipped = 0
    clipped_energy = 0.0

    @abstractmethod
    def allreduce(self, tensors: Sequence[Array], key: Hashable) -> list[Array]:
        """Return the mean [tensor] of `tensors` (float32, never written to), the same bits on all ranks."""

    @abstractmethod
    def forget(self) -> None:
        """Drop the state of all buckets; on all ranks."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return a copy of this rank's state of all buckets."""

    @abstractmethod
    def load_state_dict(self, state: Any) -> None:
        """Take over what `state_dict` returned; raises ConfigError, and changes nothing, where it is none."""


class CodecReducer(Reducer):
    """Coded frames around a ring: `Communicator`, a state per bucket."""

    def __init__(self, config: Config, transport: Transport, extra: Mapping[str, Any]) -> None:
        self.communicator = Communicator(
            config, transport, timeout_s=config.transport.timeout_s, extra=dict(extra)
        )

    def allreduce(self, tensors: Sequence[Array], key: Hashable) -> list[Array]:
        """See Reducer.allreduce."""
        result = self.communicator.allreduce(tensors, key=key)
        self.sent_bytes += result.stats.sent_bytes
        self.clipped += result.stats.clipped
        self.clipped_energy = max(self.clipped_energy, result.stats.clipped_energy)
        return result.mean

    def forget(self) -> None:
        """See Reducer.forget."""
        self.communicator.forget()

    def state_dict(self) -> dict[str, Any]:
        """See Reducer.state_dict."""
        return self.communicator.state_dict()

    def load_state_dict(self, state: Any) -> None:
        """See Reducer.load_state_dict."""
        self.communicator.load_state_dict(state)


class _Bucket:
    """One bucket's scheme, its worker, its coded links, and what its last call lost for good."""

    def __init__(self, scheme: Scheme, worker: Worker, wire: RemoteWire) -> None:
        self.scheme, self.worker, self.wire = scheme, worker, wire
        self.lost = Saturation()


class SchemeReducer(Reducer):
    """A scheme per bucket over rings of its messages."""

    def __init__(self, config: Config, transport: Transport, extra: Mapping[str, Any]) -> None:
        self.config, self.transport = config, transport
        self.codec = asc_codec(config.asc_params())
        self._buckets: dict[Hashable, _Bucket] = {}
        self.notice, self.caution = SaturationNotice(), CautionNotice()
        options = handshake.flatten(config.scheme, "scheme")
        self.communicator = self.party = Party(
            config,
            transport,
            timeout_s=config.transport.timeout_s,
            codec=self.codec,
            extra={"codec": config.method, **options, **extra},
        )

    def allreduce(self, tensors: Sequence[Array], key: Hashable) -> list[Array]:
        """See Reducer.allreduce."""
        try:
            mean = self._attempt(tensors, key)
        except BaseException as error:
            self.party.give_up(error)
            raise
        self._warn(self._buckets[key])  # where that is an error the call has happened, as on other ranks
        return mean

    def _warn(self, bucket: _Bucket) -> None:
        if self.transport.rank == 0:
            self.caution.tell(bucket.scheme)
        if not bucket.scheme.clips:
            self.notice.tell({bucket.worker.rank: bucket.lost}, ADVICE)

    def _attempt(self, tensors: Sequence[Array], key: Hashable) -> list[Array]:
        flat = check_tensors(tensors, self.transport.rank)
        shapes = [np.shape(tensor) for tensor in tensors]
        bucket = self._bucket(key, shapes)
        scheme, worker, wire = bucket.scheme, bucket.worker, bucket.wire
        self.party.check_state({part: crc(held) for part, held in scheme.state_dict().items()})
        before = wire.sent_bytes
        try:
            totals = self._exchange(bucket, np.concatenate(flat))
            mean = scheme.finish(totals)
        finally:
            scheme.forget()
        bucket.lost = worker.unreturned
        worker.commit()
        self.sent_bytes += wire.sent_bytes - before
        self.clipped += worker.saturation.values
        self.clipped_energy = max(self.clipped_energy, worker.saturation.energy)
        bounds = scheme.offsets
        return [mean[bounds[t] : bounds[t + 1]].reshape(shape) for t, shape in enumerate(shapes)]

    def _exchange(self, bucket: _Bucket, values: Array) -> list[Array]:
        """Run this rank's generator to its end; return every combined message."""
        running = bucket.scheme.messages(bucket.worker, values)
        totals: list[Array] = []
        try:
            message = next(running)
            while True:
                totals.append(bucket.wire.combine(message))
                message = running.send(totals[-1])
        except StopIteration:
            return totals

    def _bucket(self, key: Hashable, shapes: list[tuple[int, ...]]) -> _Bucket:
        found = self._buckets.get(key)
        if found is None or found.scheme.shapes != shapes:
            described = {f"tensor {index}": list(shape) for index, shape in enumerate(shapes)}
            pairs = {"key": str(key), "tensors": len(shapes), **described}
            self.party.agree(pairs, "shapes", advice="run one model on all ranks")
            found = self._buckets[key] = self._make(shapes)
        return found

    def _make(self, shapes: list[tuple[int, ...]]) -> _Bucket:
        c, nodes = self.config, self.transport.nodes
        scheme = make_scheme(c.method, c.scheme, shapes=shapes, nodes=nodes, seed=c.seed)
        wire = RemoteWire(
            self.party,
            codec=self.codec,
            plan=c.plan.name,
            granule=c.plan.granule,
            channels=scheme.coded_channels(),
        )
        return _Bucket(scheme, Worker(self.transport.rank, scheme.values), wire)

    def forget(self) -> None:
        """See Reducer.forget."""
        self._buckets.clear()

    @property
    def _fingerprint(self) -> str:
        return scheme_fingerprint(self.config)

    def state_dict(self) -> dict[str, Any]:
        """See Reducer.state_dict."""
        return {
            "fingerprint": self._fingerprint,
            "rank": self.transport.rank,
            "nodes": self.transport.nodes,
            "buckets": {
                key: {
                    "shapes": list(bucket.scheme.shapes),
                    "scheme": bucket.scheme.state_dict(),
                    "worker": bucket.worker.state_dict(),
                    "links": bucket.wire.state_dict(),
                }
                for key, bucket in self._buckets.items()
            },
        }

    def load_state_dict(self, state: Any) -> None:
        """See Reducer.load_state_dict."""
        saved = Saved.of(state)
        saved.fits("fingerprint", self._fingerprint)
        saved.fits("rank", self.transport.rank)
        saved.fits("nodes", self.transport.nodes)
        fresh, buckets = {}, saved["buckets"]
        for key in buckets.keys(lambda _: True, "any"):
            own = buckets[key]
            with own["shapes"].fitting():
                bucket = fresh[key] = self._make(own["shapes"].shapes())
            bucket.scheme.load_state_dict(own["scheme"])
            bucket.worker.load_state_dict(own["worker"])
            bucket.wire.load_state_dict(own["links"])
        self._buckets = fresh


def make_reducer(config: Config, transport: Transport, extra: Mapping[str, Any]) -> Reducer:
    """Return what `config.method` asks for, over all ranks of `transport`; collective: ranks compare."""
    if config.method in SCHEMES:
        return SchemeReducer(config, transport, extra)
    return CodecReducer(config, transport, extra)
