"""A converted block under Verilator, with its ports as items and whole runs over arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from oscar_hdl.flow.tops import Value
from oscar_sim.verilator.build import DEFAULT_CACHE, Built, build

WORD = 32  # bits of a wide port's words


@dataclass(frozen=True)
class Port:
    """A port of a block: its bits, and whether it is an input."""

    name: str
    bits: int
    is_input: bool

    @property
    def dtype(self) -> np.dtype:
        """What Verilator keeps the port in; of a wide one, a word of it."""
        size = next((s for s in (8, 16, 32, 64) if self.bits <= s), WORD)
        return np.dtype(f"u{size // 8}")

    @property
    def words(self) -> int:
        """The items of `dtype` that hold the port: 1, or more for more than 64 bits."""
        return 1 if self.bits <= 64 else -(-self.bits // WORD)


class _Column(ctypes.Structure):
    _fields_ = (("port", ctypes.c_void_p), ("data", ctypes.c_void_p), ("size", ctypes.c_uint64))


@cache
def _load(file: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(file))
    library.model_new.restype = ctypes.c_void_p
    for name in ("model_delete", "model_settle", "model_clock", "model_run", "port_address"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
    library.port_address.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.port_address.restype = ctypes.c_void_p
    library.model_trace.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    library.model_traced.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64)]
    library.model_traced.restype = ctypes.c_void_p
    library.model_wave.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64]
    library.model_wave_end.argtypes = [ctypes.c_void_p]
    library.model_clock.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
    columns = [ctypes.POINTER(_Column), ctypes.c_uint64]
    library.model_run.argtypes = [ctypes.c_void_p, ctypes.c_uint64, *columns, *columns]
    return library


class Model:
    """One instance of a top, compiled unless that was done before; not to be shared between threads.

    top: a name of oscar_hdl.flow.tops.TOPS or module:function; parameters: of that function; harness: C++
    that is compiled in (see the package); wave: it can write waveforms, and is some slower. Raises ToolError
    when a tool is missing, or the block does not convert.
    """

    def __init__(
        self, top: str, *, harness: Path | None = None, cache: Path = DEFAULT_CACHE, wave: bool = False,
        **parameters: Value,
    ) -> None:  # fmt: skip
        self._handle: int | None = None
        self._wave = wave
        self.built: Built = build(top, parameters, harness=harness, cache=cache, wave=wave)
        self.library = _load(self.built.library)
        self.ports = {name: Port(name, bits, comes) for name, (comes, bits) in self.built.ports.items()}
        self._handle = self.library.model_new()
        self._stale = False
        self._views: dict[str, np.ndarray] = {}
        for n, port in enumerate(self.ports.values()):
            at = self.library.port_address(self._handle, n)
            raw = (ctypes.c_uint8 * (port.words * port.dtype.itemsize)).from_address(at)
            self._views[port.name] = np.frombuffer(raw, port.dtype)

    @property
    def handle(self) -> int:
        """The C++ object, for a harness."""
        assert self._handle is not None
        return self._handle

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.library.model_delete(self._handle)
            self._handle = None

    def _port(self, name: str) -> Port:
        if name not in self.ports:
            raise KeyError(f"no port called {name!r}; there are {', '.join(self.ports)}")
        return self.ports[name]

    def __setitem__(self, name: str, value: int) -> None:
        port = self._port(name)
        if not port.is_input or name == "clk":
            raise KeyError(f"{name!r} cannot be set: it is {'the clock' if port.is_input else 'an output'}")
        if not 0 <= int(value) < 1 << port.bits:
            raise ValueError(f"{name} has {port.bits} bits, got {value}")
        size = self._views[name].nbytes
        self._views[name][:] = np.frombuffer(int(value).to_bytes(size, "little"), port.dtype)
        self._stale = True

    def __getitem__(self, name: str) -> int:
        self._port(name)
        if self._stale:
            self.settle()
        return int.from_bytes(self._views[name].tobytes(), "little")

    def settle(self) -> None:
        """Let outputs follow inputs, without a clock."""
        self.library.model_settle(self.handle)
        self._stale = False

    def clock(self, clocks: int = 1) -> None:
        """Give so many rising edges."""
        self.library.model_clock(self.handle, clocks)
        self._stale = False

    def reset(self, clocks: int = 2) -> None:
        """Hold rst high for so many clocks."""
        self["rst"] = 1
        self.clock(clocks)
        self["rst"] = 0

    def run(
        self, inputs: Mapping[str, np.ndarray], outputs: Iterable[str], *, clocks: int | None = None
    ) -> dict[str, np.ndarray]:
        """Clock through arrays: item t of every input is there at the t-th edge; return what the edges saw.

        clocks: how many, by default the length of the inputs, which are equally long.
        Raises ValueError for a value that its port does not hold.
        """
        lengths = {len(array) for array in inputs.values()} | ({clocks} if clocks is not None else set())
        if len(lengths) != 1:
            raise ValueError(f"expected inputs of one length, got {sorted(lengths)}")
        (total,) = lengths
        given = {name: self._column(name, array) for name, array in inputs.items()}
        taken = {
            name: np.zeros((total, port.words) if port.words > 1 else total, port.dtype)
            for name, port in ((name, self._port(name)) for name in outputs)
        }
        columns = [
            (_Column * max(1, len(arrays)))(*(self._place(name, array) for name, array in arrays.items()))
            for arrays in (given, taken)
        ]
        self.library.model_run(self.handle, total, columns[0], len(given), columns[1], len(taken))
        self._stale = False
        return taken

    def trace(self, clocks: int) -> None:
        """Remember what all ports are at the next edges, so many of them, whoever gives the clocks."""
        self.library.model_trace(self.handle, clocks)

    def traced(self) -> dict[str, np.ndarray]:
        """Return what was remembered: an array for each port but clk, as `run` has them."""
        size = ctypes.c_uint64()
        at = self.library.model_traced(self.handle, ctypes.byref(size))
        kind = np.dtype([(p.name, p.dtype, (p.words,) if p.words > 1 else ()) for p in self.ports.values()])
        whole = np.frombuffer(ctypes.string_at(at, size.value), kind)
        return {name: whole[name].copy() for name in self.ports if name != "clk"}

    @contextmanager
    def waveform(self, file: Path, *, mhz: float) -> Iterator[None]:
        """Write all signals at every edge of the block into an FST file, a clock of 1/`mhz` us apart.

        Raises ValueError of a model that was made without `wave`.
        """
        if not self._wave:
            raise ValueError("expected a model that can write waveforms: make it with wave=True")
        self.library.model_wave(self.handle, str(file).encode(), round(1e6 / mhz))
        try:
            yield
        finally:
            self.library.model_wave_end(self.handle)

    def _place(self, name: str, array: np.ndarray) -> _Column:
        view = self._views[name]
        return _Column(view.ctypes.data, array.ctypes.data, view.nbytes)

    def _column(self, name: str, array: np.ndarray) -> np.ndarray:
        port = self._port(name)
        array = np.asarray(array)
        if not port.is_input or name == "clk":
            raise KeyError(f"{name!r} is no input")
        if port.words > 1:
            if array.ndim != 2 or array.shape[1] != port.words:
                raise ValueError(f"{name} takes rows of {port.words} words of 32 bits, got {array.shape}")
            over = array[:, -1] >> np.uint32(port.bits % WORD) if port.bits % WORD else array[:0]
        else:
            if array.ndim != 1:
                raise ValueError(f"{name} takes a value a clock, got {array.shape}")
            over = (
                (array < 0) | (array > np.uint64((1 << port.bits) - 1)) if array.dtype != bool else array[:0]
            )
        if np.any(over):
            raise ValueError(f"{name} has {port.bits} bits, got {array.min()}..{array.max()}")
        return np.ascontiguousarray(array, port.dtype)
