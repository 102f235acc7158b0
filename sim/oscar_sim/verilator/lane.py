"""A lane of converted RTL: frames' payloads and values in and out of NumPy arrays."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import numpy as np

from oscar_hdl.nic_lane import STROBES
from oscar_hdl.params import LaneParams
from oscar_sim.lane import NO_STRESS, LinkTables, Outcome, RtlError, Stress, check_width
from oscar_sim.verilator.build import build

HARNESS = Path(__file__).with_name("lane.cpp")
STATUS = ("done", "limit", "reset", "overrun", "unstable", "misframed", "unsaved")  # enum Status of lane.cpp


_ARRAYS = ("classes", "local", "payload", "dec_hist", "enc_hist")
_RESULTS = ("sums", "out", "dec_hist_out", "enc_hist_out")


class _Job(ctypes.Structure):
    _fields_ = [  # mirrors struct Job of lane.cpp
        *((name, ctypes.c_uint32) for name in ("decode", "add", "encode", "count")),
        *((name, ctypes.c_uint32) for name in ("dec_fresh", "dec_width", "dec_shift", "dec_words")),
        *((name, ctypes.c_uint32) for name in ("enc_fresh", "enc_width", "enc_shift", "out_cap")),
        *((name, ctypes.c_void_p) for name in (*_ARRAYS, *_RESULTS)),
        *((name, ctypes.c_uint64) for name in ("clocks", "first_clock", "last_clock")),
        *((name, ctypes.c_uint32) for name in ("out_words", "dec_error", "dec_new_shift", "enc_new_shift")),
        *((name, ctypes.c_uint32) for name in ("redos", "sums_taken")),
        ("strobes", ctypes.c_uint64 * len(STROBES)),
        *((name, ctypes.c_uint32) for name in ("idle", "busy")),
        ("seed", ctypes.c_uint64),
        ("reset_at", ctypes.c_int64),
        ("limit", ctypes.c_uint64),
    ]


@cache
def _library(params: LaneParams) -> ctypes.CDLL:
    library = ctypes.CDLL(
        str(
            build(
                "nic_lane", {"block_log2": params.block_log2, "width_max": params.width_max}, harness=HARNESS
            ).library
        )
    )
    library.lane_new.restype = ctypes.c_void_p
    library.lane_delete.argtypes = [ctypes.c_void_p]
    library.lane_run.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Job)]
    return library


def _pad(array: np.ndarray | None, dtype: type, size: int) -> np.ndarray:
    out = np.zeros(max(size, 1), dtype)
    if array is not None:
        out[: array.size] = array
    return out


class VerilatedLane:
    """One nic_lane of `params`; not to be shared between threads."""

    def __init__(self, params: LaneParams) -> None:
        self.params = params
        self._lib = _library(params)
        self._handle = self._lib.lane_new()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._lib.lane_delete(self._handle)
            self._handle = None

    def run(
        self,
        classes: np.ndarray,
        *,
        local: np.ndarray | None = None,
        payload: bytes | None = None,
        decoder: LinkTables | None = None,
        encoder: LinkTables | None = None,
        dec_width: int = 16,
        enc_width: int = 16,
        stress: Stress = NO_STRESS,
    ) -> Outcome:
        """See oscar_sim.lane.Lane."""
        check_width(self.params, encoder, enc_width)
        count, words = classes.size, 0 if payload is None else len(payload) // 2
        room = 3 * (count // 512 + 2) + 3 * count + 64
        arrays = {
            "classes": _pad(classes, np.uint8, count),
            "local": _pad(local, np.int16, count),
            "payload": np.frombuffer(bytes(payload or b"") + b"\0\0", np.uint16).copy(),
            "sums": np.zeros(max(count, 1), np.int16),
            "out": np.zeros(room, np.uint16),
            "dec_hist": _pad(None if decoder is None else decoder.hist, np.uint16, 256),
            "enc_hist": _pad(None if encoder is None else encoder.hist, np.uint16, 256),
            "dec_hist_out": np.zeros(256, np.uint16),
            "enc_hist_out": np.zeros(256, np.uint16),
        }
        job = _Job(
            decode=decoder is not None, add=decoder is not None and local is not None,
            encode=encoder is not None, count=count, dec_width=dec_width, enc_width=enc_width,
            dec_words=words, out_cap=room, idle=int(stress.idle * 65536), busy=int(stress.busy * 65536),
            seed=stress.seed, limit=200 * count + 200_000,
        )  # fmt: skip
        job.reset_at = -1 if stress.reset_at is None else stress.reset_at
        if decoder is not None:
            job.dec_fresh, job.dec_shift = decoder.fresh, decoder.shift
        if encoder is not None:
            job.enc_fresh, job.enc_shift = encoder.fresh, encoder.shift
        for name, array in arrays.items():
            setattr(job, name, array.ctypes.data)
        for name, end in (("dec_hist", decoder), ("enc_hist", encoder)):
            if end is None or end.fresh:
                setattr(job, name, None)  # nothing to load
        status = STATUS[self._lib.lane_run(self._handle, ctypes.byref(job))]
        if status not in ("done", "reset"):
            raise RtlError(
                f"lane stopped with {status} after {job.clocks} clocks: {count} values, "
                f"{job.sums_taken} out, {job.out_words} words of payload out"
            )
        outcome = Outcome(status, int(job.clocks), redos=int(job.redos), error=int(job.dec_error))
        outcome.streaming = int(job.last_clock - job.first_clock) + 1
        outcome.strobes = list(job.strobes)
        if status == "reset":
            return outcome
        if decoder is not None:
            outcome.values = arrays["sums"][:count]
            outcome.decoder = LinkTables(arrays["dec_hist_out"], int(job.dec_new_shift))
        if encoder is not None:
            outcome.payload = arrays["out"][: job.out_words].tobytes()
            outcome.encoder = LinkTables(arrays["enc_hist_out"], int(job.enc_new_shift))
        return outcome
